"""Which entries were stored in a time: by closings of ledgers, by times that a broker notes, and by most publish times."""

from __future__ import annotations

import pytest

from kodoctl.pulsar.binary.undeliverable_entries import EntryRun
from kodoctl.recall.plan import store_times
from kodoctl.recall.plan.store_times import StoredSpan, first_by_majority, first_noted, ledgers_between, open_at

A, B, C = EntryRun(1, 0, 9), EntryRun(4, 0, 9), EntryRun(7, 2, 9)
LEDGERS = (A, B, C)
CLOSED = {1: 100, 4: 200}


def test_a_span_has_the_entries_from_its_begin_to_before_its_end() -> None:
    span = StoredSpan((1, 5), (4, 0))
    assert [span.has(place) for place in ((1, 4), (1, 5), (1, 9), (4, 0))] == [False, True, True, False]
    assert StoredSpan((1, 5), None).has((7, 9))
    assert not StoredSpan(None, None).has((1, 5))


@pytest.mark.parametrize(("at", "run"), [(0, A), (100, A), (101, B), (200, B), (201, C), (999, C)])
def test_a_ledger_was_open_until_it_was_closed(at: int, run: EntryRun) -> None:
    assert open_at(LEDGERS, CLOSED, at) == run
    assert open_at(LEDGERS[:1], CLOSED, 101) is None


@pytest.mark.parametrize(
    ("since", "until", "runs"),
    [(0, None, LEDGERS), (101, None, (B, C)), (101, 150, (B,)), (0, 999, LEDGERS), (300, None, (C,)), (0, 50, (A,))],
)
def test_the_ledgers_of_a_time_are_those_that_were_open_in_it(
    since: int, until: int | None, runs: tuple[EntryRun, ...]
) -> None:
    assert ledgers_between(LEDGERS, CLOSED, since, until) == runs
    assert ledgers_between((), CLOSED, since, until) == ()


@pytest.mark.parametrize(("at", "entry"), [(0, 2), (20, 2), (21, 3), (90, 9), (91, None)])
def test_the_first_entry_of_a_time_is_found_where_the_broker_notes_times(at: int, entry: int | None) -> None:
    assert first_noted(C, at, lambda place: place[1] * 10) == (entry, True)
    assert first_noted(C, at, lambda _: None) == (None, False)


def place_at(times: list[int], at: int = 100) -> int | None:
    found = first_by_majority((((1, entry), time) for entry, time in enumerate(times)), at)
    return None if found is None else found[1]


@pytest.mark.parametrize(
    ("times", "entry"),
    [
        ([], None),
        ([99, 99], None),
        ([100], 0),
        ([98, 99, 100, 101], 2),
        ([98, 99, 100, 40, 101, 102, 40, 103], 2),
        ([98, 99, 900, 99, 99, 100, 101], 5),
        ([900, 98, 99], None),
        ([98, 99, 100], 2),
    ],
)
def test_a_few_wrong_clocks_do_not_move_the_begin(times: list[int], entry: int | None) -> None:
    assert place_at(times) == entry


def test_late_clocks_at_the_border_come_with_what_is_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_times, "_LATE", 30)
    monkeypatch.setattr(store_times, "_AROUND", 5)
    assert place_at([97, 97, 98, 98, 99, 40, 40, 100, 101, 102]) == 5
    assert place_at([97, 97, 98, 98, 99, 40, 40, 40, 40, 40, 40, 100, 101]) == 11, "so many are no exception"


def test_reading_ends_once_it_is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_times, "_SURE", 3)
    published = iter([((1, entry), 99 if entry < 5 else 101) for entry in range(100)])
    assert first_by_majority(published, 100) == (1, 5)
    assert next(published)[0] == (1, 9)
