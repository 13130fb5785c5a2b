# pure: every branch is tested
"""Times at which a broker stored messages: which ledgers were open at a time, and the first entry stored after it.

Publish times are of producers' clocks. A ledger's closing time is of the broker's clock, so the first entry stored
after a time is in the ledger that was open then. Within that ledger the entries' own times decide, if the broker notes
them, else the majority of publish times.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kodoctl.pulsar.binary.message_reader import Place
    from kodoctl.pulsar.binary.undeliverable_entries import EntryRun
    from kodoctl.recall.plan.entry_runs import Runs

CLOCK_ERROR: Final = 600_000  # ms by which a producer's clock may be wrong so that its messages are still found
_LATE: Final = 60_000  # ms before the median of the messages around it, from which on a message's clock is late
_AROUND: Final = 101
_SURE: Final = 10_000  # messages by which those published later outweigh the others, so that reading on changes nothing


class StoredSpan(NamedTuple):
    """Entries of one partition that a replay chooses by the order of storing: from the place `begin` on, and before the
    place `end`. `begin` None: there are none; `end` None: up to the last entry.
    """

    begin: Place | None
    end: Place | None

    def has(self, place: Place) -> bool:
        """True if the entry at `place` is in this span: from `begin` on, and before `end`."""
        return self.begin is not None and place >= self.begin and (self.end is None or place < self.end)


def open_at(ledgers: Runs, closed: Mapping[int, int], at: int) -> EntryRun | None:
    """The stored ledger that was open at a time (ms since the epoch), else the next one after that time; None: all were
    closed before. `ledgers`: one run for each, oldest first; `closed`: ledger -> time at which it was closed; a ledger
    that is absent there counts as open.
    """
    return next((run for run in ledgers if closed.get(run.ledger, at) >= at), None)


def ledgers_between(ledgers: Runs, closed: Mapping[int, int], since: int, until: int | None) -> Runs:
    """The stored ledgers that were open at any time from `since` to `until` (ms since the epoch; None: up to now). If
    no stored ledger was open at one of these times, the next one after that time may be among them. Parameters as in
    `open_at`.
    """
    first = open_at(ledgers, closed, since)
    last = None if until is None else open_at(ledgers, closed, until)
    return tuple(run for run in ledgers if first and first <= run and (last is None or run <= last))


def first_noted(run: EntryRun, at: int, stored: Callable[[Place], int | None]) -> tuple[int | None, bool]:
    """Finds the first entry of a ledger that was stored at the time `at` (ms since the epoch) or later, by the times
    that the broker notes, which must not fall from entry to entry. Returns (number of the entry, True); (None, True) if
    all entries were stored before; (None, False) if a time that the search needs is not known. `stored`: returns the
    noted time of an entry, None: not known.
    """
    low, high = run.first, run.last + 1
    while low < high:
        middle = (low + high) // 2
        time = stored((run.ledger, middle))
        if time is None:
            return None, False
        low, high = (middle + 1, high) if time < at else (low, middle)
    return (low if low <= run.last else None), True


def first_by_majority(published: Iterable[tuple[Place, int]], at: int) -> Place | None:
    """Finds the entry at which most publish times pass the time `at`: few messages before it were published at that
    time or later, and few from it on were published earlier. `published`: entries in the order in which they were
    stored, with their publish times (ms since the epoch); it may not be read to the end. Returns None if most are
    earlier up to the end, or if there are none.

    A message that is much earlier than those just before it has a late clock, and is not counted. If such messages are
    next to the entry that is found, they belong to the entries after it.
    """
    place: Place | None = None
    score = best = 0  # messages published before the time, minus those after it
    is_best = True
    recent: deque[int] = deque()
    ordered: list[int] = []
    for one, time in published:
        if is_best:
            place, best = one, score
        if not ordered or time >= ordered[len(ordered) // 2] - _LATE:
            score += 1 if time < at else -1
        is_best = score > best
        recent.append(time)
        insort(ordered, time)
        if len(recent) > _AROUND:
            del ordered[bisect_left(ordered, recent.popleft())]
        if score < best - _SURE:
            break
    return None if is_best else place
