"""Store in a database: SQLite for the workers of one machine, PostgreSQL for several machines; one implementation for
both.

Each request is one transaction. It inserts marks before it reads the done messages: of two workers with the same
message, one waits for the other's commit and then reads that worker's rows.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import (
    Connection,
    Engine,
    and_,
    bindparam,
    create_engine,
    delete,
    event,
    func,
    not_,
    select,
    union,
    update,
)
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from kodo_consumer.adapters.stores.sql_tables import (
    DONE,
    HANDLED,
    LEASES,
    RUNS,
    STARTED,
    create_missing,
    insert_once,
    now_ms,
    upsert,
)
from kodo_consumer.core.limits.lease_allocator import LimitAccount
from kodo_consumer.core.values.infrastructure_faults import words
from kodo_consumer.core.values.lease_protocol import ConcurrencySpec, LeaseRequest
from kodo_consumer.core.values.poison import CrashMark
from kodo_consumer.core.values.store import MOST_PRUNED, Exchange, StoreAnswer, StoreDownError, name_of

if TYPE_CHECKING:
    from kodo_consumer.core.values.lease_protocol import LeaseGrant

log = logging.getLogger("kodo.consumer")
T = TypeVar("T")
PATIENCE: Final = 2.0
"""Seconds that a statement may take on PostgreSQL, or may wait for a lock on either database, before the store counts
as down.
"""
_CONNECT: Final = 3  # seconds
_BUNDLE: Final = 500  # identities in one statement
_PRUNE_BUNDLE: Final = 2_000  # rows in one transaction: nobody waits long for its locks
_OLD_RUN: Final = 86_400_000  # ms after which a silent run is forgotten
_OLD_ACCOUNT: Final = 3_600_000  # ms after which an account is forgotten that is as good as new
_OLD_MARK: Final = 7 * 86_400_000  # ms after which a mark is, whose message never came again


def engine_of(url: URL) -> Engine:
    """New SQLAlchemy engine, which does not connect yet. `url`: of SQLite, or of PostgreSQL with psycopg. Statements
    fail after 2 s (PATIENCE), on SQLite only while they wait for a lock; PostgreSQL's server counts the time, so a
    statement of a frozen server does not fail. SQLite gets a write-ahead log, so that readers and the writer do not
    wait for each other: each new connection sets that in the file. Raises ImportError if the driver is not installed.

    On PostgreSQL, settings (among them asynchronous commit) last for one transaction only and no statement is prepared
    on the server: a pooler may give the connection to an application next, whose commits need stricter durability.
    """
    if url.get_backend_name() != "sqlite":
        return _on_postgresql(url)
    engine = create_engine(url, connect_args={"timeout": PATIENCE, "check_same_thread": False})

    def set_up(connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL"):
            cursor.execute(statement)
        cursor.close()
        connection.commit()

    event.listen(engine, "connect", set_up)
    return engine


def _on_postgresql(url: URL) -> Engine:
    limit = str(round(PATIENCE * 1000))
    settings = {"statement_timeout": limit, "lock_timeout": limit, "synchronous_commit": "off"}
    statement = select(*(func.set_config(name, value, True) for name, value in settings.items()))  # SQL's
    arguments = {"connect_timeout": _CONNECT, "application_name": "kodo-consumer", "prepare_threshold": None}
    engine = create_engine(url, connect_args=arguments)
    event.listen(engine, "begin", lambda connection: connection.execute(statement))
    return engine


class SqlStore:
    """Implementation of kodo_consumer.core.values.store.LeaseStore by a database, for one subscription and one worker
    (`run`). Identities are names as `name_of` makes them. Times are the database's. Its methods raise StoreDownError,
    except `interrupt` and `close`. Thread-safe. The constructor does not connect; it raises as `engine_of`, and
    KodoctlError (K743) for a database other than SQLite and PostgreSQL.
    """

    def __init__(self, url: URL, subscription: str, run: str) -> None:
        self.run = run
        self._subscription = subscription
        self._engine = engine_of(url)
        self._busy: set[Any] = set()  # connections of the driver that work
        mine = {"subscription": subscription, "run": run}
        dialect = self._engine.dialect
        names: Any = bindparam("names", expanding=True)
        self._insert_done = insert_once(dialect, HANDLED).values(subscription=subscription, at=now_ms())
        self._insert_started = (
            insert_once(dialect, STARTED)
            .values(**mine, alone=False, crashes=0, at=now_ms())
            .returning(STARTED.c.identity)
        )
        self._unmark = delete(STARTED).where(*_is(STARTED, subscription), STARTED.c.identity.in_(names), self._is_mine)
        self._unmark_all = delete(STARTED).where(*_is(STARTED, subscription), STARTED.c.identity.in_(names))
        self._find_done = union(  # what `message.once` wrote where the handlers' database is this one
            *(
                select(table.c.identity).where(*_is(table, subscription), table.c.identity.in_(names))
                for table in (HANDLED, DONE)
            )
        )
        columns = (STARTED.c.identity, STARTED.c.run, STARTED.c.alone, STARTED.c.crashes)
        self._find_marks = select(*columns).where(*_is(STARTED, subscription), STARTED.c.identity.in_(names))

        self._open_account = insert_once(dialect, LEASES).values(subscription=subscription, account="", until=0)
        accounts = select(LEASES.c.gate, LEASES.c.account).where(*_is(LEASES, subscription), LEASES.c.gate.in_(names))
        self._find_accounts = accounts.order_by(LEASES.c.gate).with_for_update()
        changed: dict[str, Any] = {"account": bindparam("account"), "until": bindparam("until")}
        self._keep_account = (
            update(LEASES).where(*_is(LEASES, subscription), LEASES.c.gate == bindparam("name")).values(changed)
        )

    @property
    def _is_mine(self) -> Any:
        return STARTED.c.run == self.run

    def create(self) -> None:
        """Creates the missing tables; several workers may call it at once. Then executes statements of later work once
        (those of `exchange`, `take_over` and `grant`, and deletions) and rolls them back, so that a missing right shows
        at the start. Raises StoreDownError if either fails. The rehearsal is repeated once as `exchange` is.
        """
        for last in (False, False, True):
            try:
                create_missing(self._engine)
            except SQLAlchemyError as problem:
                if last:
                    raise StoreDownError(words(problem)) from problem
            else:
                break
        _with_another_try(self._rehearse)

    def _rehearse(self) -> None:
        """Executes each kind of statement, for names that no message has, and rolls back."""
        one, other = (f"kodo-rehearsal:{number}:{self.run}" for number in (1, 2))
        with self._transaction() as connection:
            self._exchange(connection, Exchange(done=[one], starting=[one, other]))
            self._take_over(connection, other, CrashMark(self.run), CrashMark(self.run))
            self._grant(connection, {one: LeaseRequest(one, ConcurrencySpec(1), wanted=1)})
            for table in (HANDLED, STARTED, RUNS, LEASES):
                connection.execute(delete(table).where(*_is(table, one)))
            connection.rollback()

    def exchange(self, request: Exchange) -> StoreAnswer:
        """Records the done messages, removes this run's crash marks of done and ended ones, and marks the starting
        ones, in one transaction. Returns which starting messages are done (any run's marks of these are removed), and
        the marks of those that an earlier start has marked, of this run or another. Repeated once after a deadlock, or
        if the connection was lost: if the first try was committed all the same, its own marks count as earlier ones.
        """

        def exchange() -> StoreAnswer:
            with self._transaction() as connection:
                return self._exchange(connection, request)

        return _with_another_try(exchange)

    def grant(self, requests: Sequence[LeaseRequest]) -> Sequence[LeaseGrant]:
        """Returns one grant for each request, in order of the stored names (not in that of `requests`, whose names must
        differ), from one transaction. Accounts are locked in this order, so that workers do not deadlock. An account
        that cannot be read begins anew, which is logged. Repeated once as `exchange` is.
        """

        def grant() -> Sequence[LeaseGrant]:
            with self._transaction() as connection:
                return self._grant(connection, {name_of(request.name): request for request in requests})

        return _with_another_try(grant)

    def _grant(self, connection: Connection, requests: Mapping[str, LeaseRequest]) -> list[LeaseGrant]:
        """Changes one row for each account. It begins with an insert, because a transaction of SQLite that reads first
        may be refused its write later.
        """
        grants, changes = [], []
        for names in _bundles(sorted(requests)):
            connection.execute(self._open_account, [{"gate": name} for name in names])
            rows = connection.execute(self._find_accounts, {"names": names})
            accounts = {row.gate: row.account for row in rows}
            now = self._now(connection)
            for name in names:
                request = requests[name]
                account, granted = _grant_leases(accounts[name], self.run, request, now)
                grants.append(granted)
                until = round(account.kept_until(request.terms) * 1000)
                changes.append({"name": name, "account": account.to_json(), "until": until})
        if changes:
            connection.execute(self._keep_account, changes)
        else:
            self._now(connection)
        return grants

    def _now(self, connection: Connection) -> float:
        return float(connection.scalars(select(now_ms())).one()) / 1000

    def _exchange(self, connection: Connection, request: Exchange) -> StoreAnswer:
        for names in _bundles(request.done):
            connection.execute(self._insert_done, [{"identity": name} for name in names])
        for names in _bundles([*request.done, *request.ended]):
            connection.execute(self._unmark, {"names": names})
        done: set[str] = set()
        marks: dict[str, CrashMark] = {}
        for names in _bundles(request.starting):
            self._start(connection, names, done, marks)
        return StoreAnswer(frozenset(done), marks)

    def _start(self, connection: Connection, names: list[str], done: set[str], marks: dict[str, CrashMark]) -> None:
        rows = [{"identity": name} for name in sorted(names)]  # in one order everywhere: nobody waits in a circle
        mine = set(connection.scalars(self._insert_started, rows))
        known = set(connection.scalars(self._find_done, {"names": names}))
        if known:  # whoever had started them: a crash after the effect leaves its mark
            connection.execute(self._unmark_all, {"names": list(known)})
        done |= known
        others = [name for name in names if name not in mine and name not in known]
        if not others:
            return
        for identity, run, alone, crashes in connection.execute(self._find_marks, {"names": others}):
            marks[identity] = CrashMark(run, alone, crashes)
        if ended_meanwhile := [name for name in others if name not in marks]:
            self._start(connection, ended_meanwhile, done, marks)

    def take_over(self, identity: str, found: CrashMark, mark: CrashMark) -> bool:
        """Replaces the crash mark `found` of a message by `mark` in one UPDATE, which is not repeated. Returns False,
        and changes nothing, if the message has another mark now, or none.
        """
        with self._transaction() as connection:
            return self._take_over(connection, identity, found, mark)

    def _take_over(self, connection: Connection, identity: str, found: CrashMark, mark: CrashMark) -> bool:
        was = (STARTED.c.run == found.run, STARTED.c.alone == found.alone, STARTED.c.crashes == found.crashes)
        changes = {"run": mark.run, "alone": mark.alone, "crashes": mark.crashes, "at": now_ms()}
        statement = update(STARTED).where(*_is(STARTED, self._subscription), STARTED.c.identity == identity, *was)
        return connection.execute(statement.values(changes)).rowcount == 1

    def beat(self) -> Mapping[str, int]:
        """Adds one beat (sign of life) of this run. Returns the number of beats by run, for all runs of the
        subscription that have neither left nor been deleted by `prune`. One transaction.
        """
        statement = upsert(self._engine.dialect, RUNS).values(
            run=self.run, subscription=self._subscription, beat=1, at=now_ms()
        )
        statement = statement.on_conflict_do_update(
            index_elements=[RUNS.c.run], set_={"beat": RUNS.c.beat + 1, "at": now_ms()}
        )
        with self._transaction() as connection:
            connection.execute(statement)
            rows = connection.execute(select(RUNS.c.run, RUNS.c.beat).where(*_is(RUNS, self._subscription)))
            return {row.run: row.beat for row in rows}

    def prune(self, keep: int, seconds: float) -> int:
        """Deletes ids of messages that workers first recorded as done more than `seconds` ago, except the newest `keep`
        (at least one). Also deletes runs silent for a day, crash marks older than 7 days of runs that are gone, and
        accounts of limits that have been as good as new for an hour; all of this subscription. Returns the number of
        deleted ids, 20,000 (MOST_PRUNED) or a few more at most. Rows of `message.once` stay. Each bundle of about 2,000
        is a transaction (those before an error stay deleted) and a range of the index, because a database without
        statistics would run a subquery again for each row.
        """
        mine, at = _is(HANDLED, self._subscription), HANDLED.c.at
        with self._transaction() as connection:
            self._forget_the_old(connection)
            since = connection.scalar(select(at).where(*mine).order_by(at.desc()).offset(max(0, keep - 1)).limit(1))
            old = connection.execute(select(now_ms())).scalar_one() - round(seconds * 1000)
        total = 0
        while since is not None and total < MOST_PRUNED:
            prunable = (*mine, at < min(since, old))
            with self._transaction() as connection:
                end = connection.scalar(select(at).where(*prunable).order_by(at).offset(_PRUNE_BUNDLE - 1).limit(1))
                bundle = prunable if end is None else (*prunable, at <= end)
                total += connection.execute(delete(HANDLED).where(*bundle)).rowcount
            if end is None:
                break
        return total

    def _forget_the_old(self, connection: Connection) -> None:
        connection.execute(delete(RUNS).where(*_is(RUNS, self._subscription), RUNS.c.at < now_ms() - _OLD_RUN))
        lives = select(RUNS.c.run).scalar_subquery()
        over = (LEASES.c.until > 0, LEASES.c.until < now_ms() - _OLD_ACCOUNT)
        connection.execute(delete(LEASES).where(*_is(LEASES, self._subscription), *over))
        old = and_(*_is(STARTED, self._subscription), STARTED.c.at < now_ms() - _OLD_MARK)
        connection.execute(delete(STARTED).where(old, not_(STARTED.c.run.in_(lives))))

    def leave(self) -> None:
        """Deletes the crash marks and the beats of this run in one transaction. Its records of done messages stay."""
        with self._transaction() as connection:
            connection.execute(delete(STARTED).where(*_is(STARTED, self._subscription), self._is_mine))
            connection.execute(delete(RUNS).where(RUNS.c.run == self.run))

    def done_among(self, names: Sequence[str]) -> frozenset[str]:
        """Returns those of `names` (message identities as `name_of` makes them) that are recorded as done for this
        subscription, by workers or by `message.once`. Marks nothing, so callers need not be workers. Raises
        StoreDownError.
        """
        with self._transaction() as connection:
            found = [connection.scalars(self._find_done, {"names": part}).all() for part in _bundles(names)]
        return frozenset(name for part in found for name in part)

    def count(self) -> tuple[int, int]:
        """Returns (number of messages that workers remember as done, number of crash marks) of the subscription, for
        people. Rows of `message.once` are left out.
        """
        with self._transaction() as connection:
            counts = [
                connection.scalar(select(func.count()).select_from(table).where(*_is(table, self._subscription)))
                for table in (HANDLED, STARTED)
            ]
        return counts[0] or 0, counts[1] or 0

    def interrupt(self) -> None:
        """Interrupts the transactions of other threads that are under way, whether they hang or not. A thread goes on
        if it still waits for its connection, or if it creates missing tables (in `create`). An interrupted call raises
        StoreDownError, unless it is repeated once on a new connection, as `exchange`, `grant` and the rehearsal of
        `create` are on PostgreSQL. It shuts PostgreSQL's connection down, because a frozen server answers no cancel
        request. Never raises.
        """
        for connection in list(self._busy):
            with suppress(Exception):  # it may have come to its end meanwhile
                if hasattr(connection, "interrupt"):
                    connection.interrupt()
                else:
                    with socket.socket(fileno=os.dup(connection.pgconn.socket)) as other_end:
                        other_end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the pooled connections."""
        self._engine.dispose()

    @contextmanager
    def _or_down(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, OSError) as problem:
            raise StoreDownError(words(problem)) from problem

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._or_down(), self._engine.connect() as connection:
            driver = connection.connection.driver_connection
            self._busy.add(driver)
            try:
                with connection.begin():  # which may hang already
                    yield connection
            finally:
                self._busy.discard(driver)


def _grant_leases(kept: str, run: str, request: LeaseRequest, now: float) -> tuple[LimitAccount, LeaseGrant]:
    """Account of the stored text, after the grant, and the grant. An unreadable text counts as a new account, because
    it must not stop all workers.
    """
    try:
        account = LimitAccount.from_json(kept)
        return account, account.grant(run, request, now)
    except Exception as problem:  # noqa: BLE001  # which one depends on the text
        log.error("limits: %s in %s is unreadable and begins anew: %s", request.name, LEASES.name, problem)  # noqa: TRY400
        account = LimitAccount()
        return account, account.grant(run, request, now)


def _with_another_try(call: Callable[[], T]) -> T:
    try:
        return call()
    except StoreDownError as problem:
        if not _worth_another_try(problem.__cause__):
            raise
        return call()


def _worth_another_try(problem: BaseException | None) -> bool:
    """True if the connection was lost, as after a restart of the server, or if two transactions waited for each other."""
    if not isinstance(problem, DBAPIError):
        return False
    return problem.connection_invalidated or getattr(problem.orig, "sqlstate", None) in {"40001", "40P01"}


def _is(table: Any, subscription: str) -> tuple[Any, ...]:
    return (table.c.subscription == subscription,)


def _bundles(names: Sequence[str]) -> Iterator[list[str]]:
    for at in range(0, len(names), _BUNDLE):
        yield list(names[at : at + _BUNDLE])
