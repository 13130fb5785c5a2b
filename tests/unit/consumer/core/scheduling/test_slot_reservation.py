"""Slow handlers of one tenant, or of several, never hold every slot; quick ones share them by turns alone."""

from __future__ import annotations

from typing import Any

import pytest
from kodo_consumer.core.policy import Policy

from tests.unit.consumer.making import L1, policy
from tests.unit.consumer.shop import Shop

QUIET = [f"quiet{number}" for number in range(20)]


def _policy(slots: int = 16, **changes: Any) -> Policy:
    return policy((L1,), states=(), fair_by="u", concurrency=slots, handler_timeout=600_000, **changes)


def _slow(*tenants: str, seconds: float = 30.0) -> Any:
    return lambda message: seconds if message.tenant in tenants else 0.01


def _floods(shop: Shop, *tenants: str, messages: int = 500, at: float = 0.0) -> None:
    for tenant in tenants:
        for _ in range(messages):
            shop.comes(at, tenant)


def test_f3_one_tenant_with_30_s_handlers_holds_three_quarters_and_quiet_ones_wait_milliseconds() -> None:
    shop = Shop(_policy(), _slow("slow"))
    _floods(shop, "slow")
    shop.trickle(QUIET, each=1.0, until=45, begin=0.05)
    shop.run(45)
    assert shop.most["slow"] == 12
    waits = shop.waits("quiet")
    assert len(waits) > 850
    assert waits[int(len(waits) * 0.99)] <= 0.05
    assert waits[-1] <= 0.05


@pytest.mark.parametrize("hogs", [2, 3, 5])
def test_several_slow_tenants_together_leave_a_reserve(hogs: int) -> None:
    names = [f"slow{number}" for number in range(hogs)]
    shop = Shop(_policy(), _slow(*names, seconds=5.0))
    _floods(shop, *names)
    shop.trickle(QUIET[:5], each=0.5, until=40, begin=0.05)
    shop.run(40)
    waits = shop.waits("quiet", begin=5.1)
    assert len(waits) > 300
    assert waits[-1] <= 0.05, "once their first handlers are known for slow, nobody waits for a slot"
    shares = [shop.most[name] for name in names]
    assert max(shares) <= 12
    late = [sum(1 for one in shop.started if one.tenant == name and one.at > 20) for name in names]
    assert min(late) >= 0.8 * max(late), "the slow ones share what there is"


def test_the_last_free_slot_is_only_for_a_tenant_that_has_none() -> None:
    names = [f"slow{number}" for number in range(12)]
    shop = Shop(_policy(4), _slow(*names))
    _floods(shop, *names, messages=20)
    shop.run(1)
    assert shop.busy.total() == 4
    assert max(shop.most.values()) == 1


def test_quick_handlers_of_a_single_tenant_use_every_slot() -> None:
    shop = Shop(_policy(), _slow())
    _floods(shop, "only", messages=900)
    shop.comes(0.0, "other")
    shop.run(0.5)
    assert shop.most["only"] == 16
    assert len(shop.started) >= 0.97 * 0.5 / 0.01 * 16


def test_a_tenant_that_was_quick_and_becomes_slow_falls_back_to_its_part() -> None:
    shop = Shop(_policy(), lambda message: 3.0 if shop.clock.now() > 0.2 and message.tenant == "turned" else 0.01)
    _floods(shop, "turned", messages=600)
    shop.trickle(QUIET[:4], each=0.5, until=30)
    shop.run(30)
    assert shop.most["turned"] == 16
    waits = shop.waits("quiet", begin=8)
    assert waits[-1] <= 0.05


def test_a_slow_tenant_that_is_alone_for_a_minute_gets_every_slot() -> None:
    shop = Shop(_policy(), _slow("slow", seconds=5.0))
    _floods(shop, "slow", messages=400)
    shop.run(59)
    assert shop.most["slow"] == 12
    shop.run(80)
    assert shop.most["slow"] == 16
    shop.comes(80.5, "quiet")
    shop.run(100)
    assert shop.waits("quiet")[-1] <= 5.0
    assert shop.busy["slow"] <= 12, "somebody came: the reserve stands again"


def test_with_one_slot_turns_are_all_there_is() -> None:
    shop = Shop(_policy(1), _slow("slow", seconds=1.0))
    _floods(shop, "slow", "quick", messages=5)
    shop.run(30)
    assert len(shop.started) == 10


def test_when_there_are_fewer_slots_the_parts_are_of_these() -> None:
    shop = Shop(_policy(), _slow("slow"))
    _floods(shop, "slow")
    shop.run(0.1)
    slots = shop.engine.scheduler.slots
    assert slots is not None
    assert slots.full == {"slow"}
    slots.resize(64)
    assert slots.full == set()
    slots.resize(4)
    assert slots.full == {"slow"}


def test_so_many_slow_tenants_are_remembered() -> None:
    shop = Shop(_policy(2), lambda _: 1.0)
    for number in range(40):
        shop.comes(0.0, f"u{number}")
    shop.run(100)
    slots = shop.engine.scheduler.slots
    assert slots is not None
    assert len(slots._slow_ones) == 8
