"""A message of a client in another language, with bytes where text belongs: it dies, and its lane goes on."""

from __future__ import annotations

from pathlib import Path

import _pulsar
import pulsar
import pytest
from kodo_consumer import Consumer, Message

from tests.brokers.broker import Broker
from tests.brokers.topics import backlog, create_topics
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
TOPOLOGY = """
version: 1
name: poison
tenant: {tenant}
namespace: ns
topics:
  jobs: {{subscriptions: {{work: {{states: []}}}}}}
"""


def test_a_message_with_bytes_for_text_goes_to_the_dead_letters_and_the_next_is_handled(
    broker: Broker, namespace: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(TOPOLOGY.format(tenant=namespace.partition("/")[0]), encoding="utf-8")
    create_topics(broker, str(file))
    topic = f"persistent://{namespace}/jobs"
    client = pulsar.Client(broker.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(topic)
    for poison in (
        _pulsar.MessageBuilder().content(b"properties").property("name", b"\xff\xfe").partition_key("k"),
        _pulsar.MessageBuilder().content(b"key").property("name", "anna").partition_key(b"\xff"),
    ):
        producer._producer.send(poison.ordering_key("o").event_timestamp(1_234).build())
    producer.send(b"good")

    consumer = Consumer.load(
        file, topic="jobs", subscription="work", admin_url=broker.admin_url, broker_url=broker.broker_url, environ={}
    )
    seen: list[bytes] = []

    @consumer.handler
    def handle(message: Message) -> None:
        seen.append(message.data)

    consumer.start()
    eventually(lambda: not backlog(broker, topic, "work"))
    consumer.stop()
    assert seen == [b"good"]
    assert "a message goes to the dead letters: not UTF-8 text" in caplog.text
    reader = client.create_reader(f"{topic}-work-DLQ-partition-0", pulsar.MessageId.earliest)
    letters = {letter.data(): letter for letter in (reader.read_next(5_000), reader.read_next(5_000))}
    assert {(letter.event_timestamp(), letter.ordering_key()) for letter in letters.values()} == {(1_234, "o")}
    of_properties, of_key = letters[b"properties"], letters[b"key"]
    assert of_properties.properties()["kodo-reason"] == "not UTF-8 text, and lost: properties"
    assert (of_properties.partition_key(), "name" in of_properties.properties()) == ("k", False)
    assert of_key.properties()["kodo-reason"] == "not UTF-8 text, and lost: key"
    assert (of_key.partition_key(), of_key.properties()["name"]) == ("", "anna")
    client.close()
