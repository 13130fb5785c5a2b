"""Continuity of two read ranges of a partition: the proof that no message between them was stored and deleted unread.
Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kodo_pipeline.source.splits import nothing_deleted

if TYPE_CHECKING:
    from kodo_pipeline.evidence.partition_history import PartitionHistory, ReadRange
    from kodo_pipeline.source.splits import Place


def is_contiguous(reading: PartitionHistory, one: ReadRange, other: ReadRange) -> bool:
    """True if it is certain that no entry between two read ranges, `one` and the later `other`, was deleted unread.

    In the ledger where the first range ends, the second must begin with the next entry; else it must begin a ledger.
    Then brokers may still have deleted whole ledgers, from the oldest on, but never beyond the slowest cursor. So none
    was deleted if (a) one ingest planned both ranges, (b) the ledger where the first range ends exists now, or existed
    when the ingest of the second took its snapshot of the cursors, (c) a cursor was at or before the end of the first
    range in that snapshot, or (d) the first range ended with the last stored entry in some snapshot, and no ledger was
    deleted from that snapshot until the one of (b).
    """
    if other.first[0] == one.last[0]:
        return other.first[1] == one.last[1] + 1
    if other.first[1] != 0:
        return False
    if one.run == other.run or (reading.stored_from is not None and reading.stored_from <= one.last[0]):
        return True  # ranges of one run come from one list of ledgers
    return nothing_trimmed(reading, other.run, one.last) or _is_complete(reading, other.run, one.last)


def nothing_trimmed(reading: PartitionHistory, run: str, behind: Place) -> bool:
    """True if it is certain that everything after the position `behind` was still stored when the ingest `run` took its
    snapshot of the partition's cursors; False also if that run took none.
    """
    marks = [mark for mark in reading.marks if mark.run == run]
    slowest = min((mark.mark for mark in marks if mark.subscription), default=None)
    return bool(marks) and (marks[0].first_ledger <= behind[0] or (slowest is not None and slowest <= behind))


def _is_complete(reading: PartitionHistory, run: str, last: Place) -> bool:
    """True if a range ended with the last stored entry at some snapshot, and no ledger was deleted from then until
    the snapshot of a run.
    """
    looks = sorted((one for one in reading.marks if not one.subscription), key=lambda one: one.taken)
    until = next((at for at, one in enumerate(looks) if one.run == run), -1)
    for at in range(until, -1, -1):
        if looks[at].mark == last:
            return True
        if not at or not nothing_deleted(looks[at - 1].rewrites, looks[at].rewrites):
            break
    return False
