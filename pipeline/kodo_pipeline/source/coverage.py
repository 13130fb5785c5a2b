"""Coverage of a split: comparison of the entries that were planned with those that were read. Pure. Needed because in
every silent loss that could be provoked the Spark job succeeded, and only the coverage showed the loss.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_pipeline.source.splits import Place, Split

COMPLETE: Final = "complete"
TIMEOUT: Final = "timeout"
OVERRUN: Final = "overrun"
HOLE: Final = "hole"
_MOST_GAPS: Final = 100


@dataclass(slots=True)
class Coverage:
    """Record of the entries of a split that were read. Entries must be reported in order; gaps are found by comparison
    with the planned ranges.

    `rows`: number of messages; `seen`: number of entries with a message; `empty`: number of stored entries without a
    message of their own, because they are part of a chunked message or were proved unreadable, and of those with the
    last chunk of a message that begins before the split; `first_seen`,
    `last_seen`: None before the first entry; `state`: one of the constants of this module, TIMEOUT until the reading
    has ended otherwise; `seconds`: duration of the reading, with what the caller did between batches; `ledgers_after`:
    ids of the partition's ledgers after the reading, None: not read; `gaps`: texts `EXPECTED>READ`, of the first 100
    jumps only.
    """

    split: Split
    rows: int = 0
    seen: int = 0
    empty: int = 0
    first_seen: Place | None = None
    last_seen: Place | None = None
    state: str = TIMEOUT
    seconds: float = 0.0
    ledgers_after: tuple[int, ...] | None = None
    gaps: list[str] = field(default_factory=list)
    _piece: int = 0
    _next: int = -1

    def entry(self, ledger: int, entry: int) -> None:
        """Records that a message of an entry was read; an entry that is not the next planned one adds a gap. Call it
        once for each entry, however many messages it has.
        """
        pieces = self.split.pieces
        expected = (pieces[self._piece].ledger, self._next if self._next >= 0 else pieces[self._piece].first)
        if (ledger, entry) != expected:
            if len(self.gaps) < _MOST_GAPS:
                self.gaps.append(f"{expected[0]}:{expected[1]}>{ledger}:{entry}")
            while self._piece < len(pieces) - 1 and pieces[self._piece].ledger < ledger:
                self._piece += 1
        self._next = entry + 1
        if entry >= pieces[self._piece].last and self._piece < len(pieces) - 1:
            self._piece, self._next = self._piece + 1, -1
        self.seen += 1
        self.first_seen = self.first_seen or (ledger, entry)
        self.last_seen = (ledger, entry)

    def end(self, state: str) -> None:
        """Records why the reading ended (`state`)."""
        self.state = state

    def entries(self, ledger: int, first: int, last: int) -> None:
        """Records that the entries `first` to `last` of a ledger were read, as calls of `entry` would."""
        self.entry(ledger, first)
        while first < last:
            piece = self.split.pieces[self._piece]
            first += 1
            if (piece.ledger, self._next) == (ledger, first) and (upto := min(last, piece.last - 1)) > first:
                self.seen += upto - first
                first = upto
                self._next = first
            self.entry(ledger, first)

    @property
    def full(self) -> bool:
        """True if the reading came to the planned end and each planned entry was read, or counted as `empty`."""
        entries = self.seen + self.empty
        return self.state == COMPLETE and entries == self.split.entries and (not self.gaps or self.empty > 0)

    @property
    def problem(self) -> str:
        """Text that says why the split was not read in full; "" if it was."""
        if self.full:
            return ""
        if self.state == HOLE:
            return f"{self.split.part}: {self.split.hole}"
        gone = sorted({piece.ledger for piece in self.split.pieces} - set(self.ledgers_after or ()))
        why = {TIMEOUT: "nothing more came", OVERRUN: "the broker went on behind the end"}.get(
            self.state, "entries are missing"
        )
        trimmed = f"; ledgers {', '.join(map(str, gone))} are gone" if gone and self.ledgers_after is not None else ""
        return f"{self.split.id}: {self.seen:,} of {many(self.split.entries, 'entry', 'entries')}, {why}{trimmed}"

    def record(self) -> dict[str, Any]:
        """The coverage as a row of the table `coverage`, without run and batch. `entries_seen` includes empty entries.
        If the ledgers were not read again, all of them count as still there.
        """
        split = self.split
        ledgers = sorted({piece.ledger for piece in split.pieces})
        return {
            "split_id": split.id if split.pieces else f"{split.part}@hole",
            "msg_topic": split.topic,
            "msg_partition": split.partition,
            "first": _text(split.first) if split.pieces else "",
            "last": _text(split.last) if split.pieces else "",
            "entries_planned": split.entries,
            "entries_seen": self.seen + self.empty,
            "rows": self.rows,
            "first_seen": _text(self.first_seen),
            "last_seen": _text(self.last_seen),
            "gaps": self.gaps or ([split.hole] if split.hole else []),
            "ledgers_before": ledgers,
            "ledgers_after": ledgers
            if self.ledgers_after is None
            else [one for one in ledgers if one in self.ledgers_after],
            "state": self.state,
            "full": self.full,
            "seconds": round(self.seconds, 3),
        }

    @property
    def file(self) -> str:
        """Name of the file for the record. It is the same for every attempt at the split, so that the last attempt
        counts.
        """
        return f"{hashlib.sha256(self.record()['split_id'].encode()).hexdigest()[:24]}.json"


def _text(found: Place | None) -> str | None:
    return None if found is None else f"{found[0]}:{found[1]}"
