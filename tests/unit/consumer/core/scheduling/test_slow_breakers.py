"""Slow tenants are noticed by the breaker of their lane, which opens for what fails there, and stops nobody else."""

from __future__ import annotations

import re
from typing import Any

import pytest
from kodo_consumer.core.scheduling.circuit_breaker import BreakerState
from kodo_consumer.core.scheduling.slow_breakers import LaneBreaker, SlowCallRate
from kodo_consumer.core.values.envelope import State
from kodo_consumer.core.values.lane_set import Bulkhead, LaneSet
from kodo_consumer.core.values.outcomes import DONE, TOOK_TOO_LONG, DependencyUnavailable, Outcome

from benchmarks.consumer.outage import PLACES, Case, outage
from tests.unit.consumer.engine_bench import L1, policy
from tests.unit.consumer.shop import Shop

RETRYING = 1  # index of the lane


def _shop(seconds: Any, outcome: Any = lambda _message, _now: DONE, slots: int = 16, **changes: Any) -> Shop:
    values: dict[str, Any] = {"fair_by": "u", "concurrency": slots, "handler_timeout": 600_000, "in_place": ()}
    return Shop(policy((L1,), (State.RETRYING,), **(values | changes)), seconds, outcome)


def _ill(message: Any) -> bool:
    return bool(message.properties["u"].startswith("ill"))


def _alarms(shop: Shop, *kinds: str) -> list[tuple[str, bool]]:
    return [(one.text, one.good) for one in shop.engine.context.effects.alarms if one.kind in (kinds or ("outage",))]


def _lane(shop: Shop, index: int = RETRYING) -> LaneBreaker:
    assert shop.engine.scheduler.slots is not None
    return shop.engine.scheduler.slots.breakers.lanes[index]


def test_slow_tenants_are_noticed_said_once_a_minute_and_when_it_is_over() -> None:
    shop: Shop = _shop(lambda message: 0.01 if not _ill(message) or shop.clock.now() > 100 else 30.0)
    shop.trickle(["quick"], each=0.05, until=160)
    for number in range(300):
        shop.comes(5.0, f"ill{number % 40}", RETRYING)
    shop.run(14)
    assert _alarms(shop) == []
    assert _lane(shop).phase == "closed"
    shop.run(17)
    [(text, over)] = _alarms(shop)
    assert not over
    assert text.startswith("the breaker noticed slow handlers in L1/retrying since 2027-01-15 08:00:0")
    assert re.search(r"\(\d+ tenants: ill\d+, ill\d+, ill\d+ and \d+ more; ", text)
    assert "15 handlers at work). Others go on, 1 of 16 slots are kept for them; it stops only what fails" in text
    noticed = _lane(shop).noticed
    assert noticed is not None
    assert set(noticed.tenants) <= {f"ill{number}" for number in range(40)}
    assert (noticed.running, noticed.waiting) == (15, 40)
    assert (_lane(shop).phase, _lane(shop).notices) == ("noticed", 1)
    assert _lane(shop, 0).phase == "closed", "nobody is slow in L1/ready"
    shop.run(80)
    assert len(_alarms(shop)) == 2
    shop.run(160)
    assert _alarms(shop)[-1] == ("the tenants whose handlers were slow are so no more, or have no messages", True)
    assert [over for _, over in _alarms(shop)].count(True) == 1
    assert (_lane(shop).phase, _lane(shop).notices, _lane(shop).breaker.opened) == ("closed", 1, 0)
    assert max(shop.waits("quick")) <= 0.05


def test_a_short_slowness_is_not_noticed() -> None:
    shop = _shop(lambda message: 1.0 if message.tenant != "quick" else 0.01)
    shop.trickle(["quick"], each=0.05, until=30)
    for number in range(100):
        shop.comes(5.0, f"ill{number % 40}")
    shop.run(30)
    assert _alarms(shop) == []


@pytest.mark.simulated
@pytest.mark.parametrize("each", [0.02, 0.5])
def test_a_tenant_a_tenth_of_whose_handlers_are_slow_is_not_noticed_under_calm_load(each: float) -> None:
    calls = iter(range(10**9))
    shop = _shop(lambda message: 2.0 if message.tenant == "some" and not next(calls) % 10 else 0.01)
    shop.trickle(["some"], each=each, until=300)
    shop.trickle([f"u{number}" for number in range(20)], each=0.5, until=300)
    shop.run(300)
    assert _alarms(shop) == []
    assert _lane(shop, 0).notices == 0


def test_without_fair_by_the_lane_is_named() -> None:
    shop = _shop(lambda message: 30.0 if _ill(message) else 0.01, fair_by=None)
    shop.trickle(["quick"], each=0.05, until=30)
    for number in range(300):
        shop.comes(5.0, f"ill{number % 40}", RETRYING)
    shop.run(20)
    [(text, _)] = _alarms(shop)
    assert "in L1/retrying since 2027-01-15 08:00:06 UTC (15 handlers at work). Others" in text


def test_with_a_bulkhead_of_few_slots_they_are_noticed_as_well() -> None:
    shop = _shop(
        lambda message: 30.0 if _ill(message) else 0.01,
        bulkheads=(Bulkhead(LaneSet(states=(State.RETRYING,)), most=2),),
    )
    shop.trickle(["quick"], each=0.05, until=30)
    for number in range(300):
        shop.comes(5.0, f"ill{number % 40}", RETRYING)
    shop.run(20)
    [(text, _)] = _alarms(shop)
    assert "(2 tenants: " in text
    assert "; 2 handlers at work)" in text


def test_one_more_lane_is_said_at_once() -> None:
    shop = _shop(lambda message: 30.0 if _ill(message) else 0.01)
    shop.trickle(["quick"], each=0.05, until=60)
    for number in range(300):
        shop.comes(5.0, f"ill{number % 40}", RETRYING)
        shop.comes(17.0, f"ill{number % 2}")
    shop.run(60)
    texts = [text for text, _ in _alarms(shop)]
    assert len(texts) == 2
    assert "slow handlers in L1/ready since" in texts[1]
    assert "(1 tenant: ill0; " in texts[1], "the other one waits until the first newcomer of that lane ends"
    assert "), L1/retrying since" in texts[1]


@pytest.mark.simulated
@pytest.mark.parametrize("healthy", [5, 50])
@pytest.mark.parametrize("trouble", [TOOK_TOO_LONG, DependencyUnavailable("bank")], ids=["time-outs", "unavailable"])
def test_retries_that_time_out_open_the_breaker_of_their_lane_and_delay_nobody_else(
    healthy: int, trouble: Outcome
) -> None:
    shop: Shop = _shop(
        lambda message: 8.0 if _ill(message) and shop.clock.now() < 120 else 0.01,
        lambda message, now: trouble if _ill(message) and now < 120 else DONE,
    )
    shop.trickle([f"quick{number}" for number in range(healthy)], each=healthy / 50, until=300)
    for number in range(600):
        shop.comes(5.0, f"ill{number % 60}", RETRYING)
    shop.run(110)
    lane = _lane(shop)
    assert lane.breaker.opened >= 3
    assert lane.phase in ("open", "probing")
    assert shop.engine.counts.paused == 0, "the breaker of all handlers stays closed"
    ill = [one for one in shop.started if one.tenant.startswith("ill")]
    assert len(ill) < 90, "15 slots would have started 195; a tenant of whom nothing is known is tried, one at a time"
    text, _ = _alarms(shop, "breaker")[0]
    assert text.startswith("L1/retrying: ")
    assert text.endswith(": no handler of a slow tenant starts for 1 s")
    assert lane.noticed is not None
    assert f", {lane.phase}: " in lane.text()
    shop.run(300)
    assert lane.breaker.state is BreakerState.CLOSED
    assert _alarms(shop, "resumed")[-1][0].startswith("L1/retrying: handlers work again, after this: ")
    assert len(lane.lane.ring) == 0
    waits = shop.waits("quick", 5.0)
    assert len(waits) > 10_000
    assert waits[len(waits) * 99 // 100] <= 0.05
    assert waits[-1] <= 0.5


def test_what_is_slow_and_fails_in_one_lane_stops_no_slow_tenant_of_another() -> None:
    shop: Shop = _shop(
        lambda message: 8.0 if _ill(message) else 1.0,
        lambda message, _now: TOOK_TOO_LONG if _ill(message) else DONE,
    )
    for number in range(600):
        shop.comes(5.0, f"ill{number % 60}", RETRYING)
    shop.trickle([f"long{number}" for number in range(3)], each=1.0, until=100)
    shop.run(100)
    assert _lane(shop).breaker.opened
    assert _lane(shop, 0).breaker.opened == 0
    waits = shop.waits("long", 20.0)
    assert len(waits) >= 230
    assert waits[len(waits) * 9 // 10] <= 2.0


def test_all_handlers_that_time_out_open_it_as_well_where_there_is_no_other() -> None:
    shop = _shop(lambda _: 2.0, lambda _message, _now: TOOK_TOO_LONG)
    shop.trickle([f"u{number}" for number in range(20)], each=1.0, until=60)
    shop.run(60)
    assert _lane(shop, 0).breaker.opened >= 3
    assert len(shop.started) < 150, "of 480 that 16 slots could start"


@pytest.mark.simulated
@pytest.mark.parametrize("place", PLACES[1:], ids=["retrying", "pending", "B1"])
def test_the_outage_of_the_table_is_noticed_and_the_slow_lane_keeps_its_share(place: Any) -> None:
    found = outage(Case(60, place, 8.0), 30.0)
    assert found.started == found.sent
    assert found.notices == 1
    assert found.opened == 0
    assert found.slow_slots >= 0.9 * 15


def test_names_of_tenants_are_shown_on_one_line_and_cut() -> None:
    shop = _shop(lambda _: 500.0)
    for number in range(100):
        shop.comes(1.0, f"ill\n{number:09}" + "x" * 5_000)
    shop.run(13)
    [(text, _)] = _alarms(shop)
    assert text.isprintable()
    assert "ill\\n000000000xxx" in text
    assert len(text) < 500


def test_the_rate_counts_what_ended_lately_and_what_runs() -> None:
    rate = SlowCallRate()
    assert rate.slow_tenants({}, 0.0) == []
    for slow in (True, False):
        rate.on_end("half", slow=slow)
        rate.on_end("mostly", slow=True)
    rate.on_end("seldom", slow=False)
    assert rate.slow_tenants({}, 1.0) == ["mostly"]
    assert rate.slow_tenants({"half": 1, "hangs": 3}, 2.0) == ["hangs", "half", "mostly"]
    assert rate.slow_tenants({}, 12.0) == ["mostly"], "in the window before"
    assert rate.slow_tenants({}, 23.0) == []


def test_an_outage_is_said_though_nothing_comes_and_nothing_ends() -> None:
    """Only the timer of those who wait for a slot brings it about."""
    shop = _shop(lambda _: 500.0)
    for number in range(100):
        shop.comes(1.0, f"ill{number}")
    shop.run(13)
    assert [over for _, over in _alarms(shop)] == [False]
    assert shop.busy.total() == 15


@pytest.mark.simulated
def test_tenants_that_are_seen_once_and_end_quickly_are_no_outage() -> None:
    """More of them than the slots can handle: they wait, and nobody is slow."""
    shop = _shop(lambda _: 0.05)
    for number in range(8_000):
        shop.comes(number / 400, f"once{number}")
    shop.run(25)
    assert _alarms(shop) == []


def test_tenants_that_hang_in_every_slot_at_once_are_said_before_one_of_them_ends() -> None:
    """All of them were quick until then, and while every slot is taken nobody asks for the next message."""
    shop: Shop = _shop(lambda _: 0.01 if shop.clock.now() < 5 else 100.0)
    shop.trickle([f"one{number}" for number in range(40)], each=1.0, until=30)
    shop.run(35)
    [(text, over)] = _alarms(shop)
    assert not over
    assert "16 handlers at work" in text
