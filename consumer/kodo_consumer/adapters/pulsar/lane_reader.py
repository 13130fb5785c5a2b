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
    """Limit on the time for which a lane that is being opened, or one more consumer of it, waits for partitions that no
    broker serves: `seconds` (5) until one wait of this length was in vain, then a `moment` (1 s) for each wait; never
    less than a `moment`.
    """

    def __init__(self, seconds: float = WAIT_AT_START, moment: float = 1.0) -> None:
        self._left, self._moment = seconds, moment

    def wait(self, consumers: Sequence[PartitionConsumer]) -> list[PartitionConsumer]:
        """Waits, within the limit, until each of `consumers` is open, refused, or (if its request `shares`) kept out by
        another reader. Returns the consumers for which it waited in vain.
        """
        began = time.monotonic()
        latest = began + max(self._left, self._moment)
        late = [one for one in consumers if not one.first_try.wait(max(0.0, latest - time.monotonic()))]
        self._left -= time.monotonic() - began if late else 0.0
        return late


class HasReaders(Protocol):
    """Lane, or one of its consumers, whose readers the native border may be able to watch."""

    @property
    def native_readers(self) -> list[Reader] | None:
        """See PulsarLaneReader."""


class PulsarLaneReader:
    """kodo_consumer.core.values.broker.LaneReader over one consumer of each partition, which are opened and replaced
    one by one. The owner calls `check_connection` all the time.

    The constructor waits for the partitions, as `patience` allows (None: a StartupWait of its own). It raises
    ClusterError (K713) if a broker meanwhile refuses one in a way that waiting does not change, or if the topic's
    partitions cannot be read. A partition that is not open by then is opened later. `on_plan`: called when `reconnect`
    or `leave` has planned something that `check_connection` carries out.
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
        """True if the consumer of every partition is connected, as far as `check_connection` has noticed, and also
        after `leave` until `join`.
        """
        return not self.disconnected_topics

    @property
    def disconnected_topics(self) -> Sequence[str]:
        """Texts for people, one for each partition whose consumer is not connected, as far as `check_connection` has
        noticed: the partition's name, followed by the reason if it is known. Empty after `leave` until `join`.
        """
        return [] if self._away else [one.shown for one in list(self._consumers.values()) if not one.connected]

    def long_connected(self, seconds: float) -> frozenset[str]:
        """Numbers (as texts) of the partitions whose consumers have been connected for more than `seconds`, as far as
        `check_connection` has noticed.
        """
        since = time.monotonic() - seconds
        consumers = list(self._consumers.items())
        return frozenset(number for number, one in consumers if one.connected_since < since)

    def seconds_since_empty(self) -> Mapping[str, float]:
        """See LaneReader."""
        now, consumers = time.monotonic(), list(self._consumers.items())
        return {number: now - one.permits.empty_at for number, one in consumers}

    def reads(self, partition: str | None) -> bool:
        """True if the consumer of a partition is connected, as far as is noticed; False for an unknown partition.
        `partition`: its number as a text; None: any partition.
        """
        consumers = list(self._consumers.values()) if partition is None else [self._consumers.get(partition)]
        return any(one is not None and one.connected for one in consumers)

    def acknowledge(self, tokens: Sequence[object], tickets: Sequence[int] = ()) -> None:
        """Gives the tokens to the consumers of their partitions, which acknowledge them soon; a consumer that is not
        open keeps them until it is, which never happens after `stop`. `tickets`: one for each token if the request
        `confirms`, else none. Does not wait.
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
        """Makes the reading thread call `LaneSink.room` again at once, after it was 0; else it happens every 0.5 s."""
        self._go_on.set()

    def add_consumers(self) -> None:
        """Does nothing: this reader has one consumer of each partition. MultiConsumerReader opens further ones."""

    def reconnect(self, wait: float, away: float, partition: str | None = None) -> None:
        """Plans to close the consumer of one partition (its number as a text; None: of each) in `wait` seconds and to
        subscribe again `away` seconds later; `check_connection` carries it out, by PartitionConsumer.renew.
        """
        self._leave.append((time.monotonic() + wait, away, partition))
        self._on_plan()

    def leave(self, wait: float) -> None:
        """Plans to close all consumers in `wait` seconds, and to open none until `join`; `check_connection` carries it
        out. If the lane was joined again by then, the consumers reconnect at that time instead.
        """
        self._away = True
        self._leave.append((time.monotonic() + wait, _UNTIL_JOINED, None))
        self._on_plan()

    def join(self) -> None:
        """Lets all partitions be read again after `leave`, without waiting for them. A partition that was not left yet
        is reconnected all the same, at the time that `leave` planned: the worker gave its messages up, so the broker
        has to redeliver them.
        """
        with self._presence:
            self._away = False
            for one in list(self._consumers.values()):
                one.join()

    def stop(self) -> None:
        """Ends deliveries; does not wait for the reading thread, so a delivery that has begun may still come. Open
        consumers go on acknowledging until `close`; none is opened or replaced any more.
        """
        self._stopped.set()
        for one in list(self._consumers.values()):
            one.stop()
        self._go_on.set()
        self._inbox.put(None)

    def close(self) -> None:
        """Stops the reader, sends the acknowledgements that are queued at open consumers, and closes them; waits 3 s at
        most. A consumer that is not closed by then, or a thread that has not ended, is left behind, and an error is
        logged: a call into the client library may never return.
        """
        self.stop()
        works: dict[str, Callable[[], object]] = {one.topic: one.close for one in list(self._consumers.values())}
        if late := leave({**works, "its thread": self._thread.join}, _LEAVE_WITHIN):
            text = "%s: its consumer does not close within %.0f s and is left behind: %s"
            log.error(text, self._request.topic, _LEAVE_WITHIN, ", ".join(late))

    @property
    def native_readers(self) -> list[Reader] | None:
        """Readers of the native border, one for each partition: while the border watches them, `check_connection` may
        be called less often. None while any consumer is not connected or is read without the border, and while a
        `reconnect` or `leave` is planned.
        """
        readers = [reader for one in list(self._consumers.values()) if (reader := one.native_reader) is not None]
        return readers if len(readers) == len(self._consumers) and not self._leave else None

    def check_connection(self) -> None:
        """Checks the consumers of all partitions (see PartitionConsumer.check): notifies the sink of lost connections,
        and replaces consumers whose connection stays lost. Carries out each `reconnect` and `leave` that is due, and
        once a minute, unless the lane is left or stopped, begins to look for new partitions on a thread.

        Unless the native border watches (`native_readers`), it has to be called more often than a reconnection takes,
        because a connection that was lost and made again between two calls is not noticed.
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

    def _add(self, names: Sequence[str]) -> list[PartitionConsumer]:
        """New consumers of these partitions, which are not opened yet."""
        partitions = len(self._consumers) + len(names)
        share = max(1, self._request.queue // partitions - 1)  # one more is on its way to the lane's thread
        batch = min(self._request.batch, share) if partitions > 1 else self._request.batch
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
        return consumers

    def _open(self, names: Sequence[str], patience: StartupWait) -> None:
        """Raises ClusterError where a broker refuses. What none serves yet is opened as soon as one does."""
        consumers = self._add(names)
        for one in consumers:
            one.open()
        late = patience.wait(consumers)
        for one in late:
            one.wait_no_longer()
        if refused := [one for one in consumers if one.refused]:
            for one in consumers:
                one.stop()
            leave({one.topic: one.close for one in consumers}, _LEAVE_WITHIN)
            raise self._cannot(refused[0].topic, refused[0].refused)
        if late:
            text = "%s: no broker serves it yet: the others are read meanwhile, and it as soon as one does"
            log.warning(text, ", ".join(one.topic for one in late))

    def _cannot(self, topic: str, why: str) -> ClusterError:
        return ClusterError(error("K713", "cannot subscribe", f"{self._request.subscription} on {topic}: {why}"))

    def _grow(self) -> None:
        """A topic may get more partitions at any time. One that a broker refuses is tried again, as one that none serves."""
        try:
            known = {one.topic for one in list(self._consumers.values())}
            new = [name for name in self._subscriber.partitions(self._request.topic) if name not in known]
        except pulsar.PulsarException as problem:
            log.debug("%s: whether there are new partitions is not known: %s", self._request.topic, problem)
            return
        if not new:
            return
        log.info("%s: new partitions are read: %s", self._request.topic, ", ".join(new))
        consumers = self._add(new)
        for one in consumers:
            one.wait_no_longer()
            one.open()
        if self._stopped.is_set():  # by a `stop` that did not see these consumers yet
            leave({one.topic: one.close for one in consumers}, _LEAVE_WITHIN)

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
    """Number of a message's partition as a text, "-1" (PLAIN) of a plain topic. `token`: message id of the client
    library or of the native border.
    """
    return str(token.partition())
