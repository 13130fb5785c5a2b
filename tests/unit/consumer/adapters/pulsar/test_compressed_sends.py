"""Moves that are too large as they are: they go compressed, by a producer of their own, with all that they had."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pulsar
import pytest
from kodo_consumer.adapters.pulsar.producer_factory import ProducerOptions
from kodo_consumer.adapters.pulsar.publisher import PulsarPublisher
from kodo_consumer.core.values.broker import TOO_BIG, Confirmed, Receipt, Rejected
from kodo_consumer.core.values.envelope import Outgoing

from tests.services.polling import eventually
from tests.unit.consumer.client_library import Id

MAXIMUM: Final = 1_000
FLAT: Final = b"z" * 9_000
MOVE: Final = Outgoing("t", FLAT, {"shop": "Köln", "kodo-schema": "L1:3"}, "key", "ordering", 12, 34)
SENT: Final[dict[str, Any]] = {
    "properties": {"shop": "Köln", "kodo-schema": "L1:3"}, "partition_key": "key", "ordering_key": "ordering",
    "event_timestamp": 12, "deliver_at": 34, "disable_replication": True,
}  # fmt: skip


class Client:
    """Its producers refuse what is larger than the maximum on the wire. `stored`: options of a producer, what it sent."""

    def __init__(self) -> None:
        self.opened: list[dict[str, Any]] = []
        self.stored: list[tuple[dict[str, Any], bytes, dict[str, Any]]] = []

    def get_topic_partitions(self, topic: str) -> list[str]:
        return [topic]

    def create_producer(self, _: str, **options: Any) -> ClientProducer:
        self.opened.append(options)
        return ClientProducer(self, options)

    def close(self) -> None: ...

    def shutdown(self) -> None: ...


class ClientProducer:
    def __init__(self, client: Client, options: dict[str, Any]) -> None:
        self._client, self._options = client, options

    def send_async(self, payload: bytes, callback: Callable[[Any, Any], None], **given: Any) -> None:
        packs = "compression_type" in self._options
        if len(zlib.compress(payload) if packs else payload) > MAXIMUM:
            callback(pulsar.Result.MessageTooBig, None)
            return
        self._client.stored.append((self._options, payload, given))
        callback(pulsar.Result.Ok, Id())

    def is_connected(self) -> bool:
        return True

    def close(self) -> None: ...


@contextmanager
def publishing(**options: Any) -> Iterator[tuple[Client, Callable[..., dict[int, Receipt]]]]:
    """A client, and what sends messages and awaits their receipts."""
    client, receipts = Client(), dict[int, Receipt]()
    publisher = PulsarPublisher(lambda: client, [], receipts.update, ProducerOptions(**options))

    def send(*messages: Outgoing) -> dict[int, Receipt]:
        first = len(receipts)
        publisher.publish(list(enumerate(messages, first)))
        eventually(lambda: len(receipts) == first + len(messages))
        return receipts

    yield client, send
    publisher.close()


@pytest.mark.parametrize(
    ("largest", "compression"),
    [({}, pulsar.CompressionType.ZSTD), ({"t": MAXIMUM}, pulsar.CompressionType.ZLib)],
    ids=["the broker's maximum", "the topic's"],
)
def test_a_move_that_is_too_large_goes_compressed_and_keeps_all_else(
    largest: dict[str, int], compression: pulsar.CompressionType
) -> None:
    """It was parked: refused by its lane and by the dead letters, and handled again at each start."""
    with publishing(moves=True, largest=largest) as (client, send):
        receipts = send(MOVE)
    assert isinstance(receipts[0], Confirmed)
    [(options, payload, given)] = client.stored
    assert (payload, given) == (FLAT, SENT)
    assert options["compression_type"] is compression
    assert not options["batching_enabled"]
    assert not options.get("chunking_enabled")


def test_others_go_on_as_they_are_before_and_behind_it() -> None:
    with publishing(moves=True) as (client, send):
        for payload in (b"1", FLAT, b"2", FLAT, b"3"):
            send(Outgoing("t", payload, {}))
    assert ["compression_type" in options for options, _, _ in client.stored] == [False, True, False, True, False]
    assert len(client.opened) == 2


@pytest.mark.parametrize("largest", [{}, {"t": MAXIMUM}])
def test_one_that_is_too_large_compressed_as_well_is_refused_and_the_reason_says_so(largest: dict[str, int]) -> None:
    with publishing(moves=True, largest=largest) as (client, send):
        noise = b"".join(zlib.compress(b"%d" % number)[2:] for number in range(400))
        receipts = send(Outgoing("t", noise, {}), Outgoing("t", b"2", {}))
    assert receipts[0] == Rejected(f"{TOO_BIG}, compressed as well; messages are not sent on in chunks")
    assert isinstance(receipts[1], Confirmed)
    assert [payload for _, payload, _ in client.stored] == [b"2"]


@pytest.mark.parametrize("largest", [{}, {"t": MAXIMUM}])
def test_what_an_application_sends_is_refused_as_it_is(largest: dict[str, int]) -> None:
    with publishing(largest=largest) as (client, send):
        receipts = send(Outgoing("t", FLAT, {}))
    assert receipts == {0: Rejected(TOO_BIG)}
    assert not any("compression_type" in options for options in client.opened)


def _algorithms(client: Client) -> list[Any]:
    return [options.get("compression_type") for options, _, _ in client.stored]


def test_a_topic_that_compresses_sends_all_in_its_way() -> None:
    with publishing(compression={"t": "lz4"}) as (client, send):
        receipts = send(
            Outgoing("t-partition-0", b"1", {}), Outgoing("t-partition-0", FLAT, {}), Outgoing("u", b"2", {})
        )
    assert all(isinstance(receipt, Confirmed) for receipt in receipts.values())
    assert sorted(_algorithms(client), key=str) == sorted(
        [pulsar.CompressionType.LZ4, pulsar.CompressionType.LZ4, None], key=str
    )


@pytest.mark.parametrize("ordered", [(), ("t",)])
def test_a_message_that_is_refused_by_every_algorithm_is_told_once(ordered: tuple[str, ...]) -> None:
    """Where a reader keeps order it is not tried alone: it would overtake."""
    noise = b"".join(zlib.compress(b"%d" % number)[2:] for number in range(400))
    with publishing(compression={"t": "lz4"}, ordered=ordered) as (client, send):
        receipts = send(Outgoing("t", noise, {}))
    tried = [options["compression_type"] for options in client.opened]
    lz4, zstd = pulsar.CompressionType.LZ4, pulsar.CompressionType.ZSTD
    assert tried == ([lz4] if ordered else [lz4, zstd])
    assert receipts == {0: Rejected(TOO_BIG)}
