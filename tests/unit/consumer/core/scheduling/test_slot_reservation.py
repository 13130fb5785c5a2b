"""An outage of some customers leaves all others the slots they need; and nobody is held back where nobody is slow."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import pytest
from kodo_consumer.core.scheduling.quick_load import QuickBacklog, slots_needed
from kodo_consumer.core.state.tenant_ring import MAX_TENANTS
from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.core.values.lane_set import ALL_LANES, Bulkhead
from kodo_consumer.core.values.policy import Policy

from benchmarks.consumer.outage import PLACES, Case, outage
from tests.unit.consumer.engine_bench import L1, policy
from tests.unit.consumer.shop import Shop

QUIET = [f"quiet{number}" for number in range(20)]
RETRYING = (Level.L1, State.RETRYING)
FAIR = 15  # slots that max-min fairness leaves the slow ones of sixteen: the quick ones need one


def _policy(slots: int = 16, **changes: Any) -> Policy:
    return policy((L1,), states=(), fair_by="u", concurrency=slots, handler_timeout=600_000, **changes)


def _slow(*tenants: str, seconds: float = 30.0) -> Any:
    return lambda message: seconds if message.tenant in tenants else 0.01


def _floods(shop: Shop, *tenants: str, messages: int = 500, at: float = 0.0) -> None:
    for tenant in tenants:
        for _ in range(messages):
            shop.comes(at, tenant)


def _keeps_the_promise(case: Case) -> None:
    found = outage(case, 30.0)
    assert found.started == found.sent, "every message of the others started"
    assert found.p99 <= 0.05
    assert found.most <= 0.1
    assert found.slow_slots >= 0.9 * FAIR


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("place", "customers", "seconds"), list(product(PLACES, (1, 5, 20, 50, 200), (1.0, 5.0, 30.0)))[::2]
)
def test_slow_customers_delay_nobody_else_in_whatever_state_they_are(
    place: tuple[Level, State], customers: int, seconds: float
) -> None:
    _keeps_the_promise(Case(customers, place, seconds))


@pytest.mark.simulated
@pytest.mark.parametrize("place", PLACES[1:])
def test_without_fair_by_a_slow_lane_delays_no_other(place: tuple[Level, State]) -> None:
    _keeps_the_promise(Case(50, place, 30.0, fair_by=None, weights=(100, 5, 5, 5)))


@pytest.mark.simulated
def test_after_a_burst_of_quick_messages_slow_ones_of_their_lane_do_not_have_what_the_quick_ones_need() -> None:
    """The few that wait when most are through are not all who need slots."""
    customers = [f"slow{number}" for number in range(50)]
    shop = Shop(_policy(), lambda message: 8.0 if message.tenant in customers else 0.0112)  # 1.1 slots of load
    shop.trickle([f"quick{number}" for number in range(50)], each=0.5, until=60)
    _floods(shop, *customers, messages=20, at=5.0)
    for number in range(40):
        shop.comes(20.0, f"quick{number}")
    shop.run(60)
    assert len(shop.waits("quick", 20.0)) > 4_000
    assert shop.waits("quick", 21.0)[-1] <= 0.2
    slow = sum(shop.busy[name] for name in customers)
    assert slow in {13, 14}, "as before: one slot more would leave the quick ones less than they need"


def test_a_share_goes_before_the_head_room_when_a_backlog_lasts_and_is_the_least_there_was() -> None:
    backlog = QuickBacklog()
    backlog.goes_on(5.0)
    backlog.goes_on(5.1)
    assert not backlog.counts(5.1)
    assert backlog.counts(5.11), "since it began"
    assert backlog.most_for_slow(15.5, 2, 16, 5.2) == 14
    assert backlog.most_for_slow(15.5, 2, 16, 6.1) == 15
    assert backlog.most_for_slow(3.0, 2, 16, 6.2) == 3.0
    assert backlog.most_for_slow(15.5, 2, 16, 6.3) == 3.0
    backlog.end()
    assert not backlog.counts(7.0)
    backlog.goes_on(7.0)
    assert backlog.most_for_slow(15.5, 2, 16, 8.1) == 15


@pytest.mark.simulated
@pytest.mark.parametrize("slots", [4, 8, 32, 100])
def test_with_few_slots_and_with_many(slots: int) -> None:
    found = outage(Case(50, RETRYING, 30.0, slots=slots), 30.0)
    assert found.started == found.sent
    assert found.p99 <= 0.05
    assert found.slow_slots >= slots - 3


def test_a_slow_tenant_among_quick_ones_gets_all_slots_but_those_that_they_need() -> None:
    shop = Shop(_policy(), _slow("slow"))
    shop.trickle(QUIET, each=1.0, until=45, begin=0.05)
    _floods(shop, "slow", at=3.0)
    shop.run(45)
    assert shop.most["slow"] in (13, 14, 15)
    waits = shop.waits("quiet")
    assert len(waits) > 850
    assert waits[-1] <= 0.05


@pytest.mark.simulated
def test_while_quick_ones_wait_the_slow_ones_start_up_to_their_share_only() -> None:
    """Both could use every slot: a slow tenant of eleven has a part of one in eleven, not of all but the head-room."""
    shop = Shop(_policy(), _slow("slow", seconds=5.0))
    shop.trickle(QUIET[:10], each=0.005, until=30)
    _floods(shop, "slow", at=2.0)
    shop.run(30)
    assert shop.most["slow"] <= 3
    assert sum(1 for one in shop.started if one.tenant == "slow") >= 5


@pytest.mark.simulated
@pytest.mark.parametrize(("weights", "share"), [((50, 30, 15, 5), 6.0), ((20, 80, 15, 5), 12.8), ((100, 5, 5, 5), 0.8)])
def test_a_slow_lane_and_a_quick_one_that_both_flood_share_the_slots_by_weight(
    weights: tuple[int, int, int, int], share: float
) -> None:
    shop = Shop(Case(1, RETRYING, 1.0, weights=weights).policy(), lambda m: 2.0 if m.state == "retrying" else 0.02)
    for number in range(30_000):
        shop.comes(number / 1_000, f"q{number % 30}", 0, customer=f"q{number % 30}")
    for number in range(400):
        shop.comes(2.0, f"s{number % 7}", 1, customer=f"s{number % 7}")
    shop.run(30)
    used = shop.engine.lanes[1].started * 2.0 / 28
    assert 0.8 * share <= used <= 1.25 * share + 0.5


def test_messages_of_a_paused_tenant_take_no_share_from_slow_ones() -> None:
    shop = Shop(_policy(), _slow("slow", seconds=5.0))
    _floods(shop, "paused", "other", messages=3)
    shop.run(1)
    shop.engine.apply_policy(shop.policy, paused=frozenset({"paused"}))
    _floods(shop, "slow", "paused", messages=100, at=2.0)
    shop.run(10)
    assert shop.busy["slow"] >= 13


@pytest.mark.simulated
def test_paused_slow_tenants_add_nothing_to_the_share_of_others() -> None:
    """One slow tenant of eleven, and nine that are paused: its share is one in eleven, not ten in twenty."""
    paused = [f"paused{number}" for number in range(9)]
    shop = Shop(_policy(), _slow("slow", *paused, seconds=5.0))
    _floods(shop, *paused, messages=4)
    shop.run(12)
    shop.engine.apply_policy(shop.policy, paused=frozenset(paused))
    shop.run(30)
    _floods(shop, *paused, messages=20, at=30.0)
    shop.trickle(QUIET[:10], each=0.005, until=60, begin=30.0)
    _floods(shop, "slow", at=32.0)
    shop.run(60)
    assert shop.most["slow"] <= 3
    assert sum(1 for one in shop.started if one.tenant == "slow") >= 4


def test_slow_tenants_share_slot_time_and_not_starts() -> None:
    """More of them than slots: one whose handlers take a tenth of the time starts ten times as often."""
    names = [f"slow{number}" for number in range(40)]
    shop = Shop(_policy(), lambda message: 10.0 if int(message.tenant[4:]) % 2 else 1.0)
    _floods(shop, *names, messages=600)
    shop.run(600)
    used: Counter[bool] = Counter()
    for one in shop.started:
        odd = bool(int(one.tenant[4:]) % 2)
        used[odd] += 10 if odd else 1
    assert 0.8 <= used[False] / used[True] <= 1.25


@pytest.mark.simulated
def test_slow_lanes_share_slot_time_by_weight() -> None:
    """Retrying messages run ten times as long as pending ones, and weigh twice as much."""
    case = Case(1, RETRYING, 1.0)
    shop = Shop(case.policy(), lambda message: 10.0 if message.state == "retrying" else 1.0)
    _floods_lane(shop, 1, 2_000)
    _floods_lane(shop, 2, 20_000)
    shop.run(900)
    used = [lane.started * seconds for lane, seconds in zip(shop.engine.lanes[1:3], (10.0, 1.0), strict=True)]
    assert 1.6 <= used[0] / used[1] <= 2.4


def _floods_lane(shop: Shop, lane: int, messages: int) -> None:
    for number in range(messages):
        shop.comes(0.0, f"t{number % 4}", lane, customer=f"t{number % 4}")


def test_quick_handlers_of_a_single_tenant_use_every_slot() -> None:
    shop = Shop(_policy(), _slow())
    _floods(shop, "only", messages=900)
    shop.comes(0.0, "other")
    shop.run(0.5)
    assert shop.most["only"] == 16
    assert len(shop.started) >= 0.97 * 0.5 / 0.01 * 16


def test_where_nobody_is_slow_the_throughput_is_that_of_all_slots() -> None:
    shop = Shop(_policy(), lambda _: 0.05)
    _floods(shop, *QUIET, messages=200)
    shop.run(10)
    assert len(shop.started) >= 0.97 * 16 * 10 / 0.05


def test_a_tenant_that_was_quick_and_becomes_slow_leaves_the_others_their_slots() -> None:
    shop = Shop(_policy(), lambda message: 3.0 if shop.clock.now() > 0.2 and message.tenant == "turned" else 0.01)
    _floods(shop, "turned", messages=600)
    shop.trickle(QUIET[:4], each=0.5, until=30)
    shop.run(30)
    assert shop.most["turned"] == 16
    waits = shop.waits("quiet", begin=8)
    assert waits[-1] <= 0.05


def test_a_tenant_that_recovers_is_quick_again_within_seconds() -> None:
    shop = Shop(_policy(), lambda message: 5.0 if shop.clock.now() < 20 and message.tenant == "ill" else 0.01)
    _floods(shop, "ill", messages=400)
    _floods(shop, "other", messages=40)
    shop.run(27)
    queue = shop.engine.lanes[0].ring._queues["ill"]
    assert queue.slow is False
    assert not shop.engine.lanes[0].ring, "all of it is handled"


@pytest.mark.simulated
def test_a_tenant_that_goes_back_and_forth_is_not_believed_each_time() -> None:
    """Every other handler of fifty customers hangs: the others have their slots all the same."""
    turn: Counter[str] = Counter()

    def seconds(message: Any) -> float:
        turn[message.tenant] += 1
        return 10.0 if message.tenant.startswith("half") and turn[message.tenant] % 6 == 0 else 0.01

    shop = Shop(_policy(), seconds)
    shop.trickle(QUIET, each=0.2, until=120)
    _floods(shop, *[f"half{number}" for number in range(50)], messages=200, at=5.0)
    shop.run(120)
    waits = shop.waits("quiet", begin=60)
    assert waits[int(len(waits) * 0.99)] <= 0.05


def test_relapses_are_forgotten_in_time() -> None:
    shop = Shop(_policy(), lambda message: 1.0 if message.properties.get("slow") else 0.01)
    for at, slow in ((0.0, ""), (1.0, "yes"), (3.0, ""), (4.0, ""), (5.0, ""), (6.0, "")):
        for _ in range(1 if slow or at == 0 else 4):
            shop.comes(at, "flaps", slow=slow)
    shop.run(3.5)
    queue = shop.engine.lanes[0].ring._queues["flaps"]
    assert queue.slow, "four quick ends are not enough after a relapse"
    shop.run(8)
    assert (queue.slow, queue.relapses) == (False, 1)
    for number in range(200):
        shop.comes(10 + number / 50, "flaps", slow="")
    shop.run(20)
    assert queue.relapses == 0


def test_a_slow_tenant_that_is_alone_for_a_minute_gets_every_slot() -> None:
    shop = Shop(_policy(), _slow("slow", seconds=5.0))
    _floods(shop, "slow", messages=800)
    shop.run(59)
    assert shop.most["slow"] == 15
    shop.run(80)
    assert shop.most["slow"] == 16
    shop.comes(80.5, "quiet")
    shop.run(100)
    assert shop.waits("quiet")[-1] <= 5.0
    assert shop.busy["slow"] <= 15, "somebody came: the reserve stands again"


def test_one_quick_tenant_that_has_every_start_is_not_alone_while_others_hang() -> None:
    shop = Shop(_policy(), lambda message: 300.0 if message.tenant.startswith("ill") else 0.01)
    shop.trickle(["quick"], each=1.0, until=250)
    for number in range(600):
        shop.comes(5.0, f"ill{number % 60}")
    shop.run(250)
    assert len(shop.waits("quick")) >= 249
    assert shop.waits("quick")[-1] <= 0.05


@pytest.mark.parametrize("changes", [{"slots": 1}, {"slots": 32, "bulkheads": (Bulkhead(ALL_LANES, most=2),)}])
def test_quick_ones_are_not_behind_a_slow_flood_where_no_slot_can_be_kept(changes: Any) -> None:
    shop = Shop(_policy(**changes), _slow("slow", seconds=0.6))
    _floods(shop, "slow", messages=200)
    shop.trickle(["quick"], each=0.1, until=20, begin=0.05)
    shop.run(40)
    waits = shop.waits("quick")
    assert len(waits) >= 190
    assert waits[len(waits) // 2] <= 1.0
    assert sum(1 for one in shop.started if one.tenant == "slow") >= 20


def test_a_lane_that_was_never_seen_is_tried_though_slow_ones_have_all_but_the_head_room() -> None:
    case = Case(1, RETRYING, 1.0)
    shop = Shop(case.policy(), lambda message: 60.0 if message.state == "retrying" else 0.01)
    for number in range(100):
        shop.comes(0.0, f"ill{number}", 1, customer=f"ill{number}")
    for number in range(300):
        shop.comes(30.0 + number / 20, f"new{number % 9}", 0, customer=f"new{number % 9}")
    shop.run(46)
    waits = sorted(one.wait for one in shop.started if one.tenant.startswith("new"))
    assert len(waits) == 300
    assert waits[-1] <= 0.1


@pytest.mark.simulated
def test_one_off_slow_tenants_do_not_push_out_what_is_known_of_the_regular_ones() -> None:
    shop = Shop(_policy(), lambda message: 5.0 if message.tenant.startswith("once") else 0.01)
    shop.trickle(QUIET, each=1.0, until=200)
    for number in range(MAX_TENANTS // 5):
        shop.comes(2.0 + number / 20, f"once{number}")
    shop.run(200)
    waits = shop.waits("quiet", begin=10)
    assert waits[int(len(waits) * 0.99)] <= 0.05


def test_nothing_is_reserved_where_the_time_of_a_handler_is_not_known() -> None:
    assert Shop(_policy(reserves_slots=False)).engine.scheduler.slots is None


def test_with_one_slot_turns_are_all_there_is() -> None:
    shop = Shop(_policy(1), _slow("slow", seconds=1.0))
    _floods(shop, "slow", "quick", messages=5)
    shop.run(30)
    assert len(shop.started) == 10


def test_a_slow_tenant_without_messages_is_remembered_among_a_thousand_others() -> None:
    shop = Shop(_policy(), lambda message: 1.0 if message.tenant == "slow" else 0.001)
    for number in range(1_100):
        shop.comes(0.0, f"t{number}")
    shop.comes(5.0, "slow")
    shop.run(10)
    assert shop.engine.lanes[0].ring._queues["slow"].slow


def test_slots_needed_are_those_of_erlangs_formula() -> None:
    """With one slot's load, one slot is never enough; a margin that grows as the root of the load is."""
    assert [slots_needed(load, 0.01, 1_000) for load in (0.0, 0.1, 1.0, 4.0, 100.0)] == [1, 1, 2, 5, 101]
    assert slots_needed(4.0, 1.0, 1_000) > slots_needed(4.0, 0.01, 1_000), "longer handlers free slots less often"
    assert slots_needed(50.0, 0.01, 16) == 15
    assert slots_needed(0.0, 0.0, 2) == 1
