"""Whether anything may have been between two readings of a partition, and deleted. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kodoctl.pipeline.source.splits import nothing_deleted

if TYPE_CHECKING:
    from kodoctl.pipeline.audit.readings import Place, Range, Reading


def continues(reading: Reading, one: Range, other: Range) -> bool:
    """Whether nothing was stored between two ranges. Brokers delete from the oldest ledger on, and never beyond the slowest
    cursor: so nothing did go while the ledger of the first range is there, or while somebody has nothing behind it; nor where
    nothing had come behind it, and no ledger was deleted since.
    """
    if other.first[0] == one.last[0]:
        return other.first[1] == one.last[1] + 1
    if other.first[1] != 0:
        return False
    if one.run == other.run or (reading.stored_from is not None and reading.stored_from <= one.last[0]):
        return True  # ranges of one run come from one list of ledgers
    return kept(reading, other.run, one.last) or _ended(reading, other.run, one.last)


def kept(reading: Reading, run: str, behind: Place) -> bool:
    """Whether everything behind a place was still there when a run looked."""
    marks = [mark for mark in reading.marks if mark.run == run]
    slowest = min((mark.mark for mark in marks if mark.subscription), default=None)
    return bool(marks) and (marks[0].first_ledger <= behind[0] or (slowest is not None and slowest <= behind))


def _ended(reading: Reading, run: str, last: Place) -> bool:
    """Whether nothing was stored behind a range when somebody looked, and no ledger was deleted from then until a run looked."""
    looks = sorted((one for one in reading.marks if not one.subscription), key=lambda one: one.taken)
    until = next((at for at, one in enumerate(looks) if one.run == run), -1)
    for at in range(until, -1, -1):
        if looks[at].mark == last:
            return True
        if not at or not nothing_deleted(looks[at - 1].rewrites, looks[at].rewrites):
            break
    return False
