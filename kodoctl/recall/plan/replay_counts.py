# pure: every branch is tested
"""Choice of the messages of a replay, and their counts, while the stored messages are read in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from kodoctl.protocol.properties import FOR
from kodoctl.protocol.sequence_numbers import NOBODY
from kodoctl.pulsar.binary.undeliverable_entries import EntryRun
from kodoctl.recall.plan.entry_runs import merged, to_rows, without

if TYPE_CHECKING:
    from kodoctl.documents.replay_document import ReplayDuration, ReplayPartition, ReplaySummary
    from kodoctl.pulsar.binary.message_reader import Cursor, Place
    from kodoctl.recall.message.stored_message import DeadLetter
    from kodoctl.recall.plan.entry_runs import Runs
    from kodoctl.recall.plan.ready_lanes import ReadyLane
    from kodoctl.recall.plan.selection import Done
    from kodoctl.recall.plan.store_times import StoredSpan

_BUNDLE: Final = 1_000  # identities in a question to the workers' store
_TENANTS: Final = 20


class PublishTimes(NamedTuple):
    """Time of the messages that a replay may choose: `since` or later, and before `until` (ms since the epoch). `since`
    None: the messages are chosen by position, from a first message on; `until` None: there is no end.
    """

    since: int | None
    until: int | None

    def has(self, published: int) -> bool:
        """True if this publish time is from `since` on and before `until`; always False if `since` is None."""
        return self.since is not None and published >= self.since and (self.until is None or published < self.until)


class ReplayCounts:
    """Counts of a whole replay. The caller must `add` the messages of one ready lane after the other, the highest level
    first, and call `end_lane` after each.

    Args:
        subscription: the subscription whose messages are replayed.
        span: times of the messages to choose.
        elsewhere: identities of its messages that wait or are dead letters.
        done: returns which identities the workers' store knows as done; None: no store can be queried.
    """

    def __init__(self, subscription: str, span: PublishTimes, elsewhere: frozenset[str], done: Done | None) -> None:
        self._subscription, self._span, self._elsewhere, self._done = subscription, span, elsewhere, done
        self._counts: Counter[str] = Counter()
        self._tenants: Counter[str] = Counter()
        self._seen: set[str] = set()  # identities of the lanes before
        self._lane_seen: set[str] = set()
        self._waiting: list[tuple[str, str]] = []  # identity and tenant, until the store is asked

    def end_lane(self) -> None:
        """Ends a lane. An acknowledged message of a later lane is a copy if a message of the same identity was chosen
        in a lane that has ended.
        """
        self._seen |= self._lane_seen
        self._lane_seen = set()

    def add(self, letter: DeadLetter, *, acknowledged: bool, expired: bool, stored: bool) -> bool:
        """Counts a message of a ready lane that was published or stored within the time of the replay; ignores any
        other. Returns True if the replay delivers it again: it is within that time, acknowledged, not meant for another
        subscription (`kodo-for`) and no mark, and is no copy of a message that was chosen in an earlier lane. May query
        the workers' store, and raises its errors.

        Args:
            acknowledged: its whole entry is acknowledged.
            expired: it is older than the time to live of its topic.
            stored: it was stored within the time of the replay.
        """
        is_in_time = self._span.has(letter.publish_time)
        if not is_in_time and not stored:
            return False
        receiver = letter.properties.get(FOR, self._subscription)
        if receiver == NOBODY:
            self._counts["marks"] += acknowledged
            return False
        if receiver != self._subscription:
            self._counts["others"] += acknowledged
            return False
        if not acknowledged:
            self._counts["unfinished"] += 1
            self._counts["in_batches"] += letter.position.batch >= 0
            self._counts["elsewhere"] += letter.identity in self._seen
            return False
        if letter.identity in self._seen:
            self._counts["copies"] += 1
            return False
        self._lane_seen.add(letter.identity)
        self._counts["expiring"] += expired
        self._counts["by_place"] += self._span.since is not None and not is_in_time
        self._waiting.append((letter.identity, letter.tenant))
        if len(self._waiting) >= _BUNDLE:
            self._ask()
        return True

    def _ask(self) -> None:
        done = self._done([identity for identity, _ in self._waiting]) if self._done and self._waiting else ()
        for identity, tenant in self._waiting:
            if identity in done:
                self._counts["done"] += 1
                continue
            self._counts["again"] += 1
            self._counts["elsewhere"] += identity in self._elsewhere
            self._tenants[tenant] += 1
        self._waiting.clear()

    def summary(self) -> ReplaySummary:
        """Returns the numbers of the messages that were added. Before that, queries the workers' store about messages
        that it was not queried about yet, and raises its errors. `by_tenant` has the 20 tenants with most messages to
        come again, and, if there are more, all others as "".
        """
        self._ask()
        tenants = dict(self._tenants.most_common(_TENANTS))
        if rest := self._tenants.total() - sum(tenants.values()):
            tenants[""] = rest
        counts = self._counts
        return {
            "again": counts["again"], "done": counts["done"], "elsewhere": counts["elsewhere"], "copies": counts["copies"],
            "others": counts["others"], "marks": counts["marks"], "unfinished": counts["unfinished"],
            "in_batches": counts["in_batches"], "expiring": counts["expiring"], "by_place": counts["by_place"],
            "by_tenant": tenants,
        }  # fmt: skip


def _extend(runs: list[EntryRun], ledger: int, entry: int) -> None:
    """Adds an entry to the last run if that run has the entry or ends just before it, else as a run of its own."""
    if runs and runs[-1].ledger == ledger and runs[-1].first <= entry <= runs[-1].last + 1:
        runs[-1] = runs[-1]._replace(last=max(entry, runs[-1].last))
    else:
        runs.append(EntryRun(ledger, entry, entry))


class PartitionCounts:
    """Chosen messages and entries of one partition. `messages`, `size`: number of the chosen messages, and bytes of
    their payloads; `first`: their earliest publish time, ms since the epoch; None: nothing was chosen.
    """

    def __init__(
        self, cursor: Cursor, counts: ReplayCounts, expires: int | None, span: StoredSpan, stored: Runs
    ) -> None:
        """`expires`: publish time (ms) before which messages are older than the time to live, None: there is none;
        `span`: entries that were stored in the time of the replay; `stored`: all entries of the partition.
        """
        self._cursor, self._counts, self._expires, self._span = cursor, counts, expires, span
        self._stored = stored
        self._met: list[EntryRun] = []  # entries with a message of their own, as they were read
        self._runs: list[EntryRun] = []
        self.messages = self.size = 0
        self.first: int | None = None
        self._last = 0

    def add(self, letter: DeadLetter, first_chunk: Place | None = None) -> None:
        """Adds the next message in the order of storing, which is chosen if `ReplayCounts.add` returns True.
        `first_chunk`: place of the first chunk of a message in chunks, whose own place is that of the last chunk; None:
        the message is not in chunks. All its chunks are chosen with it: every acknowledged entry between these places
        of which no message was added.
        """
        ledger, entry, published = letter.position.ledger, letter.position.entry, letter.publish_time
        _extend(self._met, ledger, entry)
        is_expired = self._expires is not None and published < self._expires
        is_done, is_stored = self._cursor.has((ledger, entry)), self._span.has((ledger, entry))
        if not self._counts.add(letter, acknowledged=is_done, expired=is_expired, stored=is_stored):
            return
        self.messages, self.size = self.messages + 1, self.size + letter.size
        self.first = published if self.first is None else min(self.first, published)
        self._last = max(self._last, published)
        if first_chunk is not None:
            self._runs += self._chunks(first_chunk, (ledger, entry))
        _extend(self._runs, ledger, entry)

    def _chunks(self, first: Place, last: Place) -> Iterator[EntryRun]:
        """Yields the acknowledged entries from `first` to `last` that hold no message of their own, one by one."""
        near = takewhile(lambda run: (run.ledger, run.last) >= first, reversed(self._met))
        within = [run for run in self._stored if first[0] <= run.ledger <= last[0]]
        for run in without(within, merged(near)):
            for entry in range(run.first, run.last + 1):
                place = (run.ledger, entry)
                if first <= place <= last and self._cursor.has(place):
                    yield EntryRun(run.ledger, entry, entry)

    def row(self, lane: ReadyLane, partition: int) -> ReplayPartition | None:
        """Row of the plan about this partition; None if no message in it was chosen."""
        if self.first is None:
            return None
        return {
            "lane": lane.lane,
            "topic": lane.topic,
            "partition": partition,
            "partitions": lane.partitions,
            "mark": "{}:{}".format(*self._cursor.mark),
            "again": to_rows(merged(self._runs)),
            "messages": self.messages,
            "first": self.first,
            "last": self._last,
        }


def duration_of(messages: int, rate: float | None, *, measured: bool, arriving: float) -> ReplayDuration:
    """Estimates how long workers need for `messages` messages at `rate` messages a second (None: not known), while
    `arriving` a second arrive. `ms` of the result is None if the rate is not known or not above `arriving`. `measured`:
    the rate was measured, not given.
    """
    ms = round(messages / (rate - arriving) * 1000) if rate is not None and rate > arriving else None
    return {"rate": rate, "measured": measured, "arriving": round(arriving, 1), "ms": ms}
