"""`Producer`: sends to one ready topic of a topology what the topology says is sent there."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from contextvars import copy_context
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, Unpack

from kodo_consumer.adapters.tracing.setup import Wanted, sends_of
from kodo_consumer.core.broker import Broker, Confirmed, Receipt, Unconfirmed
from kodo_consumer.core.envelope import ID, Level
from kodo_consumer.core.limit_policy import NOBODY, value_of
from kodo_consumer.core.message_validation import MessageValidator
from kodo_consumer.environment import ConnectionOptions, Environment, reach_outlet
from kodo_consumer.numbered_publisher import RECEIPT_TIMEOUT, NumberedPublisher
from kodo_consumer.pending_messages import OnStored, not_stored
from kodo_consumer.policy_builder import outlet_of
from kodo_consumer.settings import read_settings
from kodoctl.errors import ClusterError, error
from kodoctl.formatting import many
from kodoctl.topology.route_facts import RouteFacts

if TYPE_CHECKING:
    from kodo_consumer.core.outlet import Outlet
    from kodo_consumer.core.route_table import DispatchTable
    from kodoctl.protocol.signing import Signer
    from kodoctl.pulsar.connection import Connection

_T = TypeVar("_T")


class Producer:
    """Sends messages with an identity of their own (`kodo-id`) and awaits receipts. Thread-safe.

    They are numbered (`kodo-seq`, see kodoctl.protocol.sequence_numbers), so that a loss shows; each minute, and at
    the end, a mark says how far the count has come. `numbered` false: no numbers and no marks, for topics that others
    read who would stumble over messages without payload.

    What the topology does not allow is refused before it is sent: a payload that breaks its schema, a required
    property that is missing, a property nobody declared (where properties are declared at all), more bytes than the
    topic takes.

    `routes`: where the routes of all subscriptions agree on another level, a message is sent there; else its workers
    route it. The other level's topic is opened with the first such message.
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
        routes: LevelSenders | None = None,
    ) -> None:
        self.topic = topic
        self._routes = routes
        self._form = form or MessageValidator()
        self._lock = threading.Lock()
        self._lost: list[str] = []  # of what was posted without a callback: reasons
        self._sender = LevelSender(topic, broker, self._form, signer, numbered=numbered, traces=traces)

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
        topology = surroundings.topology(path)
        outlet = outlet_of(topology, topic, str(level))
        settings = read_settings(surroundings.environ, surroundings.folder)
        signer, traces = settings.signing_keys, settings.traces
        siblings = partial(outlet_of, topology, topic)
        return cls.to(
            outlet,
            surroundings.connection(),
            signer,
            siblings=siblings,
            numbered=numbered,
            traces=traces,
            native=settings.native,
        )

    @classmethod
    def to(
        cls,
        outlet: Outlet,
        connection: Connection,
        signer: Signer | None = None,
        *,
        siblings: Callable[[str], Outlet] | None = None,
        numbered: bool = True,
        traces: Wanted = "auto",
        native: bool = True,
    ) -> Producer:
        """A producer for a topic that was found in a topology, connected. `siblings`: the outlet of another level of its
        ground topic, for what routes send there. Raises KodoctlError.
        """
        routes = None
        if siblings is not None and outlet.dispatch is not None:

            def open_level(level: Level) -> LevelSender:
                other = siblings(level)
                broker, form = reach_outlet(connection, other, native=native)
                return _opened(
                    broker, lambda: LevelSender(other.topic, broker, form, signer, numbered=numbered, traces=traces)
                )

            routes = LevelSenders(outlet, outlet.dispatch, open_level)
        broker, form = reach_outlet(connection, outlet, native=native)
        return _opened(
            broker,
            lambda: cls(
                outlet.topic, broker, form=form, signer=signer, numbered=numbered, traces=traces, routes=routes
            ),
        )

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

        posted = self._post(payload, on_receipt, key, properties, event_time, id)
        if not arrived.wait(RECEIPT_TIMEOUT):
            posted.give_up()
        receipt = found[0] if found else Unconfirmed("no receipt in time")
        if not isinstance(receipt, Confirmed):
            raise not_stored(posted.by.topic, receipt, posted.size)
        return posted.name

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

        if self._routes is None and self._sender.has_room(key):
            posted = self._post(payload, on_receipt, key, properties, event_time, id)
        else:  # waiting for room, or for another level's producer, must not stop the loop
            post = partial(self._post, payload, on_receipt, key, properties, event_time, id)
            posted = await loop.run_in_executor(None, copy_context().run, post)
        try:
            receipt = await asyncio.wait_for(arrived, RECEIPT_TIMEOUT)
        except TimeoutError:
            posted.give_up()
            receipt = Unconfirmed("no receipt in time")
        if not isinstance(receipt, Confirmed):
            raise not_stored(posted.by.topic, receipt, posted.size)
        return posted.name

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
        return self._post(payload, on_receipt or self._remember, key, properties, event_time, id).name

    def flush(self, timeout: float = RECEIPT_TIMEOUT) -> None:
        """Awaits the receipts of everything posted. Raises ClusterError with the number of those that failed."""
        deadline = time.monotonic() + timeout
        out = sum(one.wait(max(0.0, deadline - time.monotonic())) for one in self._senders)
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
            with ExitStack() as ends:
                for one in self._senders:
                    ends.callback(one.close, timeout)

    @property
    def _senders(self) -> list[LevelSender]:
        """Those of all levels."""
        return [self._sender, *(() if self._routes is None else self._routes.opened)]

    def _post(
        self,
        payload: Any,
        on_receipt: OnStored,
        key: str,
        properties: Mapping[str, str] | None,
        event_time: int,
        name: str | None,
    ) -> PostedMessage:
        name = name or uuid.uuid4().hex
        data, given = self._form.encoded(payload), self._form.allowed(properties or {})
        other = None if self._routes is None else self._routes.choose(data, given, key, name)
        given[ID] = name
        return (other or self._sender).publish(name, data, given, on_receipt, key, event_time)

    def _remember(self, receipt: Receipt) -> None:
        if not isinstance(receipt, Confirmed):
            with self._lock:
                self._lost.append(receipt.reason)


class LevelSender:
    """The messages of one producer to the topic of one level, with a receipt for each. Thread-safe."""

    def __init__(
        self,
        topic: str,
        broker: Broker,
        form: MessageValidator,
        signer: Signer | None,
        *,
        numbered: bool,
        traces: Wanted,
    ) -> None:
        self.topic, self._broker = topic, broker
        self._traces = sends_of(topic, traces)
        self._out = NumberedPublisher(topic, broker, form, signer, self._traces, numbered=numbered)
        self.has_room, self.wait, self.give_up = self._out.has_room, self._out.wait, self._out.give_up

    def publish(
        self, name: str, data: bytes | None, given: dict[str, str], on_receipt: OnStored, key: str, event_time: int
    ) -> PostedMessage:
        """Publishes a message of this identity; waits for room. Raises as NumberedPublisher.publish."""
        size = len(data or b"")
        if self._traces is None:
            return PostedMessage(self, name, self._out.publish(data, given, on_receipt, key, event_time, None), size)
        span = self._traces.begin(given, name)
        try:
            return PostedMessage(self, name, self._out.publish(data, given, on_receipt, key, event_time, span), size)
        except BaseException as problem:
            self._traces.refused(span, problem)
            raise

    def close(self, timeout: float) -> None:
        """Leaves; what has no receipt in time is given up."""
        self._out.close(timeout)
        self._broker.close()


class PostedMessage(NamedTuple):
    """A message on its way to the topic of a level. `size`: bytes of payload."""

    by: LevelSender
    name: str
    ticket: int
    size: int

    def give_up(self) -> None:
        """Nobody waits for its receipt any more."""
        self.by.give_up(self.ticket)


class LevelSenders:
    """Senders of the other levels of a ground topic, to which its routes send messages. Thread-safe."""

    def __init__(self, outlet: Outlet, table: DispatchTable, open_level: Callable[[Level], LevelSender]) -> None:
        self._level, self._fair_by, self._table, self._open = outlet.level, outlet.fair_by, table, open_level
        self._lock = threading.Lock()
        self._opened: dict[Level, LevelSender] = {}

    @property
    def opened(self) -> list[LevelSender]:
        """Those that there are."""
        with self._lock:
            return list(self._opened.values())

    def choose(
        self, payload: bytes | None, properties: Mapping[str, str], key: str, identity: str
    ) -> LevelSender | None:
        """Sender of another level; None: the message is for the level it was given to. Raises ClusterError."""
        tenant = value_of(self._fair_by, properties, key) if self._fair_by else NOBODY
        to = self._table.choose(RouteFacts(properties, key, tenant, identity, len(payload or b""), self._level))
        if to is self._level:
            return None
        with self._lock:
            if to not in self._opened:
                self._opened[to] = self._open(to)
            return self._opened[to]


def _opened(broker: Broker, make: Callable[[], _T]) -> _T:
    """What is made of a broker, which is closed where that fails."""
    try:
        return make()
    except BaseException:
        broker.close()
        raise


def _resolve(arrived: asyncio.Future[Receipt], receipt: Receipt) -> None:
    if not arrived.done():  # cancelled meanwhile
        arrived.set_result(receipt)
