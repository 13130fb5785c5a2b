# pure: every branch is tested
"""Numbers by which a broker recognises a message of a source that it has stored: exactly once, with no memory here.

The broker drops a message whose number is not above the highest one stored under the same producer name. So the pair
(name, number) of a change has to be the same in each run, and numbers of a name have to rise in the order of sending.

A change is identified by the position of its transaction's commit and by its place in the transaction. Transactions
come in the order of their commits, but positions of two commits may be 48 bytes apart while the second transaction has
a million changes: a sum of both would collide. Here each has bits of its own. What does not fit into 63 bits is part of
the name: a transaction with more than 2^22 places goes on under further names, and each TiB of the log has another.

Name: kodo-source-SLOT-ORIGIN-TIB (`identity`), ORIGIN: what numbers depend on. A database made anew, or restored to an
earlier time, counts positions from there, and other routes send a change to another partition, where a higher number
may be stored already: with the old name the broker would drop messages that it never had.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

_POSITION_BITS: Final = 40  # a TiB
_PLACE_BITS: Final = 22
_POSITION_MASK: Final = (1 << _POSITION_BITS) - 1
_PLACE_MASK: Final = (1 << _PLACE_BITS) - 1
PLACES: Final = 2
"""Places of a transaction for each change: a changed key makes two messages."""
_LSN: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})", re.ASCII)
_POSITION: Final = re.compile(r"([0-9A-F]{1,8}/[0-9A-F]{1,8})#(snapshot-)?(\d{1,15})", re.ASCII)
_SNAPSHOT_SLOT: Final = "kodo_snapshot_"


class Position(NamedTuple):
    """Position of a message of a source. `lsn`: position in the log of the commit, or of the snapshot; `place`: in the
    transaction, from 0 on, where each change has two places; `is_snapshot`: the row was there before the first change.
    """

    lsn: int
    place: int
    is_snapshot: bool = False

    @property
    def group(self) -> str:
        """Last part of the producer's name; numbers rise only within one such name."""
        high = f"{self.lsn >> _POSITION_BITS:x}"
        if self.is_snapshot:
            return f"s-{self.lsn:x}-{self.place >> _PLACE_BITS:x}"
        more = self.place >> _PLACE_BITS
        return f"{high}-{self.lsn:x}-{more:x}" if more else high

    @property
    def number(self) -> int:
        """Number of the message, from 1 on, because the client library takes 0 for none; rises within a group from
        message to message.
        """
        place = (self.place & _PLACE_MASK) + 1
        if self.is_snapshot or self.place > _PLACE_MASK:
            return place
        return ((self.lsn & _POSITION_MASK) << _PLACE_BITS) + place

    def __str__(self) -> str:
        """The position as PostgreSQL writes it, with the place: `0/16B3748#2`."""
        return f"{lsn_text(self.lsn)}#{'snapshot-' if self.is_snapshot else ''}{self.place}"


def lsn_text(lsn: int) -> str:
    """A position in the log, as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def read_lsn(text: str) -> int:
    """Reads a position in the log as PostgreSQL writes it, also in lower case. Raises ValueError for any other text."""
    if (found := _LSN.fullmatch(text)) is None:
        raise ValueError(f"{text[:40]!r} is no position in the log")
    return int(found[1], 16) << 32 | int(found[2], 16)


def read_position(text: str) -> Position | None:
    """Reads a position from a text that `str` of a Position wrote; None if the text is no position."""
    found = _POSITION.fullmatch(text)
    if found is None:
        return None
    lsn, is_snapshot, place = found.groups()
    return Position(read_lsn(lsn), int(place), is_snapshot is not None)


def snapshot_slot(slot: str) -> str:
    """Name of the temporary slot whose snapshot is read before `slot` exists."""
    return _SNAPSHOT_SLOT + hashlib.sha256(slot.encode()).hexdigest()[:16]
