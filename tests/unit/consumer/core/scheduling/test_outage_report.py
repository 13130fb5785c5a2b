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


def test_an_outage_is_said_though_nothing_comes_and_nothing_ends() -> None:
    """Only the timer of those who wait for a slot brings the report about."""
    shop = _shop(lambda _: 500.0)
    for number in range(100):
        shop.comes(1.0, f"ill{number}")
    shop.run(13)
    assert [over for _, over in _alarms(shop)] == [False]
    assert shop.busy.total() == 15


def test_tenants_that_are_seen_once_and_end_quickly_are_no_outage() -> None:
    """More of them than the slots can handle: they wait, and nobody is slow."""
    shop = _shop(lambda _: 0.05)
    for number in range(8_000):
        shop.comes(number / 400, f"once{number}")
    shop.run(25)
    assert _alarms(shop) == []


def test_tenants_that_hang_in_every_slot_at_once_are_said_before_one_of_them_ends() -> None:
    """All of them were quick until then, and while every slot is taken nobody asks for the next message."""
    shop = _shop(lambda _: 0.01 if shop.clock.now() < 5 else 100.0)
    shop.trickle([f"one{number}" for number in range(40)], each=1.0, until=30)
    shop.run(20)
    [(text, over)] = _alarms(shop)
    assert not over
    assert text.startswith("16 handlers of 16 tenants run for longer than 0.4 s (16 in L1/ready)")
