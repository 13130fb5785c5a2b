"""What the kept slots cost where everybody is alike: floods of handlers that take about as long as a slow one, and longer."""

from __future__ import annotations

from random import Random

import pytest
from kodo_consumer.core.scheduling.quick_load import QuickLoad

from tests.unit.consumer.engine_bench import L1, policy
from tests.unit.consumer.shop import Shop

SECONDS = 12.0


def _shop(slots: int, least: float, most: float) -> Shop:
    random = Random(3)
    of = policy((L1,), states=(), fair_by="u", concurrency=slots, handler_timeout=600_000, in_place=())
    return Shop(of, lambda _: random.uniform(least, most))


@pytest.mark.simulated
@pytest.mark.parametrize("part", [0.9, 1.0, 1.2, 3.0])
@pytest.mark.parametrize("tenants", [1, 3, 10, 50])
@pytest.mark.parametrize("slots", [4, 8, 16])
def test_tenants_that_are_now_quick_and_now_slow_have_nearly_all_slots_but_one(
    slots: int, tenants: int, part: float
) -> None:
    """What they needed when they were quick is not kept from them when they are slow: it is their own demand."""
    mean = part * 0.025 * slots  # seconds; from 0.025 for each slot on a handler is slow
    shop = _shop(slots, 0.8 * mean, 1.2 * mean)
    for number in range(int(1.3 * slots * SECONDS / mean)):
        shop.comes(0.0, f"t{number % tenants}")
    shop.run(SECONDS)
    used = len(shop.started) * mean / SECONDS
    assert used > 0.74 * (slots - 1), "of the slots but one"


def test_quick_messages_of_others_find_a_slot_beside_such_a_tenant() -> None:
    shop = _shop(4, 0.08, 0.11)
    for _ in range(300):
        shop.comes(0.0, "noisy")
    for number in range(60):
        shop.comes(1.0 + number / 10, "quiet")
    shop.run(8)
    assert max(one.wait for one in shop.started if one.tenant == "quiet") < 0.25
    noisy = sum(one.tenant == "noisy" for one in shop.started)
    assert noisy > 150, "two slots' worth, and the quiet one needs one"


def test_the_load_without_a_tenant_is_that_of_the_others() -> None:
    load = QuickLoad()
    load.measure(0.0)
    for second in range(6):
        for _ in range(10):
            load.on_end(0.1)  # one slot of the others
            load.on_end(0.2)  # two of the tenant
        assert load.measure(second + 1.0)
    before = load.slots_needed(64)
    load.forget(12.0, since=0.0, now=6.0)
    assert load.slots_needed(64) == 4 < before
    load.forget(1.0, since=6.0, now=6.1)
    assert load.slots_needed(64) == 4, "it came in no window that was counted"


def test_what_a_tenant_brought_in_the_present_window_does_not_count_either() -> None:
    load = QuickLoad()
    load.forget(1.0, since=-1.0, now=0.0)  # nothing was measured yet
    load.measure(0.0)
    load.on_end(0.9)
    load.forget(0.9, since=0.0, now=0.9)
    load.measure(1.0)
    assert load.slots_needed(64) == 1
