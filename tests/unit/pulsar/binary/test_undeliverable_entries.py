"""Which of the entries that are to come did not, whatever comes."""

from __future__ import annotations

import random

import pulsar
import pytest

from kodoctl.pulsar.binary.message_reader import Cursor, PartitionFacts
from kodoctl.pulsar.binary.undeliverable_entries import (
    EntryRun,
    Expected,
    Place,
    first_chunk,
    ledgers_of,
    outside,
    place_ahead_of,
    runs_text,
    stored_of,
    without_end,
)


class Message:
    """One that is in no chunks."""

    def message_id(self) -> pulsar.MessageId:
        return pulsar.MessageId(0, 3, 4, -1)


def _entries(runs: list[EntryRun]) -> list[Place]:
    return [(run.ledger, entry) for run in runs for entry in range(run.first, run.last + 1)]


def test_what_did_not_come_is_told_exactly() -> None:
    chosen = random.Random(11)
    for _ in range(300):
        runs = [EntryRun(ledger, first := chosen.randrange(3), first + chosen.randrange(5)) for ledger in (2, 5, 9)]
        entries = _entries(runs)
        come = [entry for entry in entries if chosen.random() < 0.6]
        expected = Expected(runs)
        for entry in come:
            expected.met(entry, Message())
            expected.met(entry, Message())  # another message of it
        assert _entries(expected.gaps + expected.rest()) == [entry for entry in entries if entry not in come]
        assert expected.chunks == []


def test_what_came_before_is_no_gap_and_what_comes_behind_the_end_ends_it() -> None:
    expected = Expected([EntryRun(1, 2, 4)])
    for entry in (2, 0, 9):
        expected.met((1, entry), Message())
    assert (expected.gaps, expected.rest()) == ([EntryRun(1, 3, 4)], [])


def test_where_nobody_knows_the_beginning_the_first_entry_that_comes_says_it() -> None:
    expected = Expected([EntryRun(1, 0, 9), EntryRun(2, 0, 9)], open_=True)
    assert expected.rest() == [EntryRun(2, 9, 9)]
    expected.met((1, 5), Message())
    expected.met((2, 3), Message())
    assert (expected.gaps, expected.rest()) == ([EntryRun(1, 6, 9), EntryRun(2, 0, 2)], [EntryRun(2, 4, 9)])
    assert Expected([]).rest() == Expected([], open_=True).rest() == []


def test_what_is_gone_is_not_taken_for_unreadable() -> None:
    stats = {
        "lastConfirmedEntry": "7:3",
        "ledgers": [{"ledgerId": 4, "entries": 10}, {"ledgerId": 7, "entries": 0}, {"ledgerId": 8, "entries": 0}],
    }
    there = ledgers_of(stats)
    assert there == (EntryRun(4, 0, 9), EntryRun(7, 0, 3))
    assert stored_of([EntryRun(3, 0, 5), EntryRun(4, 8, 12), EntryRun(7, 4, 4)], there) == [EntryRun(4, 8, 9)]
    assert ledgers_of({}) == ()


def test_an_end_that_is_known_is_not_waited_for_again() -> None:
    runs = [EntryRun(1, 0, 9), EntryRun(2, 0, 5)]
    assert without_end(runs, [EntryRun(1, 3, 4), EntryRun(2, 4, 5)]) == [EntryRun(1, 0, 9), EntryRun(2, 0, 3)]
    assert without_end(runs, [EntryRun(2, 0, 5)]) == [EntryRun(1, 0, 9)]
    assert without_end(runs, [EntryRun(2, 1, 4)]) == without_end(runs, []) == runs
    assert without_end([], [EntryRun(2, 1, 4)]) == []


def test_what_is_outside_of_a_range() -> None:
    runs = [EntryRun(1, 0, 9), EntryRun(2, 0, 9), EntryRun(3, 4, 9)]
    cut = outside(runs, (1, 4), (3, 6))
    assert cut == [EntryRun(1, 0, 3), EntryRun(3, 7, 9)]
    assert outside(runs, (2, 3), (2, 5)) == [runs[0], EntryRun(2, 0, 2), EntryRun(2, 6, 9), runs[2]]
    assert outside(runs, (3, 4), (3, 9)) == runs[:2]
    assert outside(runs, (0, 0), (3, 9)) == []
    assert outside(runs, (3, 10), (3, 11)) == runs


def test_a_place_some_entries_before_a_run() -> None:
    there = [EntryRun(1, 0, 9), EntryRun(3, 0, 4), EntryRun(8, 0, 20)]
    places = [place_ahead_of(EntryRun(8, 6, 7), count, there) for count in (0, 1, 6, 7, 11, 12, 21, 22)]
    assert places == [(8, 6), (8, 5), (8, 0), (3, 4), (3, 0), (1, 9), (1, 0), (1, 0)]
    assert place_ahead_of(EntryRun(8, 6, 7), 7, []) == (8, 0)


def test_entries_behind_an_acknowledged_one() -> None:
    facts = PartitionFacts(
        "t", 0, 1, (2, 5), deduplicates=False, cursors={}, ledgers=(EntryRun(1, 0, 9), EntryRun(2, 0, 5))
    )
    assert facts.behind(None) == [EntryRun(1, 0, 9), EntryRun(2, 0, 5)]
    assert facts.behind((1, 7)) == [EntryRun(1, 8, 9), EntryRun(2, 0, 5)]
    assert facts.behind((2, 5)) == []
    assert Cursor((1, 7), ()).has((1, 7))


def test_places_are_told_in_one_line() -> None:
    assert runs_text("t", [EntryRun(1, 2, 2)]) == "t: 1 entry cannot be read by the client library: 1:2"
    many = runs_text("t", [EntryRun(1, at, at + 1) for at in range(0, 4_000, 4)])
    assert many.startswith("t: 2,000 entries cannot be read by the client library: 1:0..1, 1:4..5, ")
    assert many.endswith("1:76..77, …")


class Chunked:
    """A chunked message, as the client tells of it: its id is that of its last part."""

    def message_id(self) -> Chunked:
        return self

    def serialize(self) -> bytes:
        first = bytes([8, 3, 16, 6])
        return bytes([8, 3, 16, 9, 24, 0, 58, len(first), *first])


def test_parts_of_a_chunked_message_came_with_its_last_one() -> None:
    assert first_chunk(Chunked()) == (3, 6)
    expected = Expected([EntryRun(3, 4, 12)])
    expected.met((3, 9), Chunked())
    assert (expected.gaps, expected.chunks) == ([EntryRun(3, 4, 5)], [EntryRun(3, 6, 8)])
    assert expected.rest() == [EntryRun(3, 10, 12)]


def test_other_messages_may_be_between_the_parts_of_a_chunked_message() -> None:
    expected = Expected([EntryRun(2, 0, 1), EntryRun(3, 0, 12)])
    assert [expected.met(place, Message()) for place in ((2, 0), (3, 2), (3, 7), (3, 8))] == [None] * 4
    assert expected.gaps == [EntryRun(2, 1, 1), EntryRun(3, 0, 1), EntryRun(3, 3, 6)]
    assert expected.met((3, 9), Chunked()) == (3, 6)
    assert expected.gaps == [EntryRun(2, 1, 1), EntryRun(3, 0, 1), EntryRun(3, 3, 5)]
    assert (expected.chunks, expected.rest()) == ([EntryRun(3, 6, 6)], [EntryRun(3, 10, 12)])


@pytest.mark.parametrize("token", [pulsar.MessageId(0, 3, 4, -1), pulsar.MessageId(5, 300, 4_000, 7)])
def test_a_message_in_one_piece_has_no_first_part(token: pulsar.MessageId) -> None:
    assert first_chunk(token) is None
