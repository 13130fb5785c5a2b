"""The producers of one client, one for each partition, and the thread that sends by them.

A partition whose broker is away holds up what is sent to it, and nothing else: each has a producer and a queue of its
own, a producer is opened beside the sending, and no call of the client's blocks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pulsar

from kodo_consumer.adapters.pulsar.pending_sends import PendingSends
from kodo_consumer.adapters.pulsar.producer_openings import TRY_WITHIN, Openings, close
from kodo_consumer.adapters.pulsar.receipts import BROKEN, NEVER, ReceiptPosition, raised
from kodo_consumer.adapters.pulsar.send_calls import send_calls
from kodo_consumer.adapters.pulsar.send_queue import SendQueue
from kodo_consumer.core.broker import TOO_BIG, Confirmed, Receipt, Rejected, Unconfirmed
from kodo_consumer.core.envelope import Outgoing, wire_size
from kodo_consumer.core.sequences.sequencer import Router
from kodo_consumer.runtime.threads import Broke, begin, log_end
from kodoctl.topology.names import whole_topic

if TYPE_CHECKING:
    from kodo_consumer.adapters.pulsar.producer_factory import ProducerFactory
    from kodo_consumer.adapters.pulsar.schema_passthrough import Key
    from kodo_consumer.adapters.pulsar.send_calls import NativeResults

log = logging.getLogger("kodo.consumer")
_LEAVE_WITHIN: Final = 5.0  # seconds that receipts are waited for at the end; who needs more waits before
_COUNT_AGAIN: Final = 60.0  # seconds before a topic is asked again how many partitions it has
_RESENDS: Final = 2  # times that a message is sent again at once because the broker called it a duplicate
_ANY_SIZE: Final = 1 << 62
_NOT_OPENED: Final = Unconfirmed("its producer could not be opened")


@dataclass(slots=True)
class _Topic:
    """Partitions of a topic, as they were at the moment `asked`."""

    partitions: Sequence[str]
    router: Router
    asked: float


class _OpenProducers(dict["Key", Any]):
    """The producers that are open. `broken`: those among them that may never work again."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[Key] = set()

    def renounce(self, key: Key, producer: Any) -> None:
        """A producer may never work again: a new one takes its place, if it has not already."""
        if self.get(key) is producer:
            self.broken.add(key)


class Producers:
    """Sends messages by one client. `before`: what the thread does before it sends anything, where this client takes
    the place of one that had no receipts: then of each producer's messages one is sent first, and the others when it
    is stored (kodo_consumer.adapters.pulsar.send_breakers). `results`: of the native border, None: without it.
    """

    def __init__(
        self,
        factory: ProducerFactory,
        on_receipt: Callable[[int, Receipt], None],
        on_broken: Broke,
        before: Callable[[], None] | None = None,
        results: NativeResults | None = None,
    ) -> None:
        self._factory, self._on_receipt = factory, on_receipt
        self._topics: dict[str, _Topic] = {}
        self._producers = _OpenProducers()
        self._calls = send_calls(self._sent, self._failed, results, local=factory.options.local)
        self._queue = SendQueue()
        self._to_open: deque[Key] = deque()
        self._some, self._idle = threading.Event(), threading.Event()
        self._pending = PendingSends(
            self._producers, self._close, self._try, self._answer, self._some.set, cautious=before is not None
        )
        self._over = self._is_dropped = False
        self._openings: Openings[Key] = Openings(factory.create, self._some.set, on_broken)
        self._counts: Openings[str] = Openings(factory.partitions, self._some.set, on_broken)
        self._thread = begin(partial(self._work, before), "kodo-publish", on_broken, over=lambda: self._over)

    def open(self, topic: str) -> None:
        """Makes sure that a topic can be sent to, before anything is sent: one of its partitions says so, the others are opened
        beside. Raises pulsar.PulsarException, ClusterError.
        """
        factory = self._factory
        partitions = factory.partitions(topic)
        self._learn(topic, partitions)
        first, *others = (factory.key(partition, "") for partition in partitions)
        self._producers[first] = factory.create(first)
        self._to_open.extend(others)
        self._some.set()

    def send(self, messages: Sequence[tuple[int, Outgoing]]) -> None:
        """Queues messages with their tickets for the publishing thread. Thread-safe, never waits, never raises."""
        self._queue.extend(messages)
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
        self._queue.clear()
        self._openings.forget()
        self._counts.forget()
        self._some.set()
        self._factory.close()

    # ---- what is asked of the broker, beside the sending

    def _learn(self, topic: str, partitions: Sequence[str]) -> None:
        """A topic may get more partitions, never fewer."""
        known = self._topics.get(topic)
        if known is None:
            asked = time.monotonic() if whole_topic(topic) == topic else float("inf")  # a partition is one for ever
            self._topics[topic] = _Topic(partitions, Router(len(partitions)), asked)
        elif len(partitions) > len(known.partitions):
            known.partitions, known.router.partitions = partitions, len(partitions)

    def _take_answers(self) -> None:
        """Takes the results of openings. Messages that waited are sent before any other of their topic, or get the receipt
        that there is no producer.
        """
        for topic, partitions, problem, messages in self._counts.ended():
            if problem is None:
                self._learn(topic, partitions)
            self._go_on(messages, None if topic in self._topics else problem)
        for key, producer, problem, messages in self._openings.ended():
            if (
                problem is None and key in self._producers
            ):  # a try that had been given up, after the one that followed it
                begin(partial(close, producer), "kodo-publish-closing", log_end)
            elif problem is None:
                self._producers[key] = producer
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

    def _work(self, before: Callable[[], None] | None) -> None:
        if before is not None:
            before()
        while True:
            self._some.wait(_soonest(self._openings.next_end, self._counts.next_end, self._pending.next_look))
            self._some.clear()
            self._look()
            while self._to_open:
                self._openings.open(self._to_open.popleft())
            self._take_answers()
            while (waiting := self._queue.next()) is not None:
                self._try(*waiting)
                if self._openings.any_result or self._counts.any_result:
                    self._take_answers()
                self._look()
            if not self._is_dropped:
                self._calls.flush()
            if self._over and not (self._openings.any_message or self._counts.any_message):
                self._calls.close()
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
            if topic not in self._counts and self._counts.rests(topic, now):
                self._answer(ticket, _NOT_OPENED)
            else:
                self._counts.add(topic, ticket, message)
            return None
        if now - known.asked >= _COUNT_AGAIN:
            known.asked = now
            self._counts.open(topic)
        partition = known.partitions[known.router.choose(message.key, now)]
        key = self._factory.key(partition, message.schema, delayed=message.deliver_at is not None)
        return key._replace(again=True) if ticket in self._queue.resent else key

    def _send(self, ticket: int, message: Outgoing, key: Key) -> None:
        if not self._pending.admits(ticket, message, key):
            return
        if key in self._openings:
            self._openings.add(key, ticket, message)
            return
        tries = self._pending.tries(ticket, key)
        if not tries and self._openings.any_rest and self._openings.rests(key, time.monotonic()):
            self._answer(ticket, _NOT_OPENED)
            return
        options = self._factory.options
        largest = options.largest
        if largest and wire_size(message) > largest.get(whole_topic(message.topic), _ANY_SIZE):
            self._answer(ticket, Rejected(TOO_BIG))
            return
        producer = self._producers.get(key)
        if producer is None or key in self._producers.broken:
            self._producers.broken.discard(key)
            self._producers.pop(key, None)
            self._openings.add(key, ticket, message, producer, TRY_WITHIN if tries else None)
            return
        self._pending.add(ticket, message, key)
        self._calls.send(ticket, message, key, producer)

    def _failed(self, ticket: int, problem: Exception) -> None:
        self._answer(ticket, raised(problem))

    def _close(self, key: Key) -> None:
        """Closes a producer, which gives back what it has."""
        begin(partial(close, self._producers.pop(key)), "kodo-publish-closing", log_end)

    # ---- receipts, on the client's thread: an exception that escaped would end the process

    def _sent(self, ticket: int, key: Key, producer: Any, result: Any, position: Any) -> None:
        """Takes a result of the client's. One of a closed producer is no evidence against the producer in its place, which
        would be closed as well, with all it has to send, and so on for ever.
        """
        try:
            if result == pulsar.Result.Ok and position.ledger_id() >= 0:
                self._pending.stored(ticket, key)
                self._answer(ticket, Confirmed(ReceiptPosition(key.topic, position)))
            elif result == pulsar.Result.Ok:
                self._unplaced(ticket, self._pending.forget(ticket), key, producer)
            elif result in NEVER:
                self._answer(ticket, Rejected(NEVER[result]))
            else:
                if result in BROKEN:
                    self._producers.renounce(key, producer)
                self._pending.lost(ticket, result.name)
        except BaseException:
            log.exception("receipt lost")
        if self._over and not self._pending:
            self._idle.set()

    def _answer(self, ticket: int, receipt: Receipt) -> None:
        self._pending.forget(ticket)
        self._queue.forget(ticket)
        self._on_receipt(ticket, receipt)

    def _unplaced(self, ticket: int, message: Outgoing | None, key: Key, producer: Any) -> None:
        """The broker says Ok and names no place: it took the message for a duplicate, by its number. It may be
        stored, from before the connection broke, or may not be: behind a message that was refused, a number is taken.
        Another producer, of another name, sends it again, so that there is a place, or no receipt.
        """
        if key.again:
            self._producers.renounce(key, producer)
        times = self._queue.resent.get(ticket, 0)
        if message is None or self._over or times >= _RESENDS:
            self._answer(ticket, Unconfirmed("the broker calls it a duplicate and does not say where it is stored"))
            return
        if not times:
            log.info("%s: the broker calls a message a duplicate: it is sent again", key.topic)
        self._queue.again(ticket, message)
        self._some.set()


def _soonest(*times: float | None) -> float | None:
    return min((seconds for seconds in times if seconds is not None), default=None)
