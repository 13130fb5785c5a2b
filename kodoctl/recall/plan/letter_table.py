"""Letters of a recall plan as a Parquet file beside the plan's own: written and read a segment at a time, so that a
plan of ten million letters needs the memory of some ten thousand. A segment is a row group; its letters are in the
order of their numbers in each lane.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from kodoctl.errors import RefusedError, UsageError, Where, error
from kodoctl.host.private_files import create_private
from kodoctl.recall.message.stored_message import Position
from kodoctl.recall.plan.recall_plan import SEGMENT, LetterRef, LetterTable, PlannedLetter, RecallPlan, UnsentCopy

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX: Final = ".letters"  # behind the name of the plan's file
_CHUNK: Final = 1 << 20  # bytes hashed at a time
_POSITION: Final = ("partition", "ledger", "entry", "batch")
_FIRST: Final = tuple(f"first_{name}" for name in (*_POSITION, "published"))
_HEX: Final = ("recall_id", "digest")
_NAMES: Final = (*_POSITION, "published", *_HEX, "lane", "number", *_FIRST)


class PlanRow(NamedTuple):
    """A row of a plan's table, about the letter `ref`. `chosen`: the letter as it is sent or discarded; None: it is
    only acknowledged. `first`: the chosen letter of which it is a copy; None: it is no copy. If both are None, an
    earlier recall sent or discarded the letter.
    """

    ref: LetterRef
    chosen: PlannedLetter | None = None
    first: PlannedLetter | None = None


@dataclass(frozen=True, slots=True)
class PlanSegment:
    """Part of a plan's letters that is in memory at a time. `letters`: letters to be sent or discarded; `unsent`:
    letters that are only acknowledged, whose `first` may be in another segment.
    """

    letters: tuple[PlannedLetter, ...]
    unsent: tuple[UnsentCopy, ...]


def segments(plan: RecallPlan) -> Iterator[PlanSegment]:
    """Yields all letters of a plan in the order in which they are sent: from its table in segments of at most SEGMENT
    rows; for a plan without a table in one segment. The table must have passed `check_table`. If it was removed or
    changed since, raises UsageError or RefusedError as that does, unless the change leaves it readable.
    """
    if plan.table is not None:
        yield from _stored_segments(plan.table)
        return
    copies = (UnsentCopy(copy, one) for one in plan.letters for copy in one.repeats)
    yield PlanSegment(plan.letters, (*map(UnsentCopy, plan.settle), *copies))


class LetterTableWriter:
    """Writer of a table of letters, into a file that only its owner can read. The constructor creates the file at once,
    and an old file of this name is lost then; it raises UsageError if the file cannot be created, ImportError without
    pyarrow. Rows are added in the order of the plan; `close` writes the last of them and returns a description of the
    file. The end of the `with` block only closes the file.
    """

    def __init__(self, path: Path) -> None:
        from pyarrow import parquet

        self._path = path
        try:
            create_private(path)
            self._file = parquet.ParquetWriter(path, _schema(), compression="zstd")
        except OSError as problem:
            raise _unwritable(path, problem) from None
        self._rows: list[tuple[Any, ...]] = []
        self._written = self._settled = 0
        self._by_lane: Counter[int] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # `close` reports it, and here another error passes
            self._file.close()

    def add(self, row: PlanRow) -> None:
        """Adds a row, and writes the rows to the file when there are SEGMENT (50,000) of them. Raises UsageError if the
        file cannot be written.
        """
        named = row.chosen or row.first
        ids = (bytes.fromhex(named.recall_id), bytes.fromhex(named.digest)) if named is not None else (None, None)
        lane = (row.chosen.lane, row.chosen.number) if row.chosen is not None else (None, None)
        first = (*row.first.position, row.first.published) if row.first is not None else (None,) * len(_FIRST)
        self._rows.append((*row.ref.position, row.ref.published, *ids, *lane, *first))
        if row.chosen is not None:
            self._by_lane[row.chosen.lane] += 1
        self._settled += named is None
        if len(self._rows) >= SEGMENT:
            self._flush()

    def close(self) -> LetterTable:
        """Writes the remaining rows, closes the file and returns a description of its content. Raises UsageError if the
        file cannot be written.
        """
        self._flush()
        try:
            self._file.close()
            sha256 = _sha256(self._path)
        except OSError as problem:
            raise _unwritable(self._path, problem) from None
        lanes = tuple(self._by_lane[lane] for lane in range(max(self._by_lane, default=-1) + 1))
        return LetterTable(self._path, self._written, self._by_lane.total(), self._settled, lanes, sha256)

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._rows:
            return
        columns = zip(*self._rows, strict=True)
        made = pa.table([pa.array(values, one.type) for values, one in zip(columns, _schema(), strict=True)], _schema())
        try:
            self._file.write_table(made, row_group_size=SEGMENT)
        except OSError as problem:
            raise _unwritable(self._path, problem) from None
        self._written += len(self._rows)
        self._rows.clear()


def check_table(table: LetterTable) -> None:
    """Reads the whole file of a table. Raises UsageError if that fails, RefusedError if its digest is not the one in
    the plan.
    """
    try:
        found = _sha256(table.path)
    except OSError as problem:
        raise _unreadable(table, problem) from None
    if found != table.sha256:
        raise _mismatch(table)


def _unreadable(table: LetterTable, problem: OSError) -> UsageError:
    why = problem.strerror or problem
    detail = f"the plan's letters are in this file, which belongs beside the plan: {why}"
    return UsageError(error("K016", "cannot read file", detail, Where(str(table.path))))


def _mismatch(table: LetterTable) -> RefusedError:
    detail = "its content does not match the plan: it was changed or cut, or is of another plan; plan again"
    return RefusedError(error("K559", "recall plan that cannot be carried out", detail, Where(str(table.path))))


def _stored_segments(table: LetterTable) -> Iterator[PlanSegment]:
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(table.path, pre_buffer=False, memory_map=False) as file:
            for group in range(file.num_row_groups):
                yield _segment(file.read_row_group(group))
    except OSError as problem:
        raise _unreadable(table, problem) from None
    except (ValueError, KeyError):  # of Arrow: it is no Parquet file, or one of other columns
        raise _mismatch(table) from None


def _segment(rows: pa.Table) -> PlanSegment:
    letters: list[PlannedLetter] = []
    unsent: list[UnsentCopy] = []
    for row in zip(*(rows.column(name).to_pylist() for name in _NAMES), strict=True):
        partition, ledger, entry, batch, published, recall_id, digest, lane, number, *first = row
        position = Position(partition, ledger, entry, batch)
        if lane is not None:
            letters.append(PlannedLetter(position, published, recall_id.hex(), digest.hex(), lane, number))
        elif recall_id is not None:
            sent = PlannedLetter(Position(*first[:4]), first[4], recall_id.hex(), digest.hex())
            unsent.append(UnsentCopy(LetterRef(position, published), sent))
        else:
            unsent.append(UnsentCopy(LetterRef(position, published)))
    return PlanSegment(tuple(letters), tuple(unsent))


def _sha256(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()


def _schema() -> pa.Schema:
    import pyarrow as pa

    kinds = {"partition": pa.int32(), "batch": pa.int32(), "lane": pa.int32(), "first_partition": pa.int32(),
             "first_batch": pa.int32(), **dict.fromkeys(_HEX, pa.binary(16))}  # fmt: skip
    return pa.schema([(name, kinds.get(name, pa.int64())) for name in _NAMES])


def _unwritable(path: Path, problem: OSError) -> UsageError:
    detail = str(problem.strerror or problem)
    return UsageError(error("K535", "the plan file cannot be written", detail, Where(str(path))))
