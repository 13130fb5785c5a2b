"""Audit start of a subscription: the time since which its records prove anything, and the position of its cursor at
that time. Pure. The subscription may have acknowledged earlier messages without a record, or may never have had them.
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
    """Looks, the first and the last, between which all were in a complete audit trail. In ms since the epoch."""

    first: int
    last: int


class ProvenRange(NamedTuple):
    """Positions behind `after`, up to `last` inclusive, that were acknowledged within a complete audit trail."""

    after: Place
    last: Place


def complete_trails(looks: Iterable[int], waited: Collection[int]) -> list[CompleteTrail]:
    """Complete audit trails of a subscription, ascending: looks that follow each other and are all in `waited`. At such a
    look the audit topic exists and the file makes workers wait for their records, and no consumer says otherwise.
    """
    found = [list(run) for is_waited, run in groupby(sorted({*looks, *waited}), waited.__contains__) if is_waited]
    return [CompleteTrail(run[0], run[-1]) for run in found]


def audit_complete_since(looks: Collection[int], trails: Sequence[CompleteTrail]) -> int | None:
    """Start of the trail that lasts. None: the last look is in none."""
    return trails[-1].first if trails and trails[-1].last >= max(looks, default=0) else None


def proven_ranges(
    reading: PartitionHistory, cursor: str, trails: Iterable[CompleteTrail], behind: Place | None
) -> Iterator[ProvenRange]:
    """Positions that the cursor acknowledged within trails that ended: without a record they are lost, as they were found
    when the trail lasted. Nothing that comes later makes its records incomplete. `behind`: positions up to there are
    unproven for another reason.
    """
    for trail in trails:
        marks = [one for one in reading.marks if one.subscription == cursor and trail.first <= one.taken <= trail.last]
        if marks:
            begin = max(unproven_before(reading, cursor, trail.first) or _NOWHERE, behind or _NOWHERE)
            last = max(marks, key=lambda one: one.taken)
            parts = [(_NOWHERE, last.mark), *(((at, low - 1), (at, high)) for at, low, high in last.acknowledged)]
            yield from (ProvenRange(max(begin, low), high) for low, high in parts if high > begin)


def unproven_before(reading: PartitionHistory, cursor: str, since: int | None) -> Place | None:
    """Up to where nothing proves that the subscription had a message, or would have recorded it: the cursor at its
    first look `since` then; all that was read, where that is None. None: a partition that was made later.
    """
    if since is None:
        return reading.ranges[-1].last if reading.ranges else None
    marks = [mark for mark in reading.marks if mark.subscription == cursor and mark.taken >= since]
    if not marks:
        return None
    first = min(marks, key=lambda mark: mark.taken)
    made_later = since < first.taken == reading.looks[0] and all(one.run == first.run for one in reading.ranges[:1])
    return None if made_later else max((first.mark, *((ledger, last) for ledger, _, last in first.acknowledged)))
