"""An outage of some tenants is announced, and its end."""

from __future__ import annotations

from typing import Any

from tests.unit.consumer.making import L1, policy
from tests.unit.consumer.shop import Shop


def _shop(seconds: Any, slots: int = 16) -> Shop:
    return Shop(policy((L1,), states=(), fair_by="u", concurrency=slots, handler_timeout=600_000), seconds)


def _alarms(shop: Shop) -> list[tuple[str, bool]]:
    return [(alarm.text, alarm.good) for alarm in shop.engine.context.effects.alarms if alarm.kind == "outage"]


def test_slow_tenants_with_most_of_the_slots_are_said_once_a_minute_and_when_it_is_over() -> None:
    shop = _shop(lambda message: 0.01 if message.tenant == "quick" or shop.clock.now() > 100 else 30.0)
    shop.trickle(["quick"], each=0.05, until=160)
    for number in range(300):
        shop.comes(5.0, f"ill{number % 40}")
    shop.run(14)
    assert _alarms(shop) == []
    shop.run(17)
    [(text, over)] = _alarms(shop)
    assert not over
    assert "run for longer than 0.4 s (" in text
    assert "in L1/ready), and more of theirs wait. The others go on; kept for them: 1 of 16 slots" in text
    shop.run(80)
    assert len(_alarms(shop)) == 2
    shop.run(160)
    assert _alarms(shop)[-1] == ("slow handlers no longer have most of the slots", True)
    assert [over for _, over in _alarms(shop)].count(True) == 1


def test_a_short_slowness_is_not_said() -> None:
    shop = _shop(lambda message: 1.0 if message.tenant != "quick" else 0.01)
    shop.trickle(["quick"], each=0.05, until=30)
    for number in range(100):
        shop.comes(5.0, f"ill{number % 40}")
    shop.run(30)
    assert _alarms(shop) == []
