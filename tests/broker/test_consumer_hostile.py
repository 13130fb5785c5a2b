"""Messages of somebody who means harm: what a producer may write into metadata ends no thread and stops no lane."""

from __future__ import annotations

import json
import random
import threading
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Consumer, Dead, Message

from tests.brokers.broker import Broker
from tests.brokers.topics import backlog, create_topics, messages
from tests.brokers.wire_producer import WireProducer, binary, numeric, wire_metadata
from tests.hostile.campaign import health
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
TOPOLOGY = """
version: 1
name: hostile
tenant: {tenant}
namespace: ns
topics:
  jobs: {{partitions: 1, fair_by: uid, backup: true, subscriptions: {{work: {{states: []}}}}}}
"""
LIMIT = 5 << 20
"""Bytes of a payload that a broker takes, if nobody says otherwise; with metadata it may be 10 KiB more."""


def worker_says(consumer: Consumer, path: str) -> tuple[int, dict[str, Any]]:
    """Status and what is told of the only worker."""
    try:
        with urllib.request.urlopen(f"http://{consumer.address}{path}", timeout=10) as answer:
            status, body = answer.status, answer.read()
    except urllib.error.HTTPError as problem:
        status, body = problem.code, problem.read()
    return status, json.loads(body)["workers"][0]


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
        if message.tenant == "mallory":
            raise Dead("not what it should be")
        with self._lock:
            self.seen.append(message.data)

    def producer(self, suffix: str = "") -> WireProducer:
        return WireProducer(self.broker.broker_url, f"{self.topic}{suffix}-partition-0")

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://{self.consumer.address}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def nothing_left(self) -> bool:
        return not backlog(self.broker, self.topic, "work")


@pytest.fixture
def setting(broker: Broker, namespace: str, tmp_path: Path) -> Setting:
    return Setting(broker, namespace, tmp_path)


def key(name: bytes, *more: bytes) -> bytes:
    """A key that a payload is said to be encrypted with."""
    return binary(13, binary(1, name) + binary(2, b"wrapped \xff") + b"".join(more))


def properties(**texts: str) -> bytes:
    """Properties of a message."""
    return b"".join(binary(4, binary(1, name.encode()) + binary(2, text.encode())) for name, text in texts.items())


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


def test_messages_that_no_topic_takes_keep_nobody_else_from_being_handled(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    """At the broker's limit there is no room for what a move adds: such a message has nowhere to go. Ten of them were the
    look-ahead's bytes.
    """
    large = wire_metadata(properties(uid="mallory", note="y" * 9_700))
    alice = wire_metadata(properties(uid="alice"))
    noise = random.Random(7).randbytes(LIMIT)
    with setting.producer() as producer:
        for _ in range(30):
            producer.begin(large, noise)
        for number in range(50):
            producer.begin(alice, b"%d" % number)
        producer.receipts()
        setting.consumer.start()
        try:
            eventually(lambda: worker_says(setting.consumer, "/readyz")[1]["parked"] == 30, within=60)
            eventually(lambda: len(setting.seen) == 50)
            producer.send(alice, b"and later")
            eventually(lambda: len(setting.seen) == 51)
            assert (health(setting.consumer, "/healthz"), health(setting.consumer, "/readyz")) == ((200, []), (200, []))
            assert setting.consumer._running is not None
            lookahead = setting.consumer._running.worker.engine.lookahead
            eventually(lambda: lookahead.bytes == 0)  # the last handler has been called, and may not have ended
        finally:
            setting.consumer.stop()
    (told, *_) = (line for line in caplog.messages if line.startswith("parked: "))
    assert (
        f"{setting.topic}-work-DLQ will not take it: too big, compressed as well; messages are not sent on in chunks; it stays unacknowledged"
        in told
    )
    eventually(lambda: backlog(setting.broker, setting.topic, "work") == 30)  # the broker keeps them


def test_an_encrypted_batch_that_says_it_holds_a_million_messages_stops_no_lane(setting: Setting) -> None:
    """The broker counts a million messages as sent, the client library one as received: the lane has no room for the broker."""
    setting.consumer.start()
    try:
        with setting.producer() as producer:
            producer.send(wire_metadata(key(b"k") + numeric(11, 1_000_000)), b"ciphertext")
            eventually(setting.nothing_left)
            for number in range(20):
                producer.send(wire_metadata(), b"good-%d" % number)
        eventually(setting.nothing_left)
        eventually(lambda: health(setting.consumer, "/readyz") == (200, []))  # until the next reading it says "blocked"
    finally:
        setting.consumer.stop()
    assert sorted(setting.seen) == sorted(b"good-%d" % number for number in range(20))
    assert [letter.data() for letter in messages(setting.broker, f"{setting.topic}-work-DLQ")] == [b"ciphertext"]


def test_what_the_client_library_throws_away_and_acknowledges_is_told(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    with setting.producer() as producer:
        places = [
            "{}:{}".format(*producer.send(wire_metadata(numeric(8, 2) + numeric(9, 5)), b"no zlib")) for _ in range(3)
        ]
        producer.send(wire_metadata(), b"good")
    setting.consumer.start()
    try:
        eventually(setting.nothing_left)
        eventually(lambda: counted(setting.consumer, "thrown_away") == 3)
    finally:
        setting.consumer.stop()
    assert setting.seen == [b"good"]
    (told,) = [record.getMessage() for record in caplog.records if "thrown_away" in record.getMessage()]
    assert f"{setting.topic}-partition-0: Pulsar's client library cannot decompress the message at {places[0]}" in told


def counted(consumer: Consumer, kind: str) -> float:
    """Alarms of this kind, as /metrics says."""
    with urllib.request.urlopen(f"http://{consumer.address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("kodo_consumer_alarms_total{") and f'kind="{kind}"' in line
    )


def claims(**properties: object) -> bytes:
    """Metadata with these control properties (`due` for `kodo-due`), published by its own account in the year 33,658."""
    texts = {f"kodo-{name}": str(value) for name, value in properties.items()}
    told = b"".join(binary(4, binary(1, name.encode()) + binary(2, text.encode())) for name, text in texts.items())
    return wire_metadata(numeric(3, 10**15 - 1) + told)


def test_a_due_time_that_a_producer_claims_on_a_backup_level_pauses_nothing(setting: Setting) -> None:
    with setting.producer("-B1") as producer:
        producer.send(claims(due=10**15), b"claims to be due")
        producer.send(claims(due=10**15, hop=1), b"claims to be moved")
        producer.send(wire_metadata(), b"quiet")
    setting.consumer.start()
    try:
        eventually(lambda: len(setting.seen) == 2)
        paused = [line for line in setting.metrics().splitlines() if line.startswith("kodo_consumer_lane_paused{")]
        assert [line.rpartition(" ")[2] for line in paused] == ["0.0", "0.0"]
    finally:
        setting.consumer.stop()
    assert sorted(setting.seen) == [b"claims to be due", b"quiet"], "the other waits in memory, alone"


def test_what_is_thrown_away_since_the_last_look_is_told_by_a_worker_that_leaves(
    setting: Setting, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for period in ("_WATCH_EVERY", "_LOG_EVERY"):  # no look of its own
        monkeypatch.setattr(f"kodo_consumer.adapters.pulsar.pulsar_broker.{period}", 3_600.0)
    with setting.producer() as producer:
        producer.send(wire_metadata(numeric(8, 2) + numeric(9, 5)), b"no zlib")
    setting.consumer.start()
    try:
        eventually(setting.nothing_left)
    finally:
        setting.consumer.stop()
    assert [record for record in caplog.records if record.getMessage().startswith("thrown_away: ")]
