"""Entries that are stored but of which the client library returns no message: entries that cannot be decompressed or
that lack a field, markers of the broker, and incomplete chunked messages.

kodoctl never takes such an entry for absent but reports it, as long as it is stored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodoctl.pulsar.binary.client import BrokerClient

UNREAD: Final = "the client library gives out no message of it: it is damaged, a marker, or part of a chunked message"
QUIET_MS: Final = 2_000  # without a message, after which it is asked whether one can come
_BEFORE: Final = (1, 100)  # entries before a run from which a look at it begins
_MOST_TOLD: Final = 20
_FIRST_CHUNK: Final = 7  # field of a serialised id
Place = tuple[int, int]


class EntryRun(NamedTuple):
    """Consecutive entries of one ledger: from number `first` to number `last`, both included."""

    ledger: int
    first: int
    last: int

    @property
    def entries(self) -> int:
        """Number of entries in the run, both ends included."""
        return self.last - self.first + 1

    def __str__(self) -> str:
        return f"{self.ledger}:{self.first}" + (f"..{self.last}" if self.last > self.first else "")


class Expected:
    """Comparison of the entries that a reader should return (`runs`, in order) with those that it returns, to find
    gaps.

    Args:
        runs: the expected entries.
        open_: the first expected entry is not known, so that the first entry that comes determines it.

    The attribute `gaps` has the expected entries without a message, before an entry that had one. `chunks`: those
    between the first and the last chunk of a message, which the reader returns at its last chunk; the ids of messages
    do not tell whether another entry is among them.
    """

    def __init__(self, runs: Iterable[EntryRun], *, open_: bool = False) -> None:
        self._runs = list(runs)
        self._next: Place | None = None if open_ or not self._runs else (self._runs[0].ledger, self._runs[0].first)
        self.gaps: list[EntryRun] = []
        self.chunks: list[EntryRun] = []

    def met(self, place: Place, message: Any) -> Place | None:
        """Records that the reader returned `message`, of the entry `place`. Expected entries before that become gaps,
        except chunks of this message, between which there may be other messages. Returns the place of the first chunk;
        None if the message is not in chunks, or if no entry is missing so far, so that nobody looked for chunks.
        """
        if self._next is None or (place == self._next and not self.gaps):
            self._next = (place[0], place[1] + 1)
            return None
        first = first_chunk(message.message_id()) if place >= self._next else None
        begin = place
        if first is not None:
            begin = max(first, self._next)
            kept = outside(self.gaps, first, place)
            self.chunks += outside(self.gaps, (0, 0), (first[0], first[1] - 1)) + self._runs_between(begin, place)
            self.gaps = kept
        if begin > self._next:
            self.gaps += self._runs_between(self._next, begin)
        self._next = max(self._next, (place[0], place[1] + 1))
        return first

    def met_through(self, ledger: int, last: int) -> None:
        """Records that the reader returned all entries up to `last` of `ledger`."""
        self._next = max(self._next or (ledger, 0), (ledger, last + 1))

    def rest(self) -> list[EntryRun]:
        """Expected entries after the last one that came. If the first entry is unknown and none came, only the last
        expected one.
        """
        if self._next is not None:
            return (
                self._runs_between(self._next, (self._runs[-1].ledger, self._runs[-1].last + 1)) if self._runs else []
            )
        return [run._replace(first=run.last) for run in self._runs[-1:]]

    def _runs_between(self, begin: Place, end: Place) -> list[EntryRun]:
        """Expected entries from the place `begin` (included) to `end` (excluded)."""
        found = []
        for run in self._runs:
            first = max(run.first, begin[1]) if run.ledger == begin[0] else run.first
            last = min(run.last, end[1] - 1) if run.ledger == end[0] else run.last
            if begin[0] <= run.ledger <= end[0] and first <= last:
                found.append(EntryRun(run.ledger, first, last))
        return found


def outside(runs: Iterable[EntryRun], first: Place, last: Place) -> list[EntryRun]:
    """The parts of the runs before the entry `first`, and those after the entry `last`."""
    found = []
    for run in runs:
        before = run._replace(last=min(run.last, first[1] - 1)) if run.ledger == first[0] else run
        after = run._replace(first=max(run.first, last[1] + 1)) if run.ledger == last[0] else run
        found += [before] if run.ledger <= first[0] and before.entries > 0 else []
        found += [after] if run.ledger >= last[0] and after.entries > 0 else []
    return found


def without_message(
    client: BrokerClient, part: str, number: int, run: EntryRun, ledgers: Iterable[EntryRun], timeout: int = QUIET_MS
) -> bool | None:
    """Tests by new readers whether the client library returns a message of the run of entries `run`.

    Returns True if a reader that begins before the run gets messages before or after it, and none of it; False if it
    gets one of the run; None if it gets nothing at all within `timeout` ms, which proves nothing. `number`: number of
    the partition `part`; `ledgers`: its stored entries. The caller has to check later that the run is still stored.
    """
    import pulsar

    for begin in dict.fromkeys(place_ahead_of(run, count, ledgers) for count in _BEFORE):
        start = pulsar.MessageId(number, *begin, -1)
        came = False
        with (
            client.reader(part, start, part, start_message_id_inclusive=True) as reader,
            contextlib.suppress(pulsar.Timeout),
        ):
            while True:
                token = reader.next(timeout / 1000).message_id()
                place = token.ledger_id(), token.entry_id()
                if place > (run.ledger, run.last):
                    return True
                if place >= (run.ledger, run.first):
                    return False
                came = True
        if came:
            return True
    return None


def place_ahead_of(run: EntryRun, count: int, ledgers: Iterable[EntryRun]) -> Place:
    """Place that is `count` stored entries before a run; if fewer are stored, entry 0 of their first ledger, or of the
    run's own. `ledgers`: the stored entries.
    """
    ledger, left = run.ledger, count - run.first
    for earlier in sorted((one for one in ledgers if one.ledger < run.ledger), reverse=True):
        if left <= 0:
            break
        ledger, left = earlier.ledger, left - earlier.entries
    return ledger, max(0, -left)


def without_end(runs: list[EntryRun], known: Sequence[EntryRun]) -> list[EntryRun]:
    """The runs without those entries at their end that have no message by `known`, so that no reader waits for these.
    `known`: entries without a message, in order.
    """
    if not runs or not known or (known[-1].ledger, known[-1].last) != (runs[-1].ledger, runs[-1].last):
        return runs
    return [run for run in (*runs[:-1], runs[-1]._replace(last=known[-1].first - 1)) if run.first <= run.last]


def stored_of(runs: Iterable[EntryRun], ledgers: Iterable[EntryRun]) -> list[EntryRun]:
    """The part of each run that is still stored, so that entries that are gone do not count as unreadable. Runs without
    a stored entry are left out. `ledgers`: the stored entries, one run for each ledger, from entry 0.
    """
    there = {run.ledger: run.last for run in ledgers}
    kept = (run._replace(last=min(run.last, there.get(run.ledger, -1))) for run in runs)
    return [run for run in kept if run.first <= run.last]


def ledgers_of(stats: dict[str, Any]) -> tuple[EntryRun, ...]:
    """Stored entries of each ledger, from the JSON of `internalStats`. For the open ledger they are computed from
    `lastConfirmedEntry`.
    """
    last_ledger, _, last = str(stats.get("lastConfirmedEntry", "-1:-1")).partition(":")
    found = []
    for one in stats.get("ledgers") or ():
        ledger, entries = int(one["ledgerId"]), int(one["entries"])
        if ledger == int(last_ledger):
            entries = int(last) + 1
        if entries > 0 and ledger <= int(last_ledger):
            found.append(EntryRun(ledger, 0, entries - 1))
    return tuple(found)


def runs_text(part: str, runs: Iterable[EntryRun]) -> str:
    """Text for people about entries of the partition `part` that cannot be read: their number, and at most 20 runs of
    positions (`_MOST_TOLD`).
    """
    some = list(runs)
    count = sum(run.entries for run in some)
    more = ", …" if len(some) > _MOST_TOLD else ""
    return f"{part}: {many(count, 'entry', 'entries')} cannot be read by the client library: {', '.join(map(str, some[:_MOST_TOLD]))}{more}"


def first_chunk(token: Any) -> Place | None:
    """`(ledger, entry)` of the first chunk of a chunked message. `token`: its MessageId of the client library. None:
    the message is not chunked.
    """
    raw: bytes = token.serialize()
    found = dict(fields(raw)).get(_FIRST_CHUNK)
    if not isinstance(found, bytes):
        return None
    numbers = dict(fields(found))
    ledger, entry = numbers.get(1), numbers.get(2)
    return (ledger, entry) if isinstance(ledger, int) and isinstance(entry, int) else None


def fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields (field number, value) of a protobuf message that consists of numbers, texts and messages. Fields of other
    types give wrong values; raises IndexError for bytes that end too early.
    """
    at = 0
    while at < len(raw):
        tag, at = varint(raw, at)
        value, at = varint(raw, at)
        if tag & 7 == 0:
            yield tag >> 3, value
        else:
            yield tag >> 3, raw[at : at + value]
            at += value


def varint(raw: bytes, at: int) -> tuple[int, int]:
    """Decodes the protobuf number at offset `at`. Returns the number, and the offset after it."""
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
