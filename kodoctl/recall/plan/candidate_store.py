"""Letters that a plan may contain, in a temporary SQLite database: 64 MiB are in memory, the rest in an unnamed file
that disappears with the process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from kodoctl.errors import UsageError, error
from kodoctl.recall.message.stored_message import Position

if TYPE_CHECKING:
    from kodoctl.recall.plan.recall_plan import LetterRef

_CACHE_KIB: Final = 64 * 1024
_TABLES: Final = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA temp_store = FILE;
CREATE TABLE letter (
  seq INTEGER PRIMARY KEY, kind INT, rank INT, partition INT, ledger INT, entry INT, batch INT, published INT,
  recall_id BLOB, digest BLOB, lane INT, labels INT, first INT
);
CREATE TABLE name (name BLOB PRIMARY KEY, seq INT) WITHOUT ROWID;
CREATE TABLE seen (recall_id BLOB PRIMARY KEY) WITHOUT ROWID;
"""
CHOSEN, COPY, SETTLED = range(3)
"""Kinds of rows: to be sent or discarded, a copy of one of those, and settled before."""
_ROWS: Final = """
SELECT one.seq, one.kind, one.partition, one.ledger, one.entry, one.batch, one.published, one.recall_id, one.digest, one.lane, one.labels,
  first.seq, first.partition, first.ledger, first.entry, first.batch, first.published, first.recall_id, first.digest
FROM letter one LEFT JOIN letter first ON first.seq = one.first
ORDER BY one.rank / ?, one.partition, one.ledger, one.entry, one.batch
"""
_SEEN: Final = "SELECT seq FROM letter WHERE kind = ? AND recall_id IN (SELECT recall_id FROM seen)"
_DROP_ORPHANS: Final = "DELETE FROM letter WHERE kind = ? AND first NOT IN (SELECT seq FROM letter WHERE kind = ?)"
_SETTLE_ORPHANS: Final = """
UPDATE letter SET kind = ?, first = NULL WHERE kind = ? AND first NOT IN (SELECT seq FROM letter WHERE kind = ?)
"""


class StoredCandidate(NamedTuple):
    """A row of the store. `kind`: CHOSEN, COPY or SETTLED.

    Args:
        seq: number of the row, in the order of adding.
        published: publish time, ms since the epoch.
        recall_id, digest: hexadecimal digits; "" unless the kind is CHOSEN.
        lane, labels: as passed to `add`, also if `settle_seen` changed the kind later; 0 for other letters, and in
            `first`.
        first: the chosen letter of which this one is a copy; None: it is no copy.
    """

    seq: int
    kind: int
    position: Position
    published: int
    recall_id: str = ""
    digest: str = ""
    lane: int = 0
    labels: int = 0
    first: StoredCandidate | None = None


class CandidateStore:
    """Temporary store of letters, which are numbered in the order of adding. `rows`: number of all rows; `chosen`:
    number of rows of the kind CHOSEN. Only for one thread. The end of the `with` block deletes all rows, and the store
    is unusable then. The methods raise UsageError (K535) if the temporary file cannot be written.
    """

    def __init__(self) -> None:
        self._base = sqlite3.connect("", isolation_level=None)
        self._base.executescript(f"PRAGMA cache_size = -{_CACHE_KIB};{_TABLES}")
        self._base.execute("BEGIN")
        self._ranks: dict[int, int] = {}  # partition -> rows so far
        self.rows = 0
        self.chosen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._base.close()

    def first_of(self, name: bytes) -> int | None:
        """Number of the chosen letter that was added with this name (a hash that all copies of a message share), even
        if it was settled or removed since; None: no letter was added with this name.
        """
        found = next(self._rows("SELECT seq FROM name WHERE name = ?", (name,)), None)
        return None if found is None else int(found[0])

    def add(self, ref: LetterRef, recall_id: str, digest: str, lane: int, labels: int, name: bytes | None) -> int:
        """Adds a chosen letter and returns its number. `recall_id`, `digest`: hexadecimal digits; `lane`, `labels`:
        numbers that the caller gets back from `stored`; `name`: a name that no letter was added with yet, by which
        `first_of` finds this letter; None: `first_of` does not find it.
        """
        self.chosen += 1
        ids = (bytes.fromhex(recall_id), bytes.fromhex(digest))
        seq = self._insert(CHOSEN, ref, *ids, lane, labels, None)
        if name is not None:
            self._execute("INSERT INTO name VALUES (?, ?)", (name, seq))
        return seq

    def add_copy(self, ref: LetterRef, first: int) -> None:
        """Adds a copy of the chosen letter with the number `first`: the plan acknowledges it with that letter, and does
        not send it.
        """
        self._insert(COPY, ref, None, None, None, None, first)

    def add_settled(self, ref: LetterRef) -> None:
        """Adds a letter that an earlier recall sent or discarded: the plan only acknowledges it."""
        self._insert(SETTLED, ref, None, None, None, None, None)

    def add_seen(self, recall_id: str) -> None:
        """Notes a recall id that the headers of a message have, for `settle_seen`. Ignores a text that is not
        hexadecimal, because anybody can write headers.
        """
        try:
            made = bytes.fromhex(recall_id)
        except ValueError:
            return
        self._execute("INSERT OR IGNORE INTO seen VALUES (?)", (made,))

    def settle_seen(self) -> list[int]:
        """Changes chosen letters whose recall id was passed to `add_seen`, and their copies, to the kind SETTLED,
        because an earlier recall sent them. Returns the numbers of the letters that were chosen.
        """
        found = [int(seq) for (seq,) in self._rows(_SEEN, (CHOSEN,))]
        for seq in found:
            self._execute("UPDATE letter SET kind = ? WHERE seq = ?", (SETTLED, seq))
        if found:
            self._execute(_SETTLE_ORPHANS, (SETTLED, COPY, CHOSEN))
        self.chosen -= len(found)
        return found

    def remove(self, numbers: Iterable[int]) -> None:
        """Removes chosen letters by their numbers, and their copies. Each number must be of a stored letter of the kind
        CHOSEN, and come once; else `rows` and `chosen` are wrong afterwards.
        """
        for seq in numbers:
            self._execute("DELETE FROM letter WHERE seq = ?", (seq,))
            self.chosen -= 1
            self.rows -= 1
        self.rows -= self._execute(_DROP_ORPHANS, (COPY, CHOSEN)).rowcount

    def stored(self, share: int | None = None) -> Iterator[StoredCandidate]:
        """Yields all rows in the order of partition and position. `share`: yields in this order the first `share` rows
        that were added of each partition, then the next `share` of each, and so on, so that every part of the rows has
        letters of all partitions that have some left; rows that were removed leave gaps. None: one partition after the
        other. The store must not change meanwhile.
        """
        for row in self._rows(_ROWS, (share or max(self._ranks.values(), default=0) + 1,)):
            seq, kind, *at, published, recall_id, digest, lane, labels = row[:11]
            first = None
            if row[11] is not None:
                first = StoredCandidate(row[11], CHOSEN, Position(*row[12:16]), row[16], row[17].hex(), row[18].hex())
            made, payload = (recall_id.hex(), digest.hex()) if kind == CHOSEN else ("", "")
            yield StoredCandidate(seq, kind, Position(*at), published, made, payload, lane or 0, labels or 0, first)

    def _insert(self, kind: int, ref: LetterRef, *rest: bytes | int | None) -> int:
        partition = ref.position.partition
        rank = self._ranks.get(partition, 0)
        self._ranks[partition] = rank + 1
        self.rows += 1
        made = self._execute(
            "INSERT INTO letter VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (kind, rank, *ref.position, ref.published, *rest),
        )
        return int(made.lastrowid or 0)

    def _execute(self, statement: str, values: Sequence[bytes | int | None]) -> sqlite3.Cursor:
        try:
            return self._base.execute(statement, values)
        except sqlite3.Error as problem:
            raise _unwritable(problem) from None

    def _rows(self, statement: str, values: Sequence[bytes | int | None]) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._execute(statement, values)
        except sqlite3.Error as problem:  # pages that are read may displace others, which are written then
            raise _unwritable(problem) from None


def _unwritable(problem: sqlite3.Error) -> UsageError:
    detail = f"its letters are gathered in a temporary file: {problem}; set TMPDIR to a folder with more room"
    return UsageError(error("K535", "the plan file cannot be written", detail))
