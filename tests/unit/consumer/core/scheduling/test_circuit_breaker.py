"""The breaker: when it opens, how it tries, how it resumes, and that one bad tenant never stops a lane."""

from __future__ import annotations

from typing import Any

import pytest
from kodo_consumer.core.scheduling.circuit_breaker import Breaker, BreakerState
from kodo_consumer.core.values.envelope import State
from kodo_consumer.core.values.limit_policy import NOBODY
from kodo_consumer.core.values.outcomes import (
    DONE,
    TOOK_TOO_LONG,
    DependencyUnavailable,
    Outcome,
    RetryAsked,
    StateAsked,
)
from kodo_consumer.core.values.policy import Policy

from tests.unit.consumer.engine_bench import FAILED, L1, policy
from tests.unit.consumer.shop import Shop, jain

PSP = DependencyUnavailable("psp")
TWELVE = [f"u{number}" for number in range(12)]


def _policy(**changes: Any) -> Policy:
    values: dict[str, Any] = {"fair_by": "u", "concurrency": 16, "in_place": ()}
    return policy((L1,), **(values | changes))


def _shop(outcome: Any, seconds: float = 0.02, **changes: Any) -> Shop:
    return Shop(_policy(**changes), lambda _: seconds, outcome)


def _states(shop: Shop) -> list[str]:
    return [alarm.kind for alarm in shop.engine.context.effects.alarms if alarm.kind in ("breaker", "resumed")]


@pytest.mark.simulated
@pytest.mark.parametrize(
    "trouble",
    [FAILED, RetryAsked(1_000, "down"), PSP, TOOK_TOO_LONG],
    ids=["failures", "retries", "unavailable", "time-outs"],
)
def test_it_opens_within_2_s_probes_and_drains_fairly_afterwards(trouble: Outcome) -> None:
    """Twelve tenants at 10 a second each; from 5 s to 15 s nothing works."""
    shop = _shop(lambda _, now: trouble if 5 <= now < 15 else DONE)
    shop.trickle(TWELVE, each=0.1, until=20)
    shop.run(5)
    assert shop.engine.scheduler.throttle.breaker.state is BreakerState.CLOSED
    shop.run(7)
    assert shop.engine.scheduler.throttle.breaker.state is BreakerState.OPEN
    assert shop.engine.counts.paused >= 1
    before = len(shop.started)
    shop.run(15)
    assert len(shop.started) - before <= 12, "three are tried at a time, after pauses that grow"
    shop.run(60)
    assert shop.engine.scheduler.throttle.breaker.state is BreakerState.CLOSED
    assert not shop.engine.scheduler.throttle.must_ask
    assert _states(shop)[-1] == "resumed"
    assert [alarm.good for alarm in shop.engine.context.effects.alarms if alarm.kind == "resumed"][-1]
    after = [one for one in shop.started if one.at > 16]
    assert jain(sum(1 for one in after if one.tenant == name) for name in TWELVE) > 0.99
    resumed = min(one.at for one in after if one.at > 15 + 0.1)
    first = [one.tenant for one in shop.started if one.at >= resumed][:48]
    assert max(first.count(name) for name in TWELVE) <= 6, "turns hold while it drains"


def test_one_bad_tenant_never_stops_a_lane_however_noisy_it_is() -> None:
    shop: Shop = _shop(
        lambda message, _: (PSP if len(shop.started) % 2 else FAILED) if message.tenant == "bad" else DONE
    )
    for _ in range(2_000):
        shop.comes(0.0, "bad")
    shop.trickle(TWELVE[:2], each=0.5, until=20)
    shop.run(20)
    assert shop.engine.counts.paused == 0
    assert len(shop.waits("u")) == 80


@pytest.mark.parametrize("tenants", [9, 12])
def test_failures_need_ten_tenants(tenants: int) -> None:
    shop = _shop(lambda _message, _now: FAILED)
    shop.trickle(TWELVE[:tenants], each=0.05, until=3)
    shop.run(3)
    assert (shop.engine.counts.paused > 0) == (tenants >= 10)


def test_pending_and_blocking_say_nothing_of_the_others() -> None:
    shop = _shop(lambda _message, now: StateAsked(State.PENDING if now < 2 else State.BLOCKING, "not yet"))
    shop.trickle(TWELVE, each=0.05, until=4)
    shop.run(4)
    assert shop.engine.counts.paused == 0


def test_half_of_the_tenants_failing_is_not_enough() -> None:
    shop = _shop(lambda message, _: FAILED if message.tenant in TWELVE[:6] else DONE)
    shop.trickle(TWELVE, each=0.05, until=5)
    shop.run(5)
    assert shop.engine.counts.paused == 0
    assert shop.engine.scheduler.throttle.breaker.wants_all_outcomes


def test_now_and_then_a_failure_makes_it_listen_for_a_second() -> None:
    shop = _shop(lambda message, now: FAILED if message.tenant == "u1" and now < 0.2 else DONE)
    shop.trickle(TWELVE, each=0.1, until=3)
    shop.run(0.5)
    assert shop.engine.scheduler.throttle.wants_all_outcomes
    shop.run(3)
    assert not shop.engine.scheduler.throttle.wants_all_outcomes


def test_without_tenants_it_opens_when_a_dependency_is_said_to_be_unavailable_and_never_for_failures() -> None:
    for trouble, opens in ((PSP, True), (FAILED, False)):
        shop = _shop(lambda _message, _now, trouble=trouble: trouble, fair_by=None)
        shop.trickle(["x"], each=0.1, until=2)
        shop.run(2)
        assert (shop.engine.counts.paused > 0) == opens


def test_a_single_tenant_of_many_to_come_does_not_open_it() -> None:
    shop = _shop(lambda _message, _now: PSP)
    shop.trickle(["only"], each=0.1, until=5)
    shop.run(5)
    assert shop.engine.counts.paused == 0


def test_pauses_grow_to_half_a_minute() -> None:
    shop = _shop(lambda _message, _now: PSP)
    shop.trickle(TWELVE, each=1.0, until=200)
    shop.run(200)
    breaker = shop.engine.scheduler.throttle.breaker
    assert breaker.cause == "psp is unavailable"
    assert 7 <= breaker.opened <= 11


def test_what_started_before_the_pause_tells_nothing() -> None:
    breaker = _open()
    assert not breaker.on_end("u1", DONE, 0.4, 0.9)
    assert breaker.may_start(0, 2.0)
    assert not breaker.on_end("u1", DONE, 0.4, 2.1)
    breaker.on_start()
    assert breaker.on_end("u1", DONE, 2.0, 2.2)
    assert breaker.state is BreakerState.RESUMING
    assert not breaker.on_end("u2", FAILED, 0.4, 2.3)


def test_a_few_start_at_once_when_it_resumes_and_more_failures_than_successes_open_it_again() -> None:
    breaker = _open()
    assert not breaker.may_start(0, 1.0)
    assert breaker.may_start(0, 2.0)
    breaker.on_start()
    breaker.on_end("u1", DONE, 2.0, 2.1)
    assert [breaker.may_start(running, 2.1) for running in (0, 1, 2)] == [True, True, False]
    breaker.on_end("u1", DONE, 2.1, 2.2)
    assert breaker.may_start(2, 2.2)
    for number in range(4):
        assert breaker.state is BreakerState.RESUMING
        breaker.on_end(f"u{number}", FAILED, 2.2, 2.3)
    breaker.on_end("u9", FAILED, 2.2, 2.3)
    assert breaker.state is BreakerState.OPEN


def _open() -> Breaker:
    breaker = Breaker(4)
    for number in range(3):
        assert not breaker.on_end(NOBODY, PSP, 0.0, 0.1 * number)
    assert breaker.on_end(NOBODY, PSP, 0.0, 0.6)
    assert breaker.state is BreakerState.OPEN
    return breaker


def test_counting_ends_after_a_minute_however_little_came() -> None:
    breaker = Breaker(4)
    breaker.on_end("u1", FAILED, 0.0, 0.0)
    assert breaker.wants_all_outcomes
    breaker.on_end("u1", DONE, 60.0, 61.0)
    assert not breaker.wants_all_outcomes
