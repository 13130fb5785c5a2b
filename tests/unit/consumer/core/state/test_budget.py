"""The look-ahead is one budget: whatever lanes bring and in whatever order, it holds."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from kodo_consumer.core.values.broker import TOO_BIG, Rejected
from kodo_consumer.core.values.envelope import Delivery
from kodo_consumer.core.values.outcomes import DONE, DeadLettered
from kodo_consumer.core.values.policy import Policy

from tests.unit.consumer.engine_bench import L1, STATES, Bench, delivery, policy

BATCH = st.integers(1, 10_000)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("bring"), st.integers(0, 3), BATCH),
        st.tuples(st.just("handle"), st.just(0), st.integers(1, 200)),
        st.tuples(st.just("park"), st.just(0), st.integers(1, 40)),
    ),
    max_size=200,
)


class Reading:
    """Lanes that ask for room, and bring a batch later: as with threads, each may do so after others have brought theirs."""

    def __init__(self, of: Policy) -> None:
        self.bench = Bench(of)
        self.of = of
        self.allowed: set[int] = set()
        self.number = 0

    def ask(self, lane: int) -> None:
        if self.bench.engine.room(lane) > 0:
            self.allowed.add(lane)

    def bring(self, lane: int, messages: int, size: int) -> None:
        """A batch as the client cuts it: so many messages or bytes, at least one."""
        if lane not in self.allowed:
            return
        self.allowed.discard(lane)
        batch: list[Delivery] = []
        while len(batch) < min(messages, self.of.batch) and (
            not batch or (len(batch) + 1) * size <= self.of.batch_bytes
        ):
            self.number += 1
            batch.append(delivery(self.number, b"x" * size))
        self.bench.engine.deliver(lane, batch)

    def handle(self, count: int) -> None:
        for _ in range(count):
            if (message := self.bench.engine.take()) is not None:
                self.bench.engine.finish(message, DONE)

    def park(self, count: int) -> None:
        """Messages that no target takes."""
        engine = self.bench.engine
        for _ in range(count):
            if (message := engine.take()) is not None:
                engine.finish(message, DeadLettered("wrong"))
                ((ticket, _),) = self.bench.published()
                engine.receipt(ticket, Rejected(TOO_BIG))


@given(st.integers(60, 3_000), STEPS, st.integers(1, 40))
def test_held_on_its_way_and_in_receiver_queues_never_exceed_the_lookahead(
    messages: int, steps: list[tuple[str, int, int]], size: int
) -> None:
    of = policy((L1,), STATES, lookahead_messages=messages, lookahead_bytes=16_000)
    assert len(of.lanes) == 4
    reading = Reading(of)
    stock = reading.bench.engine.lookahead
    most_bytes = of.max_held_bytes + len(of.lanes) * of.batch_bytes
    assert most_bytes <= of.lookahead_bytes
    for what, lane, number in [
        *steps,
        *(("ask", lane, 0) for lane in range(4)),
        *(("bring", lane, 10_000) for lane in range(4)),
    ]:
        match what:
            case "ask":
                reading.ask(lane)
            case "bring":
                reading.bring(lane, number, size)
            case "park":
                reading.park(number)
            case _:
                reading.handle(number)
        held = Counter({state.lane.index: state.in_flight for state in reading.bench.engine.lanes})
        assert held.total() == stock.messages
        assert held.total() + len(reading.allowed) * of.batch + of.queue * len(of.lanes) <= of.lookahead_messages
        assert stock.bytes + len(reading.allowed) * of.batch_bytes <= of.lookahead_bytes
    assert reading.bench.engine.check_invariants() == []


@given(st.integers(100, 3_000), st.integers(0, 3))
def test_one_busy_lane_gets_all_but_what_is_kept_for_the_others(messages: int, busy: int) -> None:
    of = policy((L1,), STATES, lookahead_messages=messages)
    reading = Reading(of)
    for _ in range(messages):
        reading.ask(busy)
        if not reading.allowed:
            break
        reading.bring(busy, 10_000, 1)
    held = reading.bench.engine.lanes[busy].in_flight
    assert held >= of.max_held - 3 * 200
    assert held >= 3 * of.max_held // 4
    for lane in range(4):
        assert lane == busy or reading.bench.engine.room(lane) >= min(200, of.max_held // 16)


def test_large_messages_count_with_what_receiver_queues_may_have_of_them() -> None:
    of = policy((L1,), STATES, lookahead_messages=4_000, lookahead_bytes=1_000_000)
    reading = Reading(of)
    for _ in range(50):
        reading.ask(0)
        reading.bring(0, 10, 10_000)
    held = reading.bench.engine.lookahead.bytes
    assert of.queue * 10_000 > of.lookahead_bytes, "the queue alone could be more than the budget"
    assert of.max_held_bytes / 2 <= held <= of.max_held_bytes / 2 + of.batch_bytes, "half is left to work on"
