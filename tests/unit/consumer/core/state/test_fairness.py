"""Laws of the lanes' weights and of the tenants' turns."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from kodo_consumer.core.state.fairness import StartTimeFairQueue
from kodo_consumer.core.state.tenant_queue import TenantQueue
from kodo_consumer.core.state.tenant_ring import MAX_TENANTS, DeficitRoundRobin

from tests.samples.profiles import examples

WEIGHTS = st.lists(st.integers(0, 200), min_size=1, max_size=8).filter(any)


def _next(shares: StartTimeFairQueue) -> int:
    lane = shares.order()[0]
    shares.charge(lane)
    return lane


@given(WEIGHTS, st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=60), st.data())
def test_lanes_with_work_get_exactly_their_weight_in_any_full_cycle(
    weights: list[int], past: list[tuple[int, bool]], data: st.DataObject
) -> None:
    """Whatever happened before: lanes came and went, and were served."""
    shares = StartTimeFairQueue(weights)
    for lane, leaves in past:
        if lane < len(weights):
            shares.activate(lane)
            _next(shares)
            if leaves:
                shares.deactivate(lane)
    weighted = [lane for lane, weight in enumerate(weights) if weight]
    busy = data.draw(st.lists(st.sampled_from(weighted), min_size=1, unique=True))
    for lane in range(len(weights)):
        shares.activate(lane) if lane in busy else shares.deactivate(lane)
    cycle = sum(weights[lane] for lane in busy)
    for _ in range(data.draw(st.integers(0, cycle))):
        _next(shares)
    assert Counter(_next(shares) for _ in range(cycle)) == {lane: weights[lane] for lane in busy}


@given(WEIGHTS)
def test_an_empty_lanes_share_is_used_at_once_and_never_caught_up(weights: list[int]) -> None:
    shares = StartTimeFairQueue(weights)
    first = next(lane for lane, weight in enumerate(weights) if weight)
    shares.activate(first)
    assert {_next(shares) for _ in range(500)} == {first}
    for lane in range(len(weights)):
        shares.activate(lane)
    served = Counter(_next(shares) for _ in range(sum(weights)))
    assert all(served[lane] <= weight for lane, weight in enumerate(weights))


def test_turns_are_spread_over_the_cycle() -> None:
    shares = StartTimeFairQueue([3, 1])
    shares.activate(0)
    shares.activate(1)
    assert [_next(shares) for _ in range(8)] == [0, 1, 0, 0, 0, 1, 0, 0]


def test_a_lane_of_weight_0_is_served_when_no_other_has_work() -> None:
    shares = StartTimeFairQueue([0, 1, 0])
    for lane in range(3):
        shares.activate(lane)
    assert {_next(shares) for _ in range(10)} == {1}
    shares.deactivate(1)
    assert Counter(_next(shares) for _ in range(10)) == {0: 5, 2: 5}
    shares.activate(1)
    assert _next(shares) == 1


def test_with_no_weight_at_all_lanes_take_turns() -> None:
    shares = StartTimeFairQueue([0, 0])
    assert shares.order() == ()
    shares.activate(0)
    shares.activate(0)
    shares.activate(1)
    assert [_next(shares) for _ in range(4)] == [0, 1, 0, 1]
    shares.deactivate(0)
    shares.deactivate(0)
    assert shares.order() == (1,)


def test_a_flooding_tenant_delays_others_by_one_turn() -> None:
    ring: DeficitRoundRobin[str] = DeficitRoundRobin()
    for _ in range(100_000):
        ring.push("noisy", "noisy")
    ring.take()
    ring.push("quiet", "quiet")
    assert [ring.take() for _ in range(2)] == ["noisy", "quiet"]


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(1, 5), st.integers(1, 40)), min_size=1),
)
def test_every_tenant_is_served_its_weight_a_turn_in_its_own_order(tenants: dict[str, tuple[int, int]]) -> None:
    ring: DeficitRoundRobin[tuple[str, int]] = DeficitRoundRobin()
    for tenant, (weight, count) in tenants.items():
        for number in range(count):
            ring.push(tenant, (tenant, number), weight)
    assert len(ring) == len(list(ring)) == sum(count for _, count in tenants.values())
    taken = []
    while (item := ring.take()) is not None:
        taken.append(item)
    assert len(ring) == 0
    for tenant, (weight, count) in tenants.items():
        assert [number for name, number in taken if name == tenant] == list(range(count))
        at = [index for index, (name, _) in enumerate(taken) if name == tenant]
        others = sum(other for name, (other, _) in tenants.items() if name != tenant)
        assert all(later - earlier - 1 <= others for earlier, later in pairwise(at))
        assert all(at[i + weight] - at[i] >= weight for i in range(count - weight))


def test_one_tenant_may_be_passed_over() -> None:
    ring: DeficitRoundRobin[int] = DeficitRoundRobin()
    ring.push("a", 1)
    ring.push("a", 2)
    assert ring.take(passing_over={"a"}) is None
    ring.push("b", 3)
    assert ring.take(passing_over={"a"}) == 3
    assert ring.take(passing_over={"a"}) is None
    assert ring.take() == 1
    assert ring.take(passing_over={"b"}) == 2
    assert ring.take() is None


def test_a_turn_that_was_passed_over_is_gone_with_what_was_left_of_it() -> None:
    ring: DeficitRoundRobin[str] = DeficitRoundRobin()
    for _ in range(6):
        ring.push("a", "a", 3)
        ring.push("b", "b")
    assert ring.take() == "a"
    assert ring.take(passing_over={"a"}) == "b"
    assert [ring.take() for _ in range(4)] == ["a", "a", "a", "b"]


def test_an_item_may_come_first() -> None:
    ring: DeficitRoundRobin[int] = DeficitRoundRobin()
    ring.push("a", 1)
    ring.push("a", 0, first=True)
    assert [ring.take(), ring.take()] == [0, 1]


def test_tenants_without_items_are_forgotten_when_there_are_many() -> None:
    ring: DeficitRoundRobin[int] = DeficitRoundRobin()
    for number in range(3 * MAX_TENANTS):
        ring.push(f"t{number}", number)
        ring.push("regular", number)
        assert {ring.take(), ring.take()} == {number}
    assert len(ring._queues) <= MAX_TENANTS + 1
    assert "regular" in ring._queues


def test_the_newest_of_a_tenant_are_seen_without_taking_them() -> None:
    ring = DeficitRoundRobin[int]()
    for number in range(5):
        ring.push("a", number)
    assert (ring.sample("a", 3), ring.sample("a", 9), ring.sample("b", 3)) == ([4, 3, 2], [4, 3, 2, 1, 0], [])
    assert len(ring) == 5


def _is_whole(ring: DeficitRoundRobin[int]) -> None:
    for rounds, slow in ((ring.quick, False), (ring.slow, True)):
        listed = list(rounds)
        assert len(listed) == rounds.count
        assert bool(rounds.current) == bool(listed), "somebody has the turn where anybody waits"
        assert all(queue.listed and queue.in_slow is slow for queue in listed)
    assert len(ring) == len(list(ring)) == sum(count for _, count in ring.sizes())


@given(st.integers(0, 1 << 32))
@examples(300)
def test_whatever_happens_to_a_ring_everybody_who_waits_has_a_turn_in_it(seed: int) -> None:
    rng, ring = Random(seed), DeficitRoundRobin[int]()
    queues: dict[str, TenantQueue[int]] = {}
    for number in range(200):
        tenant, queue = (one := rng.choice("abcde")), queues.get(one)
        match rng.randrange(10):
            case 0 | 1 | 2:
                queues[tenant] = ring.push(tenant, number, rng.choice([1, 1, 2, 3]), first=rng.random() < 0.2)
            case 3 | 4:
                over = frozenset(rng.sample("abcde", rng.randrange(3)))
                may = rng.choice([None, lambda *_: False, lambda *_: True])
                ring.take(over, slow=rng.random() < 0.5, may_start_newcomer=may)
            case 5 if queue is not None:
                ring.charge(queue, rng.choice([1, 15, 200, 3_000]))
            case 6 if queue is not None:
                queue.slow = True
                ring.remember(queue)
            case 7 if queue is not None and queue.slow:
                queue.slow = False
                ring.on_recovery(queue)
            case 8:
                ring.take_excess(tenant, 1)
                ring.reweigh({tenant: 2})
            case 9 if rng.random() < 0.1:
                ring.clear()
        ring.newcomers_slow = rng.choice([None, True, False])
        _is_whole(ring)
    for slow in (False, True, False, True):
        while ring.take(slow=slow) is not None:
            _is_whole(ring)
    assert len(ring) == 0


def test_a_paused_tenant_keeps_nobody_whose_turn_is_rounds_away() -> None:
    ring: DeficitRoundRobin[str] = DeficitRoundRobin()
    ring.push("paused", "paused")
    for _ in range(3):
        queue = ring.push("busy", "busy")
    ring.charge(queue, 5_000)
    assert [ring.take({"paused"}) for _ in range(4)] == ["busy", "busy", "busy", None]
    assert ring.take() == "paused"


def test_after_everything_was_dropped_nobody_is_behind_a_newcomers_flood() -> None:
    ring: DeficitRoundRobin[str] = DeficitRoundRobin()
    for _ in range(2_000):
        ring.push("a", "a")
        ring.push("b", "b")
    while ring.take() is not None:
        pass
    ring.clear()
    for _ in range(100):
        ring.push("new", "new")
    ring.push("b", "b")
    assert "b" in [ring.take() for _ in range(3)]


def test_tenants_with_messages_are_never_forgotten() -> None:
    ring: DeficitRoundRobin[int] = DeficitRoundRobin()
    for number in range(MAX_TENANTS + 50):
        ring.push(f"t{number}", number)
    assert len(ring._queues) == MAX_TENANTS + 50
    assert len(list(iter(ring.take, None))) == MAX_TENANTS + 50
