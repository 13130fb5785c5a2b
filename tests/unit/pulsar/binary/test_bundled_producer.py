"""A recall's producer by the native border: bundles in their order, each receipt to its message, a stop behind a refusal."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pulsar
import pytest

from kodoctl.pulsar.binary.bundled_producer import BundledProducer, dedup_producer
from kodoctl.pulsar.binary.recall_transport import DedupProducer, RecalledMessage, Receipt, RejectedError, pass_result

PART = "persistent://kodo/trade/orders-partition-0"
TOO_BIG = int(pulsar.Result.MessageTooBig)


def _position(ledger: int, entry: int) -> Any:
    return SimpleNamespace(ledger_id=lambda: ledger, entry_id=lambda: entry)


class Sender:
    """What the border sends. `odd`: payloads that only the binding takes; `refused`: that the client takes at no time."""

    def __init__(self, order: list[tuple[str, bytes]], odd: bytes = b"odd", refused: bytes = b"large") -> None:
        self.order, self.odd, self.refused = order, odd, refused
        self.stored: list[tuple[int, Any]] = []
        self.others: list[tuple[int, int, Any]] = []
        self.results = {b"closed": pulsar.Result.AlreadyClosed, b"known": pulsar.Result.Ok}  # without a position
        self.some = threading.Event()

    def publish_numbered(self, _: Any, messages: list[tuple[int, RecalledMessage]], local: bool) -> tuple[int, int]:
        assert local
        for tried, (number, message) in enumerate(messages):
            if message.payload == self.odd:
                return tried, 0
            if message.payload == self.refused:
                return tried + 1, TOO_BIG
            self.order.append(("border", message.payload or b""))
            if (result := self.results.get(message.payload or b"")) is None:
                self.stored.append((number, _position(7, number)))
            else:
                self.others.append((number, int(result), None))
        return len(messages), 0

    def receipts(self, wait_ms: int, gather_ms: int) -> list[tuple[int, list[Any], list[Any]]]:
        assert (wait_ms, gather_ms) == (500, 3)
        self.some.wait(0.01)
        stored, self.stored = self.stored, []
        others, self.others = self.others, []
        return [(0, stored, others)] if stored or others else []

    def wake(self) -> None:
        self.some.set()


class Producer:
    """The client library's, with the number that the broker knows of its name. `compression_type`: it takes what is
    refused without, but what is never taken.
    """

    def __init__(
        self, order: list[tuple[str, bytes]], problem: Exception | None = None, compression_type: Any = None
    ) -> None:
        self._producer, self.order, self.problem = object(), order, problem
        self.compression, self.closed = compression_type, 0

    def flush(self) -> None:
        self.order.append(("flush", b""))

    def last_sequence_id(self) -> int:
        return 2

    def send_async(self, payload: bytes, done: Callable[[Any, Any], None], **options: Any) -> None:
        assert options["disable_replication"]
        if self.problem is not None:
            raise self.problem
        if payload.startswith(b"never") or (payload == b"large" and self.compression is None):
            done(pulsar.Result.MessageTooBig, None)
            return
        self.order.append(("binding" if self.compression is None else self.compression.name, payload))
        done(pulsar.Result.Ok, _position(8, options["sequence_id"]))

    def close(self) -> None:
        self.closed += 1


class World:
    """A client, its producer and the border."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.order: list[tuple[str, bytes]] = []
        self.sender, self.producer = Sender(self.order), Producer(self.order, problem)
        self.producers: list[Producer] = []
        self.border: Any = SimpleNamespace(sender=lambda: self.sender, producer=lambda *_: object())
        self.receipts: dict[int, Receipt] = {}

    def ask(self, work: Callable[[Any], Any], _: str, *, late: Any) -> Any:
        assert callable(late)
        return work(SimpleNamespace(create_producer=self._create))

    def _create(self, *_: Any, compression_type: Any = None, **options: Any) -> Producer:
        assert options["producer_name"] == "plan", "the broker knows the numbers of this name"
        assert not options["batching_enabled"]
        assert all(one.closed for one in self.producers), "one has the name at a time"
        if self.producers:
            self.producer = Producer(self.order, compression_type=compression_type)
        self.producers.append(self.producer)
        return self.producer

    @property
    def patience(self) -> Any:
        return SimpleNamespace(call=lambda close, *_: close())

    def open(self, largest: int = 0) -> DedupProducer:
        return dedup_producer(cast("Any", self), PART, "plan", largest)

    def send(self, lane: DedupProducer, number: int, payload: bytes) -> None:
        lane.send(number, RecalledMessage(payload, {}, "", "", 0), lambda found: self.receipts.update({number: found}))


def test_messages_go_in_their_order_and_each_gets_its_receipt() -> None:
    world = World()
    lane = world.open()
    for number, payload in enumerate([b"a", b"odd", b"b"], 3):
        world.send(lane, number, payload)
    assert (world.order, lane.full) == ([], False)
    assert lane.flush()
    assert world.order == [("border", b"a"), ("binding", b"odd"), ("border", b"b")]
    lane.close()
    assert world.receipts == {3: Receipt("7:3"), 4: Receipt("8:4"), 5: Receipt("7:5")}
    assert world.producer.closed == 1


def test_it_stops_behind_what_the_client_refuses_with_the_receipt_there() -> None:
    world = World()
    lane = world.open()
    world.sender.refused = b"never"
    for number, payload in enumerate([b"a", b"never", b"b"], 3):
        world.send(lane, number, payload)
    assert not lane.flush()
    assert world.order == [("border", b"a"), ("flush", b"")]
    assert world.receipts[4].never
    assert "5 bytes of payload" in world.receipts[4].problem
    assert "compressed as well" in world.receipts[4].problem
    assert lane.flush()
    assert world.order[2:] == [("border", b"b")]
    lane.close()


@pytest.mark.parametrize("bundled", [True, False])
def test_what_the_client_refuses_as_too_large_goes_compressed_under_its_number(*, bundled: bool) -> None:
    world = World()
    if not bundled:
        world.border = None
    lane = world.open()
    for number, payload in enumerate([b"a", b"large", b"b"], 3):
        world.send(lane, number, payload)
    assert lane.flush()
    lane.close()
    way = "border" if bundled else "binding"
    last = way if bundled else "ZSTD"  # the compressing producer stays, and the border sends by it
    assert world.order == [(way, b"a"), ("flush", b""), ("ZSTD", b"large"), (last, b"b")]
    assert {number: receipt.never for number, receipt in world.receipts.items()} == dict.fromkeys((3, 4, 5), False)
    assert all(receipt.position for receipt in world.receipts.values())


@pytest.mark.parametrize("bundled", [True, False])
def test_what_is_larger_than_its_topic_goes_compressed_and_others_as_they_are(*, bundled: bool) -> None:
    world = World()
    if not bundled:
        world.border = None
    lane, flat = world.open(largest=1_000), b"z" * 5_000
    for number, payload in enumerate([b"a", flat, flat, b"b"], 3):
        world.send(lane, number, payload)
    assert lane.flush()
    lane.close()
    way = "border" if bundled else "binding"
    assert world.order == [
        (way, b"a"), ("flush", b""), ("ZLib", flat), ("ZLib", flat), ("flush", b""), (way, b"b"),
    ]  # fmt: skip
    assert world.receipts.keys() == {3, 4, 5, 6}
    assert [one.compression for one in world.producers] == [None, pulsar.CompressionType.ZLib, None]
    assert all(one.closed == 1 for one in world.producers)


@pytest.mark.parametrize(("number", "never"), [(2, False), (3, True)])
def test_what_the_binding_refuses_may_be_stored_where_the_broker_has_its_number(number: int, *, never: bool) -> None:
    world = World(pulsar.InvalidMessage("no"))
    lane = world.open()
    world.send(lane, number, b"odd")
    assert not lane.flush()
    assert world.receipts == {number: Receipt("", "no", never=never)}
    assert lane.flush()
    lane.close()


@pytest.mark.parametrize("bundled", [True, False])
@pytest.mark.parametrize("number", [2, 3])
def test_a_number_that_does_not_rise_is_refused_and_never_given_to_the_broker(number: int, *, bundled: bool) -> None:
    """The broker would drop its message, and confirm it as one that it has."""
    world = World()
    if not bundled:
        world.border = None
    lane = world.open()
    world.send(lane, 3, b"a")
    with pytest.raises(RejectedError, match=f"its number {number} is not above 3, .*: plan again"):
        world.send(lane, number, b"b")
    world.send(lane, 4, b"c")
    assert lane.flush()
    lane.close()
    assert [payload for _, payload in world.order] == [b"a", b"c"]
    assert world.receipts.keys() == {3, 4}


def test_what_is_larger_than_its_topic_takes_does_not_wait() -> None:
    world = World()
    lane = world.open(largest=10)
    with pytest.raises(RejectedError, match="takes 10"):
        world.send(lane, 3, b"x" * 20)
    assert lane.flush()
    assert world.order == []
    lane.close()


def test_a_bundle_is_full_by_messages_or_by_bytes() -> None:
    world = World()
    lane = world.open()
    for number in range(1, 501):
        assert not lane.full
        world.send(lane, number, b"x")
    assert lane.full
    lane.flush()
    assert not lane.full
    world.send(lane, 501, b"x" * 1024 * 1024)
    assert lane.full
    lane.close()


def test_without_the_border_or_where_it_does_not_know_the_producer_the_binding_sends() -> None:
    world = World()
    world.border.producer = lambda *_: (_ for _ in ()).throw(TypeError("no producer"))
    assert type(world.open()) is DedupProducer
    assert [one.closed for one in world.producers] == [1, 0]
    world = World()
    world.border = None
    lane = world.open()
    world.send(lane, 3, b"a")
    assert (world.order, lane.full, lane.flush()) == ([("binding", b"a")], False, True)
    assert not isinstance(lane, BundledProducer)


@pytest.mark.parametrize(
    ("result", "position", "expected"),
    [
        (pulsar.Result.Ok, _position(7, 3), Receipt("7:3")),
        (pulsar.Result.Ok, _position(-1, -1), Receipt("")),
        (pulsar.Result.Ok, None, Receipt("")),
        (pulsar.Result.InvalidMessage, None, Receipt("", "InvalidMessage", never=True)),
        (pulsar.Result.AlreadyClosed, None, Receipt("", "AlreadyClosed")),
    ],
)
def test_a_result_of_the_client_is_a_receipt(result: Any, position: Any, expected: Receipt) -> None:
    found = list[Receipt]()
    pass_result(found.append, 5, result, position)
    assert found == [expected]


def test_receipts_of_what_is_stored_and_of_all_else_each_come_to_their_message() -> None:
    world = World()
    lane = world.open()
    for number, payload in enumerate([b"a", b"closed", b"known"], 3):
        world.send(lane, number, payload)
    lane.flush()
    lane.close()
    assert world.receipts == {3: Receipt("7:3"), 4: Receipt("", "AlreadyClosed"), 5: Receipt("")}
