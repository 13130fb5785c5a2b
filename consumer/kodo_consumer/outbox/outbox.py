"""Writing side of the outbox: an application adds rows in its own transaction.

The rows of a key are sent in the order in which they were written, whatever their ids are: rows sort by the millisecond
of their creation, then by id. Generated ids ascend within a process; ids of callers, such as `order-9` and `order-10`,
need not. So a row with a caller's id and the next row of its key never share a millisecond.
"""

from __future__ import annotations

import itertools
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Required, TypedDict, TypeVar, Unpack, overload

from sqlalchemy import BigInteger, ColumnElement, Connection, String, cast, insert, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.sql.functions import FunctionElement

from kodo_consumer.adapters.stores.callers_transaction import check_session, why_not_undone
from kodo_consumer.adapters.stores.sql_tables import now_ms
from kodo_consumer.adapters.tracing.setup import Wanted, carry_span
from kodo_consumer.core.checks.message_validation import CheckedMessage, MessageValidator, NewMessage, message_arguments
from kodo_consumer.core.values.envelope import Duration
from kodo_consumer.core.values.object_use import misuse_error
from kodo_consumer.outbox.row_filter import RowStatus
from kodo_consumer.outbox.table import DIALECTS, PULSAR, TABLE
from kodo_consumer.outbox.target_topics import OutboxTopics
from kodo_consumer.runtime.readable_errors import ReadableErrors
from kodo_consumer.runtime.settings import read_settings
from kodo_consumer.sending.environment import ConnectionOptions, Environment
from kodo_consumer.sending.send_hooks import Draft, SendHook, SendHooks
from kodoctl.errors import UsageError, error
from kodoctl.text.escaping import one_line

if TYPE_CHECKING:
    from sqlalchemy.sql.dml import ReturningInsert

    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.wire_texts import PropertyValue

RowHook = TypeVar("RowHook", bound=Callable[[CheckedMessage], None])
_LONGEST_DELAY: Final = 1_000 * 365 * 86_400_000  # ms: what is later counts as held
_MOST: Final = {"app": 120, "biz_code": 120, "env": 120, "topic": 255, "id": 64}  # characters, as the columns have them
_OPTIONS: Final = frozenset({"key", "properties", "delay", "id"})  # of a Draft for a row
_COUNTER: Final = itertools.count()  # of this process: its rows of one millisecond ascend
_APART: Final = 0.002  # seconds, of which one millisecond begins for certain
_MOST_KEYS: Final = 1_000  # keys that are remembered, before those are forgotten that no longer matter


class RowArguments(TypedDict, total=False):
    """Arguments of `Outbox.statement` besides `dialect`: those of `Outbox.add`, without `session` and `id`."""

    topic: Required[str]
    payload: Required[Any]
    key: str | None
    properties: Mapping[str, PropertyValue] | None
    biz_code: str
    delay: str | int


class Outbox:
    """Writes messages into the outbox table. `app`: name of the writing application; `env`: environment that the
    messages are for; "": any; `send_targets`: topics of the topology; `clock`: for tests; None: rows become due by the
    clock of the database, as for relays; `traces`: whether messages carry the caller's span, as the setting says.
    Thread-safe. Rows with ids of the caller's keep the order of their key only if one object writes all of them.

    Without `send_targets` messages are not checked against a topology, and none is encoded as Avro: the relay then
    marks rows that the topology does not allow as failed.
    """

    def __init__(
        self,
        *,
        app: str = "",
        env: str = "",
        send_targets: OutboxTopics | None = None,
        clock: Clock | None = None,
        traces: Wanted = "auto",
    ) -> None:
        self._app, self._env, self._send_targets = app, env, send_targets
        self._clock, self._order = clock, CreationOrder()
        self._hooks, self._readable = SendHooks(moments=("send", "publish")), ReadableErrors()
        self._hooks.add("publish", partial(carry_span, traces))

    @classmethod
    def load(cls, path: str | Path, *, app: str = "", **place: Unpack[ConnectionOptions]) -> Outbox:
        """Returns an outbox that refuses messages which the topology file does not allow; later changes of the file do
        not count. Opens no connection. `app`: name of the writing application, which its rows carry. `place`: options
        as in ConnectionOptions, which only choose the environment of the file here: that of `env`, else of KODOCTL_ENV,
        else of the context, the current one only if no address of the admin API is given. Rows are for this
        environment; for any if the file is loaded without one. Raises KodoctlError for a wrong file, options or
        settings, and if the file has environments and none is named.
        """
        with ReadableErrors(path) as readable:
            surroundings = Environment.of(**place)
            topology = surroundings.topology(path)
            traces = read_settings(surroundings.environ, surroundings.folder).traces
        outbox = cls(app=app, env=topology.environment or "", send_targets=OutboxTopics(topology), traces=traces)
        outbox._readable = readable
        return outbox

    @overload
    def interceptor(self, moment: Literal["send"], /) -> Callable[[SendHook], SendHook]: ...

    @overload
    def interceptor(self, moment: Literal["publish"], /) -> Callable[[RowHook], RowHook]: ...

    def interceptor(self, moment: Literal["send", "publish"], /) -> Callable[[Any], Any]:
        """Adds a hook before a row is checked ("send"), or after that, before it is written ("publish"), given as a
        decorator, as Producer.interceptor does; none may be async. `add` and `statement` call the hooks. The Draft of
        "send" has the options key, properties, delay and id. A hook "publish" returns None, because receipts come to
        the relay, in another process; its message has the id "" if the database is to make one.
        """

        def take(hook: Any) -> Any:
            self._hooks.add(moment, hook)
            return hook

        return take

    def add(  # noqa: PLR0913
        self,
        session: Session | scoped_session[Any] | Connection,
        *,
        topic: str,
        payload: Any,
        key: str | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
        biz_code: str = "",
        delay: str | int = 0,
        id: str | None = None,  # noqa: A002  # the word of the message property
    ) -> str:
        """Adds a message to the caller's transaction, and returns the identity of the message (`kodo-id`). A relay
        sends the message after the transaction commits; a rollback removes it.

        `topic`: a ground topic of the topology, followed by `-LEVEL` for a level other than L1. A payload that is not
        bytes is sent as JSON, to an Avro topic as Avro, and None as a tombstone; values of properties that are true,
        false or numbers are written as JSON writes them. `key`: None and "": none. `biz_code`: kind of business, which
        chooses the backoff; `delay`: earliest time of the send, as `10s` or ms from now, by the database's clock; `id`:
        the identity; None and "": a new one. Blocks for the INSERT, and before it up to 2 ms if rows of the key have
        ids of the caller's.

        Raises UsageError for anything that the topology, the table or a message does not allow, except for its size,
        which the relay checks, and if the session has no transaction that can be rolled back; InvalidFileError for a
        payload schema that cannot be used; SQLAlchemyError, such as for an `id` that the table has; errors of hooks.
        """
        with self._readable:
            if hasattr(session, "run_sync"):  # its `execute` would do nothing, and nobody would hear of it
                detail = "session is async: `await session.run_sync(lambda session: outbox.add(session, …))`"
                raise UsageError(error("K730", "not an argument of a message", detail))
            check_session(session)
            values = self._values(
                topic=topic, payload=payload, key=key, properties=properties, biz_code=biz_code, delay=delay, id=id
            )
            if why := why_not_undone(session, TABLE):
                raise misuse_error(f"session: {why}")
            with self._order.writing(topic, values["key"], own_id=isinstance(values["id"], str)):
                return str(session.execute(_insert(values)).scalar_one())

    def statement(self, dialect: str, **message: Unpack[RowArguments]) -> tuple[str, dict[str, Any]]:
        """Returns the INSERT that `add` would execute, and its parameters, to be executed once, and at once, by a
        cursor that is not SQLAlchemy's, in the caller's transaction. Parameters are written as `%(name)s`: cursors of
        psycopg and of Django take them so, those of the module sqlite3 do not. The statement returns one row with the
        identity of the message. `dialect`: `postgresql` or `sqlite`.

        Nothing checks that the caller is in a transaction. Raises UsageError as `add` does, for another dialect, and
        for an `id`, also if a hook gives one.
        """
        with self._readable:
            if dialect not in DIALECTS:
                detail = f"dialect: {one_line(dialect, 60)} is none of {', '.join(DIALECTS)}"
                raise UsageError(error("K730", "not an argument of a message", detail))
            if "id" in message:
                detail = "id: `statement` takes none, because it cannot keep the order of ids of your own; use `add`"
                raise UsageError(error("K730", "not an argument of a message", detail))
            values = self._values(**message)
            if isinstance(values["id"], str):
                raise UsageError(error("K735", "invalid interceptor", "a statement takes no id; use `add`"))
            with self._order.writing(message["topic"], values["key"], own_id=False):
                compiled = _insert(values).compile(dialect=DIALECTS[dialect](paramstyle="pyformat"))
            return str(compiled), dict(compiled.params)

    def _values(
        self,
        *,
        topic: str,
        payload: Any,
        key: str | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
        biz_code: str = "",
        delay: str | int = 0,
        id: str | None = None,  # noqa: A002  # the word of the message property
    ) -> dict[str, Any]:
        """Values of the columns of a new row. Raises UsageError, as `add` does."""
        if self._hooks.needs_drafts:
            draft = self._hooks.before(Draft(payload, key=key, properties=properties, delay=delay, id=id))
            options: dict[str, Any] = {"key": None, "properties": None, "delay": 0, "id": None, **draft.options}
            if more := sorted(options.keys() - _OPTIONS):
                raise UsageError(error("K735", "invalid interceptor", f"a row has no option {', '.join(more)}"))
            payload, key, properties = draft.payload, options["key"], options["properties"]
            delay, id = options["delay"], options["id"]  # noqa: A001
        key = message_arguments(key=key, id=id, topic=topic, biz_code=biz_code, app=self._app, env=self._env)
        form = MessageValidator() if self._send_targets is None else self._send_targets.form(topic)
        body, given = form.encode(payload), form.check_properties(properties)
        if self._hooks.prepare(CheckedMessage(NewMessage(id or "", body, given, key), topic, form)):
            detail = "a function for the outcome would never be called: receipts come to the relay"
            raise UsageError(error("K735", "invalid interceptor", detail))
        row = {
            "id": id or "", "app": self._app, "biz_code": biz_code, "protocol": PULSAR,
            "env": self._env, "topic": topic, "key": key, "body": body,
            "properties": json.dumps(given, ensure_ascii=False), "retry_count": 0,
            "status": RowStatus.TO_SEND, "version": 0, "last_error": None,
        }  # fmt: skip
        if problems := list(_unfit(row)):
            raise UsageError(*problems)
        now = now_ms() if self._clock is None else literal(self._clock.wall(), BigInteger)
        return {**row, "id": id or row_id(now), "next_push_at": now + _ms(delay), "created_at": now}


def _insert(values: Mapping[str, Any]) -> ReturningInsert[tuple[str]]:
    return insert(TABLE).values(values).returning(TABLE.c.id)


def _ms(delay: str | int) -> int:
    try:
        found = Duration.parse(delay) if isinstance(delay, str) else int(delay)
    except (ValueError, TypeError, OverflowError) as problem:
        raise UsageError(error("K724", "row refused", f"delay: {one_line(problem)}; write `10s`, or ms")) from None
    if found < 0:
        raise UsageError(error("K724", "row refused", f"delay: {delay} is in the past"))
    if found > _LONGEST_DELAY:
        raise UsageError(error("K724", "row refused", f"delay: {one_line(delay, 60)} is more than 1,000 years"))
    return int(found)


def _unfit(row: Mapping[str, Any]) -> list[Any]:
    """Findings, one for each column, if the table cannot store the row. PostgreSQL would refuse such a row, SQLite
    would not.
    """
    found = [
        error("K724", "row refused", f"{name}: {len(row[name])} characters, {most} are the most")
        for name, most in _MOST.items()
        if len(row[name]) > most
    ]
    texts = [name for name in ("app", "biz_code", "env", "topic", "key", "id") if "\x00" in row[name]]
    return found + [error("K724", "row refused", f"{name}: a NUL character cannot be stored") for name in texts]


class row_id(FunctionElement[str]):  # noqa: N801  # reads as the SQL function it is
    """SQL expression of a unique row id, 32 hex digits: `now` in ms since the epoch (12), a counter of the process (8),
    random digits (12). Each row needs an object of its own.

    `now` is the database's clock, which all processes share. With the clocks of their machines, a row could be sent
    before an earlier row of its key that another process had committed.
    """

    type = String(64)
    inherit_cache = True

    def __init__(self, now: ColumnElement[int]) -> None:
        count = next(_COUNTER) & 0xFFFF_FFFF
        rest = literal(f"{count:08x}{secrets.token_hex(6)}", String)
        super().__init__(cast(now, BigInteger), rest, literal("%012x", String))  # no % in a statement with parameters


@compiles(row_id, "postgresql")
def _id_postgresql(element: Any, compiler: Any, **more: Any) -> str:
    now, rest = (compiler.process(one, **more) for one in list(element.clauses)[:2])
    return f"lpad(to_hex({now}), 12, '0') || CAST({rest} AS VARCHAR)"


@compiles(row_id, "sqlite")
def _id_sqlite(element: Any, compiler: Any, **more: Any) -> str:
    now, rest, form = (compiler.process(one, **more) for one in element.clauses)
    return f"printf({form}, {now}) || {rest}"


class CreationOrder:
    """Order of the rows of a key that one outbox writes: remembers when it last wrote a row, by topic and key, as long
    as that matters. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[tuple[str, str], tuple[float, bool]] = {}

    @contextmanager
    def writing(self, topic: str, key: str, *, own_id: bool) -> Iterator[None]:
        """Context for writing a row. If this row or the previous row of its topic and key has an id of the caller's
        (`own_id`), first waits until the millisecond of the previous row is over, 2 ms at most, because such ids need
        not ascend. Rows without a key have no order. A row whose writing raises does not count as a previous one.
        """
        if not key:
            yield
            return
        place = topic, key
        with self._lock:
            at, before_had_own = self._last.get(place, (float("-inf"), False))
        left = at + _APART - time.monotonic()
        if left > 0 and (own_id or before_had_own):
            time.sleep(left)
        yield
        with self._lock:
            now = time.monotonic()
            if len(self._last) >= _MOST_KEYS:
                self._last = {one: last for one, last in self._last.items() if last[0] + _APART > now}
            self._last[place] = now, own_id
