"""Bulkheads by slot use: limits for a state or a level that took the slots for which others waited. Pure.

A window is blamed on a state or a level if it was full, the state or level had half of the slots and more than the
lanes that waited would leave it, and of the messages of all other lanes more than 5 % waited longer than the goal.
Three blamed windows of the newest twelve lead to a `max` that leaves the others enough. Where there is no such state or
level, a level that needs few slots and waits gets a `min`. One bulkhead is recommended at a time: the one that explains
most windows.

A bulkhead of the file that was exceeded in a window was not in effect then: neither that window nor any before it
counts. So no recommendation is made twice, and none relaxes a bulkhead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kodo_pipeline.recommend.noisy_neighbours import ENTER, LATE
from kodo_pipeline.recommend.slot_use import SettingChange, is_harmed, slots_for

if TYPE_CHECKING:
    from kodo_pipeline.recommend.slot_use import Lane, SlotWindow, SubscriptionSlots

TAKEN: Final = 0.5  # share of the slots that a state or a level has to have to be blamed


class LaneGroup(NamedTuple):
    """All lanes of one state or of one level of a subscription. `kind`: `states` or `levels`, as in the file; `name`:
    name of the state or level.
    """

    kind: str
    name: str

    def has(self, lane: Lane) -> bool:
        """True if the lane belongs to the group."""
        return lane[self.kind == "states"] == self.name

    def lacks(self, lane: Lane) -> bool:
        """True if the lane does not belong to the group."""
        return not self.has(lane)


@dataclass(frozen=True, slots=True)
class DeclaredBulkhead:
    """A bulkhead in the file. `max`: the most slots of one worker that the group may use; `min`: the slots that are
    kept for it; None: not declared.
    """

    group: LaneGroup
    max: int | None = None
    min: int | None = None


@dataclass(frozen=True, slots=True)
class _Case:
    slots: SubscriptionSlots
    declared: Sequence[DeclaredBulkhead]
    windows: Sequence[SlotWindow]

    def of(self, group: LaneGroup) -> DeclaredBulkhead:
        return next((one for one in self.declared if one.group == group), DeclaredBulkhead(group))


def recommend_bulkhead(
    slots: SubscriptionSlots, groups: Sequence[LaneGroup], declared: Sequence[DeclaredBulkhead], after: int
) -> SettingChange | None:
    """Recommends a bulkhead for one subscription; None if the figures suggest none. `groups`: states and levels that
    its workers read; `after`: start (ms) of the last window in which the settings of the file were not in effect, -1:
    none.
    """
    case = _Case(slots, declared, [one for one in slots.recent() if one.at > after])
    for judge in (_maximum, _minimum):
        found = [one for group in groups for one in judge(case, group)]
        if found:
            return max(found, key=lambda one: (len(one.windows), one.busy, one.path))
    return None


def bulkheads_exceeded(slots: SubscriptionSlots, declared: Sequence[DeclaredBulkhead]) -> int:
    """Start (ms) of the last recent window in which a bulkhead of the file was exceeded, and therefore was not in
    effect; -1 if there is none.
    """
    found = [one.at for one in slots.recent() if any(_is_exceeded(slots, one, bulkhead) for bulkhead in declared)]
    return max(found, default=-1)


def _is_exceeded(slots: SubscriptionSlots, one: SlotWindow, bulkhead: DeclaredBulkhead) -> bool:
    group = bulkhead.group
    if bulkhead.max is not None and one.busy(slots.width, group.has) > bulkhead.max:
        return True
    return bulkhead.min is not None and one.busy(slots.width, group.lacks) > slots.total - bulkhead.min


def _maximum(case: _Case, group: LaneGroup) -> Iterator[SettingChange]:
    slots, there = case.slots, case.of(group)
    if group == ("states", "ready"):
        return  # of messages that wait in other states nobody can say since when they wait for a slot
    taken = [
        one
        for one in case.windows
        if slots.is_full(one)
        and is_harmed(one, group.lacks)
        and one.busy(slots.width, group.has) >= TAKEN * slots.total
        and one.busy(slots.width, group.has) > slots.total - _needed_by_waiting(slots, one, group)
    ]
    needed = max((slots_for(one.offered(slots.width, group.lacks)) for one in taken), default=0)
    most = max(slots.total - needed, 1, there.min or 0)
    blamed = [one for one in taken if one.busy(slots.width, group.has) > most]
    if len(blamed) >= ENTER and most < slots.total and (there.max is None or most < there.max):
        yield _change(slots, group, "max", (there.max, most), blamed, needed)


def _needed_by_waiting(slots: SubscriptionSlots, one: SlotWindow, group: LaneGroup) -> int:
    """Number of slots of one worker that the lanes of other groups need whose messages waited."""
    waiting = {lane for lane, use in one.lanes.items() if group.lacks(lane) and use.late > LATE * use.started}
    return slots_for(one.offered(slots.width, waiting.__contains__))


def _minimum(case: _Case, group: LaneGroup) -> Iterator[SettingChange]:
    slots, there = case.slots, case.of(group)
    if group.kind != "levels":
        return
    waiting = [one for one in case.windows if slots.is_full(one) and is_harmed(one, group.has)]
    needed = max((slots_for(one.offered(slots.width, group.has)) for one in waiting), default=0)
    kept = sum(one.min or 0 for one in case.declared if one.group != group)
    blamed = [one for one in waiting if one.busy(slots.width, group.lacks) > slots.total - needed]
    fits = needed <= TAKEN * slots.total and kept + needed < slots.total and needed <= (there.max or needed)
    if len(blamed) >= ENTER and fits and needed > (there.min or 0):
        yield _change(slots, group, "min", (there.min, needed), blamed, needed)


def _change(
    slots: SubscriptionSlots,
    group: LaneGroup,
    bound: str,
    values: tuple[int | None, int],
    blamed: Sequence[SlotWindow],
    needed: int,
) -> SettingChange:
    takes, waits = (group.has, group.lacks) if bound == "max" else (group.lacks, group.has)
    at = {one.at for one in blamed}
    rest = [one for one in slots.slices if one.at not in at]
    busy = sum(one.busy(slots.width, takes) for one in blamed) / len(blamed)
    who = group.name if bound == "max" else f"all but {group.name}"
    path = ("concurrency", group.kind, group.name, bound)
    return SettingChange(
        slots.topic, slots.subscription, "bulkhead", path, *values, who, tuple(sorted(at)), busy, slots.total, needed,
        slots.late(blamed, waits), slots.late(rest, waits),
    )  # fmt: skip
