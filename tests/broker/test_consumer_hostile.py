"""Messages of somebody who means harm: what a producer may write into metadata ends no thread and stops no lane."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from consumer import Consumer, Message
from tests.conftest import Broker
from tests.support import backlog, create_topics, eventually, messages
from tests.wire_producer import WireProducer, binary, wire_metadata

pytestmark = pytest.mark.broker
TOPOLOGY = """
version: 1
name: hostile
tenant: {tenant}
namespace: ns
topics:
  jobs: {{partitions: 1, subscriptions: {{work: {{states: []}}}}}}
"""


def health(consumer: Consumer, path: str) -> tuple[int, list[str]]:
    """Status and what the only worker says."""
    try:
        with urllib.request.urlopen(f"http://{consumer.address}{path}", timeout=10) as answer:
            status, body = answer.status, answer.read()
    except urllib.error.HTTPError as problem:
        status, body = problem.code, problem.read()
    return status, json.loads(body)["workers"][0]["problems"]


class Setting:
    """A topology with one lane, and a consumer of it whose handler keeps what it sees."""

    def __init__(self, broker: Broker, namespace: str, folder: Path) -> None:
        self.broker = broker
        self.file = folder / "t.yaml"
        self.file.write_text(TOPOLOGY.format(tenant=namespace.partition("/")[0]), encoding="utf-8")
        create_topics(broker, str(self.file))
        self.topic = f"persistent://{namespace}/jobs"
        self.seen: list[bytes] = []
        self._lock = threading.Lock()
        at = {"admin_url": broker.admin_url, "broker_url": broker.broker_url}
        self.consumer = Consumer.load(self.file, topic="jobs", subscription="work", environ={}, **at)
        self.consumer.settings = replace(self.consumer.settings, port=0)
        self.consumer.handler(self._handle)

    def _handle(self, message: Message) -> None:
        with self._lock:
            self.seen.append(message.data)

    def producer(self) -> WireProducer:
        return WireProducer(self.broker.broker_url, f"{self.topic}-partition-0")

    def nothing_left(self) -> bool:
        return not backlog(self.broker, self.topic, "work")


@pytest.fixture
def setting(broker: Broker, namespace: str, tmp_path: Path) -> Setting:
    return Setting(broker, namespace, tmp_path)


def key(name: bytes, *more: bytes) -> bytes:
    """A key that a payload is said to be encrypted with."""
    return binary(13, binary(1, name) + binary(2, b"wrapped \xff") + b"".join(more))


@pytest.mark.parametrize(
    ("encryption", "lost"),
    [
        (key(b"\xff\xfe"), "encryption"),
        (key(b"k", binary(3, binary(1, b"\xff") + binary(2, b"\xfe"))), "encryption"),
        (key(b"k") + binary(14, b"\xff"), "encryption"),
        (
            key(b"\xff") + binary(4, binary(1, b"\xff") + binary(2, b"v")) + binary(6, b"\xff"),
            "properties, key, encryption",
        ),
    ],
    ids=["a key's name", "a key's metadata", "algorithm", "everything"],
)
def test_encryption_that_is_no_text_ends_no_lane_and_its_payload_is_kept(
    setting: Setting, encryption: bytes, lost: str
) -> None:
    with setting.producer() as producer:
        producer.send(wire_metadata(encryption), b"ciphertext")
        producer.send(wire_metadata(), b"good")
    setting.consumer.start()
    try:
        eventually(setting.nothing_left)
        assert (health(setting.consumer, "/healthz"), health(setting.consumer, "/readyz")) == ((200, []), (200, []))
    finally:
        setting.consumer.stop()
    assert setting.seen == [b"good"]
    (letter,) = messages(setting.broker, f"{setting.topic}-work-DLQ")
    assert letter.data() == b"ciphertext"
    told = letter.properties()
    assert told["kodo-reason"] == f"not UTF-8 text, and lost: {lost}; its payload is encrypted for somebody else"
    assert json.loads(told["kodo-encryption"])["keys"][0]["value"] == "d3JhcHBlZCD/"
