"""Numbers on the real broker: partitions as Pulsar's own client chooses them, and a sole reader that finds what is missing."""

from __future__ import annotations

import threading
from pathlib import Path

import pulsar
import pytest
from kodo_consumer import Consumer, Message, Producer
from kodo_consumer.core.sequences.sequencer import key_hash

from kodoctl.protocol.sequence_numbers import ProducerWatermark, read_number
from tests.brokers.broker import Broker
from tests.brokers.topics import create_topics
from tests.services.polling import eventually

pytestmark = pytest.mark.broker
TOPOLOGY = """
version: 1
name: numbers
tenant: {tenant}
namespace: ns
topics:
  jobs:
    partitions: 4
    subscriptions:
      alone: {{type: failover, states: [], dead_letter: false, on_failure: block}}
"""
KEYS = [*(f"key-{number}" for number in range(60)), "ü", "日本", "🙂"]


@pytest.fixture
def file(broker: Broker, tenant: str, tmp_path: Path) -> Path:
    assert broker.admin("PUT", f"namespaces/{tenant}/ns").ok
    path = tmp_path / "t.yaml"
    path.write_text(TOPOLOGY.format(tenant=tenant), encoding="utf-8")
    create_topics(broker, str(path))
    return path


def test_numbers_name_the_partition_they_are_on_and_count_it_without_holes(
    broker: Broker, tenant: str, file: Path
) -> None:
    client = pulsar.Client(broker.broker_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    try:
        reader = client.subscribe(
            f"persistent://{tenant}/ns/jobs", "look", initial_position=pulsar.InitialPosition.Earliest
        )
        with Producer.load(file, topic="jobs", **broker.client_options) as producer:
            for key in KEYS:
                producer.post(b"keyed", key=key)
            for _ in range(1_000):
                producer.post(b"any")
        places: dict[str, int] = {}
        counts: dict[int, list[int]] = {0: [], 1: [], 2: [], 3: []}
        ends: dict[int, int] = {}
        while len(ends) < 4:
            message = reader.receive(10_000)
            partition, number = message.message_id().partition(), read_number(message.properties()["kodo-seq"])
            assert number.partition == partition
            if isinstance(number, ProducerWatermark):
                assert number.end
                ends[partition] = number.high
            else:
                counts[partition].append(number.number)
                places[message.partition_key()] = partition
            reader.acknowledge(message)
    finally:
        client.close()
    assert {partition: list(range(1, ends[partition] + 1)) for partition in counts} == counts
    assert sum(ends.values()) == len(KEYS) + 1_000
    assert min(ends.values()) > 100
    assert {places[key] == key_hash(key) % 4 for key in KEYS} == {True}


def test_a_sole_reader_finds_what_never_came(
    broker: Broker, tenant: str, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        "kodo_consumer.core.sequences.gap_detector._SKEW", -3_600_000
    )  # it need not read for a minute before the producer begins
    monkeypatch.setattr("kodo_consumer.core.sequences.gap_detector.GRACE", 1.0)
    consumer = Consumer.load(file, topic="jobs", subscription="alone", **broker.client_options)
    done: list[bytes] = []
    lock = threading.Lock()

    @consumer.handler
    def handle(message: Message) -> None:
        with lock:
            done.append(message.data)

    consumer.start()
    try:
        with Producer.load(file, topic="jobs", **broker.client_options) as producer:
            for number in range(500):
                if number in (100, 101, 499):
                    assert producer._sender._out._numbering is not None
                    producer._sender._out._numbering.next(number % 4)  # numbered, and lost on the way
                producer.post(b"%d" % number, key=f"k{number % 20}")
        eventually(lambda: len(done) == 500)
        counts = consumer._running.worker.counts  # type: ignore[union-attr]
        eventually(lambda: counts.missing == 3)
        assert counts.duplicated == 0
    finally:
        consumer.stop()
    assert "never came" in caplog.text
