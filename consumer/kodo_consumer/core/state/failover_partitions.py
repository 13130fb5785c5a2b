"""Active partitions of a failover topic: those that this worker may handle. No I/O, the clock is passed in.

It may handle the partitions whose active consumer it is, and has been for a while. The broker names another active
consumer as soon as one joins or leaves, and sends it all messages that the one before has not acknowledged. The one
before still has them in memory, and the client library does not report the change. So every worker asks the broker,
and:

- it starts messages of a partition only while an answer about it is valid, for VALID seconds after the request;
- if an answer names another worker for a partition, it releases the messages of it that have not started;
- after it became the active consumer of a partition, it starts nothing of it for HAND_OVER seconds, in which each
  answer must name it.

HAND_OVER is longer than VALID: by then the worker that was active before starts nothing more, even without any answer.
A handler that it started before may still run: one run a key.

While no answer was valid another worker may have been active, and have handled messages that this worker has in memory:
the broker would send these to nobody again. So they no longer count, the partition is read anew, and all its
unacknowledged messages come again. Each partition is judged alone: an answer leaves out those of a broker that is away.

A partition that was lost leaves messages behind in the client library. They have to come out before the partition is
handled again: else they would be taken for messages that the broker sends to its new active consumer. They are out when
the library was seen empty of the partition, or when as many messages came as it can contain: at any rate of arrival one
of the two is soon true. Leftovers that came out are kept like other messages, and are dropped when the broker's first
redelivered message comes. So kept messages also wait until a message came after the leftovers, or until the library was
seen empty after the broker began to send to this worker. If neither has happened by the end of the hand-over, the
partition is read anew. No other partition waits for this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from kodo_consumer.core.values.envelope import Delivery
    from kodo_consumer.core.values.policy import Policy

ASK_EVERY: Final = 0.5  # seconds: less than a broker waits (1 s, if not set otherwise) before it sends to a new one
VALID: Final = 2.0  # seconds
HAND_OVER: Final = VALID + ASK_EVERY
RESTS_AT_MOST: Final = 5.0  # seconds, documented: from when the broker names this worker until it handles the partition
SETTLED: Final = 1.0  # seconds: what the broker sent before it named another consumer has come to the client by then
BEGUN: Final = 2.0  # seconds: what the broker sends first to a consumer that it named has come to the client by then
_ENTRY: Final = 1_000  # messages: the broker sends a batch as a whole, also into a queue that is full


class Change(NamedTuple):
    """Changes by an answer of the broker; partitions are numbers as texts. `lost`: those that this worker had, or was
    to have after its hand-over, and that another one or nobody has now. `gained`: those that this worker may handle
    from now on. `ready`: messages of the gained ones that were kept, in order in each. `anew`: partitions that the
    caller has to connect anew, so that the broker redelivers their messages. `unnamed`: those that this worker had
    until an earlier answer lapsed, and that no answer since then has named, unless they have connected anew.
    """

    lost: Sequence[str]
    gained: Sequence[str]
    ready: Sequence[Delivery]
    anew: Sequence[str] = ()
    unnamed: Sequence[str] = ()


class _Partition:
    """State of one partition. `since`: when the first of the answers came that all named this worker, None if the last
    one did not. `until`: when the last answer lapses. `lapsed`: no answer was valid for a time, so it has to be read
    anew once this worker is named again. `unnamed`: no answer has named it since it lapsed. `anew`: it has to be read
    anew. `lost_at`: when an answer last named another worker. `kept`: messages that may not be handled yet, each with
    its time, in order; `may_be_left`: all of them may be leftovers.
    """

    __slots__ = ("anew", "is_ours", "kept", "lapsed", "lost_at", "may_be_left", "since", "unnamed", "until")

    def __init__(self) -> None:
        self.is_ours = self.lapsed = self.unnamed = self.anew = self.may_be_left = False
        self.until = self.lost_at = float("-inf")
        self.since: float | None = None
        self.kept: list[tuple[float, Delivery]] = []

    @property
    def is_in_doubt(self) -> bool:
        """True if this worker is to have the partition, and all that is kept of it may be leftovers."""
        return self.may_be_left and bool(self.kept) and self.since is not None

    def keep(self, delivery: Delivery, now: float) -> None:
        """Keeps one more message. If its position is not after that of the last one, the broker redelivers: the kept
        messages are dropped, because they are delivered again.
        """
        if self.kept and _place(delivery) <= _place(self.kept[-1][1]):
            self.kept.clear()
        self.kept.append((now, delivery))


class ActivePartitions:
    """Partitions of one topic of a failover subscription, and which of them this worker may handle. `name`: name of
    this worker's consumer. `starts_until`: when the first answer that names this worker lapses; infinite: none does.
    Times are monotonic seconds, partitions numbers as texts.

    Messages of partitions that may not be handled are kept here until they may be, or until it shows that the broker
    sends them again, to this worker or another.
    """

    def __init__(self, policy: Policy, name: str) -> None:
        self.starts_until = float("inf")
        self._name = name
        self._first_asked = float("inf")
        self._last_until = float("-inf")
        self._partitions: dict[str, _Partition] = {}
        self._in_client = 2 * policy.queue + _ENTRY  # messages at most that the client may hold, on their way included
        self._leftovers: dict[str, int] = {}  # by partition that was lost: messages at most that are still to come out
        self._most, self._most_bytes = policy.max_held, policy.max_held_bytes // 2
        self._count = self._bytes = 0  # kept
        self._is_in_doubt = False  # at least one partition is

    # ---- messages

    def admit(self, deliveries: Sequence[Delivery], now: float) -> Sequence[Delivery]:
        """Returns the deliveries that may be handled now. The others are kept here until a later answer, except those
        of partitions that have to be read anew: the broker will send these again, so they are dropped.
        """
        ours: list[Delivery] = []
        for delivery in deliveries:
            partition = self._partition(delivery.partition)
            if partition.is_ours:
                ours.append(delivery)
                continue
            if delivery.partition in self._leftovers:
                self._came_out(delivery.partition)
            elif not partition.anew:
                partition.may_be_left = False
            if not (partition.lapsed or partition.anew):
                partition.keep(delivery, now)
        if len(ours) < len(deliveries):
            self._recount()
        return ours

    def room(self, room: int, in_flight: int) -> int:
        """Number of further messages that the topic may bring: `room` less the kept messages, or 0 if their payload is
        over half of the policy's `max_held_bytes`. But at least 1 while leftovers of a lost partition, or the first
        message after them, have to come out of the client library, as long as `in_flight`, messages of the topic in
        flight, is less than twice `max_held` plus all that the client may hold.
        """
        room = 0 if self._bytes > self._most_bytes else max(0, room - self._count)
        if (self._leftovers or self._is_in_doubt) and in_flight < 2 * self._most + self._in_client:
            room = max(1, room)
        return room

    # ---- answers

    def lapse(self, now: float) -> list[str]:
        """Returns this worker's partitions whose last answer is no longer valid, each once, and ends its right to
        handle them. Drops their kept messages; the caller has to release their unstarted ones.
        """
        lapsed = [number for number, one in self._partitions.items() if one.since is not None and one.until <= now]
        for number in lapsed:
            partition = self._partitions[number]
            partition.since, partition.is_ours = None, False
            partition.lapsed = partition.unnamed = True
            partition.kept.clear()
        self._recount()
        return lapsed

    def on_active_consumers(
        self, named: Mapping[str, str], asked: float, now: float, emptied: Mapping[str, float]
    ) -> Change:
        """Takes the active consumer of each partition, "" for none, as the broker named it at some moment since
        `asked`; a partition left out keeps its earlier answer. The caller leaves out answers that come VALID (2) s
        after `asked` or later, and calls `lapse` before. `emptied`: by partition, when the client library last
        contained no message of it, if it ever did.
        """
        for number in [number for number in self._leftovers if self._is_empty(number, emptied)]:
            del self._leftovers[number]
        for number, one in self._partitions.items():
            if one.since is not None and emptied.get(number, float("-inf")) >= one.since + BEGUN:
                one.may_be_left = False
        self._last_until = asked + VALID
        lost, gained, anew = list[str](), list[str](), list[str]()
        for number, name in named.items():
            partition = self._partition(number)
            partition.until, partition.unnamed = self._last_until, False
            if name != self._name:
                if partition.since is not None:
                    lost.append(number)
                    self._leftovers[number], partition.lost_at = self._in_client, now
                    partition.may_be_left = True
                partition.since, partition.is_ours = None, False
                # It came when this worker was the active one before: it comes again to the present one.
                partition.kept = [(came, delivery) for came, delivery in partition.kept if came >= asked]
            elif partition.since is None:
                partition.since = now
                if partition.lapsed:
                    partition.lapsed, partition.anew = False, True
                    anew.append(number)
        ready = self._ready(gained, anew, now)
        self._recount()
        unnamed = [number for number, one in self._partitions.items() if one.unnamed]
        return Change(lost, gained, ready, anew, unnamed)

    def on_disconnect(self, partition: str | None) -> None:
        """Notes that one partition, or each one (None), connects anew, so that the broker sends its unacknowledged
        messages again: its kept messages are dropped, it need not be read anew any more, and no leftovers of it come
        out. If leftovers were to come out, or kept messages might be some, its hand-over begins again.
        """
        for number, one in self._partitions.items():
            if partition in (None, number):
                if self._leftovers.pop(number, None) is not None or one.may_be_left:
                    one.since = None  # else an answer that names another while it is opened would count as a loss
                one.anew = one.lapsed = one.unnamed = one.may_be_left = False
                one.kept.clear()
        self._recount()

    def keep(self, deliveries: Sequence[Delivery], came: float) -> None:
        """Keeps messages that came at about the time (`came`) when their partition was lost. The broker may have sent
        them after the loss: they are dropped if an answer to a request after `came` does not name this worker.
        """
        for delivery in sorted(deliveries, key=_place):
            self._partition(delivery.partition).keep(delivery, came)
        self._recount()

    def unknown(self, asked: float, now: float) -> bool:
        """Notes that the request of the time `asked` got no answer, or none in time. Returns True if nothing may start:
        all answers have lapsed, or none came within VALID (2) s of the first request that failed.
        """
        self._first_asked = min(self._first_asked, asked)
        return self._is_unknown(now)

    def waiting(self, now: float) -> list[tuple[str, str]]:
        """Returns (partition, reason) of partitions that rest: those that this worker had until an answer lapsed, as
        long as no answer names them and they have not connected anew; and those that it is active for and does not
        handle RESTS_AT_MOST (5) s later. ("any", reason) if no answer has ever named a partition, none is valid, and it
        is VALID (2) s after the first request that failed. Any thread may call it.
        """
        resting: list[tuple[str, str]] = []
        partitions = list(self._partitions.items())
        for number, one in partitions:
            if one.unnamed:
                resting.append((number, "the admin API does not name its active consumer"))
            elif one.since is not None and not one.is_ours and now >= one.since + RESTS_AT_MOST:
                why = "it is read anew" if one.anew else "what its client holds has to come out"
                resting.append((number, f"this worker is active for it and does not handle it yet: {why}"))
        if self._is_unknown(now) and all(one.until == float("-inf") for _, one in partitions):
            resting.append(("any", "the admin API does not name the active consumers"))
        return resting

    def may_start(self, now: float) -> bool:
        """True if messages of the topic may start at `now`: it is before `starts_until`. After that the caller has to
        call `lapse`, and messages of other partitions may start again.
        """
        return now < self.starts_until

    def _is_unknown(self, now: float) -> bool:
        return max(self._last_until, self._first_asked + VALID) <= now

    def _is_empty(self, number: str, emptied: Mapping[str, float]) -> bool:
        """True if the client was empty of a partition after all messages sent before its loss had come."""
        return emptied.get(number, float("-inf")) >= self._partitions[number].lost_at + SETTLED

    def _came_out(self, number: str) -> None:
        """Counts that the client contains one leftover less of a partition."""
        self._leftovers[number] -= 1
        if not self._leftovers[number]:
            del self._leftovers[number]

    def _ready(self, gained: list[str], anew: list[str], now: float) -> list[Delivery]:
        ready: list[Delivery] = []
        for number, partition in self._partitions.items():
            if partition.is_ours or partition.since is None or now < partition.since + HAND_OVER:
                continue
            if partition.anew:
                continue
            if number in self._leftovers or partition.is_in_doubt:
                partition.anew = True
                partition.kept.clear()
                anew.append(number)
                continue
            partition.is_ours, partition.may_be_left = True, False
            gained.append(number)
            ready += [delivery for _, delivery in partition.kept]
            partition.kept = []
        return ready

    def _partition(self, number: str) -> _Partition:
        found = self._partitions.get(number)
        if found is None:
            found = self._partitions[number] = _Partition()
        return found

    def _recount(self) -> None:
        kept = [delivery for partition in self._partitions.values() for _, delivery in partition.kept]
        self._count, self._bytes = len(kept), sum(len(delivery.payload or b"") for delivery in kept)
        ours = (one.until for one in self._partitions.values() if one.since is not None)
        self.starts_until = min(ours, default=float("inf"))
        self._is_in_doubt = any(one.is_in_doubt for one in self._partitions.values())


def _place(delivery: Delivery) -> tuple[Any, int]:
    """Position of a message in its partition, in order."""
    return delivery.entry, delivery.batch_index
