"""Who waits is asked when a slot may be had: no slot stays empty until chance wakes its thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from kodo_consumer.core.scheduling.scheduler import Scheduler
from kodo_consumer.core.scheduling.slot_reservation import SlotReservation
from kodo_consumer.core.values.limit_policy import Pace, Rate
from kodo_consumer.core.values.outcomes import DONE

if TYPE_CHECKING:
    from kodo_consumer.core.state.in_flight import InFlight
    from kodo_consumer.message import Message

from tests.native.compiled import INTERPRETED_ONLY
from tests.unit.consumer.engine_bench import L1, Bench, delivery, policy
from tests.unit.consumer.shop import Shop


def _shop(seconds: Callable[[Message], float], slots: int = 16, **changes: Any) -> Shop:
    of = policy((L1,), states=(), fair_by="u", concurrency=slots, handler_timeout=600_000, **changes)
    return Shop(of, seconds, as_threads=True)


def test_the_first_newcomer_that_ends_quickly_wakes_slots_for_all_that_wait() -> None:
    shop = _shop(lambda _: 0.1)
    for number in range(64):
        shop.comes(0.0, f"new{number}")
    shop.run(2)
    assert len(shop.started) == 64
    assert shop.started[-1].at <= 0.6, "half of the slots until the first one has ended, then nearly all of them"


def test_a_tenant_that_recovers_wakes_slots_for_all_its_messages() -> None:
    shop = _shop(lambda message: 1.0 if message.properties.get("slow") else 0.2)
    shop.comes(0.0, "ill", slow="yes")
    shop.run(5)
    for number in range(6):
        shop.comes(5.0 + 0.25 * number, f"other{number}")
    for _ in range(200):
        shop.comes(7.0, "ill")
    shop.run(7.35)
    assert shop.busy["ill"] == 16, "four ends at once, and every slot is its own"


@pytest.mark.simulated
def test_head_room_that_is_needed_no_more_wakes_slow_ones() -> None:
    """Nothing ends and nothing comes: only time passes."""
    shop = _shop(lambda message: 300.0 if message.tenant == "slow" else 0.05)
    shop.trickle(["quick"], each=0.01, until=20)
    for _ in range(40):
        shop.comes(2.0, "slow")
    shop.run(19)
    before = shop.busy["slow"]
    shop.run(100)
    assert before <= 9
    assert shop.busy["slow"] >= 15


def test_messages_turned_back_by_a_limit_leave_nothing_behind_that_counts_as_waiting() -> None:
    """As many are turned back in one call as make it give others a word, and they were all there were."""
    shop = _shop(lambda _: 0.01, limits=(Rate("u", Pace(1, 60_000, 1), False),))
    for _ in range(65):
        shop.comes(0.0, "only")
    shop.run(1)
    assert len(shop.started) == 1
    slots = shop.engine.scheduler.slots
    assert slots is not None
    assert not slots.any_waiting, "they wait at the limit"
    assert slots._fair_share(frozenset()) == 0.0, "of nothing"
    for number in range(300):
        shop.comes(2.0 + number / 100, f"quick{number % 9}")
    shop.run(6)
    assert len(shop.waits("quick")) == 9, "one of each"


@pytest.mark.parametrize("flood", [63, 64, 65])
def test_a_newcomer_waits_for_its_turn_also_behind_as_many_that_a_limit_turns_back_as_one_call_takes(
    flood: int,
) -> None:
    rate = Rate("uid", Pace(1, 60_000, 1), shared=False)
    bench = Bench(policy((L1,), states=(), fair_by="uid", limits=(rate,), concurrency=4, handler_timeout=600_000))
    bench.give(delivery(0, uid="flood"))
    quick = bench.engine.take()
    assert quick is not None
    bench.engine.finish(quick, DONE)
    bench.give(*(delivery(number, uid=f"slow{number}") for number in (1, 2, 3)))
    slow = bench.take_all()
    bench.give(delivery(4, uid="new"), *(delivery(100 + number, uid="flood") for number in range(flood)))
    bench.clock.advance(0.5)
    assert bench.take_all() == []
    for message in slow:
        bench.engine.finish(message, DONE)
    bench.later(1.0)
    assert [message.tenant for message in bench.take_all()] == ["new"]


def _recheck(scheduler: Scheduler, _now: float) -> None:
    """In place of what wakes slots each second."""


def _take(slots: SlotReservation, *question: Any) -> InFlight | None:
    """As it is, but what was kept back is not asked for again."""
    slots._kept_back = False
    return _TAKE(slots, *question)


_TAKE = SlotReservation.take


@INTERPRETED_ONLY
@pytest.mark.parametrize(
    ("where", "what", "undone", "promise"),
    [
        (Scheduler, "recheck", _recheck, test_head_room_that_is_needed_no_more_wakes_slow_ones),
        (SlotReservation, "take", _take, test_a_tenant_that_recovers_wakes_slots_for_all_its_messages),
        (SlotReservation, "take", _take, test_the_first_newcomer_that_ends_quickly_wakes_slots_for_all_that_wait),
    ],
)
def test_without_what_wakes_slots_they_stay_empty(
    where: type, what: str, undone: Any, promise: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    promise()
    monkeypatch.setattr(where, what, undone)
    with pytest.raises(AssertionError):
        promise()
