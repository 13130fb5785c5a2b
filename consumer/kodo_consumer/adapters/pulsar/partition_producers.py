"""The producers of one client, one for each partition, and the thread that sends by them.

A partition whose broker is away holds up what is sent to it, and nothing else: each has a producer and a queue of its
own, a producer is opened beside the sending, and no call of the client's blocks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pulsar

from kodo_consumer.adapters.pulsar.client_close import close_client
from kodo_consumer.adapters.pulsar.pending_sends import PendingSends
from kodo_consumer.adapters.pulsar.producer_openings import TRY_WITHIN, Openings, close
from kodo_consumer.adapters.pulsar.receipts import BROKEN, NEVER, ReceiptPosition, raised
from kodo_consumer.adapters.pulsar.schema_passthrough import Key, SchemaTopics
from kodo_consumer.core.broker import TOO_BIG, Confirmed, Receipt, Rejected, Unconfirmed
from kodo_consumer.core.envelope import Outgoing, size_on_the_way
from kodo_consumer.core.publishing import SEND_TIMEOUT
from kodo_consumer.core.sequences.sequencer import Router
from kodo_consumer.runtime.threads import Broke, begin, log_end
from kodoctl.topology.names import whole_topic

log = logging.getLogger("kodo.consumer")
_BATCH_BYTES: Final = 1 << 20
_BATCH_DELAY: Final = 5  # ms
_LEAVE_WITHIN: Final = 5.0  # seconds that receipts are waited for at the end; who needs more waits before
_CREATE_AGAIN: Final = 5.0  # seconds before a topic that could not be opened is tried again
_COUNT_AGAIN: Final = 60.0  # seconds before a topic is asked again how many partitions it has
_RESENDS: Final = 2  # times that a message is sent again at once because the broker called it a duplicate
_ANY_SIZE: Final = 1 << 62
_BATCHING: Final = {True: pulsar.BatchingType.KeyBased, False: pulsar.BatchingType.Default}


@dataclass(slots=True)
class _Topic:
    """Partitions of a topic, as they were at the moment `asked`."""

    partitions: Sequence[str]
    router: Router
    asked: float


@dataclass(frozen=True, kw_only=True)
class ProducerOptions:
    """What the topics ask of their producers. `by_key`: topics whose batches hold one key each. `outlets`: which have
    schemas.

    `largest`: what topics take at most, in bytes. More than that, a message or a whole batch, has the broker cut the
    connection and the client send it again, for ever and with everything else behind it: such topics get no batches.

    `local`: messages stay in this cluster where a topic is replicated. A worker's do: the workers of each cluster
    handle what was sent to any of them, and move it by themselves.
    """

    by_key: Collection[str] = ()
    outlets: SchemaTopics | None = None
    largest: Mapping[str, int] = field(default_factory=dict)
    local: bool = False


class Producers:
    """Sends messages by one client. `before`: what the thread does before it sends anything, where this client takes
    the place of one that had no receipts: then of each producer's messages one is sent first, and the others when it
    is stored (kodo_consumer.adapters.pulsar.send_breakers).

    Numbers and names: the broker chooses a producer's name, which nobody had before, and numbers begin at 2. Without
    a first number of our own the client takes it from the broker once more with each connection until a receipt has
    come, and so gives the numbers of messages on the way to later ones: where a topic deduplicates, the broker drops
    these.
    """

    def __init__(
        self,
        client: Any,
        on_receipt: Callable[[int, Receipt], None],
        options: ProducerOptions,
        on_broken: Broke,
        before: Callable[[], None] | None = None,
    ) -> None:
        self._client, self._on_receipt, self._options, self._before = client, on_receipt, options, before
        self._topics: dict[str, _Topic] = {}
        self._producers: dict[Key, Any] = {}
        self._broken: set[Key] = set()
        self._not_before: dict[Key | str, float] = {}
        self._waiting: deque[tuple[int, Outgoing]] = deque()
        self._again: deque[tuple[int, Outgoing]] = deque()  # before those that wait
        self._to_open: deque[Key] = deque()
        self._resent: dict[int, int] = {}  # by ticket
        self._some, self._idle = threading.Event(), threading.Event()
        self._pending = PendingSends(
            self._producers, self._close, self._try, self._answer, self._some.set, cautious=before is not None
        )
        self._over = self._is_dropped = False
        self._openings: Openings[Key] = Openings(self._create, self._some.set, on_broken)
        self._counts: Openings[str] = Openings(self._partitions, self._some.set, on_broken)
        self._thread = begin(self._work, "kodo-publish", on_broken, over=lambda: self._over)

    def open(self, topic: str) -> None:
        """Makes sure that a topic can be sent to, before anything is sent: one of its partitions says so, the others are opened
        beside. Raises pulsar.PulsarException, ClusterError.
        """
        partitions = self._partitions(topic)
        self._learn(topic, partitions)
        first, *others = (self._key(partition, "") for partition in partitions)
        self._producers[first] = self._create(first)
        self._to_open.extend(others)
        self._some.set()

    def send(self, messages: Sequence[tuple[int, Outgoing]]) -> None:
        """Queues messages with their tickets for the publishing thread. Thread-safe, never waits, never raises."""
        self._waiting.extend(messages)
        self._some.set()

    def close(self) -> None:
        """Sends what is queued, waits a while for receipts, and closes the client. What has none by then is given up."""
        self._over = True
        self._some.set()
        latest = time.monotonic() + _LEAVE_WITHIN
        self._thread.join(_LEAVE_WITHIN)
        if self._pending:
            self._idle.wait(max(0.0, latest - time.monotonic()))
        self.abandon()

    def abandon(self) -> None:
        """Closes the client at once; it and we forget what is queued or has no receipt: another client sends it."""
        self._over = self._is_dropped = True
        self._waiting.clear()
        self._again.clear()
        self._openings.forget()
        self._counts.forget()
        self._some.set()
        close_client(self._client, "a publisher")

    # ---- what is asked of the broker, beside the sending

    def _partitions(self, topic: str) -> Sequence[str]:
        if whole_topic(topic) != topic:
            return [topic]
        found: list[str] = self._client.get_topic_partitions(topic)
        return found

    def _learn(self, topic: str, partitions: Sequence[str]) -> None:
        """A topic may get more partitions, never fewer."""
        known = self._topics.get(topic)
        if known is None:
            asked = time.monotonic() if whole_topic(topic) == topic else float("inf")  # a partition is one for ever
            self._topics[topic] = _Topic(partitions, Router(len(partitions)), asked)
        elif len(partitions) > len(known.partitions):
            known.partitions, known.router.partitions = partitions, len(partitions)

    def _create(self, key: Key) -> Any:
        options, whole = self._options, whole_topic(key.topic)
        schema = options.outlets.schema(key) if options.outlets else None
        return self._client.create_producer(
            key.topic,
            **({} if schema is None else {"schema": schema}),
            initial_sequence_id=1,  # the library takes 0 for none
            send_timeout_millis=int(SEND_TIMEOUT * 1000),
            max_pending_messages=0,  # any number: who sends has a limit of its own, and a full queue would hold up others
            batching_enabled=not key.delayed and whole not in options.largest,
            batching_max_messages=1000,
            batching_max_allowed_size_in_bytes=_BATCH_BYTES,
            batching_max_publish_delay_ms=_BATCH_DELAY,
            batching_type=_BATCHING[whole in options.by_key],
        )

    def _take_answers(self) -> None:
        """What waited is sent before anything else of its topic, or has the receipt that there is no producer."""
        for topic, partitions, problem, messages in self._counts.ended():
            if problem is None:
                self._learn(topic, partitions)
            elif topic not in self._topics:
                self._not_before[topic] = time.monotonic() + _CREATE_AGAIN
            self._go_on(messages, None if topic in self._topics else problem)
        for key, producer, problem, messages in self._openings.ended():
            if problem is not None:
                self._not_before[key] = time.monotonic() + _CREATE_AGAIN
            elif key in self._producers:  # a try that had been given up, after the one that followed it
                begin(partial(close, producer), "kodo-publish-closing", log_end)
            else:
                self._producers[key] = producer
                self._not_before.pop(key, None)
            self._go_on(messages, problem, key)

    def _go_on(
        self, messages: Collection[tuple[int, Outgoing]], problem: Exception | None, key: Key | None = None
    ) -> None:
        for ticket, message in () if self._is_dropped else messages:
            if problem is None:
                self._try(ticket, message, key)
                continue
            match raised(problem):
                case Unconfirmed(reason) if key is not None and self._pending.takes_back(ticket, message, key, reason):
                    continue
                case receipt:
                    self._answer(ticket, receipt)

    # ---- the thread that sends

    def _work(self) -> None:
        if self._before is not None:
            self._before()
        while True:
            self._some.wait(_soonest(self._openings.next_end, self._counts.next_end, self._pending.next_look))
            self._some.clear()
            self._look()
            while self._to_open:
                self._openings.open(self._to_open.popleft())
            self._take_answers()
            while waiting := self._again or self._waiting:
                try:
                    ticket, message = waiting.popleft()
                except IndexError:  # dropped meanwhile
                    break
                self._try(ticket, message)
                if self._openings.any_result or self._counts.any_result:
                    self._take_answers()
                self._look()
            if self._over and not (self._openings.any_message or self._counts.any_message):
                return

    def _look(self) -> None:
        if not self._is_dropped:  # a client that is given up sends nothing
            self._pending.look()

    def _try(self, ticket: int, message: Outgoing, key: Key | None = None) -> None:
        try:
            key = key or self._route(ticket, message)
            if key is not None:
                self._send(ticket, message, key)
        except Exception as problem:  # noqa: BLE001  # also of a message that the client cannot even build
            self._answer(ticket, raised(problem))

    def _route(self, ticket: int, message: Outgoing) -> Key | None:
        """The producer for a message; None: it waits for its topic's partitions, or has its receipt."""
        topic, now = message.topic, time.monotonic()
        known = self._topics.get(topic)
        if known is None:
            if topic in self._counts or not self._rests(topic, ticket, now):
                self._counts.add(topic, ticket, message)
            return None
        if now - known.asked >= _COUNT_AGAIN:
            known.asked = now
            self._counts.open(topic)
        partition = known.partitions[known.router.choose(message.key, now)]
        key = self._key(partition, message.schema, delayed=message.deliver_at is not None)
        return key._replace(again=True) if ticket in self._resent else key

    def _key(self, partition: str, version: str, *, delayed: bool = False) -> Key:
        outlets = self._options.outlets
        delayed = delayed and whole_topic(partition) not in self._options.largest
        return Key(partition, None if outlets is None else outlets.version(partition, version), delayed)

    def _rests(self, what: Key | str, ticket: int, now: float) -> bool:
        """Whether a message has the receipt that its topic could not be opened a moment ago."""
        if not self._not_before or self._not_before.get(what, 0.0) <= now:
            return False
        self._answer(ticket, Unconfirmed("its producer could not be opened"))
        return True

    def _send(self, ticket: int, message: Outgoing, key: Key) -> None:
        if not self._pending.admits(ticket, message, key):
            return
        if key in self._openings:
            self._openings.add(key, ticket, message)
            return
        tries = self._pending.tries(ticket, key)
        if self._not_before and not tries and self._rests(key, ticket, time.monotonic()):
            return
        largest = self._options.largest
        if largest and size_on_the_way(message) > largest.get(whole_topic(message.topic), _ANY_SIZE):
            self._answer(ticket, Rejected(TOO_BIG))
            return
        producer = self._producers.get(key)
        if producer is None or key in self._broken:
            self._broken.discard(key)
            self._producers.pop(key, None)
            self._openings.add(key, ticket, message, producer, TRY_WITHIN if tries else None)
            return
        self._pending.add(ticket, message, key)
        producer.send_async(
            message.payload,
            partial(self._sent, ticket, message, key, producer),
            properties=dict(message.properties),
            partition_key=message.key or None,
            ordering_key=message.ordering_key or None,
            event_timestamp=message.event_time or None,
            deliver_at=message.deliver_at,
            disable_replication=self._options.local,
        )

    def _close(self, key: Key) -> None:
        """Closes a producer, which gives back what it has."""
        begin(partial(close, self._producers.pop(key)), "kodo-publish-closing", log_end)

    # ---- receipts, on the client's thread: an exception that escaped would end the process

    def _sent(self, ticket: int, message: Outgoing, key: Key, producer: Any, result: Any, position: Any) -> None:
        """What a closed producer still had to send says nothing of the one in its place: that would be closed as well, with all it
        has to send, and so on for ever.
        """
        try:
            if result == pulsar.Result.Ok and position.ledger_id() >= 0:
                self._pending.stored(ticket, key)
                self._answer(ticket, Confirmed(ReceiptPosition(key.topic, position)))
            elif result == pulsar.Result.Ok:
                self._pending.forget(ticket)
                self._unplaced(ticket, message, key, producer)
            elif result in NEVER:
                self._answer(ticket, Rejected(NEVER[result]))
            else:
                if result in BROKEN:
                    self._renounce(key, producer)
                self._pending.lost(ticket, result.name)
        except BaseException:
            log.exception("receipt lost")
        if self._over and not self._pending:
            self._idle.set()

    def _answer(self, ticket: int, receipt: Receipt) -> None:
        self._pending.forget(ticket)
        if self._resent:
            self._resent.pop(ticket, None)
        self._on_receipt(ticket, receipt)

    def _renounce(self, key: Key, producer: Any) -> None:
        if self._producers.get(key) is producer:
            self._broken.add(key)

    def _unplaced(self, ticket: int, message: Outgoing, key: Key, producer: Any) -> None:
        """The broker says Ok and names no place: it took the message for a duplicate, by its number. It may be
        stored, from before the connection broke, or may not be: behind a message that was refused, a number is taken.
        Another producer, of another name, sends it again, so that there is a place, or no receipt.
        """
        if key.again:
            self._renounce(key, producer)
        times = self._resent.get(ticket, 0)
        if self._over or times >= _RESENDS:
            self._answer(ticket, Unconfirmed("the broker calls it a duplicate and does not say where it is stored"))
            return
        if not times:
            log.info("%s: the broker calls a message a duplicate: it is sent again", key.topic)
        self._resent[ticket] = times + 1
        self._again.append((ticket, message))
        self._some.set()


def _soonest(*times: float | None) -> float | None:
    return min((seconds for seconds in times if seconds is not None), default=None)
