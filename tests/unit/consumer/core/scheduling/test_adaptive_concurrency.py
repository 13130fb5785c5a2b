"""Concurrency that adapts itself finds what a dependency can take, gives way when it gets worse, and recovers."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from kodo_consumer.core.scheduling.concurrency_control import Adaptive
from kodo_consumer.core.values.outcomes import DONE
from kodo_consumer.message import Message

from tests.unit.consumer.engine_bench import FAILED, L1, policy
from tests.unit.consumer.shop import Shop


def _shop(seconds: Any, outcome: Any = lambda _message, _now: DONE, messages: int = 8_000, **changes: Any) -> Shop:
    shop = Shop(policy((L1,), concurrency=64, adaptive=True, in_place=(), **changes), seconds, outcome)
    for number in range(messages):
        shop.comes(0.0, f"u{number % 5}")
    return shop


def _limit(shop: Shop) -> int:
    assert shop.engine.scheduler.throttle.adaptive is not None
    return shop.engine.scheduler.throttle.adaptive.limit


@pytest.mark.simulated
def test_it_grows_while_handlers_get_no_slower() -> None:
    shop = _shop(lambda _: 0.1)
    shop.run(3)
    assert _limit(shop) >= 15
    assert shop.most.total() >= 15
    shop.run(20)
    assert _limit(shop) == 64, "the most there may be"


@pytest.mark.simulated
def test_it_finds_what_a_dependency_can_take() -> None:
    """Beyond 20 at a time each takes longer in proportion: 40 take twice as long."""

    def seconds(_: Message) -> float:
        return 0.1 * max(1.0, shop.busy.total() / 20)

    shop = _shop(seconds)
    shop.run(40)
    late = []
    for moment in range(40, 60):
        shop.run(moment)
        late.append(_limit(shop))
    assert min(late) >= 14
    assert max(late) <= 48


@pytest.mark.simulated
def test_it_gives_way_when_it_gets_slow_and_comes_back() -> None:
    shop: Shop = _shop(lambda _: 1.0 if 5 < shop.clock.now() < 10 else 0.05)
    shop.run(5)
    before = _limit(shop)
    shop.run(11)
    assert _limit(shop) < before * 0.75
    shop.run(25)
    assert _limit(shop) > before


@pytest.mark.parametrize(("one_in", "grows"), [(12, True), (5, False)])
def test_one_failure_in_ten_is_borne_and_more_are_not(one_in: int, grows: bool) -> None:
    """Eight handlers end at a time: a round may have 24 ends, in which one of eleven would be three, more than a tenth."""
    ended = count()
    shop = _shop(lambda _: 0.05, lambda _message, _now: FAILED if next(ended) % one_in == 0 else DONE)
    shop.run(4)
    assert (_limit(shop) > 8) == grows


def test_what_is_not_used_does_not_grow() -> None:
    shop = _shop(lambda _: 0.05, messages=0)
    shop.trickle(["u"], each=0.1, until=10)
    shop.run(10)
    assert _limit(shop) == 8


def test_slots_kept_for_others_are_a_part_of_what_there_is() -> None:
    shop = _shop(lambda _: 0.1, fair_by="u")
    slots = shop.engine.scheduler.slots
    assert slots is not None
    assert slots.total == 8
    shop.run(3)
    assert slots.total == _limit(shop)


def test_it_never_falls_below_one() -> None:
    adaptive = Adaptive(4)
    for number in range(100):
        adaptive.on_end(0.1, 1, number, bad=True)
    assert adaptive.limit == 1
    assert adaptive.may_start(0)
    assert not adaptive.may_start(1)
