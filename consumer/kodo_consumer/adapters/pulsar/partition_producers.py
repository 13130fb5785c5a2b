"""The producers of one client, one for each partition, and the thread that sends by them.

A partition whose broker is away holds up what is sent to it, and nothing else: each has a producer and a queue of its
own, a producer is opened beside the sending, and no call of the client's blocks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pulsar

from kodo_consumer.adapters.pulsar.pending_sends import PendingSends
from kodo_consumer.adapters.pulsar.producer_openings import TRY_WITHIN, Openings, close
from kodo_consumer.adapters.pulsar.receipts import BROKEN, NEVER, ReceiptPosition, failure_receipt
from kodo_consumer.adapters.pulsar.send_calls import send_calls
from kodo_consumer.adapters.pulsar.topic_routes import TopicRoutes
from kodo_consumer.core.values.broker import TOO_BIG, Confirmed, Receipt, Rejected, Unconfirmed
from kodo_consumer.core.values.envelope import Outgoing, wire_size
from kodo_consumer.runtime.threads import Broke, begin, log_end
from kodoctl.protocol.compression import TOO_LARGE, algorithm_within, next_algorithm
from kodoctl.topology.names import whole_topic

if TYPE_CHECKING:
    from kodo_consumer.adapters.pulsar.producer_factory import ProducerFactory
    from kodo_consumer.adapters.pulsar.schema_passthrough import Key
    from kodo_consumer.adapters.pulsar.send_calls import NativeResults
    from kodo_consumer.core.values.broker import OnReceipts
    from kodo_consumer.core.values.envelope import Outgoing

log = logging.getLogger("kodo.consumer")
_LEAVE_WITHIN: Final = 5.0  # seconds that receipts are waited for at the end; who needs more waits before
_RESENDS: Final = 2  # times that a message is sent again at once because the broker called it a duplicate
_BUNDLE: Final = 1_024  # messages that are looked at together
_NOT_OPENED: Final = Unconfirmed("its producer could not be opened")


class _OpenProducers(dict["Key", Any]):
    """The producers that are open. `broken`: those among them that may never work again."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[Key] = set()

    def usable(self, key: Key) -> Any:
        """The producer, None where there is none that works."""
        return None if key in self.broken else self.get(key)

    def renounce(self, key: Key, producer: Any) -> None:
        """A producer may never work again: a new one takes its place, if it has not already."""
        if self.get(key) is producer:
            self.broken.add(key)


class Producers:
    """Sends messages by one client, on a thread of its own.

    Args:
        factory: creates the producers of the client.
        on_receipts: gets bundles of (ticket, receipt), on any thread.
        on_broken: called with the error of a thread that ends too early.
        before: called on the sending thread before it sends anything, such as to close an earlier client that hangs. If
            it is given, each producer first sends one message, and its further messages once that one is stored
            (kodo_consumer.adapters.pulsar.send_breakers).
        results: results of sends by the native border (the C++ module), which the owner passes on (`wait`, `take`), or
            no receipts come; None: sends go without the border.
    """

    def __init__(
        self,
        factory: ProducerFactory,
        on_receipts: OnReceipts,
        on_broken: Broke,
        before: Callable[[], None] | None = None,
        results: NativeResults | None = None,
    ) -> None:
        self._factory, self._on_receipts = factory, on_receipts
        self._routes = TopicRoutes(factory)
        self._producers = _OpenProducers()
        self._calls = send_calls(
            self._on_result, self._on_stored, self._on_refusal, results, local=factory.options.moves
        )
        self._queue = SendQueue()
        self._to_open: deque[Key] = deque()
        self._some, self._idle = threading.Event(), threading.Event()
        self._pending = PendingSends(
            self._producers, self._close, self._try, self._answer, self._some.set, lambda key: key in self._openings,
            ordered=factory.options.ordered, cautious=before is not None,
        )  # fmt: skip
        self._over = self._is_dropped = False
        self._openings: Openings[Key] = Openings(factory.create, self._some.set, on_broken)
        self._counts: Openings[str] = Openings(factory.partitions, self._some.set, on_broken)
        self._thread = begin(partial(self._work, before), "kodo-publish", on_broken, over=lambda: self._over)

    def open(self, topic: str) -> None:
        """Opens the producer of the first partition of a topic, for messages with neither schema version nor due time,
        and waits for it, so that a topic that cannot be sent to is noticed before anything is sent; the thread that
        sends then opens those of the other partitions. To be called before the first `send`. Raises
        pulsar.PulsarException, ClusterError.
        """
        factory = self._factory
        partitions = factory.partitions(topic)
        self._routes.learn(topic, partitions)
        first, *others = (factory.key(partition, "") for partition in partitions)
        self._producers[first] = factory.create(first)
        self._to_open.extend(others)
        self._some.set()

    def send(self, messages: Sequence[tuple[int, Outgoing]]) -> None:
        """Queues messages with their tickets for the thread that sends, which opens the producers that are missing.
        Thread-safe, never waits, never raises. After `close` or `abandon` the messages get no receipt.
        """
        self._queue.extend(messages)
        if not self._some.is_set():
            self._some.set()

    def close(self) -> None:
        """Tries to send the queued messages, waits 5 s at most in all until they have receipts, and closes the client,
        within 5 s more. Messages without a receipt by then are given up and get none. Does not wait for messages that
        are kept back because their producer stores nothing.
        """
        latest = time.monotonic() + _LEAVE_WITHIN
        self._over = True
        self._some.set()
        self._thread.join(_LEAVE_WITHIN)
        if self._pending:
            self._idle.wait(max(0.0, latest - time.monotonic()))
        self.abandon()

    def abandon(self) -> None:
        """Closes the client, within about 5 s, without waiting for receipts. Messages that are queued or have no
        receipt are dropped here and in the client: only a caller that keeps them can send them again. A few receipts
        may still come until the client is closed; the other messages get none.
        """
        self._over = self._is_dropped = True
        self._queue.clear()
        self._openings.forget()
        self._counts.forget()
        self._some.set()
        self._factory.close()

    # ---- what is asked of the broker, beside the sending

    def _take_answers(self) -> None:
        """Takes the results of openings. Messages that waited are sent before any other of their topic, or get the receipt
        that there is no producer.
        """
        for topic, partitions, problem, messages in self._counts.ended():
            if problem is None:
                self._routes.learn(topic, partitions)
            self._go_on(messages, None if topic in self._routes else problem)
        for key, producer, problem, messages in self._openings.ended():
            if problem is None and key in self._producers:  # it had been given up, and the one after it was not
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
            match failure_receipt(problem):
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
            over = self._over  # first: what was queued before the end is sent in this turn
            self._turn()
            if over and not (self._openings.any_message or self._counts.any_message):
                self._calls.close()
                return

    def _turn(self) -> None:
        while self._to_open:
            self._openings.open(self._to_open.popleft())
        self._take_answers()  # also of what is given up
        self._look()
        while waiting := self._queue.take(_BUNDLE):
            self._send_bundle(waiting)
            self._look()
        if not self._is_dropped:
            self._calls.flush()

    def _send_bundle(self, messages: list[tuple[int, Outgoing]]) -> None:
        """Sends messages, those of each partition in their order: together where nothing is in doubt, else one by one."""
        if not self._calls.in_bundles or self._queue.resent or self._queue.compressed or self._factory.options.largest:
            self._send_each(messages)
            return
        now = time.monotonic()
        by_key, others = self._routes.keys(messages, now)
        for key, its_own in by_key.items():
            producer = self._producers.usable(key) if key not in self._openings and self._pending.is_calm(key) else None
            if producer is None:
                self._send_each(its_own, key)
            elif not self._is_dropped:
                self._pending.add_all(its_own, key, now)
                self._calls.send_all(its_own, key, producer)
        self._send_each(others)

    def _send_each(self, messages: list[tuple[int, Outgoing]], key: Key | None = None) -> None:
        for ticket, message in messages:
            if not self._is_dropped:
                self._try(ticket, message, key)
            self._look()

    def _look(self) -> None:
        if self._openings.any_result or self._counts.any_result:
            self._take_answers()
        if not self._is_dropped:  # a client that is given up sends nothing
            self._pending.look()

    def _try(self, ticket: int, message: Outgoing, key: Key | None = None) -> None:
        try:
            key = key or self._route(ticket, message)
            if key is not None:
                self._send(ticket, message, key)
        except Exception as problem:  # noqa: BLE001  # also of a message that the client cannot even build
            self._answer(ticket, failure_receipt(problem))

    def _route(self, ticket: int, message: Outgoing) -> Key | None:
        """The producer for a message; None: it waits for its topic's partitions, or has its receipt."""
        topic, now = message.topic, time.monotonic()
        if topic not in self._routes:
            if topic not in self._counts and self._counts.rests(topic, now):
                self._answer(ticket, _NOT_OPENED)
            else:
                self._counts.add(topic, ticket, message)
            return None
        if self._routes.is_stale(topic, now):
            self._counts.open(topic)
        key = self._routes.key(message, now)
        algorithm = self._algorithm(ticket, message)
        if algorithm is None:
            self._answer(ticket, Rejected(self._too_big))
            return None
        if algorithm:
            key = key._replace(compression=algorithm)
        return key._replace(again=True) if ticket in self._queue.resent else key

    def _algorithm(self, ticket: int, message: Outgoing) -> str | None:
        """Algorithm for a message that is sent alone; "": it goes as its topic declares; None: it is too large."""
        options, topic = self._factory.options, message.topic
        if ticket in self._queue.compressed or not options.largest:
            return self._queue.compressed.get(ticket, "")
        largest = options.largest.get(whole_topic(topic))
        if largest is None:
            return ""
        return algorithm_within(
            options.declared(topic), message.payload, wire_size(message), largest, is_free=options.is_free(topic)
        )

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
        producer = self._producers.get(key)
        if producer is None or key in self._producers.broken:
            self._producers.broken.discard(key)
            self._producers.pop(key, None)
            self._openings.add(key, ticket, message, producer, TRY_WITHIN if tries else None)
            return
        self._pending.add(ticket, message, key)
        self._calls.send(ticket, message, key, producer)

    def _close(self, key: Key) -> None:
        """Closes a producer on a thread of its own; the client then reports the messages that the producer had."""
        begin(partial(close, self._producers.pop(key)), "kodo-publish-closing", log_end)

    # ---- receipts, on the client's thread: an exception that escaped would end the process

    def _on_result(self, ticket: int, key: Key, producer: Any, result: Any, position: Any) -> None:
        """Takes a result. One of a closed producer is no evidence against the one in its place, which would be closed, too."""
        try:
            if result == pulsar.Result.Ok and position is not None and position.ledger_id() >= 0:
                self._on_stored(key, [(ticket, position)])
            elif result == pulsar.Result.Ok:
                self._on_duplicate(ticket, self._pending.forget(ticket), key, producer)
            elif result in NEVER:
                self._on_refusal(ticket, Rejected(NEVER[result]), key)
            else:
                if result in BROKEN:
                    self._producers.renounce(key, producer)
                self._pending.lost(ticket, result.name)
        except BaseException:
            log.exception("receipt lost")
        if self._over and not self._pending:
            self._idle.set()

    def _on_stored(self, key: Key, stored: Sequence[tuple[int, Any]]) -> None:
        """Messages are stored, each at its position."""
        try:
            tickets = [ticket for ticket, _ in stored]
            self._pending.stored(tickets, key)
            self._queue.forget(tickets)
            self._on_receipts([(ticket, _confirmation(key.topic, position)) for ticket, position in stored])
        except BaseException:
            log.exception("receipts lost")
        if self._over and not self._pending:
            self._idle.set()

    def _answer(self, ticket: int, receipt: Receipt) -> None:
        """Passes a receipt on. A refusal of a message that the client has had before leaves open whether the earlier
        try stored it, unless it is too large for any.
        """
        match receipt:
            case Rejected(reason) if not reason.startswith(TOO_BIG) and (
                self._pending.was_sent(ticket) or ticket in self._queue.resent
            ):
                receipt = Unconfirmed(reason)
        self._pending.forget(ticket)
        self._queue.forget([ticket])
        self._on_receipts([(ticket, receipt)])

    def _on_refusal(self, ticket: int, receipt: Receipt, key: Key) -> None:
        """Takes a refusal. A message that is too large in its topic's own way goes alone, compressed, if it may."""
        options, topic = self._factory.options, key.topic
        if receipt == Rejected(TOO_BIG) and options.is_free(topic):
            tried = self._queue.compressed.get(ticket, key.compression)
            algorithm = next_algorithm(options.declared(topic), tried)
            message = self._pending.forget(ticket) if algorithm else None
            if message is not None and message.payload:
                log.info("%s: a message is too large as it is: it goes compressed", message.topic)
                self._queue.compress(ticket, message, algorithm)
                self._some.set()
                return
            receipt = Rejected(self._too_big)
        self._answer(ticket, receipt)

    @property
    def _too_big(self) -> str:
        return f"{TOO_BIG}, {TOO_LARGE}" if self._factory.options.moves else TOO_BIG

    def _on_duplicate(self, ticket: int, message: Outgoing | None, key: Key, producer: Any) -> None:
        """The broker took the message for a duplicate, by its number. It may be stored, from before the connection broke,
        or may not be: behind a message that was refused, a number is taken. Another producer sends it again.
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


def _confirmation(topic: str, position: Any) -> Confirmed:
    new = tuple.__new__  # half the time of calls by names
    return new(Confirmed, (new(ReceiptPosition, (topic, position)),))


def _soonest(*times: float | None) -> float | None:
    return min((seconds for seconds in times if seconds is not None), default=None)


class SendQueue:
    """Queue of messages for a publisher's thread. Messages that are sent again, or again with compression, leave it
    before new ones. `take` is for one thread, the rest for any. `resent`: number of times that a message was queued by
    `again`, by ticket; `compressed`: compression algorithm by ticket, of messages that were queued by `compress`. Their
    entries stay until `forget` removes them.
    """

    def __init__(self) -> None:
        self.resent: dict[int, int] = {}
        self.compressed: dict[int, str] = {}
        self._waiting: deque[tuple[int, Outgoing]] = deque()
        self._again: deque[tuple[int, Outgoing]] = deque()

    def extend(self, messages: Iterable[tuple[int, Outgoing]]) -> None:
        """Appends messages that were never sent, each with its ticket. The thread that calls `take` sends them."""
        self._waiting.extend(messages)

    def again(self, ticket: int, message: Outgoing) -> None:
        """Queues a message that is to be sent once more, before those that were never sent, and counts it in `resent`."""
        self.resent[ticket] = self.resent.get(ticket, 0) + 1
        self._again.append((ticket, message))

    def compress(self, ticket: int, message: Outgoing, algorithm: str) -> None:
        """Queues a message that is to be sent alone, compressed by `algorithm` (noted in `compressed`), before those
        that were never sent.
        """
        self.compressed[ticket] = algorithm  # first: who takes the message looks there
        self._again.append((ticket, message))

    def take(self, most: int) -> list[tuple[int, Outgoing]]:
        """Removes and returns the next messages with their tickets, at most `most`; [] if none is queued."""
        found: list[tuple[int, Outgoing]] = []
        with suppress(IndexError):  # perhaps dropped this moment
            while self._again and len(found) < most:
                found.append(self._again.popleft())
            waiting = self._waiting
            found += [waiting.popleft() for _ in range(min(most - len(found), len(waiting)))]
        return found

    def forget(self, tickets: Sequence[int]) -> None:
        """Removes the entries of these tickets, whose messages have got their receipts, from `resent` and `compressed`.
        Unknown tickets are ignored.
        """
        if self.resent:
            for ticket in tickets:
                self.resent.pop(ticket, None)
        if self.compressed:
            for ticket in tickets:
                self.compressed.pop(ticket, None)

    def clear(self) -> None:
        """Drops all queued messages, so that nobody sends them; `resent` and `compressed` stay as they are."""
        self._waiting.clear()
        self._again.clear()
