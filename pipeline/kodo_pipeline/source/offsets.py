"""Stream offsets: for each partition a position, and the number of entries up to it. Pure.

The number of entries makes a hole visible: a range is planned again from the entries that are stored at that time,
after a restart as well, and must have as many entries as when its end was fixed. As JSON:
{"persistent://t/ns/orders-partition-0": "17:41:1042"}.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kodo_pipeline.source.splits import START, LedgerRange, Place, StoredPartition, share, trim_ranges, within


class StreamOffset(NamedTuple):
    """Offset in one partition: everything up to the position (`ledger`, `entry`) has been read, `entries` entries since
    the stream began.
    """

    ledger: int
    entry: int
    entries: int

    @property
    def place(self) -> Place:
        """Position of the last entry that has been read."""
        return self.ledger, self.entry

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}:{self.entries}"


BEGIN = StreamOffset(*START, 0)
Offset = dict[str, str]


def mark(offset: Mapping[str, str], part: str) -> StreamOffset:
    """Offset of the partition `part` in `offset`; BEGIN (before the first entry) if `offset` lacks the partition,
    because the partition was created later.
    """
    text = offset.get(part)
    if text is None:
        return BEGIN
    ledger, entry, count = map(int, text.split(":"))
    return StreamOffset(ledger, entry, count)


@dataclass(frozen=True, slots=True)
class PartitionBatch:
    """Entries of one partition that are available for the next batch. `since`: offset before them; `pieces`: their
    ranges; `tip`: position of a reader that has read all of them.
    """

    since: StreamOffset
    pieces: tuple[LedgerRange, ...]
    tip: Place

    @property
    def size(self) -> int:
        """Bytes of the entries, as the broker stores them."""
        return sum(piece.size for piece in self.pieces)


def wanted_batches(now: Mapping[str, StoredPartition], since: Mapping[str, str]) -> dict[str, PartitionBatch]:
    """Entries that are stored after the offset `since`, by full name of the partition. `now`: stored ranges of each
    partition. A partition without new entries is included.
    """
    found = {}
    for part, there in now.items():
        begin = mark(since, part)
        # The open ledger of a partition where nothing was ever read may be replaced by another: that is no place to stand at.
        stands = there.tip if there.tip != START or begin.place == START else there.opened
        found[part] = PartitionBatch(begin, tuple(trim_ranges(there.pieces, begin.place)), stands)
    return found


def next_offset(waiting: Mapping[str, PartitionBatch], limit: int | None) -> Offset:
    """Computes the end of the next batch, for the partitions in `waiting`. `limit`: bytes, which are shared out to the
    partitions, though each that has entries gets at least one entry; None: everything. The end is never before the
    present offset.
    """
    parts = None if limit is None else share({part: one.size for part, one in waiting.items()}, limit)
    return {part: str(_next(one, None if parts is None else parts[part])) for part, one in waiting.items()}


def _next(one: PartitionBatch, size: int | None) -> StreamOffset:
    taken = list(one.pieces) if size is None else within(one.pieces, size)
    count = one.since.entries + sum(piece.entries for piece in taken)
    if taken == list(one.pieces):
        return StreamOffset(*max(one.since.place, one.tip), count)
    return StreamOffset(taken[-1].ledger, taken[-1].last, count)


def holes(now: Mapping[str, StoredPartition], since: Mapping[str, str]) -> dict[str, str]:
    """Finds partitions in which entries directly after the offset may have been deleted. Returns the reason by full
    name of the partition.
    """
    return {
        part: f"ledger {mark(since, part).ledger}, where reading stopped, is gone: what came behind may be gone unread"
        for part, there in now.items()
        if not there.continues(mark(since, part).place)
    }


def missing(pieces: list[LedgerRange], begin: StreamOffset, end: StreamOffset) -> int:
    """Number of entries after `begin`, up to and including `end`, that were stored when `end` was fixed, and are not
    stored any more. `pieces`: the ranges between the two that are stored now.
    """
    return end.entries - begin.entries - sum(piece.entries for piece in pieces)
