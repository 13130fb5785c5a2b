"""Runs of entries: what is acknowledged, what a replay chose, and the move of a cursor between them."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kodoctl.pulsar.binary.message_reader import Cursor
from kodoctl.pulsar.binary.undeliverable_entries import EntryRun
from kodoctl.recall.plan import entry_runs
from kodoctl.recall.plan.entry_runs import CursorMove, Runs

STORED = (EntryRun(3, 0, 9), EntryRun(5, 0, 4), EntryRun(8, 0, 9))
PLACES = [(run.ledger, entry) for run in STORED for entry in range(run.first, run.last + 1)]


def runs_of(places: set[tuple[int, int]]) -> Runs:
    """Runs with exactly these entries."""
    return entry_runs.merged(EntryRun(ledger, entry, entry) for ledger, entry in places)


def places_of(runs: Runs) -> set[tuple[int, int]]:
    """The inverse of `runs_of`."""
    return {(run.ledger, entry) for run in runs for entry in range(run.first, run.last + 1)}


@given(st.sets(st.sampled_from(PLACES)), st.sets(st.sampled_from(PLACES)))
def test_runs_are_sets_of_entries(one: set[tuple[int, int]], other: set[tuple[int, int]]) -> None:
    ours, theirs = runs_of(one), runs_of(other)
    assert places_of(ours) == one
    assert places_of(entry_runs.without(ours, theirs)) == one - other
    assert places_of(entry_runs.common(ours, theirs)) == one & other
    assert entry_runs.entry_count(ours) == len(one)
    assert entry_runs.from_rows(entry_runs.to_rows(ours)) == ours


@given(st.sets(st.sampled_from(PLACES)))
def test_after_a_move_exactly_what_is_to_stay_acknowledged_is_so(keep: set[tuple[int, int]]) -> None:
    assume(keep != set(PLACES))
    move = entry_runs.move_for(STORED, runs_of(keep))
    before = {place for place in PLACES if place < move.to}
    assert before | places_of(move.acknowledge) == keep


@pytest.mark.parametrize(
    ("cursor", "expected"),
    [
        (Cursor((-1, -1), ()), ()),
        (Cursor((2, 7), ()), ()),
        (Cursor((3, -1), ()), ()),
        (Cursor((3, 4), ()), (EntryRun(3, 0, 4),)),
        (Cursor((5, 1), ()), (EntryRun(3, 0, 9), EntryRun(5, 0, 1))),
        (Cursor((9, -1), ()), STORED),
        (Cursor((3, 1), (((3, 3), (3, 4)),)), (EntryRun(3, 0, 1), EntryRun(3, 3, 4))),
        (Cursor((3, 1), (((3, 8), (8, 2)),)), (EntryRun(3, 0, 1), EntryRun(3, 8, 9), EntryRun(5, 0, 4), EntryRun(8, 0, 2))),
        (Cursor((2, 1), (((5, 3), (8, 0)),)), (EntryRun(5, 3, 4), EntryRun(8, 0, 0))),
        (Cursor((1, 1), (((2, 0), (2, 5)), ((8, 8), (8, 40)))), (EntryRun(8, 8, 9),)),
    ],
)  # fmt: skip
def test_acknowledged_entries_are_those_up_to_the_mark_and_in_ranges_as_far_as_they_are_stored(
    cursor: Cursor, expected: Runs
) -> None:
    assert entry_runs.acknowledged(STORED, cursor) == expected
    assert {place for place in PLACES if cursor.has(place)} == places_of(expected)


def test_a_move_goes_to_the_first_entry_that_is_to_come() -> None:
    keep = (EntryRun(3, 0, 3), EntryRun(5, 2, 4))
    assert entry_runs.move_for(STORED, keep) == CursorMove((3, 4), (EntryRun(5, 2, 4),))


@pytest.mark.parametrize("rows", [[[1, 2]], [[1, 5, 4]], [[1, -2, 4]], [[2, 0, 1], [1, 0, 1]], [[1, 0, 1], [1, 2, 3]]])
def test_rows_that_are_no_runs_are_refused(rows: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="not in order"):
        entry_runs.from_rows(rows)
