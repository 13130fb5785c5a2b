"""Three ways for a handler to have its effects once, however often its message comes. All use the handler's own
transaction.

- `message.once(session)`: a row with a unique key beside the effect. A repeat violates it.
- `advance(session, …)`: a change under the condition that the row still has the version the message was made for.
- `issue_token` by the producer and `take_token` by the handler: a token that can be deleted only once.

Each returns True if the work is to be done, so that `if message.once(session):` does it, and raises Repeat if it was
done before. The handler must let Repeat pass through its transaction, which has to roll back; the message is then
acknowledged and counted as a repeat. The functions take sessions and connections of SQLAlchemy, sync and async; with an
async one each returns an awaitable.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar, overload

from kodo_consumer.core.values.exceptions import Repeat, Retry, Unavailable
from kodo_consumer.core.values.infrastructure_faults import Fault, FaultKind, fault_of, lacks_table
from kodo_consumer.core.values.store import name_of
from kodoctl.errors import KodoctlError, error
from kodoctl.host.extras import needs_extra

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

    Sync = Session | Connection
    Async = AsyncSession | AsyncConnection

log = logging.getLogger("kodo.consumer")
T = TypeVar("T")
_QUIET: Final = 10.0  # seconds between two complaints
_complained: Final = [float("-inf")]
_NO_TABLE: Final = error("K742", "table not found")
_ADVICE: Final = "call kodo_consumer.dedup.create_tables(engine) for the tables of kodo_consumer.dedup, or migrate"


class AsyncWork(Coroutine[Any, Any, T]):
    """Awaitable work on an async session, which begins when it is awaited. Its truth value raises TypeError: a
    coroutine counts as true, and without `await` nothing would be done.
    """

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work

    def __bool__(self) -> NoReturn:
        raise TypeError("nothing is done yet: write `await` before it")

    def __await__(self) -> Generator[Any, None, T]:
        return self._work.__await__()

    def send(self, value: Any) -> Any:
        """Resumes the wrapped coroutine with a value, as Coroutine requires."""
        return self._work.send(value)

    def throw(self, *problem: Any) -> Any:
        """Raises an exception in the wrapped coroutine, as Coroutine requires."""
        return self._work.throw(*problem)

    def close(self) -> None:
        """Closes the wrapped coroutine, as Coroutine requires."""
        self._work.close()


def create_tables(engine: Engine | Connection) -> None:
    """Creates the tables of this module and of the workers' stores that the database lacks, and does not change
    existing ones; with a connection, the caller commits. Raises SQLAlchemyError. Migration tools find the tables in
    `kodo_consumer.adapters.stores.sql_tables.metadata`.
    """
    with needs_extra("database"):
        from kodo_consumer.adapters.stores.sql_tables import create_missing

    create_missing(engine)


@overload
def once(session: Sync, subscription: str, identity: str, effect: str | None = ...) -> Literal[True]: ...
@overload
def once(session: Async, subscription: str, identity: str, effect: str | None = ...) -> AsyncWork[Literal[True]]: ...
def once(session: Any, subscription: str, identity: str, effect: str | None = None) -> Any:
    """Records, in the session's transaction, that this message is done for this subscription, and returns True: the
    caller does the work now. With an async session, returns an awaitable that does so. See Message.once.

    `effect`: name by which a repeat is recognised; None: `identity`, which is recorded in any case. Raises Repeat if
    the message was done before; the transaction is then rolled back. Raises Unavailable if the database does not
    answer, is busy, lacks the table or a right, is neither SQLite nor PostgreSQL, or would keep the row when the
    transaction is rolled back; UsageError if `session` is none of SQLAlchemy. Other errors of SQLAlchemy pass.
    """

    def remember(sync: Any) -> Literal[True]:
        from kodo_consumer.adapters.stores.sql_tables import DONE, now_ms

        _check_undone(sync, DONE)
        told_by = name_of(identity if effect is None else effect)
        insert = _insert_once(sync, DONE).values(subscription=subscription, at=now_ms())
        _one_row_or_repeat(sync, insert.values(identity=told_by))
        if told_by != (name := name_of(identity)):
            _execute(sync, insert.values(identity=name))
        return True

    return _run(session, remember)


@overload
def forget(session: Sync, older_than: timedelta) -> int: ...
@overload
def forget(session: Async, older_than: timedelta) -> AsyncWork[int]: ...
def forget(session: Any, older_than: timedelta) -> Any:
    """Deletes the rows of `once` that are older than `older_than`, of all subscriptions, in the session's transaction,
    which the caller commits, and returns their number (an awaitable with an async session). No other code deletes these
    rows: only you know after which time no repeat of a message can come, of a recalled dead letter for example. Raises
    Unavailable if the database does not answer, is busy, or lacks the table or a right; UsageError as `once`.
    """

    def delete_old(sync: Any) -> int:
        from sqlalchemy import delete

        from kodo_consumer.adapters.stores.sql_tables import DONE, now_ms

        age = round(older_than.total_seconds() * 1000)
        return int(_execute(sync, delete(DONE).where(DONE.c.at < now_ms() - age)).rowcount)

    return _run(session, delete_old)


@overload
def advance(
    session: Sync, table: Any, where: Mapping[str, Any], *, version: int, values: Mapping[str, Any], column: str = ...
) -> Literal[True]: ...
@overload
def advance(
    session: Async, table: Any, where: Mapping[str, Any], *, version: int, values: Mapping[str, Any], column: str = ...
) -> AsyncWork[Literal[True]]: ...
def advance(
    session: Any,
    table: Any,
    where: Mapping[str, Any],
    *,
    version: int,
    values: Mapping[str, Any],
    column: str = "version",
) -> Any:
    """Changes one row in the session's transaction if it has this version, adds one to the version, and returns True
    (an awaitable with an async session).

    `table`: a Table or a mapped class; `where`: the key of the row, by column names; `values`: new values, which may be
    SQL expressions; `column`: the column of the version, a whole number. Raises Repeat if the row has a later version:
    this or another change was made before. Raises Retry if the row is missing, has an earlier version (an earlier
    change is still to come), or came to this version only while it was looked for. Raises Unavailable and UsageError as
    `once`, but for any database. Repeat and Retry roll the transaction back.
    """

    def change(sync: Any) -> Literal[True]:
        from sqlalchemy import inspect, select, update

        found = inspect(table, raiseerr=False)
        target = getattr(found, "local_table", table)
        _check_undone(sync, target)
        is_it = [target.c[name] == value for name, value in where.items()]
        counted = {**values, column: version + 1}
        statement = update(target).where(*is_it, target.c[column] == version).values(counted)
        if _execute(sync, statement).rowcount:
            return True
        at = _execute(sync, select(target.c[column]).where(*is_it)).scalar()
        sync.rollback()
        if at is None:
            raise Retry(why=f"its {target.name} is not there yet")
        if at < version:
            raise Retry(why=f"made for version {version} of its {target.name}, which is at {at}")
        if at == version:  # another transaction committed the earlier change between the two statements
            raise Retry(why=f"made for version {version} of its {target.name}, which has come to it just now")
        raise Repeat(f"{target.name} is at version {at}, past {version}")

    return _run(session, change)


@overload
def issue_token(session: Sync, token: str | None = ...) -> str: ...
@overload
def issue_token(session: Async, token: str | None = ...) -> AsyncWork[str]: ...
def issue_token(session: Any, token: str | None = None) -> Any:
    """Stores a one-time token (random if `token` is None or empty) in the session's transaction, and returns the token
    (an awaitable with an async session). Send it with a message after the commit. Raises SQLAlchemy's IntegrityError if
    the token is stored already, its CompileError for a database other than SQLite and PostgreSQL, and Unavailable and
    UsageError otherwise as `once`.
    """
    issued = token or secrets.token_urlsafe(16)

    def issue(sync: Any) -> str:
        from sqlalchemy import insert

        from kodo_consumer.adapters.stores.sql_tables import TOKENS, now_ms

        _check_undone(sync, TOKENS)
        _execute(sync, insert(TOKENS).values(token=name_of(issued), at=now_ms()))
        return issued

    return _run(session, issue)


@overload
def take_token(session: Sync, token: str) -> Literal[True]: ...
@overload
def take_token(session: Async, token: str) -> AsyncWork[Literal[True]]: ...
def take_token(session: Any, token: str) -> Any:
    """Deletes a token in the session's transaction, and returns True (an awaitable with an async session): the caller
    does the work now. A token can be taken only once. Raises Repeat, and rolls back, if there is no such token: one
    that was taken looks like one that was never issued. Raises Unavailable and UsageError as `once`, but for any
    database.
    """

    def take(sync: Any) -> Literal[True]:
        from sqlalchemy import delete

        from kodo_consumer.adapters.stores.sql_tables import TOKENS

        _check_undone(sync, TOKENS)
        _one_row_or_repeat(sync, delete(TOKENS).where(TOKENS.c.token == name_of(token)))
        return True

    return _run(session, take)


def _run(session: Any, work: Callable[[Any], T]) -> Any:
    """Calls `work` with the session and returns its result; for an async session, an awaitable that calls `work` with
    its sync half.
    """
    if (run_sync := getattr(session, "run_sync", None)) is not None:
        return AsyncWork(run_sync(work))
    with needs_extra("database"):
        from kodo_consumer.adapters.stores.callers_transaction import check_session

    check_session(session)
    return work(session)


def _check_undone(sync: Any, table: Any) -> None:
    """Raises Unavailable if a rollback would not undo changes of the table: that is the operator's setting, and no
    failure of the message.
    """
    from kodo_consumer.adapters.stores.callers_transaction import why_not_undone

    with _or_unavailable():
        why = why_not_undone(sync, table)
    if why:
        raise _unavailable(Fault(FaultKind.LACKING, "database", why))


def _dialect(sync: Any) -> Any:
    with _or_unavailable():
        return sync.dialect if hasattr(sync, "dialect") else sync.connection().dialect


def _insert_once(sync: Any, table: Any) -> Any:
    """INSERT that does nothing for a key that exists. Raises Unavailable for a database other than SQLite and
    PostgreSQL: that is the operator's setting, and no failure of the message.
    """
    from kodo_consumer.adapters.stores.sql_tables import insert_once

    try:
        return insert_once(_dialect(sync), table)
    except KodoctlError as problem:
        one = problem.diagnostics[0]
        raise _unavailable(Fault(FaultKind.LACKING, "database", f"{one.code} {one.summary}: {one.detail}")) from None


def _one_row_or_repeat(sync: Any, statement: Any) -> None:
    if not _execute(sync, statement).rowcount:
        sync.rollback()  # a handler that swallows the exception must not commit either
        raise Repeat("was done before")


def _execute(sync: Any, statement: Any) -> Any:
    with _or_unavailable():
        return sync.execute(statement, execution_options={"preserve_rowcount": True})


@contextmanager
def _or_unavailable() -> Iterator[None]:
    """Context manager that turns a fault of the database into Unavailable, because it is no failure of the message: the
    message waits, and no attempt is counted.
    """
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as problem:
        if (fault := fault_of(problem)) is None:
            raise
        raise _unavailable(fault, advice=_ADVICE if lacks_table(problem) else "") from None


def _unavailable(fault: Fault, *, advice: str = "") -> Unavailable:
    """Returns the error to raise for a fault, and logs the fault once in 10 s at most, because every waiting message
    has the same.
    """
    now = time.monotonic()
    if now - _complained[0] >= _QUIET:
        _complained[0] = now
        more = f": {advice}" if advice else ""
        log.warning("the database of a handler cannot be used, its messages wait: %s%s", fault.text, more)
    return Unavailable(f"{fault.what} ({_NO_TABLE.code} {_NO_TABLE.summary})" if advice else str(fault))
