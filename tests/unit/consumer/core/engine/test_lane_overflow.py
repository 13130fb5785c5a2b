"""What isolation moved aside: its lane waits with it in memory, and what is more than that goes back to the broker, once."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from dataclasses import replace

import pytest
from kodo_consumer.core.state_machine import ISOLATED_REASON, PUT_BACK_REASON
from kodo_consumer.core.values.broker import Confirmed
from kodo_consumer.core.values.delay_schedule import JITTER
from kodo_consumer.core.values.envelope import Delivery, Level, Outgoing, State
from kodo_consumer.core.values.outcomes import DONE
from kodo_consumer.core.values.policy import IsolationPolicy
from kodo_consumer.testing import ManualClock
from kodo_consumer.testing.manual_clock import START_WALL

from kodoctl.protocol import properties as names
from tests.unit.consumer.engine_bench import Bench, delivery, lane_of, policy, store_all

L1, B1, PENDING, READY = Level.L1, Level.B1, State.PENDING, State.READY
POLICY = policy(
    levels=(L1, B1), fair_by="u", horizon=3_600_000, concurrency=10**6, lookahead_messages=1_000,
    isolate=IsolationPolicy(0.25, 10, "B1"),
)  # fmt: skip
EARLY = POLICY.max_early
PLACES = [(B1, READY), (L1, PENDING)]


def aside(number: int, seconds: float = 60, reason: str = ISOLATED_REASON, tenant: str = "noisy") -> Delivery:
    """A message as isolation moves it."""
    due = START_WALL + round(seconds * 1000)
    return delivery(number, u=tenant, kodo_hop=1, kodo_due=due, kodo_reason=reason, kodo_for="s")


def handled(bench: Bench) -> list[str]:
    """Tenants of everything that may start now, which is done then."""
    taken = bench.take_all()
    for message in taken:
        bench.engine.finish(message, DONE)
    return [message.tenant for message in taken]


def reasons_of(bench: Bench) -> list[str]:
    """Reasons of what is published, which is stored then."""
    out = bench.published()
    bench.engine.context.effects.publish = out
    store_all(bench)
    return [message.properties[names.REASON] for _, message in out]


def go_on(bench: Bench, second: int) -> None:
    """One more second of a flood that fills half of the look-ahead again."""
    bench.give(*(delivery(10_000 + second * 1_000 + one, u="noisy") for one in range(1_000)))
    bench.later(1)


def test_a_flood_leaves_without_due_times_of_the_brokers_and_says_when_it_is_due() -> None:
    bench = Bench(POLICY)
    bench.give(*(delivery(number, u="noisy") for number in range(600)))
    assert bench.engine.room(0) >= 0
    bench.engine.isolation.on_full(bench.clock.now())
    bench.later(0)
    out = [message for _, message in bench.published()]
    assert len(out) > 300
    assert {message.deliver_at for message in out} == {None}
    assert all(int(message.properties[names.DUE]) >= START_WALL + 60_000 for message in out)
    assert bench.engine.check_invariants() == []


@pytest.mark.parametrize(("level", "state"), PLACES)
def test_its_lane_waits_with_it_and_never_starts_it_early(level: Level, state: State) -> None:
    bench = Bench(POLICY)
    bench.give(*(aside(number, 60 + number) for number in range(EARLY)), level=level, state=state)
    bench.give(delivery(9_999, u="quiet", kodo_hop=1, kodo_for="s"), level=level, state=state)
    assert handled(bench) == ["quiet"], "who is behind the flood goes first"
    assert bench.published() == []
    bench.later(59.9)
    assert handled(bench) == []
    bench.later(0.2)
    assert len(handled(bench)) == 1
    bench.later(EARLY)
    assert len(handled(bench)) == EARLY - 1
    assert bench.alarms() == [], "that it came early says nothing of the broker"


@pytest.mark.parametrize(("level", "state"), PLACES)
def test_what_is_more_goes_to_the_end_of_the_same_lane_once_and_the_broker_waits(level: Level, state: State) -> None:
    bench = Bench(POLICY)
    bench.give(*(aside(number) for number in range(EARLY + 50)), level=level, state=state)
    out = [message for _, message in bench.published()]
    assert len(out) == 50
    for message in out:
        due = message.deliver_at
        assert due is not None
        assert message.topic == POLICY.targets[level, state].topic
        assert 60_000 <= due - START_WALL <= 60_000 + JITTER
        assert (message.properties[names.DUE], message.properties[names.HOP]) == (str(due), "2")
        assert message.properties[names.REASON] == PUT_BACK_REASON
    assert bench.engine.check_invariants() == []
    assert bench.acknowledged() == [], "not before its receipt"


def test_the_receipt_of_what_was_put_back_ends_it_here() -> None:
    bench = Bench(POLICY)
    bench.give(*(aside(number) for number in range(EARLY + 5)), level=B1)
    store_all(bench)
    assert bench.acknowledged() == list(range(EARLY, EARLY + 5))
    assert bench.engine.counts.finished["put_back"] == 5


@pytest.mark.parametrize("beyond", [-1, 0, 5])
def test_at_the_limit_of_hops_a_full_lane_is_no_death(beyond: int) -> None:
    bench = Bench(POLICY)
    bench.give(*(aside(number) for number in range(EARLY)), level=B1)
    properties = {**aside(EARLY).properties, names.HOP: str(POLICY.max_hops + beyond)}
    bench.give(aside(EARLY)._replace(properties=properties), level=B1)
    ((_, message),) = bench.published()
    assert message.topic == POLICY.targets[B1, READY].topic
    assert message.properties[names.HOP] == str(POLICY.max_hops)


def test_what_comes_early_once_more_is_not_put_back_for_ever() -> None:
    """Where delayed delivery is off it would come at once, again and again, until it had too many hops."""
    bench = Bench(POLICY)
    bench.give(*(aside(number, reason=PUT_BACK_REASON) for number in range(EARLY + 50)), level=B1)
    assert bench.published() == []
    assert bench.engine.counts.hurried == 50


@pytest.mark.parametrize("isolate", [None, IsolationPolicy(0.25, 10, "pending")])
def test_a_sender_of_a_ready_topic_that_isolates_nobody_gets_nothing_for_saying_so(
    isolate: IsolationPolicy | None,
) -> None:
    bench = Bench(replace(POLICY, isolate=isolate))
    bench.give(*(aside(number, 3_000) for number in range(EARLY + 50)), level=B1)
    assert bench.published() == [], "nothing is stored for it"
    assert bench.engine.counts.hurried == 50
    assert set(bench.alarms()) == {"early"}


def test_a_lane_that_nobody_may_write_any_more_puts_nothing_back() -> None:
    bench = Bench(policy(levels=(L1, B1), draining=(B1,), fair_by="u", horizon=3_600_000, lookahead_messages=1_000))
    bench.give(*(aside(number) for number in range(EARLY + 50)), level=B1)
    assert bench.published() == []


def test_a_short_wait_stays_in_memory_however_many_wait() -> None:
    bench = Bench(POLICY)
    bench.give(*(aside(number) for number in range(EARLY)), level=B1)
    bench.give(aside(9_999, 4), level=B1)
    assert bench.published() == []
    bench.later(4.1)
    assert len(bench.take_all()) == 1


def test_a_flood_that_is_still_moved_aside_goes_first_for_a_minute_and_its_lane_is_paused() -> None:
    bench = Bench(replace(POLICY, lookahead_messages=2_000))
    early, b1 = bench.policy.max_early, lane_of(bench.policy, B1, READY)
    bench.give(*(delivery(number, u="noisy") for number in range(1_800)))
    bench.engine.isolation.on_full(bench.clock.now())
    bench.later(0)
    bench.give(*(aside(number, 900) for number in range(early + 1_500)), level=B1)
    assert PUT_BACK_REASON not in reasons_of(bench)
    assert bench.engine.room(b1) == 0
    assert bench.engine.check_invariants() == []
    for second in range(20):
        go_on(bench, second)
        assert PUT_BACK_REASON not in reasons_of(bench)
    for _ in range(3):
        bench.later(1)
    assert PUT_BACK_REASON in reasons_of(bench), "it is over"
    bench.later(1)
    assert bench.engine.room(b1) > 0


@pytest.mark.simulated
def test_a_flood_without_end_holds_up_a_lane_for_a_minute() -> None:
    bench = Bench(replace(POLICY, lookahead_messages=2_000))
    bench.give(*(delivery(number, u="noisy") for number in range(1_800)))
    bench.engine.isolation.on_full(bench.clock.now())
    bench.later(0)
    bench.give(*(aside(number, 900) for number in range(bench.policy.max_early + 10)), level=B1)
    put_back = 0
    for second in range(70):
        go_on(bench, second)
        put_back += reasons_of(bench).count(PUT_BACK_REASON)
        assert second > 50 or not put_back
    assert put_back == 10


def test_what_waits_to_be_put_back_is_released_with_its_lane() -> None:
    bench = Bench(replace(POLICY, lookahead_messages=2_000))
    bench.give(*(delivery(number, u="noisy") for number in range(1_800)))
    bench.engine.isolation.on_full(bench.clock.now())
    bench.later(0)
    bench.give(*(aside(number, 900) for number in range(bench.policy.max_early + 10)), level=B1)
    bench.engine.on_disconnect(lane_of(bench.policy, B1, READY))
    assert bench.engine.check_invariants() == []
    for _ in range(5):
        assert PUT_BACK_REASON not in reasons_of(bench)
        bench.later(1)


def test_a_clock_that_is_set_back_while_it_waits_does_not_lose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(POLICY)
    bench.give(*(aside(number, 30) for number in range(EARLY)), level=B1)
    bench.give(*(aside(number, 90) for number in range(EARLY, EARLY + 5)), level=B1)
    assert len(bench.published()) == 5
    monkeypatch.setattr(ManualClock, "wall", lambda _: START_WALL - 60_000)
    bench.later(31)
    assert bench.take_all() == []
    assert sum(1 for lane in bench.engine.lanes for _ in lane) == EARLY + 5
    assert bench.engine.check_invariants() == []


@pytest.mark.simulated
def test_after_its_minute_a_flood_still_leaves_beside_a_long_lane() -> None:
    bench = Bench(replace(POLICY, lookahead_messages=24_000))
    ready, b1 = 0, lane_of(bench.policy, B1, READY)
    numbers, out, reasons = itertools.count(), deque[tuple[int, Outgoing]](), Counter[str]()
    for _ in range(90):
        asides = min(1_000, bench.engine.room(b1))
        bench.engine.deliver(b1, [aside(next(numbers), 900) for _ in range(asides)])
        others = min(1_000, bench.engine.room(ready))
        bench.engine.deliver(ready, [delivery(next(numbers), u="noisy") for _ in range(others)])
        bench.later(1)
        out.extend(bench.published())
        stored = [out.popleft() for _ in range(min(500, len(out)))]
        bench.engine.receipts([(ticket, Confirmed("x")) for ticket, _ in stored])
        reasons = Counter(message.properties[names.REASON] for _, message in out)
    assert reasons[ISOLATED_REASON] > reasons[PUT_BACK_REASON] > 0, "of what is on its way"
    assert bench.engine.check_invariants() == []


@pytest.mark.simulated
def test_every_flood_has_a_minute_of_its_own() -> None:
    bench = Bench(replace(POLICY, lookahead_messages=2_000))
    put_back = before = 0
    for begin in (0, 200):
        bench.give(*(delivery(begin * 1_000_000 + number, u="noisy") for number in range(1_800)))
        bench.engine.isolation.on_full(bench.clock.now())
        bench.later(0)
        first = 5_000_000 + begin * 1_000_000
        bench.give(*(aside(first + number, 900) for number in range(bench.policy.max_early + 10)), level=B1)
        for second in range(begin, begin + 70):
            go_on(bench, second)
            put_back += reasons_of(bench).count(PUT_BACK_REASON)
            assert second - begin > 50 or put_back == before
        for _ in range(30):
            handled(bench)
            bench.later(1)
            put_back += reasons_of(bench).count(PUT_BACK_REASON)
        before = put_back
    assert put_back > 10
