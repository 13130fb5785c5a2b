"""The turns of the inbox: which rows its claims have, renew and give back, also after the database failed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

import pytest
from kodo_consumer.core.values.broker import LaneRequest
from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.inbox import TABLE
from kodo_consumer.inbox.inbox_broker import InboxBroker
from kodo_consumer.inbox.inbox_lane import InboxLane
from kodo_consumer.inbox.inbox_row import InboxToken
from kodo_consumer.inbox.inbox_store import InboxStore
from kodo_consumer.testing import ManualClock, MemoryBroker
from sqlalchemy import Engine, update
from sqlalchemy.exc import OperationalError

from kodoctl.protocol.audit_records import Event
from tests.unit.consumer.engine_bench import delivery, policy, topic

READY = topic(Level.L1, State.READY)


class KeepingSink:
    """A sink that keeps what it gets, and starts none of it. `got`: rows that it has."""

    def __init__(self) -> None:
        self.got: list[int] = []

    def room(self) -> int:
        return 10

    def deliver(self, deliveries: Sequence[Any]) -> None:
        self.got += [one.token.row for one in deliveries]

    def withdraw(self, tokens: Collection[Any]) -> Sequence[object]:
        self.got = [row for row in self.got if row not in {token.row for token in tokens}]
        return []

    def start_until(self, moment: float) -> None: ...


def _driven(engine: Engine, kind: Any = "shared") -> tuple[InboxBroker, InboxLane, Any, ManualClock]:
    """An inbox with three rows to do, its lane, the sink of the lane, and the clock by which the test calls `turn`."""
    clock, sink, store = ManualClock(), cast("Any", KeepingSink()), InboxStore(engine, "p/n/t:s", 60_000)
    topics = MemoryBroker(clock)
    topics.create_for(policy())
    store.accept(READY, [delivery(number, b"x") for number in range(3)])
    broker = InboxBroker(topics, store, keep=60_000, clock=clock)
    lane = broker.open(LaneRequest(READY, "s", kind, "w", 10, 10, 1_000), sink)
    return broker, cast("InboxLane", lane), sink, clock


def test_claims_that_could_not_be_renewed_are_renewed_by_the_next_turn(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed: list[int] = []

    def renew(self: InboxStore, claims: object, ordered: object) -> set[int]:
        renewed.append(1)
        if len(renewed) == 1:
            raise OperationalError("update", {}, Exception("locked"))
        return set()

    monkeypatch.setattr(InboxStore, "renew", renew)
    clock = ManualClock()
    broker = InboxBroker(cast("Any", None), InboxStore(engine, "p/n/t:s", 3_000), keep=1_000, clock=clock)
    clock.advance(1.1)
    with pytest.raises(OperationalError):
        broker.turn()
    broker.turn()
    broker.turn()
    assert len(renewed) == 2


def test_rows_whose_claim_was_never_answered_are_delivered_by_the_next_turn(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, _, sink, _ = _driven(engine)
    claim = InboxStore.claim

    def lost(self: InboxStore, *given: Any, **options: Any) -> None:
        assert len(claim(self, *given, **options)) == 3
        raise OperationalError("commit", {}, Exception("connection lost"))

    with monkeypatch.context() as patched:
        patched.setattr(InboxStore, "claim", lost)
        with pytest.raises(OperationalError):
            broker.turn()
    assert sink.got == []
    broker.turn()
    assert len(sink.got) == 3
    broker.close()


def test_rows_that_could_not_be_given_back_are_given_back_by_the_next_turn(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, lane, sink, clock = _driven(engine, "key_shared")
    broker.turn()
    first, *others = sink.got
    with engine.begin() as connection:
        connection.execute(update(TABLE).where(TABLE.c.id == first).values(claimed_by="other"))

    def locked(self: InboxStore, *_: object) -> None:
        raise OperationalError("update", {}, Exception("database is locked"))

    clock.advance(30)
    with monkeypatch.context() as patched:
        patched.setattr(InboxStore, "give_back", locked)
        with pytest.raises(OperationalError):
            broker.turn()
    assert (sink.got, lane.unfinished) == ([], {})
    broker.turn()
    assert sorted(sink.got) == others
    broker.close()


def test_a_lane_that_came_back_keeps_a_row_whose_earlier_delivery_ends(engine: Engine) -> None:
    broker, lane, sink, clock = _driven(engine)
    broker.turn()
    earlier = list(lane.unfinished.values())
    lane.leave(0.0)
    lane.join()
    with engine.begin() as connection:
        connection.execute(update(TABLE).values(claimed_until=0))
    clock.advance(2)
    broker.turn()
    lane.acknowledge(earlier)
    broker.turn()
    assert len(sink.got) == 6, "each was delivered twice"
    assert set(lane.unfinished) == set(sink.got)
    broker.close()


@pytest.mark.parametrize(("kind", "dropped", "kept"), [("shared", {1}, {2, 3}), ("key_shared", {1, 2, 3}, {3})])
def test_where_order_is_kept_nothing_starts_before_a_row_that_another_worker_has(
    kind: Any, dropped: set[int], kept: set[int]
) -> None:
    class Sink:
        """A sink whose third message has started, and awaits its audit record."""

        def __init__(self) -> None:
            self.dropped: set[int] = set()

        def withdraw(self, tokens: Collection[Any]) -> Sequence[object]:
            self.dropped |= {token.row for token in tokens}
            return [token.with_end(Event.DEAD, "no") for token in tokens if token.row == 3]

        def start_until(self, moment: float) -> None:
            assert moment == 7.0

    sink: Any = Sink()
    lane = InboxLane(LaneRequest(READY, "s", kind, "w", 10, 10, 1_000), sink, lambda: None)
    lane.unfinished = {row: InboxToken(row, lane.claim, f"1:{row}:0:-1") for row in (1, 2, 3)}
    lane.on_renewed({2, 3}, 7.0)
    assert (sink.dropped, set(lane.unfinished)) == (dropped, kept)
