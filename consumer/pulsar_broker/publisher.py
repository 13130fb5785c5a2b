"""Sending: a thread that sends and one that hands receipts over, on a client of their own. Producers open beside it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pulsar

from consumer.broker import TOO_BIG, Lost, NeverTaken, OnReceipts, Receipt, Stored
from consumer.engine.publications import SEND_TIMEOUT
from consumer.envelope import Outgoing, size_on_the_way
from consumer.pulsar_broker.openings import Openings, OpeningTimeoutError, close
from consumer.pulsar_broker.schemas import Key, Outlets
from consumer.threads import Broke, begin, leave, log_end
from kodoctl.errors import ClusterError, error
from kodoctl.topology.names import whole_topic

log = logging.getLogger("kodo.consumer")
_PENDING: Final = 20_000  # messages on the way to a partition before sending blocks
_BATCH_BYTES: Final = 1 << 20
_BATCH_DELAY: Final = 5  # ms
_LEAVE_WITHIN: Final = SEND_TIMEOUT + 5.0  # seconds
_GATHER: Final = 0.003  # seconds a receipt waits for others
_CREATE_AGAIN: Final = 5.0  # seconds before a topic that could not be opened is tried again
_ANY_SIZE: Final = 1 << 62
_BATCHING: Final = {True: pulsar.BatchingType.KeyBased, False: pulsar.BatchingType.Default}
_NEVER: Final = {
    pulsar.Result.MessageTooBig: TOO_BIG,
    pulsar.Result.IncompatibleSchema: "its schema does not fit",
    pulsar.Result.AuthorizationError: "not authorised",
    pulsar.Result.InvalidMessage: "invalid message",
}
_BROKEN: Final = {
    pulsar.Result.AlreadyClosed, pulsar.Result.NotConnected, pulsar.Result.TopicNotFound, pulsar.Result.TopicTerminated,
    pulsar.Result.ProducerNotInitialized, pulsar.Result.ProducerFenced, pulsar.Result.UnknownError, pulsar.Result.Timeout,
}  # fmt: skip
"""After these a producer may never work again, whatever becomes of its topic: a new one is made."""
_NEVER_RAISED: Final = {
    pulsar.MessageTooBig: TOO_BIG,
    pulsar.IncompatibleSchema: "its schema does not fit",
    pulsar.AuthorizationError: "not authorised",
    pulsar.InvalidMessage: "invalid message",
}


class PulsarPublisher:
    """consumer.broker.Publisher."""

    def __init__(
        self,
        connect: Callable[[], Any],
        topics: Sequence[str],
        on_receipts: OnReceipts,
        *,
        by_key: Collection[str] = (),
        outlets: Outlets | None = None,
        largest: Mapping[str, int] | None = None,
        on_broken: Broke = log_end,
    ) -> None:
        self._outlets, self._largest, self._on_broken = outlets, largest or {}, on_broken
        self._connect, self._topics, self._on_receipts, self._by_key = connect, topics, on_receipts, by_key
        self._receipts: deque[tuple[int, Receipt]] = deque()
        self._some = threading.Event()
        self._over = False
        self._line = self._new_line()
        try:
            for topic in topics:
                self._line.open(outlets.key(topic, "") if outlets else topic)
        except pulsar.PulsarException as problem:
            self._line.close()
            detail = f"{topic}: {problem}"
            raise ClusterError(error("K714", "cannot publish", detail)) from None
        self._thread = begin(self._hand_over, "kodo-receipts", on_broken, over=lambda: self._over)

    def publish(self, messages: Sequence[tuple[int, Outgoing]]) -> None:
        """See Publisher."""
        self._line.send(messages)

    def renew(self) -> None:
        """See Publisher. The old client may hang as well: it is closed by a thread nobody waits for."""
        old, self._line = self._line, self._new_line()
        old.drop()
        begin(old.close, "kodo-publish-closing", log_end)

    def close(self) -> None:
        """See Publisher."""
        self._line.close()
        self._over = True
        self._some.set()
        self._thread.join()

    def _new_line(self) -> _Line:
        return _Line(
            self._connect(),
            self._receipt,
            by_key=self._by_key,
            outlets=self._outlets,
            largest=self._largest,
            on_broken=self._on_broken,
        )

    def _receipt(self, ticket: int, receipt: Receipt) -> None:
        self._receipts.append((ticket, receipt))
        if not self._some.is_set():
            self._some.set()

    def _hand_over(self) -> None:
        """Receipts come on the client's own threads, which must not be held up; and one by one where messages have a due
        time: a bundle of them costs the worker one turn of its lock.
        """
        while not self._over:
            self._some.wait()
            if not self._over:
                time.sleep(_GATHER)
            self._some.clear()
            count = len(self._receipts)
            if count:
                self._on_receipts([self._receipts.popleft() for _ in range(count)])


class _Line:
    """One client with its producers and its thread.

    `largest`: what topics take at most, in bytes. More than that, a message or a whole batch, has the broker cut the connection
    and the client send it again, for ever and with everything else behind it: such topics get no batches.
    """

    def __init__(
        self,
        client: Any,
        on_receipt: Callable[[int, Receipt], None],
        *,
        by_key: Collection[str],
        outlets: Outlets | None,
        largest: Mapping[str, int],
        on_broken: Broke,
    ) -> None:
        self._largest = largest
        self._client, self._on_receipt, self._by_key, self._outlets = client, on_receipt, by_key, outlets
        self._producers: dict[Key, Any] = {}
        self._broken: set[Key] = set()
        self._not_before: dict[Key, float] = {}
        self._waiting: deque[tuple[int, Outgoing]] = deque()
        self._some = threading.Event()
        self._over = self._is_dropped = False
        self._openings = Openings(self._create, self._some.set, on_broken)
        self._thread = begin(self._work, "kodo-publish", on_broken, over=lambda: self._over)

    def open(self, key: Key) -> None:
        """Opens a producer, before anything is sent. Raises pulsar.PulsarException, ClusterError."""
        self._producers[key] = self._create(key)

    def _create(self, key: Key) -> Any:
        schema = self._outlets.schema(key) if self._outlets else None
        topic = key if isinstance(key, str) else key[0]
        return self._client.create_producer(
            topic,
            **({} if schema is None else {"schema": schema}),
            send_timeout_millis=int(SEND_TIMEOUT * 1000),
            max_pending_messages=_PENDING,
            block_if_queue_full=True,
            batching_enabled=whole_topic(topic) not in self._largest,
            batching_max_messages=1000,
            batching_max_allowed_size_in_bytes=_BATCH_BYTES,
            batching_max_publish_delay_ms=_BATCH_DELAY,
            batching_type=_BATCHING[whole_topic(topic) in self._by_key],
        )

    def send(self, messages: Sequence[tuple[int, Outgoing]]) -> None:
        """Queues messages."""
        self._waiting.extend(messages)
        self._some.set()

    def drop(self) -> None:
        """Forgets what is queued: it is sent by another line, and would be stored twice."""
        self._is_dropped = True
        self._waiting.clear()
        self._openings.forget()

    def close(self) -> None:
        """Sends what is queued and closes the client. After faults a flush of the client's may never return (seen after
        connections that hung): it is waited for as long as a send may take, and then left behind.
        """
        self._over = True
        self._some.set()
        if leave({"publisher": self._leave}, _LEAVE_WITHIN):
            log.error("a publisher does not close within %.0f s and is left behind", _LEAVE_WITHIN)

    def _leave(self) -> None:
        self._thread.join()
        try:
            for producer in self._producers.values():
                producer.flush()
            self._client.close()
        except pulsar.PulsarException as problem:
            log.debug("closing a publisher: %s", problem)

    def _work(self) -> None:
        while True:
            self._some.wait(self._openings.next_end)
            self._some.clear()
            self._take_opened()
            while self._waiting:
                try:
                    ticket, message = self._waiting.popleft()
                except IndexError:  # dropped meanwhile
                    break
                self._try(ticket, message)
                if self._openings.any_result:
                    self._take_opened()
            if self._over and not self._openings.any_message:
                return

    def _take_opened(self) -> None:
        """What waited for a producer is sent before anything else of its topic, or has the receipt that there is none."""
        for key, producer, problem, messages in self._openings.ended():
            if problem is not None:
                self._not_before[key] = time.monotonic() + _CREATE_AGAIN
            elif key in self._producers:  # a try that had been given up, after the one that followed it
                begin(partial(close, producer), "kodo-publish-closing", log_end)
            else:
                self._producers[key] = producer
                self._not_before.pop(key, None)
            for ticket, message in () if self._is_dropped else messages:
                if problem is None:
                    self._try(ticket, message)
                else:
                    self._on_receipt(ticket, _raised(problem))

    def _try(self, ticket: int, message: Outgoing) -> None:
        try:
            self._send(ticket, message)
        except Exception as problem:  # noqa: BLE001  # also of a message that the client cannot even build
            self._on_receipt(ticket, _raised(problem))

    def _send(self, ticket: int, message: Outgoing) -> None:
        topic: Key = message.topic if self._outlets is None else self._outlets.key(message.topic, message.schema)
        if topic in self._openings:
            self._openings.add(topic, ticket, message)
            return
        if self._not_before and self._not_before.get(topic, 0.0) > time.monotonic():
            self._on_receipt(ticket, Lost("its producer could not be opened"))
            return
        if self._largest and size_on_the_way(message) > self._largest.get(whole_topic(message.topic), _ANY_SIZE):
            self._on_receipt(ticket, NeverTaken(TOO_BIG))
            return
        producer = self._producers.get(topic)
        if producer is None or topic in self._broken:
            self._broken.discard(topic)
            self._producers.pop(topic, None)
            self._openings.add(topic, ticket, message, producer)
            return
        producer.send_async(
            message.payload,
            partial(self._sent, ticket, topic, producer),
            properties=dict(message.properties),
            partition_key=message.key or None,
            ordering_key=message.ordering_key or None,
            event_timestamp=message.event_time or None,
            deliver_at=message.deliver_at,
        )

    def _sent(self, ticket: int, topic: Key, producer: Any, result: Any, position: Any) -> None:
        """On the client's thread: an exception that escaped would end the process. What a closed producer still had to send
        says nothing of the one in its place: that would be closed as well, with all it has to send, and so on for ever.
        """
        try:
            if result == pulsar.Result.Ok:
                self._on_receipt(ticket, Stored(position))
            elif result in _NEVER:
                self._on_receipt(ticket, NeverTaken(_NEVER[result]))
            else:
                if result in _BROKEN and self._producers.get(topic) is producer:
                    self._broken.add(topic)
                self._on_receipt(ticket, Lost(result.name))
        except BaseException:
            log.exception("receipt lost")


def _raised(problem: Exception) -> Receipt:
    match problem:
        case pulsar.PulsarException():
            never = [reason for kind, reason in _NEVER_RAISED.items() if isinstance(problem, kind)]
            return NeverTaken(never[0]) if never else Lost(type(problem).__name__)
        case ClusterError() | OpeningTimeoutError():
            return Lost(str(problem))
        case _:
            return NeverTaken(f"{type(problem).__name__}: {problem}")
