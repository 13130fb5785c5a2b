"""SQL store of the outbox: the calls of the relay and of the command line on its table.

A call is one short transaction, but for a claim of ordered topics, which may take three, and for results that the
database refuses together. A claim is optimistic: it changes a row only if its version is still the one that was read. A
relay that died leaves rows `sending`; after the end of their claim another relay may claim them.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import (
    CTE,
    URL,
    BigInteger,
    Boolean,
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    Select,
    and_,
    bindparam,
    case,
    create_engine,
    delete,
    exists,
    func,
    literal,
    literal_column,
    make_url,
    not_,
    or_,
    select,
    tuple_,
    type_coerce,
    update,
)
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError
from sqlalchemy.types import NULLTYPE

from kodo_consumer.adapters.stores.database_url import address_without_secrets, missing_file, without_secrets
from kodo_consumer.adapters.stores.sql_tables import now_ms
from kodo_consumer.core.values.infrastructure_faults import words
from kodo_consumer.outbox.outbox_row import MAX_ID, Row, RowResult, row_of
from kodo_consumer.outbox.row_filter import RowFilter, RowStatus
from kodo_consumer.outbox.table import DIALECTS, HELD, NAME, NEXT_VERSION, PULSAR, SENT, TABLE, lacking, unsent
from kodoctl.errors import KodoctlError, error
from kodoctl.text.escaping import one_line

log = logging.getLogger("kodo.outbox")
_UNTIMED_ALSO: Final = {"sqlite": [literal_column("typeof(next_push_at) NOT IN ('integer', 'real')", Boolean)]}
_WAITING: Final = unsent(f"{NAME}.status")
_EARLIER: Final = TABLE.alias("earlier")
_EARLIER_WAITING: Final = unsent("earlier.status")
CONNECT_ERRORS: Final = (SQLAlchemyError, ValueError, TypeError, OverflowError)
"""Errors of a connection: also those of a driver that does not take an option of the address."""
UNUSABLE: Final = "database cannot be used"
_EXAMPLE: Final = "for PostgreSQL write postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"


@dataclass(frozen=True, slots=True)
class OutboxScope:
    """Scope of a relay: rows of the protocol `pulsar` whose environment is `env`, or "" for any environment, and whose
    app is `app` (None: any app). So with the `env` "" rows that name an environment are left out.
    """

    env: str = ""
    app: str | None = None

    @property
    def condition(self) -> ColumnElement[bool]:
        """Condition on the outbox table that chooses the rows of this scope, whatever their status is."""
        mine = self.of_any_app(TABLE)
        return mine if self.app is None else and_(mine, TABLE.c.app == self.app)

    def of_any_app(self, table: FromClause) -> ColumnElement[bool]:
        """Returns the condition that chooses the rows of this scope, and such rows of other apps, which go to the same
        topics. `table`: the outbox table, or an alias of it.
        """
        return and_(table.c.protocol == PULSAR, table.c.env.in_(["", self.env]))


_COLUMNS: Final = [type_coerce(TABLE.c[name], NULLTYPE).label(name) for name in Row._fields if name != "problem"]
"""Columns of a row without conversion of their values: a value of another type must not end the reading of all rows."""
_DATA_ERRORS: Final = (DataError, IntegrityError, ValueError, TypeError, OverflowError)
_UNSTORABLE: Final = "(the reason cannot be stored)"
_UNTIMED: Final = "next_push_at is not a whole number of ms since the epoch"


class OutboxStore:
    """Reads and writes the outbox table of one database, for relays and for the command line.

    `scope`: rows that the methods for relays see; None: rows of any app whose `env` is "". The methods for people,
    `counts`, `rows`, `push` and `hold`, see the rows of every scope. `now`: returns a SQL expression of the time in ms
    since the epoch; None: the clock of the database.

    Methods raise SQLAlchemyError, and UnicodeEncodeError or OverflowError of the driver for an argument that it cannot
    pass to the database; `check` raises KodoctlError instead.
    """

    def __init__(
        self, engine: Engine, scope: OutboxScope | None = None, now: Callable[[], ColumnElement[int]] | None = None
    ) -> None:
        self._engine, self._now = engine, now or database_now
        scope = scope or OutboxScope()
        self.identity: Hashable = (engine.url, scope)  # equal for stores of the same rows
        self._scope, self._app = scope.condition, scope.app
        self._of_any_app, self._earlier_of_any_app = scope.of_any_app(TABLE), scope.of_any_app(_EARLIER)
        self._untimed = or_(TABLE.c.next_push_at.is_(None), *_UNTIMED_ALSO.get(engine.dialect.name, ()))

    @property
    def url(self) -> URL:
        """Address of the database, with its password."""
        return self._engine.url

    def close(self) -> None:
        """Closes the pooled connections of the database. Later calls open new ones."""
        self._engine.dispose()

    def check(self) -> None:
        """Raises KodoctlError if the database lacks the table or columns of it, or cannot be used."""
        try:
            findings = lacking(self._engine)
        except CONNECT_ERRORS as problem:
            raise unusable(self._engine.url, problem) from None
        if findings:
            raise KodoctlError(*findings)

    # ---- the relay

    def claim(
        self,
        limit: int,
        lasts: int,
        *,
        resting: Collection[str] = (),
        only: str | None = None,
        ordered: Collection[str] = (),
    ) -> Iterator[list[Row]]:
        """Claims up to `limit` due rows of the scope for `lasts` ms, while the caller iterates. Yields the rows of each
        transaction when it is committed, sorted by creation, so that an error of a later transaction does not lose
        them; a list may be empty. Rows whose claim has ended are due, too. `only`: topic whose rows alone are claimed;
        None: any topic but those in `resting`.

        In `ordered` topics a row with a key is claimed if no earlier unsent row of the key is due, claimed or waits for
        its next try; held rows, and rows whose first send is not due yet, do not count. Rows of any app count, but none
        of another environment or protocol. Further due rows of the key come with it, unless another row of the key has
        a claim that lasts, waits for its next try, or is due and of another app.
        """
        c = TABLE.c
        with self._engine.begin() as connection:
            now = self._read_clock(connection)
            due = and_(_WAITING, c.next_push_at <= now, self._scope)
            if only is not None:
                due = and_(due, c.topic == only)
            elif resting:
                due = and_(due, c.topic.not_in(sorted(resting)))
            keyed = and_(c.topic.in_(sorted(ordered)), c.key != "")
            first = and_(due, or_(not_(keyed), not_(self._has_earlier(now)))) if ordered else due
            rows = self._take(connection, first, limit, now + lasts)
        yield rows
        heads = {(row.topic, row.key): row.id for row in rows if not row.problem and row.key and row.topic in ordered}
        if heads and len(rows) < limit and (free := heads.keys() - self._with_gaps(heads, now)):
            behind = and_(due, tuple_(c.topic, c.key).in_(sorted(free)))
            with self._engine.begin() as connection:
                more = self._take(connection, behind, limit - len(rows), now + lasts, in_order=True)
            yield more

    def settle(self, verdicts: Sequence[RowResult]) -> int:
        """Writes the new states of claimed rows. Returns the number of rows that stay unchanged, because their version
        is not that of the claim any more: mostly another relay claimed them after the claim had ended.

        If the database refuses the values, each row is written by itself, so that one row does not hold up the others.
        A row that is refused by itself is written with 0 tries and a placeholder as its error; if that is refused, too,
        the row stays claimed until its claim ends, which is logged, and does not count in the result.
        """
        ordered = sorted(verdicts, key=lambda verdict: str(verdict.row.id))  # one order for all relays: no deadlocks
        try:
            return len(ordered) - self._write(ordered)
        except _DATA_ERRORS:
            return len(ordered) - sum(map(self._write_alone, ordered))

    def _write_alone(self, verdict: RowResult) -> int:
        for one in (verdict, replace(verdict, error=_UNSTORABLE, tries=0)):
            try:
                return self._write([one])
            except _DATA_ERRORS as problem:
                reason = words(problem)
        log.error("row %s stays `sending` until its claim ends: %s", one_line(verdict.row.id, MAX_ID), reason)
        return 1

    def _write(self, verdicts: Sequence[RowResult]) -> int:
        """Writes the new states, and returns the number of rows that still had the version of their claim."""
        c = TABLE.c
        statement = (
            update(TABLE)
            .where(c.id == bindparam("row"), c.version == bindparam("claim"))
            .values(
                status=bindparam("now_is"), version=NEXT_VERSION,
                next_push_at=self._now() + bindparam("delay", type_=BigInteger),
                retry_count=bindparam("tries"),
                last_error=case((bindparam("keeps_error", type_=Boolean), c.last_error), else_=bindparam("why")),
            )
        )  # fmt: skip
        parameters = [
            {
                "row": one.row.id,
                "claim": one.row.version,
                "now_is": one.status,
                "delay": one.delay,
                "tries": one.tries,
                "why": one.error,
                "keeps_error": one.error is None and one.status is RowStatus.TO_SEND,
            }
            for one in verdicts
        ]
        with self._engine.begin() as connection:
            return connection.execute(statement, parameters).rowcount

    def fail_untimed(self) -> int:
        """Marks unsent rows of the scope whose `next_push_at` is no number as failed, because they would never become
        due. Returns the number of these rows.
        """
        failed = {"status": RowStatus.FAILED, "version": NEXT_VERSION, "last_error": _UNTIMED}
        statement = update(TABLE).where(_WAITING, self._untimed, self._scope)
        with self._engine.begin() as connection:
            return connection.execute(statement.values(**failed, next_push_at=self._now())).rowcount

    def next_due(self) -> int | None:
        """Returns the earliest time (ms since the epoch), perhaps a past one, at which a row of the scope is to be sent
        or its claim ends; None if there is no such row. Held rows, and rows whose time is no number, do not count.
        """
        statement = select(func.min(TABLE.c.next_push_at)).where(_WAITING, TABLE.c.next_push_at < HELD, self._scope)
        with self._engine.connect() as connection:
            found: int | None = connection.execute(statement).scalar()
        return found

    def waiting(self) -> tuple[int, float]:
        """Returns (number of unsent rows of the scope, ms for which the first of them has been due, 0 if none is due).
        Held rows, and rows whose time is no number, do not count. A claimed row is due when its claim ends.
        """
        statement = select(func.count(), func.min(TABLE.c.next_push_at)).where(
            _WAITING, TABLE.c.next_push_at < HELD, self._scope
        )
        with self._engine.connect() as connection:
            count, due = connection.execute(statement).one()
            late = 0 if due is None else max(0, self._read_clock(connection) - due)
        return int(count), late

    def forget_sent(self, keep: int, limit: int) -> int:
        """Deletes at most `limit` rows of the scope that were marked as sent more than `keep` ms ago. Returns the
        number of deleted rows.
        """
        c = TABLE.c
        with self._engine.begin() as connection:
            before = self._read_clock(connection) - keep
            old = select(c.id).where(SENT, c.next_push_at < before, self._scope).limit(limit)
            return connection.execute(delete(TABLE).where(c.id.in_(old))).rowcount

    # ---- people

    def counts(self, chosen: RowFilter = RowFilter()) -> dict[str, int]:  # noqa: B008  # it cannot be changed
        """Returns the number of chosen rows by status; a status without rows is missing. Unsent rows among them are
        also counted as `held`, as `retrying` (not held, `retry_count` above 0), and as `late` (due for more than a
        minute; a claimed row is due when its claim ends). These three are never missing.
        """
        c = TABLE.c
        by_status = select(type_coerce(c.status, NULLTYPE), func.count()).where(_among(chosen)).group_by(c.status)
        with self._engine.connect() as connection:
            waiting = {
                "held": and_(c.next_push_at >= HELD, not_(self._untimed)),
                "retrying": and_(c.retry_count > 0, c.next_push_at < HELD),
                "late": c.next_push_at < self._read_clock(connection) - 60_000,
            }
            found = {one_line(status, MAX_ID): int(count) for status, count in connection.execute(by_status)}
            for name, condition in waiting.items():
                statement = select(func.count()).select_from(TABLE).where(_WAITING, condition, _among(chosen))
                found[name] = int(connection.execute(statement).scalar_one())
        return found

    def rows(self, chosen: RowFilter, limit: int) -> list[dict[str, Any]]:
        """Returns at most `limit` chosen rows in the order of their creation, as dicts of the columns, without `body`,
        `properties` and `protocol`, with values as the driver gives them, and of `is_due`: true if the row is `to_send`
        and its time has come.
        """
        columns = [column for column in TABLE.columns if column.name not in ("body", "properties", "protocol")]
        is_due = and_(TABLE.c.status == RowStatus.TO_SEND, TABLE.c.next_push_at <= self._now(), not_(self._untimed))
        shown = [type_coerce(column, NULLTYPE).label(column.name) for column in columns]
        statement = select(*shown, is_due.label("is_due")).where(_among(chosen)).limit(limit)
        statement = statement.order_by(TABLE.c.created_at, TABLE.c.id)
        with self._engine.connect() as connection:
            return [dict(row._mapping) for row in connection.execute(statement)]  # noqa: SLF001  # SQLAlchemy's own name

    def push(self, chosen: RowFilter, *, limit: int, spacing: float = 0.0) -> int:
        """Makes at most `limit` chosen rows due, the oldest first and with `retry_count` 0: the first now, each next
        one `spacing` ms later, even if it was due before. Takes failed rows, and rows that are to be sent, held or not;
        sent rows stay unchanged, and so do rows that a relay has claimed, even if the claim has ended. Returns the
        number of changed rows.
        """
        ours = and_(_among(chosen), TABLE.c.status.in_([RowStatus.TO_SEND, RowStatus.FAILED]))
        from_now = self._now() + bindparam("delay", type_=BigInteger)
        return self._rewrite(ours, limit, from_now, lambda place: {"delay": round(place * spacing)}, retry_count=0)

    def hold(self, chosen: RowFilter, *, limit: int) -> int:
        """Holds at most `limit` chosen rows that are to be sent, the oldest first: they are not sent until `push` makes
        them due. Rows that are held already, or that a relay has claimed, even if the claim has ended, stay unchanged.
        Returns the number of changed rows.
        """
        ours = and_(_among(chosen), TABLE.c.status == RowStatus.TO_SEND, TABLE.c.next_push_at < HELD)
        return self._rewrite(ours, limit, literal(HELD, BigInteger), lambda _: {})

    def _rewrite(
        self,
        condition: ColumnElement[bool],
        limit: int,
        at: ColumnElement[int],
        parameters: Callable[[int], dict[str, Any]],
        **values: Any,
    ) -> int:
        """Sets `next_push_at` of rows to the expression `at`, and their status to `to_send`. `parameters`: values for
        `at`, by a row's number (from 0). Returns the number of changed rows.
        """
        c = TABLE.c
        change = (
            update(TABLE)
            .where(c.id == bindparam("row"), c.version.is_not_distinct_from(bindparam("was")))
            .values(status=RowStatus.TO_SEND, version=NEXT_VERSION, next_push_at=at, **values)
        )
        identified = [type_coerce(column, NULLTYPE) for column in (c.id, c.version)]
        with self._engine.begin() as connection:
            found = connection.execute(
                select(*identified).where(condition).order_by(c.created_at, c.id).limit(limit)
            ).all()
            if not found:
                return 0
            given = [{"row": row[0], "was": row[1], **parameters(place)} for place, row in enumerate(found)]
            return connection.execute(change, given).rowcount

    def _read_clock(self, connection: Connection) -> int:
        return int(connection.execute(select(self._now())).scalar_one())

    def _has_earlier(self, now: int) -> ColumnElement[bool]:
        """Condition: an earlier unsent row of the same topic and key must be sent first. A row that is held, or whose
        first send is not due yet, does not count, nor does one that no relay of this environment sends.
        """
        c, e = TABLE.c, _EARLIER.c
        is_older = tuple_(e.created_at, e.id) < tuple_(c.created_at, c.id)
        before = and_(_EARLIER_WAITING, self._earlier_of_any_app, e.topic == c.topic, e.key == c.key, is_older)
        is_tried = and_(e.retry_count > 0, e.next_push_at < HELD)
        return exists().where(before, or_(e.status == RowStatus.SENDING, e.next_push_at <= now, is_tried))

    def _with_gaps(self, heads: Mapping[tuple[str, str], str], now: int) -> set[tuple[str, str]]:
        """Keys, of those in `heads`, whose later rows have to wait for one that this claim cannot take: it waits for
        its next try, has a claim that lasts, or is due and of another app. `heads`: the id of the claimed first row of
        each key, which does not count.
        """
        c = TABLE.c
        is_begun = or_(c.status == RowStatus.SENDING, c.retry_count > 0)
        stands = and_(c.next_push_at > now, c.next_push_at < HELD, is_begun)
        if self._app is not None:
            stands = or_(stands, and_(c.next_push_at <= now, c.app != self._app))
        other = and_(tuple_(c.topic, c.key).in_(sorted(heads)), c.id.not_in(sorted(heads.values())))
        statement = select(c.topic, c.key).where(_WAITING, self._of_any_app, stands, other).distinct()
        with self._engine.connect() as connection:
            return {(topic, key) for topic, key in connection.execute(statement)}

    def _take(
        self,
        connection: Connection,
        condition: ColumnElement[bool],
        limit: int,
        until: int,
        *,
        in_order: bool = False,
    ) -> list[Row]:
        """Selects and claims rows until the time `until` (ms since the epoch) by one statement; PostgreSQL skips rows
        that others are just changing. `in_order`: the first rows by creation, but none behind a skipped one of its key.
        """
        c = TABLE.c
        if in_order:
            chosen = select(c.id, c.version, c.topic, c.key, c.created_at).where(condition)
            first = chosen.order_by(c.created_at, c.id).limit(limit).cte("first_rows")
            picked = _unlocked(select(c.id, c.version).where(_is_unchanged(first)))
            is_locked, key = first.c.id.not_in(select(picked.c.id)), (first.c.topic, first.c.key)
            locked = select(*key, func.min(first.c.created_at).label("since")).where(is_locked).group_by(*key).cte()
            is_behind = and_(locked.c.topic == c.topic, locked.c.key == c.key, locked.c.since <= c.created_at)
            in_turn = [not_(exists().where(is_behind))]
        else:
            picked = _unlocked(select(c.id, c.version).where(condition).order_by(c.next_push_at, c.id).limit(limit))
            in_turn = []
        claim = (
            update(TABLE)
            .where(_is_unchanged(picked), *in_turn)
            .values(status=RowStatus.SENDING, version=NEXT_VERSION, next_push_at=until)
            .returning(*_COLUMNS)
        )
        rows = map(row_of, connection.execute(claim))
        return sorted(rows, key=lambda row: (row.created_at, str(row.id)))


def _unlocked(rows: Select[Any]) -> CTE:
    """Ids and versions of the rows that nobody else is changing; the statement locks these rows."""
    return rows.with_for_update(skip_locked=True, of=TABLE).cte("picked")


def _is_unchanged(since: CTE) -> ColumnElement[bool]:
    """Condition: the row has the version that it has in `since`."""
    return and_(TABLE.c.id == since.c.id, TABLE.c.version.is_not_distinct_from(since.c.version))


def database_now() -> ColumnElement[int]:
    """SQL expression of the database's clock, in ms since the epoch."""
    return now_ms()


def _among(choice: RowFilter) -> ColumnElement[bool]:
    c = TABLE.c
    named = {"topic": choice.topic, "key": choice.key, "biz_code": choice.biz_code, "app": choice.app}
    parts = [c[name] == value for name, value in named.items() if value is not None]
    lists = [c.id.in_(choice.ids)] if choice.ids else []
    lists += [c.status.in_(choice.statuses)] if choice.statuses else []
    return and_(True, *parts, *lists)


def open_store(url: str, scope: OutboxScope | None = None) -> OutboxStore:
    """Returns the outbox of the database at a URL, after a check of its table. `scope`: see OutboxStore. Raises
    KodoctlError if the database or the table cannot be used.
    """
    store = OutboxStore(existing_engine(url), scope)
    try:
        store.check()
    except BaseException:
        store.close()
        raise
    return store


class LenientConnection(sqlite3.Connection):
    """SQLite connection that reads text which is not UTF-8 with half surrogates in place of its wrong bytes, where
    others raise an error: SQLite stores such text, and one row must not end the reading of all.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.text_factory = _text_of


_ARGUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "pysqlite": {"factory": LenientConnection},
    "psycopg": {"prepare_threshold": None},
}
"""Arguments by driver. Statements are not prepared on the server: a pooler that shares connections by transaction would
give a prepared statement to other clients, and not find it again.
"""


def _text_of(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def engine_of(url: str) -> Engine:
    """Returns the SQLAlchemy engine for a database URL, which does not connect yet. Raises KodoctlError, without the
    secrets of the URL, for a text that is no URL, a database that is neither SQLite nor PostgreSQL, and a driver that
    is not installed or refuses the URL.
    """
    try:
        parsed = make_url(url)
    except (SQLAlchemyError, ValueError):
        raise KodoctlError(error("K721", UNUSABLE, f"no address of a database\n{_EXAMPLE}")) from None
    if parsed.get_backend_name() not in DIALECTS:
        detail = f"{parsed.drivername} is none of {', '.join(DIALECTS)}\n{_EXAMPLE}"
        raise KodoctlError(error("K721", UNUSABLE, detail))
    try:
        return create_engine(parsed, connect_args=_ARGUMENTS.get(parsed.get_driver_name(), {}))
    except (SQLAlchemyError, ImportError, ValueError, TypeError) as problem:
        detail = f"{address_without_secrets(parsed)}: {without_secrets(str(problem), parsed)}\n{_EXAMPLE}"
        raise KodoctlError(error("K721", UNUSABLE, detail)) from None


def existing_engine(url: str) -> Engine:
    """Returns the engine as `engine_of` does. Raises KodoctlError also for a file of SQLite that does not exist,
    because a connection would create it.
    """
    engine = engine_of(url)
    if file := missing_file(engine.url):
        detail = f"{file}: there is no such file; a path that begins with no / is looked for in the working folder"
        raise KodoctlError(error("K721", UNUSABLE, detail))
    return engine


def unusable(url: URL, problem: Exception) -> KodoctlError:
    """Returns the error for a database that cannot be used. Its text has the address and the driver's own words, not
    the statement and the parameters that SQLAlchemy adds; secrets of the URL are masked.
    """
    reason = without_secrets(" ".join(str(getattr(problem, "orig", None) or problem).split()), url)
    return KodoctlError(error("K721", UNUSABLE, f"{address_without_secrets(url)}: {reason}"))
