"""Consecutive entries are counted as each of them would be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kodo_pipeline.source.coverage import Coverage
from kodo_pipeline.source.splits import LedgerRange, Split

from kodoctl.pulsar.binary.undeliverable_entries import EntryRun, Expected

_PIECES = (LedgerRange(3, 4, 9, 10), LedgerRange(5, 0, 3, 10), LedgerRange(5, 4, 6, 10), LedgerRange(8, 0, 0, 10))


class _Message:
    def message_id(self) -> _Message:
        return self

    def serialize(self) -> bytes:
        return b""


@given(st.lists(st.tuples(st.sampled_from([3, 5, 6, 8]), st.integers(0, 11), st.integers(0, 8)), max_size=6))
def test_runs_are_their_entries(runs: list[tuple[int, int, int]]) -> None:
    split = Split("persistent://a/b/c", 0, _PIECES)
    together, each = Coverage(split), Coverage(split)
    expected = [Expected(EntryRun(one.ledger, one.first, one.last) for one in _PIECES) for _ in range(2)]
    for ledger, first, more in runs:
        together.entries(ledger, first, first + more)
        expected[0].met((ledger, first), _Message())
        expected[0].met_through(ledger, first + more)
        for entry in range(first, first + more + 1):
            each.entry(ledger, entry)
            expected[1].met((ledger, entry), _Message())
        assert together == each
        assert (expected[0].gaps, expected[0].rest()) == (expected[1].gaps, expected[1].rest())


def test_a_reading_that_ended_has_its_state() -> None:
    found = Coverage(Split("persistent://a/b/c", 0, _PIECES))
    found.end("complete")
    assert found.state == "complete"


def test_ledgers_of_which_nothing_came_are_one_gap_and_the_entries_behind_them_are_counted() -> None:
    found = Coverage(Split("persistent://a/b/c", 0, _PIECES))
    found.entries(5, 0, 6)
    found.entry(8, 0)
    found.end("complete")
    assert (found.gaps, found.seen, found.full) == (["3:4>5:0"], 8, False)
