"""What a message keeps, by every path on which it goes on to another topic: worker's moves, dead letters, transfers, recalls,
releases, moves of what waits, lost messages; by the binding and by the native border.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final, cast

import pulsar
import pytest
from kodo_consumer.adapters.pulsar.producer_factory import ProducerFactory, ProducerOptions
from kodo_consumer.adapters.pulsar.schema_passthrough import Key
from kodo_consumer.adapters.pulsar.send_calls import NativeResults, NativeSendCalls, SendCalls
from kodo_consumer.core.values.envelope import FRESH, Delivery, Headers, Outgoing, reroute_message, transfer_message
from kodo_pipeline.recall.landed_messages import _message

from kodoctl.documents.recall_document import SendReport
from kodoctl.protocol import properties as names
from kodoctl.pulsar.binary.bundled_producer import dedup_producer
from kodoctl.pulsar.binary.message_reader import ReadMessage
from kodoctl.pulsar.binary.recall_transport import RecalledMessage
from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
from kodoctl.recall.cluster import letter_of
from kodoctl.recall.message.stored_message import Position
from kodoctl.recall.plan.recall_plan import RecallAction
from kodoctl.recall.send.batch_sender import BatchSender
from kodoctl.recall.send.sends_in_flight import InFlightMessage, SendOptions
from tests.unit.recall.letters import DEAD, NOW
from tests.unit.recall.sender_world import READY, plan_of

PAYLOAD: Final = b"\x00\xff{}"
OWN: Final = {"shop": "K\u00f6ln", "empty": ""}
IDENTITY: Final = {names.ID: "u1"}
SCHEMA: Final = {names.SCHEMA: "L1:3"}
PROPERTIES: Final = {**OWN, **IDENTITY, **SCHEMA}
KEY, ORDERING, HAPPENED = "k", "o", 12
WAITING: Final = "L1.retrying"


def _delivery(payload: bytes | None) -> Delivery:
    return Delivery((1, 2, 0), "(1,2,0,-1)", payload, PROPERTIES, KEY, ORDERING, HAPPENED, NOW, schema="L1:3")


def _moved(payload: bytes | None) -> Outgoing:
    return reroute_message(_delivery(payload), Headers(retrying=1, hop=1), READY, "t", NOW)


def _dead(payload: bytes | None) -> Outgoing:
    return reroute_message(_delivery(payload), Headers(reason="no", died_in="L1"), READY, DEAD, None)


def _transferred(payload: bytes | None) -> Outgoing:
    return transfer_message(_delivery(payload), FRESH, "billing", "t", payload, {}, None)


def _by_plan(action: RecallAction, stored: ReadMessage) -> RecalledMessage:
    plan = replace(plan_of(action), lane="" if action is RecallAction.SEND else WAITING)
    options = SendOptions(cast("Any", None), "me", lambda: NOW, threading.Event(), lambda *_: None)
    cluster: Any = SimpleNamespace(waits=WaitMonitor())
    sender = BatchSender(plan, cluster, cast("Any", None), None, options, SendReport())
    letter = letter_of(stored, DEAD, None)
    return sender._recalled_message(InFlightMessage(plan.letters[0], None, letter, letter.payload), None)


def _read(action: RecallAction) -> Callable[[bytes | None], RecalledMessage]:
    def path(payload: bytes | None) -> RecalledMessage:
        return _by_plan(action, ReadMessage(None, 0, 1, 2, -1, payload, PROPERTIES, KEY, ORDERING, HAPPENED, NOW, ""))

    return path


def _lost(payload: bytes | None) -> RecalledMessage:
    """Of a row as the ingest lands it."""
    from datetime import UTC, datetime

    row = {
        "payload": payload, "key": KEY, "event_ts": datetime.fromtimestamp(HAPPENED / 1000, UTC), "published": NOW,
        "broken": None,
    }  # fmt: skip
    return _by_plan(RecallAction.RESEND, _message(row, Position(0, 1, 2), list(PROPERTIES.items())))


PATHS: Final[dict[str, Callable[[bytes | None], Outgoing | RecalledMessage]]] = {
    "a move": _moved, "a dead letter": _dead, "a transfer": _transferred, "a recall": _read(RecallAction.SEND),
    "a release": _read(RecallAction.RELEASE), "a move of what waits": _read(RecallAction.MOVE), "a lost message": _lost,
}  # fmt: skip


@pytest.mark.parametrize("payload", [PAYLOAD, b"", None], ids=["bytes", "empty", "tombstone"])
@pytest.mark.parametrize("path", PATHS)
def test_a_message_keeps_what_it_had_by_every_path(path: str, payload: bytes | None) -> None:
    """Exceptions are documented: a transfer is a new message, and the landing has no ordering key."""
    found = PATHS[path](payload)
    assert found.payload == payload
    assert (found.key, found.event_time) == (KEY, HAPPENED)
    assert found.ordering_key == ("" if path == "a lost message" else ORDERING)
    own = {name: text for name, text in found.properties.items() if not name.startswith(names.PREFIX)}
    assert own == OWN
    if path == "a transfer":
        assert names.SCHEMA not in found.properties
        assert found.properties[names.ID] != "u1"
    else:
        assert {**found.properties, **IDENTITY, **SCHEMA} == dict(found.properties)


SENT: Final[dict[str, Any]] = {
    "properties": PROPERTIES, "partition_key": KEY, "ordering_key": ORDERING, "event_timestamp": HAPPENED,
    "deliver_at": NOW, "disable_replication": True,
}  # fmt: skip
MOVE: Final = Outgoing("t", PAYLOAD, PROPERTIES, KEY, ORDERING, HAPPENED, NOW, "L1:3")
RECALLED: Final = RecalledMessage(PAYLOAD, PROPERTIES, KEY, ORDERING, HAPPENED, NOW)


class ClientLibrary:
    """A client and its producer in one, and the native border to it. `bundles`: what crosses the border, by its calls."""

    def __init__(self) -> None:
        self._producer = object()
        self.given: list[tuple[bytes, dict[str, Any]]] = []
        self.bundles: list[tuple[str, list[Any], bool]] = []
        self.options: dict[str, Any] = {}
        self.patience: Any = SimpleNamespace(call=lambda work, *_: work())

    def create_producer(self, *_: Any, **options: Any) -> ClientLibrary:
        self.options = options
        return self

    def ask(self, work: Callable[[Any], Any], *_: Any, **__: Any) -> Any:
        return work(self)

    def send_async(self, payload: bytes, _: Any, **given: Any) -> None:
        self.given.append((payload, given))

    def last_sequence_id(self) -> int:
        return -1

    def close(self) -> None: ...

    # ---- the border

    border: Any = None

    def sender(self) -> ClientLibrary:
        return self

    def producer(self, *_: Any) -> object:
        return object()

    def publish(self, _: Any, messages: list[Any], local: bool) -> int:
        self.bundles.append(("publish", list(messages), local))
        return len(messages)

    def publish_numbered(self, _: Any, messages: list[Any], local: bool) -> tuple[int, int]:
        self.bundles.append(("publish_numbered", list(messages), local))
        return len(messages), 0

    def receipts(self, *_: Any) -> list[Any]:
        return []

    def wake(self) -> None: ...


def test_the_client_library_is_given_all_of_it_by_the_binding() -> None:
    """A move stays in its cluster: whoever handled the message there handles it on."""
    library = ClientLibrary()
    calls = SendCalls(lambda *_: None, lambda *_: None, local=True)
    calls.send(1, MOVE, Key("t"), library)
    dedup_producer(cast("Any", library), f"{READY}-partition-0", "plan").send(7, RECALLED, lambda _: None)
    assert library.given == [(PAYLOAD, SENT), (PAYLOAD, {**SENT, "sequence_id": 7})]


def test_the_client_library_is_given_all_of_it_by_the_native_border() -> None:
    """The border reads a tuple by position."""
    library = ClientLibrary()
    library.border = library
    results = NativeResults(cast("Any", library))
    calls = NativeSendCalls(lambda *_: None, lambda *_: None, lambda *_: None, results, local=True)
    calls.send(1, MOVE, Key("t"), library)
    calls.flush()
    lane = dedup_producer(cast("Any", library), f"{READY}-partition-0", "plan")
    lane.send(7, RECALLED, lambda _: None)
    assert lane.flush()
    lane.close()
    fields = (PAYLOAD, PROPERTIES, KEY, ORDERING, HAPPENED, NOW)
    [(_, [(_, moved)], moves_local), (_, [(number, recalled)], recalls_local)] = library.bundles
    assert (tuple(moved[1:7]), moves_local) == (fields, True)
    assert (number, tuple(recalled[:6]), recalls_local) == (7, fields, True)


@pytest.mark.parametrize("version", ["L1:3", "L2:0"])
def test_a_move_goes_under_the_schema_version_it_came_with(version: str) -> None:
    outlets: Any = SimpleNamespace(version=lambda _, version: version, schema=lambda key: f"schema {key.version}")
    library = ClientLibrary()
    factory = ProducerFactory(library, ProducerOptions(outlets=outlets, moves=True))
    factory.create(factory.key("t", version))
    assert library.options["schema"] == f"schema {version}"


def test_no_path_sends_in_chunks() -> None:
    """No consumer gets a chunked message whose first part was stored twice, and one without its first part stops a lane."""
    library = ClientLibrary()
    factory = ProducerFactory(library, ProducerOptions(moves=True))
    for key in (Key("t"), Key("t", compression="zstd")):
        factory.create(key)
        assert not library.options.get("chunking_enabled")
    assert library.options["compression_type"] is pulsar.CompressionType.ZSTD
    dedup_producer(cast("Any", library), f"{READY}-partition-0", "plan")
    assert not library.options.get("chunking_enabled")
