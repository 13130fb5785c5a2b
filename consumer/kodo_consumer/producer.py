"""`Producer`: sends to one ready topic of a topology what the topology says is sent there."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from kodo_consumer.adapters.tracing.setup import Wanted, sends_of
from kodo_consumer.core.broker import Broker, Confirmed, Receipt, Unconfirmed
from kodo_consumer.core.envelope import ID, Level
from kodo_consumer.core.message_validation import MessageValidator
from kodo_consumer.environment import ConnectionOptions, Environment, reach_outlet
from kodo_consumer.numbered_publisher import RECEIPT_TIMEOUT, NumberedPublisher
from kodo_consumer.pending_messages import OnStored, not_stored
from kodo_consumer.policy_builder import outlet_of
from kodo_consumer.settings import read_settings
from kodoctl.errors import ClusterError, error
from kodoctl.formatting import many

if TYPE_CHECKING:
    from kodo_consumer.core.policy import Outlet
    from kodoctl.protocol.signing import Signer
    from kodoctl.pulsar.connection import Connection


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
        self._broker = broker
        self._lock = threading.Lock()
        self._lost: list[str] = []  # of what was posted without a callback: reasons
        self._out = NumberedPublisher(topic, broker, self._form, signer, self._traces, numbered=numbered)

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
        if not arrived.wait(RECEIPT_TIMEOUT):
            self._out.give_up(ticket)
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

        if self._out.has_room(key):
            name, ticket, size = self._post(payload, on_receipt, key, properties, event_time, id)
        else:  # waiting for room must not stop the loop
            post = partial(self._post, payload, on_receipt, key, properties, event_time, id)
            name, ticket, size = await loop.run_in_executor(None, copy_context().run, post)
        try:
            receipt = await asyncio.wait_for(arrived, RECEIPT_TIMEOUT)
        except TimeoutError:
            self._out.give_up(ticket)
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

    def flush(self, timeout: float = RECEIPT_TIMEOUT) -> None:
        """Awaits the receipts of everything posted. Raises ClusterError with the number of those that failed."""
        out = self._out.wait(timeout)
        with self._lock:
            lost, self._lost = self._lost + ["no receipt in time"] * out, []
        if lost:
            detail = f"{many(len(lost), 'message')} for {self.topic}; the first: {lost[0]}"
            raise ClusterError(error("K715", "message without receipt", detail))

    def close(self, timeout: float = RECEIPT_TIMEOUT) -> None:
        """Awaits what was posted, at most so many seconds, and leaves. Raises as `flush`."""
        try:
            self.flush(timeout)
        finally:
            self._out.close(timeout)
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
            return name, self._out.publish(data, given, on_receipt, key, event_time, None), len(data or b"")
        span = self._traces.begin(given, name)
        try:
            return name, self._out.publish(data, given, on_receipt, key, event_time, span), len(data or b"")
        except BaseException as problem:
            self._traces.refused(span, problem)
            raise

    def _remember(self, receipt: Receipt) -> None:
        if not isinstance(receipt, Confirmed):
            with self._lock:
                self._lost.append(receipt.reason)


def _resolve(arrived: asyncio.Future[Receipt], receipt: Receipt) -> None:
    if not arrived.done():  # cancelled meanwhile
        arrived.set_result(receipt)
