"""Reading one topic by several consumers, where the broker lets one of them hold fewer messages than the look-ahead
wants.

A consumer that holds as many unacknowledged messages as it may gets nothing more, until half of them are
acknowledged: the look-ahead would end there, and what is behind it wait as in a plain queue. A shared subscription
goes on with its other consumers; so there is one more whenever those there are hold half of what they may.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from kodo_consumer.adapters.pulsar.lane_reader import PulsarLaneReader, StartupWait, partition_of, readers_of
from kodo_consumer.core.values.broker import MOST_CONSUMERS, LaneRequest, LaneSink
from kodo_consumer.runtime.threads import begin
from kodoctl.errors import ClusterError

if TYPE_CHECKING:
    from kodo_fast._native import Reader

    from kodo_consumer.adapters.pulsar.client_consumer import Subscriber
    from kodo_consumer.core.values.envelope import Delivery

log = logging.getLogger("kodo.consumer")
_AGAIN: Final = 15.0  # seconds between two tries, after one that failed
_ENTRY: Final = 1_000  # messages: the broker sends a batch as a whole, also across a limit


def may_need_several(request: LaneRequest) -> bool:
    """True for a shared subscription if one consumer might be too few for the look-ahead, or the broker's limit of
    unacknowledged messages of a consumer is not known. False for any other type, whose messages cannot be spread over
    consumers at will.
    """
    return request.type == "shared" and (not request.limit or request.max_unacked + _ENTRY > request.limit)


class MultiConsumerReader:
    """kodo_consumer.core.values.broker.LaneReader over several consumers, each a PulsarLaneReader, which reads all
    partitions. The constructor opens the first one, as PulsarLaneReader does. Further ones are opened while the open
    ones hold more than half of the unacknowledged messages that the broker's limit allows them (`delivered`): it is the
    limit of each partition, but counts here for all partitions of a consumer together.

    If the limit is known, the first one has half of the lane's receiver queue; the rest is divided by the largest
    number of further consumers, at least 1 message for each. If it is not known, the first one has the whole queue, and
    further ones have small queues besides. The caller calls `add_consumers` whenever the statistics say that all
    consumers are blocked.
    """

    def __init__(
        self,
        subscriber: Subscriber,
        request: LaneRequest,
        sink: LaneSink,
        patience: StartupWait | None = None,
        on_plan: Callable[[], object] = lambda: None,
    ) -> None:
        self._request, self._sink = request, sink
        self._reader = partial(PulsarLaneReader, subscriber, patience=patience, on_plan=on_plan)
        self._limit, self._most = request.limit, MOST_CONSUMERS
        if request.limit:
            self._most = min(MOST_CONSUMERS, max(2, -(-2 * (request.max_unacked + _ENTRY) // request.limit)))
        self._lock = threading.Lock()  # around changes of the list of consumers
        self._count_lock = threading.Lock()
        # Handed over and unacknowledged, by consumer (None: the first one) and partition.
        self._unacknowledged: Counter[tuple[PulsarLaneReader | None, str]] = Counter()
        self._stopped = self._away = False
        self._opening = False
        self._not_before = float("-inf")
        self._parts: list[PulsarLaneReader] = []
        self._open(request.queue - request.queue // 2 if request.limit else request.queue)

    # ---- LaneReader

    @property
    def connected(self) -> bool:
        """True if every open consumer of the lane is connected to all partitions, as far as `check_connection` has
        noticed, and also after `leave` until `join`.
        """
        return not self.disconnected_topics

    @property
    def disconnected_topics(self) -> Sequence[str]:
        """Texts for people, each once, about the partitions to which a consumer of the lane is not connected: the
        partition's name, followed by the reason if it is known. Empty after `leave` until `join`.
        """
        return list(dict.fromkeys(topic for part in self._parts for topic in part.disconnected_topics))

    def acknowledge(self, tokens: Sequence[object], tickets: Sequence[int] = ()) -> None:
        """Gives each token to the consumer that received its message, whose `acknowledge` says more. `tickets`: one for
        each token if the request `confirms`, else none. Does not wait.
        """
        if len(self._parts) == 1:
            self._went(None, tokens)
            self._parts[0].acknowledge(tokens, tickets)
            return
        by_part: dict[PulsarLaneReader | None, tuple[list[object], list[int]]] = {}
        for token, ticket in zip_longest(tokens, tickets):
            part, id_ = (token.part, token.id) if type(token) is _Token else (None, token)
            theirs = by_part.setdefault(part, ([], []))
            theirs[0].append(id_)
            if ticket is not None:
                theirs[1].append(ticket)
        for part, (their_tokens, their_tickets) in by_part.items():
            self._went(part, their_tokens)
            (part or self._parts[0]).acknowledge(their_tokens, their_tickets)

    def resume(self) -> None:
        """Makes all consumers call `LaneSink.room` again at once, after that was 0; else they do so every 0.5 s."""
        for part in self._parts:
            part.resume()

    def add_consumers(self) -> None:
        """Begins to double the number of consumers, up to 64 (or fewer, if the limit is known): the statistics do not
        say how many are needed. Opens none for 15 s after one could not be opened, between `leave` and `join`, and
        after `stop`. Returns before they are open: a broker may be silent for seconds, and the caller has the
        statistics of all lanes to read.
        """
        begin(self._double, "kodo-widen", self._sink.fail)

    def long_connected(self, seconds: float) -> frozenset[str]:
        """Numbers (as texts) of the partitions to which all consumers have been connected for more than `seconds`, as
        far as `check_connection` has noticed. All consumers have one name, so the broker's statistics are about all of
        them.
        """
        return frozenset[str].intersection(*(part.long_connected(seconds) for part in self._parts))

    def seconds_since_empty(self) -> Mapping[str, float]:
        """Seconds since the client was last empty, by partition (see LaneReader): the longest time of all consumers,
        infinite if one of them never was. A partition that one of the consumers does not list is missing.
        """
        ago = [part.seconds_since_empty() for part in self._parts]
        return {partition: max(one[partition] for one in ago) for partition in set(ago[0]).intersection(*ago)}

    def reconnect(self, wait: float, away: float, partition: str | None = None) -> None:
        """Plans a reconnection of all open consumers at nearly the same time; `check_connection` carries it out.
        Arguments as for PulsarLaneReader.
        """
        for part in self._parts:
            part.reconnect(wait, away, partition)

    def leave(self, wait: float) -> None:
        """Plans to leave with all consumers in `wait` seconds; `check_connection` carries it out. Until `join` no
        further consumer begins to open; one that is being opened leaves as soon as it is open.
        """
        with self._lock:
            self._away = True
        for part in self._parts:
            part.leave(wait)

    def join(self) -> None:
        """Lets all consumers read again after `leave`, without waiting for them. A consumer that has not left yet
        reconnects at the time that `leave` planned.
        """
        with self._lock:
            self._away = False
        for part in self._parts:
            part.join()

    def stop(self) -> None:
        """Ends deliveries of all consumers, as PulsarLaneReader.stop does. No further consumer is opened; one that is
        being opened closes as soon as it is open.
        """
        with self._lock:
            self._stopped = True
        for part in self._parts:
            part.stop()

    def close(self) -> None:
        """Closes the consumers one after the other, each as PulsarLaneReader.close does, within 3 s. Does not wait for
        a consumer that is being opened.
        """
        self.stop()
        for part in self._parts:
            part.close()

    @property
    def native_readers(self) -> list[Reader] | None:
        """See PulsarLaneReader: of all consumers."""
        return readers_of(self._parts)

    def check_connection(self) -> None:
        """Checks all consumers, each as PulsarLaneReader.check_connection does, and must be called as often. The sink
        is notified of a lost connection only as `lost` says.
        """
        for part in self._parts:
            part.check_connection()

    # ---- its consumers

    def came(self, part: PulsarLaneReader | None, deliveries: Sequence[Delivery]) -> None:
        """Counts messages that the consumer of `part` (None: the first one) is about to hand over, because they may be
        acknowledged from then on. Does nothing if the broker's limit is not known.
        """
        if not self._limit:
            return
        with self._count_lock:
            entry, partition = None, ""
            for delivery in deliveries:
                if delivery.entry is not entry:  # mostly many of one batch in a row
                    entry, partition = delivery.entry, delivery.partition
                self._unacknowledged[part, partition] += 1

    def _went(self, part: PulsarLaneReader | None, tokens: Sequence[object]) -> None:
        if not self._limit:
            return
        counts = Counter(map(partition_of, tokens))
        with self._count_lock:  # what it had lost before is not counted
            for partition, count in counts.items():
                of = part, partition
                self._unacknowledged[of] = max(0, self._unacknowledged[of] - count)

    def delivered(self) -> None:
        """Begins to open one more consumer, without waiting, if the limit is known, and the open ones together hold
        more than half of the limit multiplied by their number. Opens none while another one is being opened, between
        `leave` and `join`, after `stop`, for 15 s after one could not be opened, and if as many as may be needed are
        open.
        """
        if not self._limit:
            return
        with self._count_lock:
            enough = 2 * sum(self._unacknowledged.values()) <= self._limit * len(self._parts)
        if not (enough or self._opening) and len(self._parts) < self._most and time.monotonic() >= self._not_before:
            begin(self._one_more, "kodo-widen", self._sink.fail)  # whoever hands over messages is not kept waiting

    def lost(self, part: PulsarLaneReader | None, partition: str | None) -> None:
        """Records that the consumer of `part` (None: the first one) lost a partition (None: all). While another
        consumer is connected to the partition, only the messages that the consumer of `part` has of it are no longer
        counted, and the sink is not notified: the broker redelivers only them, and the copies are recognised one by
        one. Otherwise no message of the partition is counted any more, and the sink is notified (`on_disconnect`) that
        the broker redelivers all of them.
        """
        with self._lock:
            others_read = len(self._parts) > 1 and any(one.reads(partition) for one in self._parts)
            with self._count_lock:
                for of in list(self._unacknowledged):
                    if partition in (None, of[1]) and (not others_read or of[0] is part):
                        del self._unacknowledged[of]
            if not others_read:
                self._sink.on_disconnect(partition)

    def _double(self) -> None:
        for _ in range(len(self._parts)):
            self._one_more()

    def _one_more(self) -> None:
        with self._lock:
            if (
                self._opening
                or self._stopped
                or self._away
                or len(self._parts) >= self._most
                or time.monotonic() < self._not_before
            ):
                return
            self._opening = True
        if len(self._parts) == 1:
            most = f"one consumer may hold {self._limit}" if self._limit else "the broker sends one consumer no more"
            log.info("%s: %s unacknowledged messages; it is read by several", self._request.topic, most)
        try:
            self._open(self._request.queue // 2 // (self._most - 1))
        except ClusterError as problem:
            self._not_before = time.monotonic() + _AGAIN
            log.warning("%s: no further consumer, so the look-ahead ends early: %s", self._request.topic, problem)
        finally:
            self._opening = False

    def _open(self, queue: int) -> None:
        queue = max(1, queue)
        request = replace(self._request, queue=queue, batch=max(1, min(self._request.batch, queue // 2)))
        sink = _PartSink(self, self._sink)
        part = self._reader(request, sink)
        with self._lock:
            stopped = self._stopped
            if not stopped:
                sink.part = part if self._parts else None
                self._parts = [*self._parts, part]
                sink.open = True
            if left := self._away:  # while it was opened: whoever left and joined the others did not know it
                part.leave(0.0)
        if stopped:
            part.close()
            return
        if left:
            part.check_connection()
        part.resume()


class _PartSink:
    """Sink of one consumer's messages. None is delivered before the consumer is one of the lane's: what counts as lost
    depends on it.
    """

    def __init__(self, lane: MultiConsumerReader, sink: LaneSink) -> None:
        self.open = False
        self.part: PulsarLaneReader | None = None  # None: the first one, whose tokens need no name
        self._lane, self._sink = lane, sink

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        part = self.part
        if part is not None:
            deliveries = [delivery._replace(token=_Token(part, delivery.token)) for delivery in deliveries]
        self._lane.came(part, deliveries)
        self._sink.deliver(deliveries)
        self._lane.delivered()

    def room(self) -> int:
        return self._sink.room() if self.open else 0

    def on_disconnect(self, partition: str | None = None) -> None:
        self._lane.lost(self.part, partition)

    def on_acknowledged(self, confirmed: Sequence[int], unknown: Sequence[int]) -> None:
        self._sink.on_acknowledged(confirmed, unknown)

    def fail(self, problem: BaseException) -> None:
        self._sink.fail(problem)


class _Token:
    """Token that a message is acknowledged by, with the consumer that it belongs to."""

    __slots__ = ("id", "part")

    def __init__(self, part: PulsarLaneReader, token: object) -> None:
        self.part, self.id = part, token

    def __str__(self) -> str:
        return str(self.id)
