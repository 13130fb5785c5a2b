"""Bulkheads: what a state, a level or a lane may take of a worker's slots, and what is kept for it, over random runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from kodo_consumer.core.scheduling.bulkheads import Bulkheads
from kodo_consumer.core.state.in_flight import InFlight
from kodo_consumer.core.values.envelope import State
from kodo_consumer.core.values.lane_set import ALL_LANES, Bulkhead, LaneSet, in_proportion
from kodo_consumer.core.values.outcomes import DONE, Failed, Outcome
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.message import Message

from tests.native.compiled import INTERPRETED_ONLY
from tests.unit.consumer.engine_bench import B1, L1, L2, Bench, delivery, lane_of, policy
from tests.unit.consumer.shop import Shop

RETRYING, PENDING = LaneSet((State.RETRYING,)), LaneSet((State.PENDING,))
OF_L2 = LaneSet(levels=(L2,))
SHAPE = policy()  # nine lanes: four of L2, four of L1, one of B1
READY, FAILING = lane_of(SHAPE, L1, State.READY), lane_of(SHAPE, L1, State.RETRYING)
READY_2, FAILING_2 = lane_of(SHAPE, L2, State.READY), lane_of(SHAPE, L2, State.RETRYING)


def slots(total: int, *bulkheads: Bulkhead) -> Bulkheads:
    return Bulkheads(bulkheads, SHAPE.lanes, total)


def take(of: Bulkheads, lane: int, most: int = 100) -> int:
    """Starts as many of a lane as it may, and answers how many."""
    count = 0
    while count < most and of.may_start(lane):
        of.on_start(lane)
        count += 1
    return count


def test_a_selection_has_its_lanes_and_a_name() -> None:
    assert (str(RETRYING), str(OF_L2), str(ALL_LANES)) == ("retrying", "L2", "")
    both = LaneSet((State.RETRYING, State.PENDING), (L2, L1))
    assert str(both) == "L2,L1/retrying,pending"
    assert both.has(L1, State.PENDING)
    assert not both.has(B1, State.PENDING)
    assert not both.has(L2, State.READY)
    assert RETRYING
    assert not ALL_LANES
    assert all(ALL_LANES.has(lane.level, lane.state) for lane in SHAPE.lanes)


def test_without_bulkheads_the_total_alone_counts() -> None:
    of = slots(2)
    assert not of.groups, "nobody asks it then"
    assert take(of, READY) == 2
    assert of.on_end(READY)
    assert take(of, FAILING) == 1


def test_a_maximum_holds_over_all_lanes_of_a_state() -> None:
    of = slots(32, Bulkhead(RETRYING, 8))
    assert take(of, FAILING, 5) == 5
    assert take(of, FAILING_2) == 3
    assert not of.may_start(FAILING)
    assert take(of, READY) == 24
    assert of.on_end(FAILING_2), "a lane was refused: it may start now"
    assert of.may_start(FAILING)
    assert not of.on_end(READY), "nobody was refused since"


def test_kept_slots_are_used_by_nobody_else_and_are_there_at_once() -> None:
    of = slots(8, Bulkhead(OF_L2, least=3))
    assert take(of, READY) == 5
    assert take(of, READY_2) == 3
    of.on_end(READY_2)
    assert not of.may_start(READY)
    assert of.may_start(FAILING_2)


def test_a_state_with_more_than_its_minimum_gives_back_what_others_may_use_first() -> None:
    of = slots(4, Bulkhead(OF_L2, least=2))
    assert take(of, READY_2, 4) == 4
    of.on_end(READY_2)  # three run, two in slots that are kept
    assert take(of, READY) == 1


def test_a_slot_kept_for_a_level_takes_over_a_run_of_its_other_lane() -> None:
    of = slots(4, Bulkhead(OF_L2, least=2))
    assert take(of, READY_2, 2) == 2
    assert take(of, FAILING_2, 2) == 2  # these have slots of all
    of.on_end(READY_2)
    assert take(of, READY, 4) == 1, "three of L2 run: one of them has a slot of all"


def test_a_lane_in_two_bulkheads_that_keep_slots_uses_those_of_both() -> None:
    of = slots(4, Bulkhead(RETRYING, least=2), Bulkhead(OF_L2, least=2))
    assert take(of, FAILING_2) == 4
    assert not of.may_start(READY)
    of.on_end(FAILING_2)
    assert not of.may_start(READY), "no slot is for all"


def test_a_bulkhead_whose_lanes_this_worker_does_not_read_keeps_nothing() -> None:
    lanes = policy((L1,), (State.RETRYING,)).lanes
    of = Bulkheads((Bulkhead(OF_L2, least=3), Bulkhead(RETRYING, 1)), lanes, 4)
    assert [str(group.declared.lanes) for group in of.groups] == ["retrying"]
    assert take(of, 0, 4) == 4


def test_other_bulkheads_count_at_once_for_what_runs() -> None:
    of = slots(8)
    assert take(of, FAILING, 6) == 6
    running = [6 * (lane.index == FAILING) for lane in SHAPE.lanes]
    of.apply((Bulkhead(RETRYING, 4), Bulkhead(OF_L2, least=2)), SHAPE.lanes, running)
    assert not of.may_start(FAILING)
    assert take(of, READY) == 0, "six of six slots that are for all are taken"
    assert take(of, READY_2) == 2
    for _ in range(3):
        of.on_end(FAILING)
    assert take(of, FAILING) == 1


@pytest.mark.parametrize(
    ("total", "most", "kept"),
    [
        (128, 40, [6, 3]),  # as declared
        (40, 39, [6, 3]),  # one is left for others
        (12, 11, [6, 3]),
        (10, 9, [6, 3]),  # one slot for all
        (9, 8, [5, 2]),  # eight in proportion, rounded down, so that one at least is for all
        (4, 3, [2, 1]),
        (2, 1, [0, 0]),
        (1, 1, [0, 0]),
    ],
)
def test_with_fewer_slots_than_declared_a_maximum_leaves_one_and_minimums_shrink(
    total: int, most: int, kept: list[int]
) -> None:
    of = slots(128, Bulkhead(RETRYING, 40), Bulkhead(PENDING, least=6), Bulkhead(OF_L2, least=3))
    of.resize(total)
    of.resize(total)
    assert ([group.most for group in of.groups], [group.kept for group in of.groups]) == (
        [most, None, None],
        [0, *kept],
    )
    assert take(of, FAILING) == min(most, total - sum(kept))


def test_slots_that_are_all_kept_stay_so_with_the_declared_total_and_shrink_below_it() -> None:
    of = slots(4, Bulkhead(RETRYING, least=2), Bulkhead(OF_L2, least=2))
    assert take(of, READY) == 0
    of.resize(3)
    assert take(of, READY) == 1
    too_much = slots(
        4, Bulkhead(RETRYING, least=8), Bulkhead(OF_L2, least=8)
    )  # lint forbids it, a comment may allow it
    assert [group.kept for group in too_much.groups] == [1, 1]


def test_in_proportion_to_other_slots() -> None:
    declared = (Bulkhead(RETRYING, 8, 2), Bulkhead(OF_L2, least=5))
    assert in_proportion(declared, 4, 32) == (Bulkhead(RETRYING, 1, 0), Bulkhead(OF_L2, None, 0))
    assert in_proportion(declared, 50, 1) == (Bulkhead(RETRYING, 400, 100), Bulkhead(OF_L2, None, 250))


# ---- the law, over random runs


def drawn(rng: Random) -> tuple[int, tuple[Bulkhead, ...]]:
    """Slots and bulkheads of states, levels and lanes, which may overlap."""
    total, left = rng.randint(2, 12), 0
    left = total - 1
    found = []
    states = [LaneSet((state,)) for state in (State.READY, State.RETRYING, State.PENDING)]
    several = [*states, OF_L2, LaneSet(levels=(B1,)), LaneSet((State.RETRYING,), (L2,))]
    for lanes in rng.sample(several, rng.randint(1, 4)):
        least = rng.randint(0, min(3, left))
        left -= least
        most = rng.choice([None, rng.randint(max(1, least), total)])
        found.append(Bulkhead(lanes, most, least))
    return total, tuple(found)


class Judge(Shop):
    """A worker in virtual time whose every moment is held against the law, worked out here from what runs."""

    def __init__(self, of: Policy, *, reserves: bool, **named: Any) -> None:
        self.running: Counter[int] = Counter()
        super().__init__(of, **named)
        self.reserves = reserves
        if not reserves:
            self.engine.scheduler.slots = None

    def _of(self, one: Bulkhead) -> int:
        return sum(
            count
            for index, count in self.running.items()
            if one.lanes.has(self.policy.lanes[index].level, self.policy.lanes[index].state)
        )

    def _fill(self, *, free: bool = False) -> None:
        super()._fill(free=free)
        self.check_waits()

    def check_bounds(self) -> None:
        for one in self.policy.bulkheads:
            assert one.most is None or self._of(one) <= one.most, "more than a maximum run"
            others = self.running.total() - self._of(one)
            assert others <= self.policy.concurrency - one.least, "others have slots that are kept"

    def check_waits(self) -> None:
        bulkheads = self.policy.bulkheads
        for lane, state in zip(self.policy.lanes, self.engine.lanes, strict=True):
            met = [one for one in bulkheads if one.lanes.has(lane.level, lane.state)]
            if any(one.most is not None and self._of(one) >= one.most for one in met):
                continue
            entitled = any(self._of(one) < one.least for one in met)
            assert not (state.ring and entitled), "a message waits, and slots are kept for it"
            kept = sum(one.least for one in bulkheads if one.lanes.levels or one.lanes.states)
            idle = self.policy.concurrency - self.running.total()
            assert self.reserves or not (state.ring and idle > kept), "a message waits, and slots are free"


def lane_index(message: Message) -> int:
    in_flight = message._in_flight
    assert isinstance(in_flight, InFlight)
    return in_flight.lane.lane.index


def judged(seed: int, *, reserves: bool = False) -> Judge:
    """One run of random arrivals, durations and failures under random bulkheads. `reserves`: quick messages have slots kept
    for them as well, by the law of slot_reservation, which no minimum waits for.
    """
    rng = Random(seed)
    total, bulkheads = drawn(rng)
    fails = rng.choice([0.0, 0.2])

    def seconds(message: Message) -> float:
        shop.running[lane_index(message)] += 1
        shop.check_bounds()
        return rng.choice([0.001, 0.05, 1.0, 8.0])

    def outcome(message: Message, _now: float) -> Outcome:
        shop.running[lane_index(message)] -= 1
        return Failed("ValueError") if rng.random() < fails else DONE

    of = replace(SHAPE, concurrency=total, bulkheads=bulkheads, in_place=(2_000,), fair_by=None)
    shop = Judge(of, reserves=reserves, seconds=seconds, outcome=outcome)
    for _ in range(rng.randint(20, 200)):
        shop.comes(rng.uniform(0, 30), "u", rng.randrange(len(SHAPE.lanes)))
    shop.run(4_000)
    return shop


@pytest.mark.parametrize("reserves", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_the_law_holds_at_every_moment_of_a_random_run(seed: int, reserves: bool) -> None:
    shop = judged(seed, reserves=reserves)
    assert len(shop.started) >= 20
    assert not any(lane.ring for lane in shop.engine.lanes), "everything was handled in the end"
    assert shop.engine.check_invariants() == []


MUTANTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "everything may start": ("may_start", lambda _: lambda _self, _lane: True),
    "a maximum is one too large": (
        "_settle",
        lambda right: (
            lambda self: (
                right(self),
                [setattr(group, "most", group.most and group.most + 1) for group in self.groups],
            )
        ),
    ),
    "a minimum is one too small": (
        "_settle",
        lambda right: (
            lambda self: (
                right(self),
                [setattr(group, "kept", max(0, group.kept - 1)) for group in self.groups],
                setattr(self, "_common", self._common + sum(group.declared.least > 0 for group in self.groups)),
            )
        ),
    ),
    "all slots are for all": (
        "_settle",
        lambda right: lambda self: (right(self), setattr(self, "_common", self._total)),
    ),
    "a slot is never returned": ("_vacate", lambda _: lambda _self, _lane: None),
    "kept slots are not used first": (
        "_seat",
        lambda _: (
            lambda self, lane: (
                [setattr(group, "running", group.running + 1) for group in self._by_lane[lane]],
                self._common_users.__setitem__(lane, self._common_users[lane] + 1),
                setattr(self, "_common", self._common - 1),
            )
        ),
    ),
}


@pytest.fixture(params=MUTANTS)
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The law with one thing wrong."""
    name, made = MUTANTS[request.param]
    monkeypatch.setattr(Bulkheads, name, made(getattr(Bulkheads, name)))
    return str(request.param)


@INTERPRETED_ONLY
def test_a_law_broken_in_one_place_is_caught(broken: str) -> None:
    for seed in range(40):
        try:
            judged(seed)
        except (AssertionError, StopIteration):
            return
    pytest.fail(f"not caught in 40 runs: {broken}")


# ---- the whole engine


@pytest.mark.simulated
def test_hanging_retries_take_no_more_than_their_slots() -> None:
    """Issue 20: 200 retrying messages of 30 s, and ready ones of 10 ms that a single slot could carry."""
    of = policy((L1,), (State.RETRYING,), concurrency=16, bulkheads=(Bulkhead(RETRYING, 8),), fair_by="u")
    shop = Shop(of, lambda message: 29.0 if message.state is State.RETRYING else 0.01)
    for number in range(200):
        shop.comes(0.0, f"slow{number}", lane_of(of, L1, State.RETRYING))
    for number in range(6_000):
        shop.comes(0.01 * number, f"quick{number % 60}", lane_of(of, L1, State.READY))
    shop.run(60.0)
    waits = shop.waits("quick")
    assert len(waits) == 6_000
    assert waits[-1] <= 0.05
    assert len(shop.waits("slow")) == 24, "eight at a time, for a minute"


def test_with_adaptive_concurrency_kept_slots_follow_what_there_is() -> None:
    bulkheads = (Bulkhead(RETRYING, 100), Bulkhead(OF_L2, least=2))
    bench = Bench(policy(concurrency=128, adaptive=True, bulkheads=bulkheads))
    bench.engine.scheduler.slots = None  # its law is another one's
    bench.give(*(delivery(number) for number in range(100)), state=State.RETRYING)
    assert len(bench.take_all()) == 6, "of eight slots two are kept"
    bench.give(*(delivery(number) for number in range(200, 300)), level=L2)
    assert len(bench.take_all()) == 2
    adaptive = bench.engine.scheduler.throttle.adaptive
    assert adaptive is not None
    adaptive.limit = 20
    assert len(bench.take_all()) == 12


def test_bulkheads_of_a_changed_file_count_for_the_next_start() -> None:
    bench = Bench(policy(concurrency=8))
    bench.engine.scheduler.slots = None  # its law is another one's
    bench.give(*(delivery(number) for number in range(20)), state=State.RETRYING)
    assert bench.engine.take() is not None
    bench.engine.apply_policy(replace(bench.policy, bulkheads=(Bulkhead(RETRYING, 3),)))
    assert len(bench.take_all()) == 2
    bench.engine.apply_policy(replace(bench.policy, bulkheads=()))
    assert len(bench.take_all()) == 17, "the total is kept by those who run handlers"


def test_a_refused_lane_is_announced_when_a_slot_of_it_is_returned() -> None:
    bench = Bench(policy(concurrency=8, bulkheads=(Bulkhead(RETRYING, 1),)))
    bench.give(delivery(1), delivery(2), state=State.RETRYING)
    (first,) = bench.take_all()
    before = bench.engine.version
    bench.engine.finish(first, DONE)
    assert bench.engine.version > before
    assert len(bench.take_all()) == 1
