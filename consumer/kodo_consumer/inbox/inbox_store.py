"""SQL store of the inbox: every call is one short transaction. Methods raise SQLAlchemyError."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import ColumnElement, Engine, and_, delete, func, inspect, select, update

from kodo_consumer.adapters.stores.sql_tables import insert_once, now_ms
from kodo_consumer.inbox.inbox_row import delivery_of, head_of, name_of_row
from kodo_consumer.inbox.table import NAME, TABLE

if TYPE_CHECKING:
    from kodo_consumer.core.values.envelope import Delivery

_TO_DO = TABLE.c.done_at.is_(None)


class InboxBacklog(NamedTuple):
    """Rows that are to do. `waiting`: those that no worker has; `claimed`: the others; `oldest`: seconds since the first
    of all was received, 0 without any.
    """

    waiting: int
    claimed: int
    oldest: float


class InboxStore:
    """Rows of one subscription in the inbox table. `lasts`: ms that a claim lasts unless it is renewed."""

    def __init__(self, engine: Engine, subscription: str, lasts: int) -> None:
        self._engine, self._subscription, self._lasts = engine, subscription, lasts
        self._mine = TABLE.c.subscription == subscription

    def lacks_table(self) -> bool:
        """True if the database has no inbox table."""
        return not inspect(self._engine).has_table(NAME)

    def accept(self, topic: str, deliveries: Sequence[Delivery]) -> None:
        """Stores received messages of a topic, except those that are stored already. Afterwards they may be
        acknowledged.
        """
        rows = [
            {
                "subscription": self._subscription, "topic": topic, "name": name_of_row(topic, one),
                "head": head_of(one), "body": one.payload,
            }
            for one in deliveries
        ]  # fmt: skip
        with self._engine.begin() as connection:
            connection.execute(insert_once(self._engine.dialect, TABLE).values(received_at=now_ms()), rows)

    def claim(self, topic: str, claim: str, limit: int) -> list[Delivery]:
        """Claims the first rows of a topic that are to do and that no worker has, at most `limit`, and returns their
        messages in the order of receipt. Rows that this claim has already are left out, also where it lapsed: their
        messages are here. PostgreSQL skips rows that another worker is just claiming.
        """
        c = TABLE.c
        lapsed = and_(c.claimed_until <= now_ms(), c.claimed_by.is_distinct_from(claim))
        free = and_(self._mine, c.topic == topic, _TO_DO, lapsed)
        picked = select(c.id).where(free).order_by(c.id).limit(limit).with_for_update(skip_locked=True).cte("picked")
        taken = (
            update(TABLE)
            .where(c.id == picked.c.id, free)
            .values(claimed_by=claim, claimed_until=self._until())
            .returning(c.id, c.head, c.body)
        )
        with self._engine.begin() as connection:
            rows = sorted(connection.execute(taken), key=lambda row: int(row.id))
        return [delivery_of(row.id, claim, row.head, row.body) for row in rows]

    def finish(self, claim: str, rows: Collection[int]) -> int:
        """Marks rows of a claim as done. Returns the number of those that another worker has claimed meanwhile, which are
        not marked.
        """
        c = TABLE.c
        mine = and_(c.id.in_(rows), c.claimed_by == claim, _TO_DO)
        with self._engine.begin() as connection:
            return len(rows) - connection.execute(update(TABLE).where(mine).values(done_at=now_ms())).rowcount

    def renew(self, claims: Collection[str]) -> None:
        """Lets claims last anew."""
        self._set(claims, self._until())

    def release(self, claims: Collection[str]) -> None:
        """Ends claims: other workers may claim their rows at once."""
        self._set(claims, 0)

    def forget_done(self, keep: int, limit: int) -> int:
        """Deletes at most `limit` rows that were done more than `keep` ms ago. Returns the number of them."""
        c = TABLE.c
        old = select(c.id).where(self._mine, c.done_at < now_ms() - keep).limit(limit)
        with self._engine.begin() as connection:
            return connection.execute(delete(TABLE).where(c.id.in_(old))).rowcount

    def backlog(self) -> InboxBacklog:
        """Counts the rows that are to do."""
        c = TABLE.c
        by_workers = func.count().filter(c.claimed_until > now_ms())
        age = now_ms() - func.coalesce(func.min(c.received_at), now_ms())
        facts = select(func.count(), by_workers, age).where(self._mine, _TO_DO)
        with self._engine.connect() as connection:
            every, claimed, oldest = connection.execute(facts).one()
        return InboxBacklog(int(every) - int(claimed), int(claimed), max(0.0, int(oldest) / 1000))

    def counts(self) -> dict[str, int]:
        """Returns the number of rows: `waiting` (to do, and no worker has it), `claimed` and `done`."""
        to_do = self.backlog()
        with self._engine.connect() as connection:
            done = connection.execute(select(func.count()).where(self._mine, ~_TO_DO)).scalar_one()
        return {"waiting": to_do.waiting, "claimed": to_do.claimed, "done": int(done)}

    def _set(self, claims: Collection[str], until: int | ColumnElement[int]) -> None:
        mine = and_(TABLE.c.claimed_by.in_(claims), _TO_DO)
        with self._engine.begin() as connection:
            connection.execute(update(TABLE).where(mine).values(claimed_until=until))

    def _until(self) -> ColumnElement[int]:
        return now_ms() + self._lasts
