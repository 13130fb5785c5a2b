"""Conflicts of bulkheads: minimums and maximums that contradict each other, and maximums without effect. Lint applies
these rules to files, and the same rules hold for live orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kodoctl.topology.slot_ranges import DeclaredSlots, LaneName


class SlotConflict(NamedTuple):
    """A conflict of the slots at `path` below `concurrency`; (): of all slots together. `bound`: the bound that is
    wrong, `max` or `min`, "" for the range as a whole; `detail`: sentence with the advice.
    """

    path: tuple[str, ...]
    bound: str
    detail: str


def conflicts(groups: Sequence[DeclaredSlots], total: int, lanes: Sequence[LaneName]) -> Iterator[SlotConflict]:
    """Yields conflicts of kept slots (`min`): their sum exceeds `total`, or equals it while a lane has no `min`; one
    exceeds its own `max`; or the sum of the others inside a `max` exceeds that. `groups`: declared slots; `total`:
    slots of a worker; `lanes`: all lanes that workers read.
    """
    keeping = [one for one in groups if one.slots.min]
    kept = sum(one.slots.min or 0 for one in keeping)
    sums = " + ".join(f"{one.name} {one.slots.min}" for one in keeping)
    if kept > total:
        yield SlotConflict((), "", f"{sums}: {kept} slots are kept of {total}; raise `total`, or lower a min")
    elif kept == total and (bare := _lanes_beside(keeping, lanes)):
        detail = (
            f"{sums}: no slot is left for {', '.join(bare)}; raise `total`, lower a min, or keep some for them as well"
        )
        yield SlotConflict((), "", detail)
    for one in groups:
        most = one.slots.max
        if most is None:
            continue
        inside = [other for other in keeping if other is not one and other.lanes <= one.lanes]
        if (one.slots.min or 0) > most:
            detail = f"min {one.slots.min} is more than max {most}: slots would be kept that nothing may use"
            yield SlotConflict(one.path, "min", detail)
        if sum(other.slots.min or 0 for other in inside) > most:
            sums_inside = " + ".join(f"{other.name} {other.slots.min}" for other in inside)
            detail = f"max {most} is less than what is kept inside of it ({sums_inside}): slots would be kept that nothing may use"
            yield SlotConflict(one.path, "max", detail)


def idle(groups: Sequence[DeclaredSlots], total: int) -> Iterator[SlotConflict]:
    """Yields ranges in `groups` with neither `max` nor `min`, and maximums without effect, because `total` (the slots
    of a worker) or another maximum around them is reached first.
    """
    for number, one in enumerate(groups):
        most = one.slots.max
        if most is None:
            if one.slots.min is None:
                yield SlotConflict(one.path, "", "neither `max` nor `min`: it changes nothing")
            continue
        around = [other for other in groups if other is not one and other.lanes >= one.lanes]
        wider = next((other for other in around if _counts_before(other, one, groups[:number])), None)
        if most >= total:
            detail = f"max {most} of {total} slots changes nothing: write less than {total}, or take it out"
            yield SlotConflict(one.path, "max", detail)
        elif wider is not None:
            detail = f"max {most} never counts: {wider.name} has max {wider.slots.max}, for all of these lanes"
            yield SlotConflict(one.path, "max", detail)


def _lanes_beside(keeping: Sequence[DeclaredSlots], lanes: Sequence[LaneName]) -> list[str]:
    """Names (`L1/ready`) of the lanes for which no slots are kept."""
    covered = frozenset[tuple[str, str]]().union(*(one.lanes for one in keeping))
    return ["/".join(lane) for lane in lanes if lane not in covered]


def _counts_before(other: DeclaredSlots, one: DeclaredSlots, earlier: Sequence[DeclaredSlots]) -> bool:
    """True if the maximum of `other`, which has all lanes of `one`, is reached first; of two equal ones the `earlier`."""
    most, limit = one.slots.max, other.slots.max
    assert most is not None
    return limit is not None and (limit < most or (limit == most and (other.lanes != one.lanes or other in earlier)))
