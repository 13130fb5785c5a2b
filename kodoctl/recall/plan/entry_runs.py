# pure: every branch is tested
"""Arithmetic of entries of one partition: runs that a subscription has acknowledged, runs that a replay chose, and what
remains of one without another. Runs are sorted, and no two overlap or touch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kodoctl.pulsar.binary.undeliverable_entries import EntryRun

if TYPE_CHECKING:
    from kodoctl.pulsar.binary.message_reader import Cursor, Place

Runs = tuple[EntryRun, ...]


def merged(runs: Iterable[EntryRun]) -> Runs:
    """Sorts runs, and joins runs of one ledger that overlap or touch. Each must have at least one entry."""
    found: list[EntryRun] = []
    for run in sorted(runs):
        if found and found[-1].ledger == run.ledger and run.first <= found[-1].last + 1:
            found[-1] = found[-1]._replace(last=max(found[-1].last, run.last))
        else:
            found.append(run)
    return tuple(found)


def without(runs: Iterable[EntryRun], others: Sequence[EntryRun]) -> Runs:
    """Returns the entries of `runs` that are not in `others`. Both must be sorted and must not overlap, as from
    `merged`.
    """
    found: list[EntryRun] = []
    start = 0
    for run in runs:
        while start < len(others) and (others[start].ledger, others[start].last) < (run.ledger, run.first):
            start += 1
        first, at = run.first, start
        while at < len(others) and others[at].ledger == run.ledger and others[at].first <= run.last:
            if others[at].first > first:
                found.append(EntryRun(run.ledger, first, others[at].first - 1))
            first, at = max(first, others[at].last + 1), at + 1
        if first <= run.last:
            found.append(EntryRun(run.ledger, first, run.last))
    return tuple(found)


def common(runs: Sequence[EntryRun], others: Sequence[EntryRun]) -> Runs:
    """Returns the entries that are in `runs` and in `others`. Both must be sorted and must not overlap, as from
    `merged`.
    """
    return without(runs, without(runs, others))


def entry_count(runs: Iterable[EntryRun]) -> int:
    """Number of entries in the runs."""
    return sum(run.entries for run in runs)


def acknowledged(stored: Sequence[EntryRun], cursor: Cursor) -> Runs:
    """Returns the entries that a subscription has acknowledged and that are still stored, as sorted runs. Entries of
    which only a part of the batch is acknowledged are not among them. `stored`: stored entries of every ledger, sorted.
    """
    found = []
    for run in stored:
        if run.ledger <= cursor.mark[0]:
            last = run.last if run.ledger < cursor.mark[0] else min(run.last, cursor.mark[1])
            found.append(run._replace(last=last))
    spans = []
    for (ledger, entry), (to_ledger, to_entry) in cursor.ranges:
        for run in stored if ledger != to_ledger else [EntryRun(ledger, entry, to_entry)]:
            if ledger <= run.ledger <= to_ledger:
                first = entry if run.ledger == ledger else 0
                last = to_entry if run.ledger == to_ledger else run.last
                spans.append(EntryRun(run.ledger, first, last))
    kept = merged(run for run in (*found, *spans) if run.first <= run.last)
    return common(kept, stored)


class CursorMove(NamedTuple):
    """Steps that take back the acknowledgements of some entries: the cursor moves to the entry `to`, which is the first
    one to be delivered again; then the entries in `acknowledge`, which come after it, are acknowledged again.
    """

    to: Place
    acknowledge: Runs


def move_for(stored: Sequence[EntryRun], keep: Sequence[EntryRun]) -> CursorMove:
    """The steps after which exactly the entries in `keep` are acknowledged, of all that are stored. Both arguments are
    sorted runs that do not overlap. Raises IndexError if every stored entry is in `keep`.
    """
    first = without(stored, keep)[0]
    to = (first.ledger, first.first)
    return CursorMove(to, tuple(run for run in keep if (run.ledger, run.first) > to))


def to_rows(runs: Iterable[EntryRun]) -> list[list[int]]:
    """Runs as JSON: [ledger, first entry, last entry] of each."""
    return [list(run) for run in runs]


def from_rows(rows: Iterable[Sequence[int]]) -> Runs:
    """Reads runs from the JSON of `to_rows`. Raises ValueError if a row is no run, or if the runs are not sorted,
    overlap or touch each other, and TypeError or ValueError if a row has other values than integers.
    """
    runs = tuple(EntryRun(*row) if len(row) == 3 else EntryRun(0, 1, 0) for row in rows)
    if any(run.first > run.last or run.first < 0 for run in runs) or merged(runs) != runs:
        raise ValueError("runs of entries are not in order")
    return runs
