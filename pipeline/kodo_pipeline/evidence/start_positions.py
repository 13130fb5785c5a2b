"""Audit start of a subscription: the time since which its records are complete, and the position of its cursor at that
time. Pure. The subscription may have acknowledged earlier messages without a record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kodo_pipeline.evidence.partition_history import PartitionHistory
    from kodo_pipeline.source.splits import Place

_NOWHERE: Final = (-1, -1)  # before all positions
WAITS: Final = "wait"  # a worker acknowledges only what it has recorded
UNRECORDED: Final = "unrecorded"  # the file says so, and a consumer was connected that does not say it of itself


class CompleteTrail(NamedTuple):
    """Period in which the audit records of a subscription are complete: times of the first and the last cursor snapshot
    in it, ms since the epoch.
    """

    first: int
    last: int


class ProvenRange(NamedTuple):
    """Positions after `after`, up to and including `last`, that were acknowledged during a complete audit trail, so
    that each must have a record.
    """

    after: Place
    last: Place


def complete_trails(looks: Iterable[int], waited: Collection[int]) -> list[CompleteTrail]:
    """Finds the periods in which the audit records of a subscription are complete, ascending.

    `looks`: times of all cursor snapshots, ms since the epoch; `waited`: those of them at which the audit topic
    existed, the file made workers wait for their records, and no consumer contradicted it. A period is a longest
    sequence of neighbouring `looks` that are all in `waited`.
    """
    found = [list(run) for is_waited, run in groupby(sorted({*looks, *waited}), waited.__contains__) if is_waited]
    return [CompleteTrail(run[0], run[-1]) for run in found]


def audit_complete_since(looks: Collection[int], trails: Sequence[CompleteTrail]) -> int | None:
    """Start, in ms since the epoch, of the complete audit trail that lasts until now, that is, to which the last of
    `looks` belongs; None if there is none.
    """
    return trails[-1].first if trails and trails[-1].last >= max(looks, default=0) else None


def proven_ranges(
    reading: PartitionHistory, cursor: str, trails: Iterable[CompleteTrail], behind: Place | None
) -> Iterator[ProvenRange]:
    """Yields ranges of positions that the cursor certainly acknowledged during `trails`, which have ended; positions up
    to the result of `unproven_before` for the beginning of a trail are left out. Each message in a range must have a
    record, however the subscription was audited later. `cursor`: name of the subscription; `behind`: positions up to it
    are unproven for another reason, and left out; None: none are.
    """
    for trail in trails:
        marks = [one for one in reading.marks if one.subscription == cursor and trail.first <= one.taken <= trail.last]
        if marks:
            begin = max(unproven_before(reading, cursor, trail.first) or _NOWHERE, behind or _NOWHERE)
            last = max(marks, key=lambda one: one.taken)
            parts = [(_NOWHERE, last.mark), *(((at, low - 1), (at, high)) for at, low, high in last.acknowledged)]
            yield from (ProvenRange(max(begin, low), high) for low, high in parts if high > begin)


def unproven_before(reading: PartitionHistory, cursor: str, since: int | None) -> Place | None:
    """Position up to which it is not proved that the subscription had a message or would have recorded it: the highest
    position that its cursor had acknowledged in its first snapshot at or after `since` (ms since the epoch); if `since`
    is None, the last position that was read. None if nothing is unproven, as on a partition that was created later, and
    also if there is no such snapshot, or nothing was read. `cursor`: name of the subscription.
    """
    if since is None:
        return reading.ranges[-1].last if reading.ranges else None
    marks = [mark for mark in reading.marks if mark.subscription == cursor and mark.taken >= since]
    if not marks:
        return None
    first = min(marks, key=lambda mark: mark.taken)
    made_later = since < first.taken == reading.looks[0] and all(one.run == first.run for one in reading.ranges[:1])
    return None if made_later else max((first.mark, *((ledger, last) for ledger, _, last in first.acknowledged)))
