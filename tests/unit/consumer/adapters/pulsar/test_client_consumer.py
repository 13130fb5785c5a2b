"""Lanes are read by the native border where it can, and what it leaves to the binding is decoded as everywhere."""

from __future__ import annotations

import logging
from typing import Any

import pulsar
import pytest
from kodo_consumer.adapters.pulsar import client_consumer
from kodo_consumer.adapters.pulsar.client_consumer import ClientConsumer, NativeConsumer, Subscriber
from kodo_consumer.adapters.pulsar.delivery_decoding import ReadResult
from kodo_consumer.core.values.broker import LaneRequest
from kodo_consumer.core.values.envelope import Delivery

from tests.unit.consumer.client_library import Client, Silent

REQUEST = LaneRequest("t", "s", "shared", "c", queue=100, batch=50, batch_bytes=1_000)


class Reader:
    """The border's reader."""

    def __init__(self, *found: tuple[list[Any], list[tuple[int, Any]], int]) -> None:
        self.found, self.asked = list(found), list[tuple[Any, ...]]()
        self.acked: list[object] = []
        self.lost = 0

    def read(self, *asked: Any) -> tuple[list[Any], list[tuple[int, Any]], int]:
        self.asked.append(asked)
        return self.found.pop(0)

    def acknowledge(self, tokens: Any) -> list[object]:
        self.acked += [token for token in tokens if isinstance(token, int)]
        return [token for token in tokens if not isinstance(token, int)]

    def failures(self) -> int:
        return self.lost


class Border:
    """The border, with one reader; None: it knows no consumer."""

    def __init__(self, reader: Reader | None) -> None:
        self._reader = reader

    def reader(self, _consumer: Any) -> Reader:
        if self._reader is None:
            raise RuntimeError("topic() differs")
        return self._reader


def _delivery(number: int) -> Delivery:
    return Delivery((1, number, -1), number, b"x", {}, "", "", 0, 0)


def _consumer(reader: Reader) -> tuple[NativeConsumer, Silent]:
    silent = Silent()
    return NativeConsumer(silent, REQUEST, Border(reader)), silent  # type: ignore[arg-type]


def test_a_bundle_has_a_limit_in_messages_and_in_bytes() -> None:
    reader = Reader(([_delivery(1)], [], 0))
    consumer, _ = _consumer(reader)
    assert consumer.read("first", at_once=False) == ([_delivery(1)], 0)
    assert reader.asked == [("first", 50, 1_000, 5)]


def test_a_poll_takes_one_message_and_does_not_wait() -> None:
    reader = Reader(([_delivery(1)], [], 0), ([], [], 0))
    consumer, _ = _consumer(reader)
    assert (consumer.poll(), consumer.poll()) == (([_delivery(1)], 0), ([], 0))
    assert reader.asked == [(None, 1, 1, 0)] * 2


def test_what_only_the_binding_reads_is_decoded_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_consumer, "_message", lambda raw: raw)
    consumer, _ = _consumer(Reader(([_delivery(1), None, _delivery(3)], [(1, "odd")], 0)))
    decoded = ReadResult([_delivery(2)], 7)
    monkeypatch.setattr(consumer._decoder, "decode", lambda messages: decoded if messages == ["odd"] else None)
    assert consumer.read(None, at_once=False) == ([_delivery(1), _delivery(2), _delivery(3)], 7)


def test_an_error_is_told_once_what_came_before_it_is_delivered() -> None:
    closed = int(pulsar.Result.AlreadyClosed)
    consumer, _ = _consumer(Reader(([_delivery(1)], [], closed), ([], [], closed)))
    assert consumer.read(None, at_once=False).deliveries == [_delivery(1)]
    with pytest.raises(pulsar.PulsarException, match="AlreadyClosed"):
        consumer.read(None, at_once=False)


def test_tokens_of_either_kind_are_acknowledged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kodo.consumer")
    reader = Reader()
    consumer, silent = _consumer(reader)
    reader.lost = 2
    consumer.acknowledge([1, "a", 2, "bad", "b"])
    assert (reader.acked, silent.acked) == ([1, 2], ["a", "b"])
    assert "t: 2 acknowledgements lost" in caplog.messages


def test_a_lane_with_schemas_is_read_by_the_binding() -> None:
    subscriber = Subscriber(Client(), Border(Reader()))  # type: ignore[arg-type]
    assert type(subscriber.subscribe(REQUEST)) is NativeConsumer
    with_schemas = LaneRequest("t", "s", "shared", "c", queue=100, batch=50, batch_bytes=1_000, schemas="L1")
    assert type(subscriber.subscribe(with_schemas)) is ClientConsumer
    assert type(Subscriber(Client()).subscribe(REQUEST)) is ClientConsumer


def test_a_consumer_that_the_border_does_not_know_is_read_by_the_binding(caplog: pytest.LogCaptureFixture) -> None:
    subscriber = Subscriber(Client(), Border(None))  # type: ignore[arg-type]
    assert type(subscriber.subscribe(REQUEST)) is ClientConsumer
    assert caplog.messages == ["t: read without the native border: topic() differs"]
