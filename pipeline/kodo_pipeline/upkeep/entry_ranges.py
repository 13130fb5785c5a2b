"""Entries of partitions in Arrow columns: the positions of a batch's rows, and ranges of neighbouring entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

if TYPE_CHECKING:
    import pyarrow as pa

_PLACE: Final = r"^(?P<ledger>\d{1,18}):(?P<entry>\d{1,18}):(?P<part>-?\d{1,9}):"
_SHIFT: Final = 40  # bits of an entry's number in a ledger


class NumberRange(NamedTuple):
    """Range of numbers of one key, both ends included. `rows`: number of rows in which the numbers were seen."""

    key: tuple[Any, ...]
    first: int
    last: int
    rows: int


@dataclass(frozen=True, slots=True)
class EntryColumns:
    """Positions of the entries of a batch's rows: one value per row, null if the row names no entry. `partition`: topic
    and partition number in one text, as `partition_key` makes it.
    """

    partition: pa.Array
    ledger: pa.Array
    entry: pa.Array

    @classmethod
    def stored(cls, rows: pa.RecordBatch) -> Self:
        """Entries in which rows of `events` are stored."""
        return cls(_join_columns(rows["msg_topic"], rows["msg_partition"]), rows["ledger"], rows["entry"])

    @classmethod
    def named(cls, rows: pa.RecordBatch, topic: str, place: str) -> Self:
        """Entries that rows name in columns: `topic` is the name of the column with the topic, `place` that of the
        column with the text `ledger:entry:partition:batch index`. A text of another form gives null.
        """
        import pyarrow.compute as pc

        found = pc.extract_regex(rows[place], _PLACE)
        ledger, entry = (pc.struct_field(found, name).cast("int64") for name in ("ledger", "entry"))
        return cls(_join_columns(rows[topic], pc.struct_field(found, "part")), ledger, entry)

    @property
    def keys(self) -> pa.Array:
        """A text for each row that identifies its entry; null if the row names none."""
        return _join_columns(self.partition, self.ledger, self.entry)

    def before(self, limits: Sequence[tuple[str, int, int]]) -> pa.Array:
        """Column: true for each entry before the limit of its partition; null in partitions without a limit. `limits`:
        (partition, ledger, entry).
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        at = pc.index_in(self.partition, value_set=pa.array([one[0] for one in limits], pa.string()))
        ledger, entry = (pa.array([one[nth] for one in limits], pa.int64()).take(at) for nth in (1, 2))
        same = pc.and_kleene(pc.equal(self.ledger, ledger), pc.less(self.entry, entry))
        return pc.or_kleene(pc.less(self.ledger, ledger), same)

    def first_of(self, chosen: pa.Array) -> list[tuple[str, int, int]]:
        """(partition, ledger, entry) of the first entry of each partition, among rows for which `chosen` is true."""
        import pyarrow as pa

        rows = pa.table({"partition": self.partition, "ledger": self.ledger, "entry": self.entry})
        rows = rows.filter(chosen).drop_null()
        found: dict[str, tuple[int, int]] = {}
        for one in rows.group_by(["partition", "ledger"]).aggregate([("entry", "min")]).to_pylist():
            place = one["ledger"], one["entry_min"]
            found[one["partition"]] = min(place, found.get(one["partition"], place))
        return [(name, *place) for name, place in found.items()]


class RangeIndex:
    """Index of ranges of entries, to test many rows at once. `ranges`: with keys (topic, partition, ledger), and
    without overlaps, as `join_ranges` makes them.
    """

    def __init__(self, ranges: Iterable[NumberRange]) -> None:
        import pyarrow as pa

        found = list(ranges)
        ledgers = list(dict.fromkeys(one.key for one in found))
        at = {key: number for number, key in enumerate(ledgers)}
        self._ledgers = pa.array(["\t".join(map(str, key)) for key in ledgers], pa.string())
        codes = sorted(((at[one.key] << _SHIFT) + one.first, (at[one.key] << _SHIFT) + one.last) for one in found)
        self._first = pa.array([one[0] for one in codes], pa.int64())
        self._last = pa.array([one[1] for one in codes], pa.int64())

    def contains(self, rows: EntryColumns) -> pa.Array:
        """Column: true for each row whose entry is in a range, false for every other, also one that names no entry.
        Ranges and rows are sorted once, to find the range before each row.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        ledger = pc.index_in(_join_columns(rows.partition, rows.ledger), value_set=self._ledgers).cast("int64")
        inside = pc.less(rows.entry, 1 << _SHIFT)
        code = pc.if_else(inside, pc.add(pc.multiply(ledger, 1 << _SHIFT), rows.entry), None)
        count = len(self._first)
        both = pa.table({
            "code": pa.concat_arrays([self._first, code]),
            "nth": pa.array(range(count + len(code)), pa.int64()),  # of equal ones the range is first
            "last": pa.concat_arrays([self._last, pa.nulls(len(code), pa.int64())]),
        }).sort_by([("code", "ascending"), ("nth", "ascending")])  # fmt: skip
        reached = pc.fill_null_forward(both["last"])
        found = pc.fill_null(pc.less_equal(both["code"], reached), fill_value=False)
        back = pc.sort_indices(both["nth"])
        return found.take(back).combine_chunks().slice(count)


def ranges_of(rows: pa.Table, keys: Sequence[str], number: str) -> list[NumberRange]:
    """Ranges of the numbers in the column `number` of a batch of rows, for each combination of values of `keys`. Keys
    and numbers must not be null.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not rows.num_rows:
        return []
    ordered = rows.select([*keys, number]).sort_by([(name, "ascending") for name in (*keys, number)])
    numbers, *others = (ordered[name].combine_chunks() for name in (number, *keys))
    begins = pc.greater(pc.subtract(numbers[1:], numbers[:-1]), 1)
    for one in others:
        begins = pc.or_(begins, pc.not_equal(one[1:], one[:-1]))
    starts = [0, *(one + 1 for one in pc.indices_nonzero(begins).to_pylist())]
    ends = [*(one - 1 for one in starts[1:]), rows.num_rows - 1]
    firsts = ordered.take(pa.array(starts)).to_pylist()
    lasts = numbers.take(pa.array(ends)).to_pylist()
    return [
        NumberRange(tuple(one[name] for name in keys), one[number], last, end - start + 1)
        for one, last, start, end in zip(firsts, lasts, starts, ends, strict=True)
    ]


def join_ranges(ranges: Iterable[NumberRange]) -> list[NumberRange]:
    """Joins ranges of the same key that overlap or touch; `rows` is the sum. The result is sorted by key, then by
    `first`.
    """
    found: list[NumberRange] = []
    for one in sorted(ranges, key=lambda it: (it.key, it.first)):
        if found and found[-1].key == one.key and one.first <= found[-1].last + 1:
            last = found.pop()
            found.append(NumberRange(last.key, last.first, max(last.last, one.last), last.rows + one.rows))
        else:
            found.append(one)
    return found


def partition_key(topic: str, partition: int) -> str:
    """Text for a partition, as in `EntryColumns.partition`."""
    return f"{topic}\t{partition}"


def _join_columns(*columns: Any) -> pa.Array:
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(*(one.cast("string") for one in columns), "\t")
