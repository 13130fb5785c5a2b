"""SQL store of the outbox: the calls of the relay and of the command line on its table.

Every call is one short transaction, but for a claim of ordered topics, which may take three. A claim is optimistic: a
row changes hands only where its version is still the one that was read. A relay that died leaves rows `sending` until
their claim ends; then they are as good as unsent.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    URL,
    ColumnElement,
    Engine,
    and_,
    bindparam,
    create_engine,
    delete,
    exists,
    func,
    not_,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from kodo_consumer.outbox.row_filter import RowFilter, RowStatus
from kodo_consumer.outbox.table import HELD, NAME, PULSAR, SENT, TABLE, lacking, unsent
from kodoctl.errors import KodoctlError, error

_WAITING: Final = unsent(f"{NAME}.status")
_EARLIER: Final = TABLE.alias("earlier")
_EARLIER_WAITING: Final = unsent("earlier.status")


class Row(NamedTuple):
    """A claimed row: what is sent, and what is needed to say what became of it. `version` is the claim."""

    id: str
    version: int
    topic: str
    key: str
    body: bytes | None
    properties: str
    biz_code: str
    retry_count: int

    def message_properties(self) -> dict[str, str]:
        """The message's properties. Raises ValueError when another writer left something else there."""
        try:
            found = json.loads(self.properties or "{}")
        except RecursionError:
            raise ValueError("properties is JSON that is nested too deeply") from None
        if not isinstance(found, dict):
            raise ValueError("properties is no JSON object")  # noqa: TRY004  # a value of the database, not of the program
        return {str(name): str(value) for name, value in found.items()}


@dataclass(frozen=True, slots=True)
class RowResult:
    """Result of a claimed row. `at`: its next push, or when it was sent, ms since the epoch."""

    row: Row
    status: RowStatus
    at: int
    tries: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class OutboxScope:
    """Rows that a relay sends: of one `app` (None: of all), for one environment or any."""

    env: str = ""
    app: str | None = None

    @property
    def condition(self) -> ColumnElement[bool]:
        """Condition on the outbox table that chooses these rows, of the protocol `pulsar`."""
        c = TABLE.c
        mine = and_(c.protocol == PULSAR, c.env.in_(["", self.env]))
        return mine if self.app is None else and_(mine, c.app == self.app)


_COLUMNS: Final = [TABLE.c[name] for name in Row._fields]


class OutboxStore:
    """The outbox of one database. Raises SQLAlchemyError when the database does not answer."""

    def __init__(self, engine: Engine, scope: OutboxScope | None = None) -> None:
        self._engine = engine
        self._scope = (scope or OutboxScope()).condition

    def close(self) -> None:
        """Closes the pooled connections of the database."""
        self._engine.dispose()

    def check(self) -> None:
        """Raises KodoctlError with all that the database lacks."""
        try:
            findings = lacking(self._engine)
        except SQLAlchemyError as problem:
            raise unusable(self._engine.url, problem) from None
        if findings:
            raise KodoctlError(*findings)

    # ---- the relay

    def claim(
        self,
        limit: int,
        now: int,
        until: int,
        *,
        resting: Collection[str] = (),
        only: str | None = None,
        ordered: Collection[str] = (),
    ) -> list[Row]:
        """Up to `limit` rows that are due, `sending` until `until` (ms since the epoch); none of `resting` topics, or
        of `only` one.

        Of `ordered` topics only the first unsent row of each key, and rows that follow it without a gap: the relay
        that has a key's first row has the key.
        """
        c = TABLE.c
        due = and_(_WAITING, c.next_push_at <= now, self._scope)
        if only is not None:
            due = and_(due, c.topic == only)
        elif resting:
            due = and_(due, c.topic.not_in(sorted(resting)))
        if not ordered:
            return self._take(due, limit, until)
        keyed = and_(c.topic.in_(sorted(ordered)), c.key != "")
        rows = self._take(and_(due, or_(not_(keyed), not_(_earlier(now)))), limit, until)
        heads = {(row.topic, row.key) for row in rows if row.key and row.topic in ordered}
        if heads and len(rows) < limit and (free := heads - self._with_gaps(heads, now)):
            behind = and_(due, c.status == RowStatus.TO_SEND, tuple_(c.topic, c.key).in_(sorted(free)))
            rows += self._take(behind, limit - len(rows), until, c.id)
        return rows

    def settle(self, verdicts: Sequence[RowResult]) -> int:
        """Writes what became of claimed rows. Answers how many had been taken over, their claim having ended."""
        c = TABLE.c
        statement = (
            update(TABLE)
            .where(c.id == bindparam("row"), c.version == bindparam("claim"))
            .values(
                status=bindparam("now_is"), version=c.version + 1, next_push_at=bindparam("at"),
                retry_count=bindparam("tries"), last_error=bindparam("why"),
            )
        )  # fmt: skip
        parameters = [
            {
                "row": one.row.id,
                "claim": one.row.version,
                "now_is": one.status,
                "at": one.at,
                "tries": one.tries,
                "why": one.error,
            }
            for one in sorted(verdicts, key=lambda verdict: verdict.row.id)  # one order for all relays: no deadlocks
        ]
        with self._engine.begin() as connection:
            return len(parameters) - connection.execute(statement, parameters).rowcount

    def next_due(self) -> int | None:
        """Time when the next unsent row may be pushed or its claim ends (ms since the epoch), None without any."""
        statement = select(func.min(TABLE.c.next_push_at)).where(_WAITING, TABLE.c.next_push_at < HELD, self._scope)
        with self._engine.connect() as connection:
            found: int | None = connection.execute(statement).scalar()
        return found

    def waiting(self) -> tuple[int, int | None]:
        """Number of rows that are to be sent, without those that are held, and `next_due`."""
        statement = select(func.count(), func.min(TABLE.c.next_push_at)).where(
            _WAITING, TABLE.c.next_push_at < HELD, self._scope
        )
        with self._engine.connect() as connection:
            count, due = connection.execute(statement).one()
        return int(count), due

    def forget_sent(self, before: int, limit: int) -> int:
        """Removes rows sent before a moment, at most so many; answers how many."""
        c = TABLE.c
        old = select(c.id).where(SENT, c.next_push_at < before, self._scope).limit(limit)
        with self._engine.begin() as connection:
            return connection.execute(delete(TABLE).where(c.id.in_(old))).rowcount

    # ---- people

    def counts(self, now: int) -> dict[str, int]:
        """Rows by status; `held`, `late` and `retrying` are parts of to_send and sending."""
        c = TABLE.c
        by_status = select(c.status, func.count()).group_by(c.status)
        waiting = {
            "held": c.next_push_at >= HELD,
            "retrying": and_(c.retry_count > 0, c.next_push_at < HELD),
            "late": c.next_push_at < now - 60_000,
        }
        with self._engine.connect() as connection:
            found = {str(status): int(count) for status, count in connection.execute(by_status)}
            for name, condition in waiting.items():
                statement = select(func.count()).select_from(TABLE).where(_WAITING, condition)
                found[name] = int(connection.execute(statement).scalar_one())
        return found

    def rows(self, chosen: RowFilter, limit: int) -> list[dict[str, Any]]:
        """Rows in order of their creation, without their bodies."""
        shown = [column for column in TABLE.columns if column.name not in ("body", "properties", "protocol")]
        statement = select(*shown).where(_among(chosen)).order_by(TABLE.c.id).limit(limit)
        with self._engine.connect() as connection:
            return [dict(row._mapping) for row in connection.execute(statement)]  # noqa: SLF001  # SQLAlchemy's own name

    def push(self, chosen: RowFilter, now: int, *, limit: int, spacing: float = 0.0) -> int:
        """Makes unsent and failed rows due anew, with fresh counters, the first now and each `spacing` ms after the
        one before. A row that a relay has claimed is left to it, a sent one is never sent again. Answers how many.
        """
        ours = and_(_among(chosen), TABLE.c.status.in_([RowStatus.TO_SEND, RowStatus.FAILED]))
        return self._rewrite(ours, limit, lambda place: now + round(place * spacing), retry_count=0)

    def hold(self, chosen: RowFilter, *, limit: int) -> int:
        """Keeps rows that are to be sent from being sent until they are pushed. Answers how many."""
        ours = and_(_among(chosen), TABLE.c.status == RowStatus.TO_SEND, TABLE.c.next_push_at < HELD)
        return self._rewrite(ours, limit, lambda _: HELD)

    def _rewrite(self, condition: ColumnElement[bool], limit: int, at: Any, **values: Any) -> int:
        c = TABLE.c
        change = (
            update(TABLE)
            .where(c.id == bindparam("row"), c.version == bindparam("was"))
            .values(status=RowStatus.TO_SEND, version=c.version + 1, next_push_at=bindparam("at"), **values)
        )
        with self._engine.begin() as connection:
            found = connection.execute(select(c.id, c.version).where(condition).order_by(c.id).limit(limit)).all()
            if not found:
                return 0
            given = [{"row": name, "was": version, "at": at(place)} for place, (name, version) in enumerate(found)]
            return connection.execute(change, given).rowcount

    def _with_gaps(self, keys: Collection[tuple[str, str]], now: int) -> set[tuple[str, str]]:
        """Those of the keys of which a row waits for its next try: what is behind it has to wait."""
        c = TABLE.c
        waits = and_(
            _WAITING, c.status == RowStatus.TO_SEND, c.retry_count > 0, c.next_push_at > now, c.next_push_at < HELD
        )
        statement = select(c.topic, c.key).where(waits, tuple_(c.topic, c.key).in_(sorted(keys))).distinct()
        with self._engine.connect() as connection:
            return {(topic, key) for topic, key in connection.execute(statement)}

    def _take(self, condition: ColumnElement[bool], limit: int, until: int, *order: ColumnElement[Any]) -> list[Row]:
        """One statement picks and claims: PostgreSQL passes over rows that another relay is picking."""
        c = TABLE.c
        picked = (
            select(c.id, c.version).where(condition).order_by(*(order or (c.next_push_at, c.id))).limit(limit)
            .with_for_update(skip_locked=True).cte("picked")
        )  # fmt: skip
        claim = (
            update(TABLE)
            .where(c.id == picked.c.id, c.version == picked.c.version)
            .values(status=RowStatus.SENDING, version=c.version + 1, next_push_at=until)
            .returning(*_COLUMNS)
        )
        with self._engine.begin() as connection:
            rows = [Row(*row) for row in connection.execute(claim)]
        return sorted(rows)


def _among(choice: RowFilter) -> ColumnElement[bool]:
    c = TABLE.c
    named = {"topic": choice.topic, "key": choice.key, "biz_code": choice.biz_code, "app": choice.app}
    parts = [c[name] == value for name, value in named.items() if value is not None]
    lists = [c.id.in_(choice.ids)] if choice.ids else []
    lists += [c.status.in_(choice.statuses)] if choice.statuses else []
    return and_(True, *parts, *lists)


def _earlier(now: int) -> ColumnElement[bool]:
    """An unsent row of the same key stands before this one.
    One that is held, or waits for its own first push, does not.
    """
    c, e = TABLE.c, _EARLIER.c
    before = and_(_EARLIER_WAITING, e.topic == c.topic, e.key == c.key, e.id < c.id)
    stands = or_(e.status == RowStatus.SENDING, e.next_push_at <= now, and_(e.retry_count > 0, e.next_push_at < HELD))
    return exists().where(before, stands)


def open_store(url: str, scope: OutboxScope | None = None) -> OutboxStore:
    """The outbox behind a database address, its table checked. Raises KodoctlError."""
    try:
        engine = create_engine(url)
    except (SQLAlchemyError, ImportError, ValueError) as problem:
        detail = f"{problem}\nfor PostgreSQL write postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"
        raise KodoctlError(error("K721", "database cannot be used", detail)) from None
    file = engine.url.database or ""
    if engine.dialect.name == "sqlite" and file not in ("", ":memory:") and not Path(file).exists():
        detail = f"{file}: there is no such file; a path that begins with no / is looked for in the working folder"
        raise KodoctlError(error("K721", "database cannot be used", detail))
    store = OutboxStore(engine, scope)
    try:
        store.check()
    except BaseException:
        store.close()
        raise
    return store


def unusable(url: URL, problem: SQLAlchemyError) -> KodoctlError:
    """The database's own words, without the statement and its parameters."""
    reason = " ".join(str(getattr(problem, "orig", None) or problem).split())
    return KodoctlError(error("K721", "database cannot be used", f"{url.render_as_string()}: {reason}"))
