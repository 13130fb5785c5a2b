"""A message of a client in another language, with bytes where text belongs: it dies, and its lane goes on."""

from __future__ import annotations

from pathlib import Path

import _pulsar
import pulsar
import pytest

from consumer import Consumer, Message
from tests.conftest import Broker
from tests.support import backlog, create_topics, eventually

pytestmark = pytest.mark.broker
TOPOLOGY = """
version: 1
name: poison
tenant: {tenant}
namespace: ns
topics:
  jobs: {{subscriptions: {{work: {{states: []}}}}}}
"""


def test_a_message_with_bytes_for_text_goes_to_the_dead_letters_and_the_next_is_handled(
    broker: Broker, namespace: str, tmp_path: Path
) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(TOPOLOGY.format(tenant=namespace.partition("/")[0]), encoding="utf-8")
    create_topics(broker, str(file))
    topic = f"persistent://{namespace}/jobs"
    client = pulsar.Client(broker.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(topic)
    poison = _pulsar.MessageBuilder().content(b"poison")
    poison.property("name", b"\xff\xfe")
    producer._producer.send(poison.build())
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
    reader = client.create_reader(f"{topic}-work-DLQ-partition-0", pulsar.MessageId.earliest)
    dead = reader.read_next(5_000)
    assert (dead.data(), dead.properties()["kodo-reason"]) == (b"poison", "its key or properties are not UTF-8 text")
    client.close()
