"""Audit start of a subscription: the time since which its records prove anything, and the position of its cursor at
that time. Pure. The subscription may have acknowledged earlier messages without a record, or may never have had them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kodoctl.pipeline.audit.partition_history import PartitionHistory
    from kodoctl.pipeline.source.splits import Place

WAITS: Final = "wait"  # a worker acknowledges only what it has recorded
UNRECORDED: Final = "unrecorded"  # the file says so, and a consumer was connected that does not say it of itself


def audit_complete_since(looks: Iterable[int], waited: Collection[int]) -> int | None:
    """Start of the complete audit trail of a subscription: the first look from which on all looks are in `waited`. At
    such a look the audit topic exists and the file makes workers wait for their records. Looks are in ms since the
    epoch. None: the last look is not in `waited`.
    """
    without = max((look for look in looks if look not in waited), default=-1)
    return min((look for look in waited if look > without), default=None)


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
