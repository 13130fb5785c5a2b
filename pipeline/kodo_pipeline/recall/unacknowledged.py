# pure: every branch is tested
"""Unacknowledged entries of a subscription on a partition, as ranges. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kodo_pipeline.source.splits import LedgerRange, trim_ranges
from kodoctl.pulsar.binary.undeliverable_entries import EntryRun

if TYPE_CHECKING:
    from kodoctl.pulsar.binary.message_reader import Cursor

STRIDE: Final = 1_000  # entries a row of `rows` may span: what a join has to look at for one message


def unacknowledged_ranges(pieces: Sequence[LedgerRange], cursor: Cursor) -> Iterator[EntryRun]:
    """Yields the ranges of entries in `pieces` (stored entries, in ascending order) that the cursor has not
    acknowledged, in order. A batch that is acknowledged in part counts as unacknowledged.
    """
    done = sorted(cursor.ranges)
    begin = 0
    for piece in trim_ranges(pieces, cursor.mark):
        while begin < len(done) and done[begin][1] < (piece.ledger, piece.first):
            begin += 1
        at = piece.first
        for first, last in done[begin:]:
            if first > (piece.ledger, piece.last):
                break
            if last < (piece.ledger, at):  # an earlier one reaches further
                continue
            upto = first[1] - 1 if first[0] == piece.ledger else piece.first - 1
            if upto >= at:
                yield EntryRun(piece.ledger, at, upto)
            at = max(at, last[1] + 1 if last[0] == piece.ledger else piece.last + 1)
        if at <= piece.last:
            yield EntryRun(piece.ledger, at, piece.last)


def join_rows(partition: int, runs: Iterable[EntryRun]) -> Iterator[tuple[int, int, int, int, int]]:
    """Yields (partition, ledger, stride, first, last): the entry ranges `runs`, cut at multiples of STRIDE (1,000). A
    join on `stride` (entry number divided by STRIDE, rounded down) then compares an entry with few rows only.
    """
    for run in runs:
        for stride in range(run.first // STRIDE, run.last // STRIDE + 1):
            first, last = max(run.first, stride * STRIDE), min(run.last, (stride + 1) * STRIDE - 1)
            yield partition, run.ledger, stride, first, last
