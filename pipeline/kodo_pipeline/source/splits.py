"""Splits of a partition: the ranges of stored entries that tasks read. Pure: the input is statistics, the output is
splits.

A position is (ledger, entry). Ledger ids grow within a topic and are not consecutive; entries of a ledger are, from
0. A batch of a producer is one entry. So entries, not messages, can be planned, counted and compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kodoctl.topology.names import partition_name

Place = tuple[int, int]
START: Final[Place] = (-1, -1)  # before everything


@dataclass(frozen=True, slots=True)
class LedgerRange:
    """Consecutive entries of one ledger: from `first` to `last`, both included. `size`: bytes of these entries, as the
    broker stores them.
    """

    ledger: int
    first: int
    last: int
    size: int

    @property
    def entries(self) -> int:
        """Number of entries, both ends included."""
        return self.last - self.first + 1

    def until(self, entries: int) -> LedgerRange:
        """Range of the first `entries` entries of this one, which must have at least so many. Its bytes are estimated:
        their share by number.
        """
        return LedgerRange(self.ledger, self.first, self.first + entries - 1, self.size * entries // self.entries)

    def beyond(self, entries: int) -> LedgerRange:
        """Range of the entries after the first `entries` ones, of which at least one must be left. It has the bytes
        that `until` leaves.
        """
        return LedgerRange(
            self.ledger, self.first + entries, self.last, self.size - self.size * entries // self.entries
        )


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """Stored entries of one partition at the time of a request. `pieces`: ranges of stored entries; `ledgers`: ids of
    all ledgers, ascending; `last`: the last confirmed entry, whose ledger may be deleted; `tip`: position of a reader
    that has read everything, which is before the first entry of the open ledger if that is empty.
    """

    pieces: tuple[LedgerRange, ...]
    ledgers: tuple[int, ...]
    last: Place
    tip: Place

    @property
    def opened(self) -> Place:
        """Position before the first entry of the open (newest) ledger; START if there are no ledgers."""
        return (self.ledgers[-1], -1) if self.ledgers else START

    def continues(self, after: Place) -> bool:
        """True if no entry between the position `after` and the stored ranges can have been deleted; always for START,
        because whatever was deleted before a first reading is no hole of it. Brokers delete ledgers from the oldest on.
        So if an older ledger exists, a missing one after it had no entries: brokers replace an empty ledger when they
        load a topic.
        """
        return after == START or after >= self.last or any(ledger <= after[0] for ledger in self.ledgers)


def nothing_deleted(before: int | None, after: int | None) -> bool:
    """True if the number of rewrites of a partition's metadata shows that no ledger with entries was deleted between
    two readings: it grew by one at most. `before`, `after`: the numbers, None if unknown, which gives False. One
    rewrite may be the replacement of an empty ledger when the partition was loaded.
    """
    return before is not None and after is not None and after - before <= 1


def stored_partition(stats: Mapping[str, Any]) -> StoredPartition:
    """Parses the stored ranges of a partition from the JSON of `internalStats`. The open ledger is the last one; its
    figures are outside the list of ledgers. Entries after the last confirmed one are left out.
    """
    last = parse_position(str(stats.get("lastConfirmedEntry", "-1:-1")))
    rows = [(int(one["ledgerId"]), int(one["entries"]), int(one["size"])) for one in stats.get("ledgers") or ()]
    if rows:
        ledger, entries, size = rows[-1]
        opened = (int(stats.get("currentLedgerEntries") or 0), int(stats.get("currentLedgerSize") or 0))
        rows[-1] = (ledger, *max((entries, size), opened))
    pieces = []
    for ledger, entries, size in rows:
        kept = min(entries, last[1] + 1) if ledger == last[0] else entries
        if kept > 0 and ledger <= last[0]:
            pieces.append(LedgerRange(ledger, 0, kept - 1, size * kept // entries))
    tip = (pieces[-1].ledger, pieces[-1].last) if pieces else START
    if rows and rows[-1][1] == 0 and rows[-1][0] > last[0] and (tip == last or not pieces):
        tip = (rows[-1][0], -1)
    return StoredPartition(tuple(pieces), tuple(ledger for ledger, _, _ in rows), last, tip)


def parse_position(text: str) -> Place:
    """Parses a position `LEDGER:ENTRY`. Both may be negative, and `-1:-1` is START. Raises ValueError if the text is
    not two whole numbers with a colon between them.
    """
    ledger, _, entry = text.partition(":")
    return int(ledger), int(entry)


def trim_ranges(pieces: Iterable[LedgerRange], after: Place = START, upto: Place | None = None) -> list[LedgerRange]:
    """The parts of the ranges after the position `after`, up to and including `upto`; None: up to the end."""
    found = []
    for piece in pieces:
        first = max(piece.first, after[1] + 1) if piece.ledger == after[0] else piece.first
        last = min(piece.last, upto[1]) if upto is not None and piece.ledger == upto[0] else piece.last
        if first <= last and piece.ledger >= after[0] and (upto is None or piece.ledger <= upto[0]):
            found.append(LedgerRange(piece.ledger, first, last, piece.size * (last - first + 1) // piece.entries))
    return found


def split_ranges(pieces: Sequence[LedgerRange], most: int) -> list[tuple[LedgerRange, ...]]:
    """Divides ranges into at most `most` groups of about the same number of bytes, in order. Entries are not divided."""
    goal = max(1, -(-sum(piece.size for piece in pieces) // max(1, most)))
    runs: list[tuple[LedgerRange, ...]] = []
    run: list[LedgerRange] = []
    have = 0
    for whole in pieces:
        piece: LedgerRange | None = whole
        while piece is not None:
            taken, piece = _split_range(piece, goal - have if len(runs) < most - 1 else None)
            run.append(taken)
            have += max(1, taken.size)
            if have >= goal and len(runs) < most - 1:
                runs.append(tuple(run))
                run, have = [], 0
    return [*runs, tuple(run)] if run else runs


def _split_range(piece: LedgerRange, room: int | None) -> tuple[LedgerRange, LedgerRange | None]:
    """Returns (the first entries, at least one, of about `room` bytes; the rest or None). `room` None: no limit."""
    if room is None:
        return piece, None
    entries = max(1, -(-room * piece.entries // max(1, piece.size)))
    return (piece, None) if entries >= piece.entries else (piece.until(entries), piece.beyond(entries))


def share(waiting: Mapping[str, int], limit: int) -> dict[str, int]:
    """Distributes `limit` bytes among names that have bytes waiting: equal shares, except that a name that needs less
    leaves the rest to the others. Returns bytes by name, 0 for a name without any.
    """
    found = dict.fromkeys(waiting, 0)
    left, open_ = limit, sorted((name for name in waiting if waiting[name] > 0), key=lambda name: waiting[name])
    while open_:  # the smallest first: once its part is larger than its need, the others' parts only grow
        name, *open_ = open_
        found[name] = min(waiting[name], left // (len(open_) + 1))
        left -= found[name]
    return found


def within(pieces: Iterable[LedgerRange], size: int) -> list[LedgerRange]:
    """Returns the first entries of the ranges: as many as have about `size` bytes together at most, but at least one
    entry.
    """
    found: list[LedgerRange] = []
    left = size
    for piece in pieces:
        entries = min(piece.entries, left * piece.entries // max(1, piece.size)) if left > 0 else 0
        entries = max(entries, 0 if found else 1)
        if entries:
            found.append(piece.until(entries))
            left -= max(1, found[-1].size)
        if entries < piece.entries:
            break
    return found


def splits_each(cores: int, partitions: int, size: int) -> int:
    """Number of splits for each of `partitions` partitions: enough together to occupy the cores, but none so small that
    its connection takes longer than its reading (4 MiB, SMALLEST); one at least. `size`: bytes of the partition.
    """
    return max(1, min(-(-cores // max(1, partitions)), size // SMALLEST))


SMALLEST: Final = 4 * 1024 * 1024  # bytes: a split costs some 60 ms, in which a core reads so much


@dataclass(frozen=True, slots=True)
class Split:
    """Work of one task: ranges of entries of one partition of `topic` (full name), in order. `partition`: -1 if the
    topic has none.

    `hole`: reason why entries of the partition are not read, for a split that reads nothing; "" for any other.
    """

    topic: str
    partition: int
    pieces: tuple[LedgerRange, ...]
    hole: str = ""

    @property
    def part(self) -> str:
        """Full name of the partition."""
        return partition_name(self.topic, self.partition)

    @property
    def first(self) -> Place:
        """Position of the first entry. Raises IndexError for a hole, which has no entries."""
        return self.pieces[0].ledger, self.pieces[0].first

    @property
    def last(self) -> Place:
        """Position of the last entry. Raises IndexError for a hole, which has no entries."""
        return self.pieces[-1].ledger, self.pieces[-1].last

    @property
    def entries(self) -> int:
        """Number of planned entries."""
        return sum(piece.entries for piece in self.pieces)

    @property
    def size(self) -> int:
        """Bytes of its entries, as the broker stores them; 0 for a hole."""
        return sum(piece.size for piece in self.pieces)

    @property
    def id(self) -> str:
        """Partition and range as text: the same whenever the same range is planned. Raises IndexError for a hole."""
        first, last = self.first, self.last
        return f"{self.part}@{first[0]}:{first[1]}..{last[0]}:{last[1]}"


def splits_of(topic: str, partition: int, pieces: Sequence[LedgerRange], most: int) -> list[Split]:
    """Cuts the ranges of one partition into at most `most` splits."""
    return [Split(topic, partition, run) for run in split_ranges(pieces, most)]
