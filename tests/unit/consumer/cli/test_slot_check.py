"""Live orders for slots against the file and one another: what cannot hold together is refused, what is idle is told."""

from __future__ import annotations

import pytest
from kodo_consumer.cli.slot_check import check_slots, slots_with

from kodoctl.errors import UsageError
from kodoctl.protocol.overrides import Override, OverrideKind
from tests.unit.topology.topology_files import loaded

BODY = """
topics:
  orders:
    levels: double
    backup: true
    subscriptions:
      billing:
        states: [retrying, pending]
        concurrency: {total: 16, states: {retrying: {max: 8}}, levels: {L2: {min: 4}}, lanes: {L2/retrying: {max: 2}}}
"""
GROUND = loaded(BODY).spec.topics["orders"]
SPEC = GROUND.subscriptions["billing"]


def order(within: str, to: str) -> Override:
    return Override(OverrideKind.SLOTS, 1, 2, "ann@desk", within=within, to=to)


def check(*orders: Override) -> list[str]:
    return check_slots(GROUND, SPEC, orders, orders[-1])


@pytest.mark.parametrize(
    ("orders", "said"),
    [
        ([order("L2", "min 17")], "levels.L2 17: 17 slots are kept of 16"),
        ([order("L1", "min 12"), order("B1", "min 1")], "17 slots are kept of 16"),
        ([order("L1", "min 12")], "no slot is left for B1/ready"),
        ([order("retrying", "min 9")], "states.retrying: min 9 is more than max 8"),
        ([order("L2/retrying", "max 9 min 9")], "states.retrying: max 8 is less than what is kept inside of it"),
    ],
)
def test_slots_that_cannot_hold_together_are_refused(orders: list[Override], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        check(*orders)
    assert said in str(refused.value)
    assert "K780" in str(refused.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (order("retrying", "max 16"), ["states.retrying: max 16 of 16 slots changes nothing"]),
        (order("L1/retrying", "max 9"), ["lanes.L1/retrying: max 9 never counts: states.retrying has max 8"]),
        (order("pending", "max 3"), []),
        (order("B1", "max 3 min 0"), []),
    ],
)
def test_an_order_that_changes_nothing_is_followed_and_told(given: Override, said: list[str]) -> None:
    found = check(given)
    assert len(found) == len(said)
    assert all(text.startswith(start) for text, start in zip(found, said, strict=True))


def test_orders_of_lanes_that_are_not_there_and_other_orders_count_for_nothing() -> None:
    pause = Override(OverrideKind.PAUSE, 1, 2, "ann@desk", lane="L1/retrying")
    names = ("L7", "L7/retrying", "a/b/c", "blocking", "")
    found = slots_with(GROUND, SPEC, [pause, *(order(name, "max 1") for name in names)])
    assert [one.name for one in found] == ["states.retrying", "levels.L2", "lanes.L2/retrying"]
