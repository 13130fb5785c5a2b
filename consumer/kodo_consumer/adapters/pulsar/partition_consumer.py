"""The consumer of one partition: it is opened, watched and replaced without the other partitions of its topic
noticing.

The client library can read a topic as a whole. Then one partition without a broker (a broker that died has its
partitions until its ZooKeeper session ends) makes subscribing fail for all of them, and no client learns which of them
lost its connection.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import pulsar

from kodo_consumer.adapters.pulsar.acknowledgements import Acknowledgements
from kodo_consumer.adapters.pulsar.client_consumer import MUCH, ClientConsumer, Subscriber
from kodo_consumer.adapters.pulsar.partition_connection import ConsumerPermits, PartitionConnection
from kodo_consumer.adapters.pulsar.refusals import consumer_refusal
from kodo_consumer.adapters.pulsar.silent_arrivals import LOOK_EVERY
from kodo_consumer.runtime.threads import begin, leave
from kodoctl.topology.names import partition_number

if TYPE_CHECKING:
    from kodo_fast._native import Reader

    from kodo_consumer.adapters.pulsar.delivery_decoding import ReadResult
    from kodo_consumer.core.values.broker import LaneRequest, LaneSink
    from kodo_consumer.core.values.envelope import Delivery

log = logging.getLogger("kodo.consumer")
_GIVE_UP: Final = 7.0  # seconds: the client's own tries come 6.3 s and 12.7 s after the loss, and up to a minute apart
_AGAIN: Final = 1.0  # seconds between two tries to subscribe, each of which goes on for the client's operation timeout
_CLOSE_WITHIN: Final = 1.0  # seconds: a broker that is well answers within milliseconds
_FOR_GOOD: Final = (
    pulsar.AuthenticationError,
    pulsar.AuthorizationError,
    pulsar.ConsumerBusy,
    pulsar.IncompatibleSchema,
    pulsar.InvalidConfiguration,
    pulsar.InvalidTopicName,
    pulsar.NotAllowedError,
    pulsar.OperationNotSupported,
    pulsar.TopicNotFound,
    pulsar.UnsupportedVersionError,
)
"""Refusals that waiting does not change, as far as a start is concerned. Everything else may be a broker that is away."""
_MOST_AGAIN: Final = 5.0  # seconds: the longest pause between two tries while another reader has the partition alone


@dataclass(frozen=True, slots=True)
class Arrival:
    """Notice that a consumer has something to read, or has failed.

    Args:
        source: consumer of the partition, whose `take` handles the notice.
        consumer: consumer of the client library, which `source` may have replaced meanwhile.
        message: first message, an object of the client library; None: there is a `problem`, or the last read returned
            so many that more may be ready.
        problem: error of the client library, after which `take` replaces the consumer; "": none.
        at_once: the message was ready when it was requested, so others may follow it in the queue.
    """

    source: PartitionConsumer
    consumer: ClientConsumer
    message: Any = None
    problem: str = ""
    at_once: bool = False


class PartitionConsumer:
    """One consumer of one partition, or of a plain topic (one without partitions). The owner calls `open` once, and
    `check` all the time, which replaces the consumer if the client library does not reconnect within 7 s. Thread-safe,
    but `take` and `look` are for one thread.

    Args:
        subscriber: creates consumers of the client library.
        request: what to read; its `topic` is the name of the partition.
        inbox: gets an Arrival when there is something to read, or an error. The thread that reads the inbox passes it
            to `take`.
        sink: is notified when the broker will redeliver unacknowledged messages, gets the results of acknowledgements
            if the request `confirms`, and the error of a thread that failed.

    `number`: number of the partition as a text, "-1" (PLAIN) of a plain topic. Negative acknowledgements and the client
    library's own dead letters are not used, because neither is safe.
    """

    def __init__(
        self, subscriber: Subscriber, request: LaneRequest, inbox: SimpleQueue[Arrival | None], sink: LaneSink
    ) -> None:
        self.number = str(partition_number(request.topic))
        self.permits = ConsumerPermits(request.queue)  # of this consumer
        self.refused = ""  # why it will never open
        self.first_try = threading.Event()  # it was opened or refused, or the start goes on without it
        self._subscriber, self._request, self._inbox, self._sink = subscriber, request, inbox, sink
        self._lock = threading.Lock()  # around changes of the consumer
        # Nothing is delivered while a lost connection is told of: it would count as lost, and not come again.
        self._telling = threading.Lock()
        self._consumer: ClientConsumer | None = None  # None while one is being opened
        self._connection = PartitionConnection(request.topic)
        self._acks = Acknowledgements(subscriber.results if request.confirms else None, sink)
        self._stopped = threading.Event()
        self._opening: threading.Thread | None = None

    @property
    def topic(self) -> str:
        """Topic name of the partition."""
        return self._request.topic

    @property
    def connected(self) -> bool:
        """True if messages can come now."""
        return self._connection.connected

    @property
    def native_reader(self) -> Reader | None:
        """Object by which the native border (the C++ module) reads this consumer; None while the consumer is not
        connected, and if it is read without the border.
        """
        consumer = self._consumer
        return consumer.reader if consumer is not None and self._connection.connected else None

    @property
    def shown(self) -> str:
        """Text for people: the partition's name, followed by a reason if it is not open because another reader has the
        partition alone, or no more consumers are allowed.
        """
        return self._connection.shown

    @property
    def connected_since(self) -> float:
        """Time at which the connection was made, by time.monotonic(); infinite while the consumer is not connected."""
        return self._connection.since

    def open(self) -> None:
        """Begins to subscribe on a new thread; returns at once. The thread tries until it succeeds or `stop` is called,
        and also ends at a refusal that waiting does not change (such as a missing permission), but only if `first_try`
        is not set yet: `refused` then has the reason as text. An error that is not pulsar.PulsarException ends the
        thread, too, and goes to the sink (`fail`).

        The event `first_try` is set by a success, by such a refusal, by `wait_no_longer`, and if another reader has the
        partition alone and the request allows that (`shares`): then the tries go on.
        """
        self._opening = begin(self._keep_opening, "kodo-subscribe", self._sink.fail)

    def wait_no_longer(self) -> None:
        """Sets `first_try`, so that the start of the worker goes on without this partition: from now on a refusal only
        leads to a log entry and the next try. No effect if the consumer is open or `refused` is set.
        """
        with self._lock:
            self.first_try.set()

    def acknowledge(self, tokens: Sequence[object], tickets: Sequence[int] = ()) -> None:
        """Queues acknowledgements; while no consumer is open they are kept for the next one, which never comes after
        `stop`. `tickets`: one for each token if the request `confirms`, else none. Never waits, never raises.
        """
        with self._lock:
            consumer = self._consumer
            if consumer is None:
                self._acks.keep(tokens, tickets)
                return
        self._acks.send(consumer, tokens, tickets)

    def check(self, now: float) -> None:
        """Compares the noted state with the connection; does not wait. A new loss is reported to the sink, unless
        `stop` was called. The consumer is replaced (`renew`) if the loss was noted more than 7 s ago or if its permits
        are used up. Does nothing while no consumer is open, or while another thread delivers messages or reports a
        loss. The caller must call it more often than a reconnection takes, or a short loss is not noticed. `now`:
        time.monotonic().
        """
        consumer = self._consumer
        if consumer is None or not self._telling.acquire(blocking=False):
            return
        try:
            connected = consumer.is_connected()
            if not connected and self._connection.connected:
                self._connection.lose(now)
                if not self._stopped.is_set():
                    self._sink.on_disconnect(self.number)
        finally:
            self._telling.release()
        if connected:
            self._connection.make(now, late=self.first_try.is_set())
            if self.permits.used_up(now):
                self.renew("encrypted batches have used up what the broker may send")
        elif self._connection.lost_for(now) > _GIVE_UP:
            self.renew(f"no connection for {_GIVE_UP:.0f} s")

    def renew(self, problem: str, away: float = 0.0) -> None:
        """Closes the consumer, notifies the sink that the broker will redeliver every unacknowledged message, waits
        `away` seconds, and tries to subscribe until it succeeds (not before `join`, if it was left) or `stop` is
        called: all on a thread; returns at once. While no consumer is open, only the sink is notified, by this call. No
        effect after `stop`: an open consumer stays, so that acknowledging goes on. `problem`: reason for the log; "":
        nothing is logged.
        """
        with self._lock:
            if self._stopped.is_set():
                return
            old = self._take_consumer()
            self.permits.waits_since = None
            self._connection.lose(time.monotonic())
            if old is not None:  # within the lock, so that `close` joins this thread
                self._opening = begin(partial(self._replace, old, away), "kodo-subscribe", self._sink.fail)
        if old is not None:
            if problem:
                self._connection.tell(problem)
        elif not self._stopped.is_set():  # it was left before, and nothing came since
            with self._telling:
                if self._consumer is None:
                    self._sink.on_disconnect(self.number)
                    return
            self.renew(problem, away)

    def leave(self) -> None:
        """Closes the consumer and opens none until `join`; returns at once. The sink is notified that the broker will
        redeliver every unacknowledged message. After `stop` an open consumer stays, and the sink is not notified.
        """
        self._connection.wanted.clear()
        log.info("%s: its lane is paused: left until that ends", self.topic)
        self.renew("")

    def join(self) -> None:
        """Lets the consumer be opened again after `leave`; returns at once."""
        self._connection.wanted.set()

    def take(self, arrival: Arrival, deliver: Callable[[list[Delivery]], object]) -> None:
        """Handles an arrival: reads messages that are ready, perhaps not all of them, calls `deliver` with their
        deliveries if there are any, and requests the next message. If it has read 32 or more, it puts another Arrival
        into the inbox instead. Replaces the consumer (`renew`) if the arrival has a problem or the read raises
        pulsar.PulsarException.

        An arrival at a replaced consumer is dropped, and so are messages if the connection is lost meanwhile: the
        broker redelivers them to any worker.
        """
        consumer = arrival.consumer
        if consumer is not self._consumer:
            return
        if arrival.problem:
            self.renew(arrival.problem)
            return
        try:
            found = consumer.read(arrival.message, at_once=arrival.at_once)
            if arrival.message is not None and not arrival.at_once:
                found = consumer.silent.sort(found)
        except pulsar.PulsarException as problem:
            if consumer is self._consumer:
                self.renew(str(problem))
            return
        self._hand_over(consumer, found, deliver)
        if len(found.deliveries) >= MUCH:
            self._inbox.put(Arrival(self, consumer))
        else:
            self._listen(consumer)

    def look(self, deliver: Callable[[list[Delivery]], object]) -> None:
        """Looks for a silent arrival, a message that stays in the client library's queue because the library missed the
        callback, and delivers it, where order matters only in the next call
        (kodo_consumer.adapters.pulsar.silent_arrivals). Does nothing until the consumer has waited for a callback for
        0.5 s. Errors of the client library are only logged (as debug).
        """
        consumer, since = self._consumer, self.permits.waits_since
        if consumer is None or since is None or time.monotonic() - since < LOOK_EVERY:
            return
        try:
            self._hand_over(consumer, consumer.silent.look(), deliver)
            self.permits.empty_at = max(self.permits.empty_at, consumer.silent.empty_at)
        except pulsar.PulsarException as problem:  # `check` sees what has become of it
            log.debug("%s: %s", self.topic, problem)

    def _hand_over(
        self, consumer: ClientConsumer, found: ReadResult, deliver: Callable[[list[Delivery]], object]
    ) -> None:
        with self._telling:
            if found.deliveries and consumer is self._consumer and consumer.is_connected():
                self.permits.unreturned += found.unreturned
                deliver(found.deliveries)

    def stop(self) -> None:
        """Ends attempts to open the consumer, and reports no more losses; an open consumer stays, so that acknowledging
        goes on, and is not replaced.
        """
        with self._lock:
            self._stopped.set()

    def close(self) -> None:
        """Closes the consumer, which sends its queued acknowledgements; acknowledgements that are kept for a next
        consumer are dropped. Waits as long as the client library takes, also for a consumer that is being opened,
        because the process must not end meanwhile.
        """
        self._stopped.set()
        with self._lock:
            consumer = self._take_consumer()
        if consumer is not None:
            consumer.close()
        if self._opening is not None:
            self._opening.join()

    def _take_consumer(self) -> ClientConsumer | None:
        taken, self._consumer = self._consumer, None
        return taken

    # ---- reading

    def _listen(self, consumer: ClientConsumer) -> None:
        """Requests a call for the next message, which may be there already."""
        asking, permits = threading.get_ident(), self.permits
        permits.waits_since = now = time.monotonic()

        def came(result: Any, raw: Any) -> None:
            """Puts the arrival into the inbox. Runs on a thread of the client, or within the call that requested the
            message.
            """
            permits.waits_since = None
            at_once = threading.get_ident() == asking
            if result == pulsar.Result.Ok:
                self._inbox.put(Arrival(self, consumer, raw, at_once=at_once))
            else:
                self._inbox.put(Arrival(self, consumer, problem=str(result)))

        consumer.listen(came)
        permits.empty_at = now if self.permits.waits_since is not None else permits.empty_at

    # ---- opening

    def _keep_opening(self) -> None:
        again = _AGAIN
        while not self._stopped.is_set():
            if not self._connection.wanted.wait(_AGAIN):
                continue
            try:
                consumer = self._subscriber.subscribe(self._request)
            except _FOR_GOOD as problem:
                if self._request.shares and isinstance(problem, pulsar.ConsumerBusy):
                    self._connection.tell_taken()
                    self.first_try.set()  # a start goes on without it
                    self._stopped.wait(again)
                    again = min(2 * again, _MOST_AGAIN)
                    continue
                with self._lock:
                    if not self.first_try.is_set():
                        self.refused = consumer_refusal(problem)
                        self.first_try.set()
                        return
                self._connection.tell(str(problem))
            except pulsar.PulsarException as problem:
                self._connection.tell(str(problem))
            else:
                if self._accept_consumer(consumer):
                    return
            self._stopped.wait(_AGAIN)

    def _accept_consumer(self, consumer: ClientConsumer) -> bool:
        """True if it is read from now on; False: the consumer is closed, as nothing of the partition is wanted any more."""
        with self._lock:
            over = self._stopped.is_set() or not self._connection.wanted.is_set()
            if not over:
                self._consumer = consumer
                self.permits = ConsumerPermits(self._request.queue, time.monotonic())
                kept = self._acks.take_kept()
        if over:
            consumer.close()
            return False
        self._connection.make(time.monotonic(), late=self.first_try.is_set())
        for tokens, tickets in kept:
            self._acks.send(consumer, tokens, tickets)
        self.first_try.set()
        self._listen(consumer)
        return True

    def _replace(self, old: ClientConsumer, away: float) -> None:
        """Replaces a consumer by a new one after `away` seconds. The old one has a short time to close and is left behind
        then: where the broker is silent, closing takes as long as the client waits.
        """
        leave({self.topic: old.close}, _CLOSE_WITHIN)
        with self._telling:
            self._sink.on_disconnect(self.number)
        self._stopped.wait(away)
        self._keep_opening()
