"""Bulkheads as live orders change them: bounds of a state, a level or a lane, in place of those of the file.

An order counts slots as the file does; a worker with other slots (processes, batches) takes it in proportion. The
command `kodo-consumer concurrency` refuses orders that contradict each other. If the file changes later, minimums
shrink as with fewer slots, and to the maximum of the same lanes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.core.values.lane_set import Bulkhead, LaneSet, in_proportion
from kodoctl.protocol.overrides import Override, OverrideKind
from kodoctl.protocol.slot_bounds import SlotBounds

if TYPE_CHECKING:
    from kodo_consumer.core.values.policy import Policy


def bulkheads_with(policy: Policy, orders: Iterable[Override]) -> tuple[Bulkhead, ...]:
    """The bulkheads of a worker's policy, as live orders of the kind SLOTS change them. Bounds of an order are
    multiplied by `slot_ratio` (slots of this worker, to those that the file declares) and rounded down, a maximum to 1
    at least. A bound that an order leaves out stays; of two orders for one bound the later one in the sequence counts;
    an order's minimum is at most the maximum. Bulkheads of lanes that the file gives none come last. Orders about lanes
    that do not exist, or without valid bounds, are left out.
    """
    found = {str(one.lanes): one for one in policy.bulkheads}
    for order in orders:
        bounds = SlotBounds.parse(order.to) if order.what is OverrideKind.SLOTS else None
        if bounds is None or why_no_slots(order, policy):
            continue
        standing = found.get(order.within) or Bulkhead(_lanes(order.within))
        (ordered,) = in_proportion([replace(standing, most=bounds.most, least=bounds.least or 0)], *policy.slot_ratio)
        most = standing.most if bounds.most is None else ordered.most
        least = standing.least if bounds.least is None else ordered.least
        found[order.within] = replace(standing, most=most, least=least if most is None else min(least, most))
    return tuple(found.values())


def why_no_slots(order: Override, policy: Policy) -> str:
    """Reason, in words, why the subscription has no lanes of the order's name; "" if it has."""
    lanes = policy.every_lane
    names = [*(lane.state for lane in lanes), *(lane.level for lane in lanes), *(lane.name for lane in lanes)]
    there = ", ".join(dict.fromkeys(map(str, names)))
    return "" if order.within in names else f"no state, level or lane {order.within}; there is {there}"


def _lanes(name: str) -> LaneSet:
    """Lanes by the name of a state, a level or a lane."""
    level, _, state = name.rpartition("/")
    if level:
        return LaneSet((State(state),), (Level(level),))
    return LaneSet((State(name),)) if name in tuple(State) else LaneSet((), (Level(name),))
