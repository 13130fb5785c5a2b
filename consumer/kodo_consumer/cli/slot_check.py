"""Check of live orders for slots: whether the bulkheads of the file and of all orders fit together, by the rules of
lint.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kodoctl.errors import UsageError, error
from kodoctl.protocol.overrides import Override, OverrideKind
from kodoctl.protocol.slot_bounds import SlotBounds
from kodoctl.topology.model.subscription import SlotRange
from kodoctl.topology.names import Level, State
from kodoctl.topology.slot_conflicts import SlotConflict, conflicts, idle
from kodoctl.topology.slot_ranges import ADAPTIVE_SLOTS, DeclaredSlots, declared_slots, lanes_of, total_slots

if TYPE_CHECKING:
    from kodoctl.topology.model.topology import GroundTopic, Subscription


def check_slots(
    ground: GroundTopic, subscription: Subscription, orders: Iterable[Override], new: Override
) -> list[str]:
    """Returns a line of text for each part of the order `new` that has no effect. `orders`: all orders that are to be
    in force, `new` among them. Raises UsageError with all conflicts if the slots of the file and of these orders
    contradict each other.
    """
    groups = slots_with(ground, subscription, orders)
    total = total_slots(subscription) or ADAPTIVE_SLOTS
    if problems := list(conflicts(groups, total, lanes_of(ground, subscription))):
        detail = "\n".join(["with this order the slots cannot hold together:", *(_text(one) for one in problems)])
        raise UsageError(error("K780", "invalid live order", detail))
    return [_text(one) for one in idle(groups, total) if one.path[1:] == (new.within,)]


def slots_with(ground: GroundTopic, subscription: Subscription, orders: Iterable[Override]) -> list[DeclaredSlots]:
    """Returns the declared slots of the file as the orders change them, and the slots that only orders declare. Orders
    of other kinds, and for lanes that the subscription lacks, have no effect.
    """
    found = {one.path[1]: one for one in declared_slots(ground, subscription) if one.lanes}
    for order in orders:
        bounds = SlotBounds.parse(order.to) if order.what is OverrideKind.SLOTS else None
        standing = found.get(order.within) or _new(ground, subscription, order.within)
        if bounds is None or not standing.lanes:
            continue
        most = standing.slots.max if bounds.most is None else bounds.most
        least = standing.slots.min if bounds.least is None else bounds.least
        found[order.within] = replace(standing, slots=SlotRange(max=most, min=least or None))
    return list(found.values())


def _new(ground: GroundTopic, subscription: Subscription, name: str) -> DeclaredSlots:
    """Declared slots without bounds for a state, a level or a lane that the file does not mention."""
    head, _, tail = name.rpartition("/")
    level, state = (head or None, tail) if head or tail in tuple(State) else (tail, None)
    lanes = frozenset(
        lane for lane in lanes_of(ground, subscription) if level in (None, lane[0]) and state in (None, lane[1])
    )
    kind = "lanes" if level and state else "states" if state else "levels"
    of_level = Level(level) if level in tuple(Level) else None
    return DeclaredSlots((kind, name), of_level, State(state) if state in tuple(State) else None, SlotRange(), lanes)


def _text(found: SlotConflict) -> str:
    return f"{'.'.join(found.path)}: {found.detail}" if found.path else found.detail
