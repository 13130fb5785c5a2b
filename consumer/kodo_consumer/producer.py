"""`Producer`: sends to one ready topic of a topology what the topology says is sent there."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from kodo_consumer.adapters.tracing.setup import Wanted, sends_of
from kodo_consumer.core.broker import Broker, Confirmed, Publisher, Receipt, Unconfirmed
from kodo_consumer.core.envelope import ID, Level, Outgoing
from kodo_consumer.core.message_validation import MessageValidator
from kodo_consumer.core.policy import Outlet
from kodo_consumer.core.publishing import HANGS
from kodo_consumer.core.sequences.sequencer import Router, Sequencer
from kodo_consumer.environment import ConnectionOptions, Environment, reach_outlet
from kodo_consumer.pending_messages import OnStored, PendingMessages, PendingSend, not_stored
from kodo_consumer.policy_builder import outlet_of
from kodo_consumer.runtime.threads import begin, log_end
from kodo_consumer.settings import read_settings
from kodoctl.errors import ClusterError, KodoctlError, error
from kodoctl.formatting import many
from kodoctl.protocol.properties import FOR, SEQ
from kodoctl.protocol.sequence_numbers import NOBODY, ProducerWatermark, new_run
from kodoctl.protocol.signing import Signer
from kodoctl.pulsar.connection import Connection

if TYPE_CHECKING:
    from opentelemetry.trace import Span

log = logging.getLogger("kodo.producer")
_RECEIPT_TIMEOUT: Final = 90.0  # seconds; a send is given up before
_LOOK: Final = 1.0  # seconds between two looks at what hangs
_MARK_EVERY: Final = 60.0  # seconds
_LAST_MARKS: Final = 20.0  # seconds the marks at the end are waited for


class Producer:
    """Sends messages with an identity of their own (`kodo-id`) and awaits receipts. Thread-safe.

    They are numbered (`kodo-seq`, see kodoctl.protocol.sequence_numbers), so that a loss shows; each minute, and at
    the end, a mark says how far the count has come. `numbered` false: no numbers and no marks, for topics that others
    read who would stumble over messages without payload.

    What the topology does not allow is refused before it is sent: a payload that breaks its schema, a required
    property that is missing, a property nobody declared (where properties are declared at all), more bytes than the
    topic takes.
    """

    def __init__(
        self,
        topic: str,
        broker: Broker,
        *,
        form: MessageValidator | None = None,
        signer: Signer | None = None,
        numbered: bool = True,
        traces: Wanted = "auto",
    ) -> None:
        self.topic = topic
        self._traces = sends_of(topic, traces)
        self._form = form or MessageValidator()
        self._signer = signer
        self._broker = broker
        self._lock = threading.Condition()
        self._next = 0
        self._out = PendingMessages()
        self._lost: list[str] = []
        self._receiving = 0  # the thread that calls back: it would wait for itself
        self._partitions = list(broker.partitions(topic))
        self._router = Router(len(self._partitions))
        run = new_run(time.time_ns() // 1_000_000, secrets.token_hex(4))
        self._numbering = Sequencer(run) if numbered else None
        self._over = threading.Event()
        self._watcher: threading.Thread | None = None
        self._publisher: Publisher = broker.publisher(self._partitions, self._receipts)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        topic: str,
        level: Level | str = Level.L1,
        numbered: bool = True,
        **place: Unpack[ConnectionOptions],
    ) -> Producer:
        """A producer for a level of a ground topic, connected. Raises KodoctlError; a draining level is refused.

        Environment and connection are found as by Consumer.load.
        """
        surroundings = Environment.of(**place)
        outlet = outlet_of(surroundings.topology(path), topic, str(level))
        settings = read_settings(surroundings.environ, surroundings.folder)
        signer, traces = settings.signing_keys, settings.traces
        return cls.to(outlet, surroundings.connection(), signer, numbered=numbered, traces=traces)

    @classmethod
    def to(
        cls,
        outlet: Outlet,
        connection: Connection,
        signer: Signer | None = None,
        *,
        numbered: bool = True,
        traces: Wanted = "auto",
    ) -> Producer:
        """A producer for a topic that was found in a topology, connected. Raises KodoctlError."""
        broker, form = reach_outlet(connection, outlet)
        try:
            return cls(outlet.topic, broker, form=form, signer=signer, numbered=numbered, traces=traces)
        except BaseException:
            broker.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(
        self,
        payload: Any,
        *,
        key: str = "",
        properties: Mapping[str, str] | None = None,
        event_time: int = 0,
        id: str | None = None,  # noqa: A002  # the word of the message property
    ) -> str:
        """Sends and awaits the receipt; answers the message's identity. A payload that is no bytes is sent as JSON.

        Raises UsageError for what the topology does not allow, ClusterError when there is no receipt: the message may
        have been stored all the same. To be sure, send it again with the same `id`.
        """
        arrived = threading.Event()
        found: list[Receipt] = []

        def on_receipt(receipt: Receipt) -> None:
            found.append(receipt)
            arrived.set()

        name, ticket, size = self._post(payload, on_receipt, key, properties, event_time, id)
        if not arrived.wait(_RECEIPT_TIMEOUT):
            self._give_up(ticket)
        receipt = found[0] if found else Unconfirmed("no receipt in time")
        if not isinstance(receipt, Confirmed):
            raise not_stored(self.topic, receipt, size)
        return name

    async def send_async(
        self,
        payload: Any,
        *,
        key: str = "",
        properties: Mapping[str, str] | None = None,
        event_time: int = 0,
        id: str | None = None,  # noqa: A002
    ) -> str:
        """`send` for an event loop: others run until the receipt is there. Raises as `send`."""
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[Receipt] = loop.create_future()

        def on_receipt(receipt: Receipt) -> None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(_resolve, arrived, receipt)

        if self._has_room(key):
            name, ticket, size = self._post(payload, on_receipt, key, properties, event_time, id)
        else:  # waiting for room must not stop the loop
            post = partial(self._post, payload, on_receipt, key, properties, event_time, id)
            name, ticket, size = await loop.run_in_executor(None, copy_context().run, post)
        try:
            receipt = await asyncio.wait_for(arrived, _RECEIPT_TIMEOUT)
        except TimeoutError:
            self._give_up(ticket)
            receipt = Unconfirmed("no receipt in time")
        if not isinstance(receipt, Confirmed):
            raise not_stored(self.topic, receipt, size)
        return name

    def post(
        self,
        payload: Any,
        on_receipt: OnStored | None = None,
        *,
        key: str = "",
        properties: Mapping[str, str] | None = None,
        event_time: int = 0,
        id: str | None = None,  # noqa: A002
    ) -> str:
        """Sends without waiting for the receipt; `on_receipt` is called with it on another thread. Without one, `flush`
        raises what went wrong. While 20,000 receipts are out, or a partition's part of so many, it waits for some;
        ClusterError when none come.
        """
        return self._post(payload, on_receipt or self._remember, key, properties, event_time, id)[0]

    def flush(self, timeout: float = _RECEIPT_TIMEOUT) -> None:
        """Awaits the receipts of everything posted. Raises ClusterError with the number of those that failed."""
        with self._lock:
            self._lock.wait_for(lambda: not self._out, timeout)
            lost, self._lost = self._lost + ["no receipt in time"] * len(self._out), []
        if lost:
            detail = f"{many(len(lost), 'message')} for {self.topic}; the first: {lost[0]}"
            raise ClusterError(error("K715", "message without receipt", detail))

    def close(self, timeout: float = _RECEIPT_TIMEOUT) -> None:
        """Awaits what was posted, at most so many seconds, and leaves. Raises as `flush`."""
        try:
            self.flush(timeout)
        finally:
            self._over.set()
            if self._watcher is not None:
                self._watcher.join()
            self._end(timeout)
            self._publisher.close()
            self._broker.close()

    def _post(
        self,
        payload: Any,
        on_receipt: OnStored,
        key: str,
        properties: Mapping[str, str] | None,
        event_time: int,
        name: str | None,
    ) -> tuple[str, int, int]:
        """(identity, ticket, bytes of payload)."""
        name = name or uuid.uuid4().hex
        data, given = self._form.encoded(payload), self._form.allowed(properties or {})
        given[ID] = name
        if self._traces is None:
            return name, self._numbered(data, given, on_receipt, key, event_time, None), len(data or b"")
        span = self._traces.begin(given, name)
        try:
            return name, self._numbered(data, given, on_receipt, key, event_time, span), len(data or b"")
        except BaseException as problem:
            self._traces.refused(span, problem)
            raise

    def _numbered(
        self,
        data: bytes | None,
        given: dict[str, str],
        on_receipt: OnStored,
        key: str,
        event_time: int,
        span: Span | None,
    ) -> int:
        with self._lock:
            now = time.monotonic()
            partition = self._router.choose(key, now)
            to = self._partitions[partition]
            if threading.get_ident() != self._receiving and not self._lock.wait_for(
                lambda: self._out.has_room([to], len(self._partitions)), _RECEIPT_TIMEOUT
            ):
                detail = f"{to}: {self._out.of(to)} are out already; it was not sent"
                raise ClusterError(error("K715", "message without receipt", detail))
            number = None
            if self._numbering is not None:
                number = self._numbering.next(partition)
                given[SEQ] = str(number)
            if self._watcher is None:
                self._watcher = begin(self._watch, "kodo-marks", log_end, over=self._over.is_set)
            message = Outgoing(to, data, self._signed(data, given), key, event_time=event_time)
            sent = PendingSend(on_receipt, number, time.monotonic(), span, to)
            if (problem := self._form.too_large(message)) is not None:
                self._void(sent)
                raise problem
            return self._publish(message, sent)

    def _signed(self, payload: bytes | None, properties: dict[str, str]) -> dict[str, str]:
        return properties if self._signer is None else self._signer.signed(self.topic, payload, properties)

    def _publish(self, message: Outgoing, sent: PendingSend) -> int:
        """With the lock held, so that numbers go out in their order."""
        self._next += 1
        self._out.add(self._next, sent)
        self._publisher.publish([(self._next, message)])
        return self._next

    def _give_up(self, ticket: int) -> None:
        """Nobody waits for this receipt any more."""
        with self._lock:
            self._void(sent := self._out.take(ticket))
            self._lock.notify_all()
        self._told(sent, Unconfirmed("no receipt in time"))

    def _told(self, sent: PendingSend | None, receipt: Receipt) -> None:
        """Ends the span of a message."""
        if sent is not None and sent.span is not None and self._traces is not None:
            self._traces.ended(sent.span, receipt, sent.topic)

    def _void(self, sent: PendingSend | None) -> None:
        if sent is not None and sent.number is not None and self._numbering is not None:
            self._numbering.give_up(sent.number)

    def _watch(self) -> None:
        marked = time.monotonic()
        while not self._over.wait(min(_LOOK, _MARK_EVERY)):
            try:
                self._let_go_of_what_hangs()
                if time.monotonic() - marked >= _MARK_EVERY:
                    marked = time.monotonic()
                    self._grow()
                    self._mark(end=False)
            except Exception as problem:  # whatever it is: the next time may do better
                log.warning("%s: no marks now: %s", self.topic, problem, exc_info=not isinstance(problem, KodoctlError))

    def _let_go_of_what_hangs(self) -> None:
        """For a message above a limit that this role may not read, the client never reports anything, nor for later ones."""
        with self._lock:
            oldest = self._out.oldest
            if oldest is None or time.monotonic() - oldest.at < HANGS:
                return
            hanging = list(self._out)
            self._publisher.renew()
        log.error("%s: %s unconfirmed for too long: starting afresh", self.topic, many(len(hanging), "message"))
        self._hand_out([(ticket, Unconfirmed("no receipt in time")) for ticket in hanging])

    def _grow(self) -> None:
        """The topic may have more partitions by now; never fewer."""
        found = list(self._broker.partitions(self.topic))
        with self._lock:
            if len(found) > len(self._partitions):
                self._partitions = found
                self._router.partitions = len(found)

    def _mark(self, *, end: bool) -> None:
        if self._numbering is None:
            return
        with self._lock:
            for mark in self._numbering.marks(end=end):
                properties = self._signed(b"", {SEQ: str(mark), FOR: NOBODY})
                message = Outgoing(self._partitions[mark.partition], b"", properties)
                sent = PendingSend(partial(self._marked, mark), None, time.monotonic(), topic=message.topic)
                self._publish(message, sent)

    def _marked(self, mark: ProducerWatermark, receipt: Receipt) -> None:
        with self._lock:
            if isinstance(receipt, Confirmed) and self._numbering is not None:
                self._numbering.told(mark)

    def _end(self, timeout: float) -> None:
        """What has no receipt by now is given up, and the last marks say so."""
        with self._lock:
            for ticket in self._out:
                sent = self._out.take(ticket)
                self._void(sent)
                self._told(sent, Unconfirmed("no receipt in time"))
        self._mark(end=True)
        with self._lock:
            if not self._lock.wait_for(lambda: not self._out, min(timeout, _LAST_MARKS)):
                log.warning("%s: the last marks have no receipt: nobody can tell whether all messages came", self.topic)

    def _receipts(self, receipts: Sequence[tuple[int, Receipt]]) -> None:
        self._receiving = threading.get_ident()
        self._hand_out(receipts)

    def _hand_out(self, receipts: Sequence[tuple[int, Receipt]]) -> None:
        for ticket, receipt in receipts:
            with self._lock:
                sent = self._out.take(ticket)
                if not isinstance(receipt, Confirmed):
                    self._void(sent)
            self._told(sent, receipt)
            try:
                if sent is not None:
                    sent.on_receipt(receipt)
            except Exception:
                log.exception("a callback for receipts failed")
        with self._lock:
            self._lock.notify_all()

    def _has_room(self, key: str) -> bool:
        """Wherever a message of this key may go."""
        to = [self._partitions[self._router.choose(key, 0.0)]] if key else self._partitions
        return self._out.has_room(to, len(self._partitions))

    def _remember(self, receipt: Receipt) -> None:
        if not isinstance(receipt, Confirmed):
            with self._lock:
                self._lost.append(receipt.reason)


def _resolve(arrived: asyncio.Future[Receipt], receipt: Receipt) -> None:
    if not arrived.done():  # cancelled meanwhile
        arrived.set_result(receipt)
