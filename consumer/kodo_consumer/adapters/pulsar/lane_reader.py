"""Reading one topic: a thread that receives from the consumers of all its partitions, copies and hands over."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Protocol

import pulsar

from kodo_consumer.adapters.pulsar.partition_consumer import Arrival, PartitionConsumer
from kodo_consumer.adapters.pulsar.silent_arrivals import LOOK_EVERY
from kodo_consumer.runtime.threads import begin, leave
from kodoctl.errors import ClusterError, error

if TYPE_CHECKING:
    from kodo_fast._native import Reader

    from kodo_consumer.adapters.pulsar.client_consumer import Subscriber
    from kodo_consumer.core.values.broker import LaneRequest, LaneSink
    from kodo_consumer.core.values.envelope import Delivery

log = logging.getLogger("kodo.consumer")
_WAIT: Final = 0.5  # seconds: how soon a stopped lane's thread ends
_IDLE: Final = 2.0  # seconds
_LEAVE_WITHIN: Final = 3.0  # seconds: the others of a worker are to close as well
_UNTIL_JOINED: Final = float("inf")
_GROW_EVERY: Final = 60.0  # seconds between two looks for new partitions
_NAMES_AGAIN: Final = 1.0  # seconds between two tries to learn a topic's partitions
WAIT_AT_START: Final = 5.0  # seconds that a start waits for partitions that no broker serves


class StartupWait:
    """The time that a worker waits at its start for partitions that no broker serves: `seconds` (5) for all its lanes
    together, then a `moment` (1 s) for each of them.
    """

    def __init__(self, seconds: float = WAIT_AT_START, moment: float = 1.0) -> None:
        self._left, self._moment = seconds, moment

    def wait(self, consumers: Sequence[PartitionConsumer]) -> list[PartitionConsumer]:
        """Waits until each of `consumers` is open, refused, or kept out by another reader, as long as time is left.
        Returns the others.
        """
        began = time.monotonic()
        latest = began + max(self._left, self._moment)
        late = [one for one in consumers if not one.first_try.wait(max(0.0, latest - time.monotonic()))]
        self._left -= time.monotonic() - began if late else 0.0
        return late


class HasReaders(Protocol):
    """Lane whose readers the native border may be able to watch."""

    @property
    def native_readers(self) -> list[Reader] | None:
        """See PulsarLaneReader."""


class PulsarLaneReader:
    """kodo_consumer.core.values.broker.LaneReader over one consumer of each partition. Whatever happens to one
    partition concerns no other. The constructor waits for the partitions, as `patience` allows; it raises ClusterError
    (K713) if a broker refuses one, or if the topic's partitions cannot be read. Those that no broker serves yet are
    opened later.
    """

    def __init__(
        self,
        subscriber: Subscriber,
        request: LaneRequest,
        sink: LaneSink,
        patience: StartupWait | None = None,
        on_plan: Callable[[], object] = lambda: None,
    ) -> None:
        self._on_plan = on_plan
        self._subscriber, self._request, self._sink = subscriber, request, sink
        self._inbox: SimpleQueue[Arrival | None] = SimpleQueue()
        self._consumers: dict[str, PartitionConsumer] = {}  # by number of the partition
        self._stopped = threading.Event()
        self._go_on = threading.Event()
        self._leave: list[tuple[float, float, str | None]] = []  # when, for how many seconds, what: None is everything
        self._presence = threading.Lock()  # around leaving and joining
        self._away = False  # left, until it is joined again
        self._look_at = time.monotonic() + _GROW_EVERY
        self._open(self._names(), patience or StartupWait())
        name = f"kodo-{request.topic.rpartition('/')[2]}"
        self._thread = begin(self._run, name, sink.fail, over=self._stopped.is_set)

    @property
    def connected(self) -> bool:
        """True if the consumer of every partition is connected, and also after `leave` until `join`."""
        return not self.disconnected_topics

    @property
    def disconnected_topics(self) -> Sequence[str]:
        """Texts for people, one for each partition whose consumer is not connected: its topic, followed by the reason
        if it is known; empty after `leave` until `join`.
        """
        return [] if self._away else [one.shown for one in list(self._consumers.values()) if not one.connected]

    def long_connected(self, seconds: float) -> frozenset[str]:
        """Numbers (as texts) of the partitions whose consumers have been connected for more than so many seconds."""
        since = time.monotonic() - seconds
        consumers = list(self._consumers.items())
        return frozenset(number for number, one in consumers if one.connected_since < since)

    def seconds_since_empty(self) -> Mapping[str, float]:
        """See LaneReader."""
        now, consumers = time.monotonic(), list(self._consumers.items())
        return {number: now - one.permits.empty_at for number, one in consumers}

    def reads(self, partition: str | None) -> bool:
        """True if messages of a partition can come now. `partition`: its number as a text; None: messages of at least
        one partition.
        """
        consumers = list(self._consumers.values()) if partition is None else [self._consumers.get(partition)]
        return any(one is not None and one.connected for one in consumers)

    def acknowledge(self, tokens: Sequence[object], tickets: Sequence[int] = ()) -> None:
        """Gives the tokens to the consumers of their partitions, which acknowledge them soon, or as soon as they are
        open. `tickets`: one for each token if the request `confirms`, else none. Never raises, never waits.
        """
        consumers = self._consumers
        if len(consumers) == 1:
            (only,) = consumers.values()
            only.acknowledge(tokens, tickets)
            return
        by_partition: dict[str, tuple[list[object], list[int]]] = {}
        for token, ticket in zip_longest(tokens, tickets):
            theirs = by_partition.setdefault(partition_of(token), ([], []))
            theirs[0].append(token)
            if ticket is not None:
                theirs[1].append(ticket)
        for partition, (their_tokens, their_tickets) in by_partition.items():
            consumers[partition].acknowledge(their_tokens, their_tickets)

    def resume(self) -> None:
        """Lets the reading thread deliver again, after `LaneSink.room` was 0."""
        self._go_on.set()

    def add_consumers(self) -> None:
        """Does nothing: one consumer can get no more. MultiConsumerReader opens further ones."""

    def reconnect(self, wait: float, away: float, partition: str | None = None) -> None:
        """Plans to leave one partition (its number as a text; None: all) in `wait` seconds and to subscribe again
        `away` seconds later; `check_connection` carries it out.
        """
        self._leave.append((time.monotonic() + wait, away, partition))
        self._on_plan()

    def leave(self, wait: float) -> None:
        """Plans to leave all partitions in `wait` seconds; `check_connection` carries it out. If `join` was called
        before that, the partitions reconnect at that time instead of being left.
        """
        self._away = True
        self._leave.append((time.monotonic() + wait, _UNTIL_JOINED, None))
        self._on_plan()

    def join(self) -> None:
        """Lets all partitions be read again after `leave`, without waiting for them. A partition that was not left yet
        is reconnected all the same, so that the broker redelivers its messages, which were given up.
        """
        with self._presence:
            self._away = False
            for one in list(self._consumers.values()):
                one.join()

    def stop(self) -> None:
        """Ends deliveries; does not wait for the reading thread. Acknowledging goes on until `close`."""
        self._stopped.set()
        for one in list(self._consumers.values()):
            one.stop()
        self._go_on.set()
        self._inbox.put(None)

    def close(self) -> None:
        """Sends queued acknowledgements and leaves, within 3 s. A call into the client library may never return: then
        its thread is left behind, which is logged.
        """
        self.stop()
        works: dict[str, Callable[[], object]] = {one.topic: one.close for one in list(self._consumers.values())}
        if late := leave({**works, "its thread": self._thread.join}, _LEAVE_WITHIN):
            text = "%s: its consumer does not close within %.0f s and is left behind: %s"
            log.error(text, self._request.topic, _LEAVE_WITHIN, ", ".join(late))

    @property
    def native_readers(self) -> list[Reader] | None:
        """Readers of the native border that may be watched in place of `check_connection`; None while any consumer is
        not connected or has none, and while something is planned.
        """
        readers = [reader for one in list(self._consumers.values()) if (reader := one.native_reader) is not None]
        return readers if len(readers) == len(self._consumers) and not self._leave else None

    def check_connection(self) -> None:
        """Checks the consumers of all partitions: notifies the sink of lost connections, carries out planned
        reconnections and leaves, and once a minute begins to look for new partitions on a thread. It has to be called
        more often than a reconnection takes, because a connection that was lost and made again between two calls is not
        noticed.
        """
        now = time.monotonic()
        for one in list(self._consumers.values()):
            one.check(now)
        for leaving in [leaving for leaving in self._leave if leaving[0] <= now]:
            self._leave.remove(leaving)
            with self._presence:
                leaves = leaving[1] == _UNTIL_JOINED and self._away
                for number, one in list(self._consumers.items()):
                    if leaves:
                        one.leave()
                    elif leaving[2] in (None, number):
                        away = 0.0 if leaving[1] == _UNTIL_JOINED else leaving[1]
                        one.renew("everything unacknowledged is to come again", away)
        if now >= self._look_at and not (self._stopped.is_set() or self._away):
            self._look_at = now + _GROW_EVERY
            begin(self._grow, "kodo-partitions", self._sink.fail)

    # ---- partitions

    def _names(self) -> list[str]:
        """Names of all partitions; the topic's own name if it has no partitions. Raises ClusterError."""
        tries = 3  # the client asks one broker of several, be it the one that is away
        while True:
            try:
                names = self._subscriber.partitions(self._request.topic)
            except pulsar.PulsarException as problem:
                tries -= 1
                if not tries or isinstance(problem, pulsar.TopicNotFound | pulsar.AuthorizationError):
                    raise self._cannot(self._request.topic, str(problem)) from None
                time.sleep(_NAMES_AGAIN)
            else:
                return names

    def _open(self, names: Sequence[str], patience: StartupWait) -> None:
        """Raises ClusterError where a broker refuses. What none serves yet is opened as soon as one does."""
        share = max(1, self._request.queue // len(names) - 1)  # one more is on its way to the lane's thread
        batch = min(self._request.batch, max(1, share)) if len(names) > 1 else self._request.batch
        consumers = [
            PartitionConsumer(
                self._subscriber, replace(self._request, topic=name, queue=share, batch=batch), self._inbox, self._sink
            )
            for name in names
        ]
        with self._presence:
            self._consumers = {**self._consumers, **{one.number: one for one in consumers}}
            if self._away:  # since the look for new partitions began
                for one in consumers:
                    one.leave()
        for one in consumers:
            one.open()
        late = patience.wait(consumers)
        for one in late:
            one.wait_no_longer()
        if refused := [one for one in consumers if one.refused]:
            for one in consumers:
                one.stop()
            leave({one.topic: one.close for one in consumers}, _LEAVE_WITHIN)
            self._consumers = {number: one for number, one in self._consumers.items() if one not in consumers}
            raise self._cannot(refused[0].topic, refused[0].refused)
        if late and not self._away:
            text = "%s: no broker serves it yet: the others are read meanwhile, and it as soon as one does"
            log.warning(text, ", ".join(one.topic for one in late))
        if self._stopped.is_set():  # a topic that grew meanwhile
            leave({one.topic: one.close for one in consumers}, _LEAVE_WITHIN)

    def _cannot(self, topic: str, why: str) -> ClusterError:
        return ClusterError(error("K713", "cannot subscribe", f"{self._request.subscription} on {topic}: {why}"))

    def _grow(self) -> None:
        """A topic may get more partitions at any time."""
        try:
            known = {one.topic for one in list(self._consumers.values())}
            if new := [name for name in self._subscriber.partitions(self._request.topic) if name not in known]:
                log.info("%s: new partitions are read: %s", self._request.topic, ", ".join(new))
                self._open(new, StartupWait(0.0))
        except (pulsar.PulsarException, ClusterError) as problem:
            log.debug("%s: whether there are new partitions is not known: %s", self._request.topic, problem)

    # ---- messages

    def _run(self) -> None:
        look_at = 0.0
        while not self._stopped.is_set():
            self._go_on.clear()
            if not self._sink.room():
                self._go_on.wait(_WAIT)
                continue
            try:
                arrival = self._inbox.get(timeout=_IDLE)  # `stop` puts None there
            except Empty:
                arrival = None
            if arrival is not None:
                arrival.source.take(arrival, self._deliver)
            if (now := time.monotonic()) >= look_at:
                look_at = now + LOOK_EVERY
                for one in list(self._consumers.values()):
                    one.look(self._deliver)

    def _deliver(self, deliveries: list[Delivery]) -> None:
        if not self._stopped.is_set():
            self._sink.deliver(deliveries)


def readers_of(parts: Sequence[HasReaders]) -> list[Reader] | None:
    """Readers of the native border of all parts; None if a part cannot be watched by its readers now (its
    `native_readers` is None).
    """
    found = [part.native_readers for part in parts]
    return None if None in found else [reader for readers in found for reader in readers or ()]


def partition_of(token: Any) -> str:
    """Number of a message's partition as text. `token`: the token that acknowledges the message."""
    return str(token.partition())
