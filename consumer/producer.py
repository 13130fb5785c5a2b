"""`Producer`: sends to one ready topic of a topology what the topology says is sent there."""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, Unpack

from consumer.broker import Broker, Lost, NeverTaken, Publisher, Receipt, Stored
from consumer.envelope import ID, PREFIX, Level, Outgoing, signed
from consumer.message import Check, payload_check
from consumer.outcomes import InvalidPayloadError
from consumer.routes import Outlet, outlet_of
from consumer.settings import read_settings
from consumer.wiring import Place, Surroundings
from kodoctl.errors import ClusterError, UsageError, error
from kodoctl.pulsar.connection import Connection
from kodoctl.topology.signing import Signer

log = logging.getLogger("kodo.producer")
_MOST_OUT: Final = 20_000  # messages without receipt, before posting waits for some
_RECEIPT_TIMEOUT: Final = 60.0  # seconds; the client gives a send up long before
OnStored = Callable[[Receipt], None]


class Form:
    """What may be sent to a topic: payloads that fit its schema, the properties it declares (any, where none is)."""

    def __init__(self, check: Check | None = None, properties: Mapping[str, str] | None = None) -> None:
        self._check, self._declared = check, properties or {}

    def encoded(self, payload: Any) -> bytes | None:
        """The payload's bytes: JSON of what is no bytes; None is a tombstone. Raises UsageError."""
        try:
            if payload is None or isinstance(payload, bytes):
                data = payload
            else:
                data = json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode()
            if self._check is not None and data is not None:
                self._check(json.loads(data) if isinstance(payload, bytes) else payload)
        except (TypeError, ValueError, RecursionError, InvalidPayloadError) as problem:
            raise UsageError(error("K716", "payload refused", str(problem))) from None
        return data

    def allowed(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The properties as texts. Raises UsageError with everything that is wrong with them."""
        missing = [name for name, need in self._declared.items() if need == "required" and name not in properties]
        reserved = [name for name in properties if name.startswith(PREFIX)]
        undeclared = [name for name in properties if self._declared and name not in {*self._declared, *reserved}]
        wrong = ((missing, "missing"), (undeclared, "not declared"), (reserved, "reserved"))
        if found := [f"{what}: {', '.join(names)}" for names, what in wrong if names]:
            raise UsageError(*(error("K717", "message properties refused", detail) for detail in found))
        return {name: str(value) for name, value in properties.items()}


class Producer:
    """Sends messages with an identity of their own (`kodo-id`) and awaits receipts. Thread-safe.

    What the topology does not allow is refused before it is sent: a payload that breaks its schema, a required property
    that is missing, a property nobody declared (where properties are declared at all).
    """

    def __init__(
        self,
        topic: str,
        broker: Broker,
        *,
        check: Check | None = None,
        properties: Mapping[str, str] | None = None,
        signer: Signer | None = None,
    ) -> None:
        self.topic = topic
        self._form = Form(check, properties)
        self._signer = signer
        self._broker = broker
        self._lock = threading.Condition()
        self._next = 0
        self._out: dict[int, OnStored] = {}
        self._lost: list[str] = []
        self._receiving = 0  # the thread that calls back: it would wait for itself
        self._publisher: Publisher = broker.publisher([topic], self._receipts)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        topic: str,
        level: Level | str = Level.L1,
        **place: Unpack[Place],
    ) -> Producer:
        """A producer for a level of a ground topic, connected. Raises KodoctlError; a draining level is refused.

        Environment and connection are found as by Consumer.load.
        """
        surroundings = Surroundings.of(**place)
        outlet = outlet_of(surroundings.topology(path), topic, str(level))
        signer = read_settings(surroundings.environ, surroundings.folder).signing_keys
        return cls.to(outlet, surroundings.connection(), signer)

    @classmethod
    def to(cls, outlet: Outlet, connection: Connection, signer: Signer | None = None) -> Producer:
        """A producer for a topic that was found in a topology, connected. Raises ClusterError."""
        from consumer.pulsar_broker import PulsarBroker

        broker = PulsarBroker(connection, by_key=outlet.by_key)
        try:
            check = payload_check(outlet.schema)
            return cls(outlet.topic, broker, check=check, properties=outlet.properties, signer=signer)
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

        name = self.post(payload, on_receipt, key=key, properties=properties, event_time=event_time, id=id)
        arrived.wait(_RECEIPT_TIMEOUT)
        receipt = found[0] if found else Lost("no receipt in time")
        if not isinstance(receipt, Stored):
            raise _not_stored(self.topic, receipt)
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
        raises what went wrong. While 20,000 receipts are out it waits for some; ClusterError when none come.
        """
        name = id or uuid.uuid4().hex
        message = Outgoing(
            topic=self.topic,
            payload=self._form.encoded(payload),
            properties=self._form.allowed(properties or {}) | {ID: name},
            key=key,
            event_time=event_time,
        )
        if self._signer is not None:
            message = signed(message, self._signer)
        with self._lock:
            if threading.get_ident() != self._receiving and not self._lock.wait_for(self._has_room, _RECEIPT_TIMEOUT):
                detail = f"{self.topic}: {len(self._out)} are out already; it was not sent"
                raise ClusterError(error("K715", "message without receipt", detail))
            self._next += 1
            ticket = self._next
            self._out[ticket] = on_receipt or self._remember
        self._publisher.publish([(ticket, message)])
        return name

    def flush(self, timeout: float = _RECEIPT_TIMEOUT) -> None:
        """Awaits the receipts of everything posted. Raises ClusterError with the number of those that failed."""
        with self._lock:
            self._lock.wait_for(lambda: not self._out, timeout)
            lost, self._lost = self._lost + ["no receipt in time"] * len(self._out), []
        if lost:
            detail = f"{len(lost)} messages for {self.topic}; the first: {lost[0]}"
            raise ClusterError(error("K715", "message without receipt", detail))

    def close(self, timeout: float = _RECEIPT_TIMEOUT) -> None:
        """Awaits what was posted, at most so many seconds, and leaves. Raises as `flush`."""
        try:
            self.flush(timeout)
        finally:
            self._publisher.close()
            self._broker.close()

    def _receipts(self, receipts: Sequence[tuple[int, Receipt]]) -> None:
        self._receiving = threading.get_ident()
        for ticket, receipt in receipts:
            with self._lock:
                on_receipt = self._out.pop(ticket, None)
            try:
                if on_receipt is not None:
                    on_receipt(receipt)
            except Exception:
                log.exception("a callback for receipts failed")
        with self._lock:
            self._lock.notify_all()

    def _has_room(self) -> bool:
        return len(self._out) < _MOST_OUT

    def _remember(self, receipt: Receipt) -> None:
        if not isinstance(receipt, Stored):
            with self._lock:
                self._lost.append(receipt.reason)


def _not_stored(topic: str, receipt: Lost | NeverTaken) -> ClusterError:
    sure = "it was not stored" if isinstance(receipt, NeverTaken) else "it may have been stored"
    return ClusterError(error("K715", "message without receipt", f"{topic}: {receipt.reason}; {sure}"))
