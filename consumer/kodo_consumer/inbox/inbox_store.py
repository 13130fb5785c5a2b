"""SQL store of the inbox: every call is one short transaction, `counts` two. Methods raise SQLAlchemyError."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Engine, and_, delete, exists, func, select, update

from kodo_consumer.adapters.stores.sql_tables import insert_once, now_ms
from kodo_consumer.core.state.in_flight import order_key
from kodo_consumer.inbox.inbox_row import ClaimedRow, InboxToken, delivery_of, hashed, head_of, name_of_row
from kodo_consumer.inbox.table import NAME, TABLE
from kodoctl.protocol.audit_records import MAX_TEXT, Event
from kodoctl.text.escaping import one_line, printable

if TYPE_CHECKING:
    from kodo_consumer.core.values.envelope import Delivery

_TO_DO = TABLE.c.done_at.is_(None)
_EARLIER: Final = TABLE.alias("earlier")
MAX_TENANT: Final = 200
TenantOf = Callable[[Mapping[str, str], str], str]


def no_tenant(_properties: Mapping[str, str], _key: str) -> str:
    """Returns "": a TenantOf for inboxes that keep no tenants."""
    return ""


class InboxBacklog(NamedTuple):
    """Rows of a subscription that are not done. `waiting`: number of those that no worker has claimed, or whose claim
    has lapsed; `claimed`: number of those whose claim lasts; `oldest`: seconds since the first of both was received; 0
    if there is none.
    """

    waiting: int
    claimed: int
    oldest: float


class InboxStore:
    """Rows of one subscription in the inbox table. `lasts`: ms that a claim lasts unless it is renewed. Names of claims
    must differ from all others in the database: methods that take claims or tokens do not look at the subscription.
    """

    def __init__(self, engine: Engine, subscription: str, lasts: int) -> None:
        self.lasts = lasts
        self._engine, self._subscription = engine, subscription
        self._mine = TABLE.c.subscription == subscription

    def accept(
        self, topic: str, deliveries: Sequence[Delivery], tenant_of: TenantOf = no_tenant, *, ordered: bool = False
    ) -> Mapping[str, str]:
        """Stores received messages of a topic (one at least) in one transaction, except repeats of messages whose rows
        are still there, done or not. All may be acknowledged afterwards. Returns the name of each message's row by the
        message's position; a repeat has the name of the row that was there. `tenant_of`: returns the tenant by
        properties and key. `ordered`: the order of each key is to be kept. Raises SQLAlchemyError; KodoctlError for
        another database than SQLite and PostgreSQL.
        """
        names = {one.position: name_of_row(topic, one) for one in deliveries}
        rows = [
            {
                "subscription": self._subscription, "topic": topic, "name": names[one.position],
                "position": one.position, "head": head_of(one), "body": one.payload,
                "order_key": hashed(order_key(one)) if ordered else None,
                "tenant": printable(tenant_of(one.properties, one.key))[:MAX_TENANT],
            }
            for one in deliveries
        ]  # fmt: skip
        with self._engine.begin() as connection:
            connection.execute(insert_once(self._engine.dialect, TABLE).values(received_at=now_ms()), rows)
        return names

    def repeats(self, names: Mapping[str, str]) -> set[str]:
        """Returns the positions of accepted messages that have no row of their own, because they repeat a message that
        was stored at another position. A message that came again from the same position is not among them. `names`: as
        `accept` returned it.
        """
        c = TABLE.c
        rows = select(c.name, c.position).where(self._mine, c.name.in_(names.values()))
        with self._engine.connect() as connection:
            first = {row.name: row.position for row in connection.execute(rows)}
        return {position for position, name in names.items() if first.get(name, position) != position}

    def claim(self, topic: str, claim: str, limit: int, *, ordered: bool = False) -> list[Delivery]:
        """Claims the first rows of a topic that are to do and that no other claim has (or whose claim has lapsed), at
        most `limit`, under the name `claim`, and returns their messages in the order of receipt. Rows that were claimed
        under this name before are left out, also if the claim lapsed or was released, because their messages were
        delivered to this worker; `give_back` ends that. PostgreSQL skips rows that others are just changing.

        `ordered`: rows are left out while another claim that has not lapsed has an earlier one of their key. Claims of
        one topic then wait for one another in PostgreSQL, as writes always do in SQLite.
        """
        c = TABLE.c
        lapsed = and_(c.claimed_until <= now_ms(), c.claimed_by.is_distinct_from(claim))
        free = and_(self._mine, c.topic == topic, _TO_DO, lapsed)
        if ordered:
            free = and_(free, ~self._earlier_elsewhere(claim))
        picked = select(c.id).where(free).order_by(c.id).limit(limit).with_for_update(skip_locked=True).cte("picked")
        taken = (
            update(TABLE)
            .where(c.id == picked.c.id, free)
            .values(claimed_by=claim, claimed_until=self._until())
            .returning(c.id, c.position, c.head, c.body, c.retries, c.reason)
        )
        with self._engine.begin() as connection:
            if ordered:
                self._lock_order(connection, [topic])
            rows = sorted((ClaimedRow(*row) for row in connection.execute(taken)), key=lambda row: row.id)
        return [delivery_of(row, claim) for row in rows]

    def finish(self, tokens: Collection[InboxToken]) -> list[InboxToken]:
        """Marks rows as done, with the outcomes in their tokens, also if their claim has lapsed. Returns the tokens of
        rows that it did not mark, because the claim in the token does not have the row any more, or the row was done
        before.
        """
        c, ended, lost = TABLE.c, defaultdict[tuple[str, Event, str], dict[int, InboxToken]](dict), list[InboxToken]()
        for token in tokens:
            ended[token.claim, *token.end][token.row] = token
        with self._engine.begin() as connection:
            for (claim, event, reason), of in ended.items():
                mine = and_(c.id.in_(of), c.claimed_by == claim, _TO_DO)
                values = {"outcome": event.value, "reason": one_line(reason, MAX_TEXT) or None}
                change = update(TABLE).where(mine).values(done_at=now_ms(), **values).returning(c.id)
                marked = set(connection.execute(change).scalars())
                lost += [token for row, token in of.items() if row not in marked]
        return lost

    def renew(self, claims: Collection[str], ordered: Collection[str] = ()) -> set[int]:
        """Lets claims last anew, also lapsed ones. Returns the ids of the rows that they have and that are to do,
        without those that other claims took over. `ordered`: topics on which the order of each key is kept: PostgreSQL
        first waits until no other worker claims or renews rows of this subscription there, as SQLite does in any case.
        """
        mine = and_(TABLE.c.claimed_by.in_(claims), _TO_DO)
        change = update(TABLE).where(mine).values(claimed_until=self._until()).returning(TABLE.c.id)
        with self._engine.begin() as connection:
            self._lock_order(connection, ordered)
            return set(connection.execute(change).scalars())

    def _lock_order(self, connection: Connection, topics: Collection[str]) -> None:
        """Waits in PostgreSQL until no other worker claims or renews rows of these topics: the next statement sees what
        the others did, until the transaction ends. In SQLite writes wait for one another anyway.
        """
        if self._engine.dialect.name == "postgresql":
            for topic in sorted(topics):
                key = func.hashtext(f"{NAME} {self._subscription} {topic}")
                connection.execute(select(func.pg_advisory_xact_lock(key)))

    def give_back(self, rows: Collection[int], claims: Collection[str]) -> None:
        """Ends the claims of the rows with these ids, except rows that none of `claims` has, and done ones: any worker,
        this one too, may claim the rows at once.
        """
        mine = and_(TABLE.c.id.in_(rows), TABLE.c.claimed_by.in_(claims), _TO_DO)
        with self._engine.begin() as connection:
            connection.execute(update(TABLE).where(mine).values(claimed_by="", claimed_until=0))

    def release(self, claims: Collection[str]) -> None:
        """Ends claims: others may claim the rows at once. Until somebody does, `finish` still marks them as done."""
        mine = and_(TABLE.c.claimed_by.in_(claims), _TO_DO)
        with self._engine.begin() as connection:
            connection.execute(update(TABLE).where(mine).values(claimed_until=0))

    def forget_done(self, keep: int, limit: int) -> int:
        """Deletes at most `limit` rows of this subscription that were done more than `keep` ms ago. Returns the number
        of deleted rows.
        """
        c = TABLE.c
        old = select(c.id).where(self._mine, c.done_at < now_ms() - keep).limit(limit)
        with self._engine.begin() as connection:
            return connection.execute(delete(TABLE).where(c.id.in_(old))).rowcount

    def backlog(self) -> InboxBacklog:
        """Counts the rows of this subscription that are not done. Blocks for a query. Raises SQLAlchemyError."""
        c = TABLE.c
        by_workers = func.count().filter(c.claimed_until > now_ms())
        age = now_ms() - func.coalesce(func.min(c.received_at), now_ms())
        facts = select(func.count(), by_workers, age).where(self._mine, _TO_DO)
        with self._engine.connect() as connection:
            every, claimed, oldest = connection.execute(facts).one()
        return InboxBacklog(int(every) - int(claimed), int(claimed), max(0.0, int(oldest) / 1000))

    def counts(self) -> dict[str, int]:
        """Returns the number of rows of this subscription: `waiting` (to do, and no worker has it), `claimed` and
        `done` (as long as they are kept). Counts by two queries, one after the other.
        """
        to_do = self.backlog()
        with self._engine.connect() as connection:
            done = connection.execute(select(func.count()).where(self._mine, ~_TO_DO)).scalar_one()
        return {"waiting": to_do.waiting, "claimed": to_do.claimed, "done": int(done)}

    def _earlier_elsewhere(self, claim: str) -> ColumnElement[bool]:
        """Condition: another claim has an earlier row of the same key."""
        c, e = TABLE.c, _EARLIER.c
        same = and_(e.subscription == c.subscription, e.topic == c.topic, e.order_key == c.order_key, e.id < c.id)
        return exists().where(same, e.done_at.is_(None), e.claimed_until > now_ms(), e.claimed_by != claim)

    def _until(self) -> ColumnElement[int]:
        return now_ms() + self.lasts
