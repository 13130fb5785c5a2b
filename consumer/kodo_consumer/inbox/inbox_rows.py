"""Rows of the inbox for people: counts, lists, rows to handle again, rows to discard. Of all subscriptions of a
database.

Methods raise SQLAlchemyError, only `open_rows` raises KodoctlError instead.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ColumnElement, Engine, and_, case, func, inspect, or_, select, update

from kodo_consumer.adapters.stores.sql_tables import now_ms
from kodo_consumer.inbox.inbox_filter import UNHANDLED, InboxFilter, InboxStatus
from kodo_consumer.inbox.table import NAME, TABLE
from kodo_consumer.outbox.outbox_store import CONNECT_ERRORS, existing_engine, unusable
from kodo_consumer.outbox.table import lacking_columns
from kodoctl.errors import KodoctlError, error

if TYPE_CHECKING:
    from sqlalchemy import URL, Select

_C: Final = TABLE.c
_MAX_CAUSES: Final = 100  # pairs of cause and tenant of dead rows that are counted, those with most rows


def _status() -> ColumnElement[str]:
    """Expression of a row's status: see InboxStatus."""
    to_do = case(
        (_C.claimed_until > now_ms(), InboxStatus.CLAIMED.value),
        (_C.outcome == InboxStatus.DISCARDED.value, InboxStatus.DISCARDING.value),
        else_=InboxStatus.WAITING.value,
    )
    return case((_C.done_at.is_(None), to_do), else_=_C.outcome)


class InboxRows:
    """Rows of one database's inbox table, of all subscriptions, for the command line."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def url(self) -> URL:
        """Address of the database, with its password."""
        return self._engine.url

    def close(self) -> None:
        """Closes the pooled connections of the database. Later calls open new ones."""
        self._engine.dispose()

    def status(self, subscription: str | None = None) -> list[dict[str, Any]]:
        """Returns a dict for each subscription with rows, sorted by its name: `subscription`; `counts` (number of rows
        by status, without statuses that have none); `oldest_seconds` (whole seconds since the first row that is not
        done was received; None if all are done); `workers` (number of claimed rows by name of the claim, of which a
        worker has one for each lane); `dead` (dicts with `cause`, which is "" without a reason, `tenant` and their
        number of dead `rows`, most rows first, at most 100 dicts). `subscription`: full name; None: all.
        """
        mine = [] if subscription is None else [_C.subscription == subscription]
        status = _status()
        counted = select(_C.subscription, status, func.count()).where(*mine).group_by(_C.subscription, status)
        aged = (
            select(_C.subscription, now_ms() - func.min(_C.received_at))
            .where(*mine, _C.done_at.is_(None))
            .group_by(_C.subscription)
        )
        claims = (
            select(_C.subscription, _C.claimed_by, func.count())
            .where(*mine, _C.done_at.is_(None), _C.claimed_until > now_ms())
            .group_by(_C.subscription, _C.claimed_by)
        )
        rank = func.row_number().over(partition_by=_C.subscription, order_by=func.count().desc()).label("rank")
        ranked = (
            select(_C.subscription, _C.reason, _C.tenant, func.count().label("rows"), rank)
            .where(*mine, _C.done_at.is_not(None), _C.outcome == InboxStatus.DEAD.value)
            .group_by(_C.subscription, _C.reason, _C.tenant)
            .subquery()
        )
        shown = (ranked.c.subscription, ranked.c.reason, ranked.c.tenant, ranked.c.rows)
        causes = select(*shown).where(ranked.c.rank <= _MAX_CAUSES).order_by(ranked.c.rank)
        found: dict[str, dict[str, Any]] = defaultdict(
            lambda: {"counts": {}, "oldest_seconds": None, "workers": {}, "dead": []}
        )
        with self._engine.connect() as connection:
            for name, one, count in connection.execute(counted):
                found[name]["counts"][one] = int(count)
            for name, age in connection.execute(aged):
                found[name]["oldest_seconds"] = max(0, int(age) // 1000)
            for name, claim, count in connection.execute(claims):
                found[name]["workers"][claim] = int(count)
            for name, reason, tenant, count in connection.execute(causes):
                found[name]["dead"].append({"cause": reason or "", "tenant": tenant, "rows": int(count)})
        return [{"subscription": name, **found[name]} for name in sorted(found)]

    def counts(self, chosen: InboxFilter = InboxFilter()) -> dict[str, int]:  # noqa: B008  # it cannot be changed
        """Returns the number of chosen rows by status; a status without rows is missing."""
        status = _status()
        counted = select(status, func.count()).where(_among(chosen)).group_by(status)
        with self._engine.connect() as connection:
            return {one: int(count) for one, count in connection.execute(counted)}

    def rows(self, chosen: InboxFilter, limit: int) -> list[dict[str, Any]]:
        """Returns the first `limit` chosen rows in the order of receipt, as dicts of the columns of the table, but
        without `head`, `body` and `name`, and of `status`.
        """
        shown = [column for column in TABLE.columns if column.name not in ("head", "body", "name")]
        statement = select(*shown, _status().label("status")).where(_among(chosen)).order_by(_C.id).limit(limit)
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(statement).mappings()]

    def retry(self, chosen: InboxFilter, *, limit: int) -> int:
        """Makes rows wait again: the first `limit` chosen ones that are done or to be discarded; if `chosen` has no id
        and no status, only those that are dead, discarded or to be discarded. Erases outcome, reason and claim; copies
        of the messages on topics stay. Returns the number of changed rows.
        """
        again = or_(_C.done_at.is_not(None), _C.outcome != "")
        usual = again if chosen.ids or chosen.statuses else _status().in_([one.value for one in UNHANDLED])
        picked = self._picked(limit, _among(chosen), again, usual)
        fresh = {"done_at": None, "outcome": "", "reason": None, "claimed_by": "", "claimed_until": 0}
        change = update(TABLE).where(_C.id.in_(picked), again).values(**fresh, retries=_C.retries + 1)
        with self._engine.begin() as connection:
            return connection.execute(change).rowcount

    def discard(self, chosen: InboxFilter, reason: str, *, limit: int) -> tuple[int, int]:
        """Marks rows to be discarded, the first `limit` chosen ones that wait, with a `reason`, which is not empty: the
        next worker that claims one ends it unhandled. A row whose claim has lapsed waits, too, and that claim loses it.
        Returns (number of marked rows, number of chosen rows that stay as they are because a worker has claimed them).
        """
        waits = and_(_C.done_at.is_(None), _C.outcome == "", _C.claimed_until <= now_ms())
        claimed = and_(_C.done_at.is_(None), _C.claimed_until > now_ms())
        picked = self._picked(limit, _among(chosen), waits)
        change = update(TABLE).where(_C.id.in_(picked), waits)
        with self._engine.begin() as connection:
            left = connection.execute(select(func.count()).where(_among(chosen), claimed)).scalar_one()
            # without the claim, or a worker whose claim lapsed renews it and handles the row nevertheless
            values = {"outcome": InboxStatus.DISCARDED.value, "reason": reason, "claimed_by": "", "claimed_until": 0}
            return connection.execute(change.values(**values)).rowcount, int(left)

    @staticmethod
    def _picked(limit: int, *conditions: ColumnElement[bool]) -> Select[tuple[int]]:
        return select(_C.id).where(*conditions).order_by(_C.id).limit(limit)


def _among(choice: InboxFilter) -> ColumnElement[bool]:
    named = {"subscription": choice.subscription, "topic": choice.topic, "tenant": choice.tenant}
    parts: list[ColumnElement[bool]] = [_C[name] == value for name, value in named.items() if value is not None]
    parts += [_C.id.in_(choice.ids)] if choice.ids else []
    parts += [_status().in_([one.value for one in choice.statuses])] if choice.statuses else []
    parts += [_C.reason.contains(choice.cause, autoescape=True)] if choice.cause is not None else []
    return and_(True, *parts)


def lacking(engine: Engine) -> str:
    """Returns the remedy, as a text, if the database lacks the inbox table or columns of it; else "". Indexes, and
    types of columns, are not checked. Raises SQLAlchemyError; ValueError, TypeError or OverflowError of the driver for
    options in the address that it does not take.
    """
    if not inspect(engine).has_table(NAME):
        return f"the database has no table {NAME}: call `create_table()` of the Inbox once, or run what `kodo-consumer inbox schema` prints"
    return lacking_columns(engine, TABLE)


def open_rows(url: str) -> InboxRows:
    """Returns the inbox of the database at a URL, after a check of its table. Raises KodoctlError if the database does
    not answer or cannot be used, for a missing file of SQLite, and if the table or a column is missing; ValueError or
    TypeError as `lacking`.
    """
    engine = existing_engine(url)
    try:
        detail = lacking(engine)
    except CONNECT_ERRORS as problem:
        engine.dispose()
        raise unusable(engine.url, problem) from None
    if detail:
        engine.dispose()
        raise KodoctlError(error("K771", "inbox cannot be used", detail))
    return InboxRows(engine)
