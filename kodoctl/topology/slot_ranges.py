"""Lanes and slots to which limits and `concurrency` of a subscription apply, with defaults filled in.

Used by lint, the consumer and the drawings, so that the meaning of `in`, a state, a level or a lane is defined
once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kodoctl.topology.defaults import read_levels, read_states
from kodoctl.topology.model.subscription import HandlerSlots, LimitLanes, SlotRange
from kodoctl.topology.names import Level, State

if TYPE_CHECKING:
    from kodoctl.topology.model.topology import GroundTopic, Subscription

LaneName = tuple[Level, State]
ADAPTIVE_SLOTS: Final = 128
"""Most handlers at once in a worker with adaptive concurrency."""


@dataclass(frozen=True, slots=True)
class DeclaredSlots:
    """Slots that the file declares at `path` below `concurrency`. `level`, `state`: level and state to which they
    apply, None for all, and for a single lane that does not exist; `slots`: their range; `lanes`: the lanes among these
    that workers read, empty if there are none.
    """

    path: tuple[str, ...]
    level: Level | None
    state: State | None
    slots: SlotRange
    lanes: frozenset[LaneName]

    @property
    def name(self) -> str:
        """The path as text, such as `states.retrying`."""
        return ".".join(self.path)


def lanes_of(ground: GroundTopic, subscription: Subscription) -> tuple[LaneName, ...]:
    """Every lane that a worker reads, highest level first. A backup level has only its ready lane."""
    states = (State.READY, *read_states(subscription))
    return tuple(
        (level, state)
        for level in read_levels(ground)
        for state in states
        if state is State.READY or not level.is_backup
    )


def limited_lanes(ground: GroundTopic, subscription: Subscription, chosen: LimitLanes | None) -> frozenset[LaneName]:
    """Lanes of a subscription to which a limit applies. `chosen`: value of `in` of the limit; None: it applies to all
    lanes.
    """
    states, levels = (chosen.states, chosen.levels) if chosen is not None else (None, None)
    return frozenset(
        (level, state)
        for level, state in lanes_of(ground, subscription)
        if (states is None or state in states) and (levels is None or level in levels)
    )


def total_slots(subscription: Subscription) -> int | None:
    """Largest number of handlers that run at once in one worker; None if workers adapt this number."""
    total = subscription.concurrency
    total = total.total if isinstance(total, HandlerSlots) else total
    return None if total == "adaptive" else total


def declared_slots(ground: GroundTopic, subscription: Subscription) -> Iterator[DeclaredSlots]:
    """Yields the slots of states, levels and single lanes, if `concurrency` is a map; otherwise nothing. Slots of a
    lane that does not exist have no `lanes`.
    """
    slots = subscription.concurrency
    if not isinstance(slots, HandlerSlots):
        return
    there = lanes_of(ground, subscription)
    for name, of_state in slots.states:
        if of_state is not None:
            lanes = frozenset(lane for lane in there if lane[1] == name)
            yield DeclaredSlots(("states", name), None, State(name), of_state, lanes)
    for level, of_level in slots.levels.items():
        lanes = frozenset(lane for lane in there if lane[0] is level)
        yield DeclaredSlots(("levels", level.value), level, None, of_level, lanes)
    for name, of_lane in slots.lanes.items():
        lanes = frozenset(lane for lane in there if "/".join(lane) == name)
        lane = next(iter(lanes), None)
        yield DeclaredSlots(("lanes", name), lane and lane[0], lane and lane[1], of_lane, lanes)
