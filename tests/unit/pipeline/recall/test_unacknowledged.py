"""What a holder has: every entry that is stored and not acknowledged, once."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from kodo_pipeline.recall.unacknowledged import STRIDE, join_rows, unacknowledged_ranges
from kodo_pipeline.source.splits import LedgerRange

from kodoctl.pulsar.binary.message_reader import Cursor
from kodoctl.pulsar.binary.undeliverable_entries import EntryRun

_PLACES = st.tuples(st.integers(0, 4), st.integers(0, 12))


@given(
    lengths=st.lists(st.integers(0, 12), min_size=5, max_size=5),
    mark=st.one_of(st.just((-1, -1)), _PLACES),
    ranges=st.lists(st.tuples(_PLACES, _PLACES).map(sorted).map(tuple), max_size=6),
)
@example(lengths=[0, 0, 0, 0, 2], mark=(-1, -1), ranges=[((0, 0), (4, 0)), ((0, 1), (0, 1))])
def test_every_entry_that_is_not_acknowledged_once(
    lengths: list[int], mark: tuple[int, int], ranges: list[tuple[tuple[int, int], tuple[int, int]]]
) -> None:
    pieces = [LedgerRange(ledger, 0, length - 1, length * 10) for ledger, length in enumerate(lengths) if length]
    cursor = Cursor(mark, tuple(ranges))
    expected = [
        (ledger, entry)
        for ledger, length in enumerate(lengths)
        for entry in range(length)
        if not cursor.has((ledger, entry))
    ]
    found = list(unacknowledged_ranges(pieces, cursor))
    assert [(run.ledger, entry) for run in found for entry in range(run.first, run.last + 1)] == expected
    assert sum(run.entries for run in found) == len(expected)


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 5_000)).map(sorted), max_size=3))
def test_rows_cover_their_runs_and_stay_in_their_strides(ends: list[list[int]]) -> None:
    runs = [EntryRun(ledger, first, last) for ledger, (first, last) in enumerate(ends)]
    made = list(join_rows(3, runs))
    assert sum(last - first + 1 for _, _, _, first, last in made) == sum(run.entries for run in runs)
    assert all(part == 3 and first // STRIDE == stride == last // STRIDE for part, _, stride, first, last in made)
