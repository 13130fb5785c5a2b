"""Payloads on the real broker: Avro keeps the schema version it was written with on every way; what is encrypted for somebody
else goes to the dead letters as it is; hostile payloads die once.
"""

from __future__ import annotations

import json
import subprocess
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar
import pytest
from kodo_consumer import Consumer, Message, MoveTo, Producer, Retry
from kodo_consumer.adapters.pulsar.schema_passthrough import PassThrough
from kodo_consumer.core.payloads.codec import Payloads

from kodoctl.errors import KodoctlError
from tests.brokers.broker import Broker
from tests.brokers.topics import backlog, create_topics
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
HEAD = "version: 1\nname: payloads\ntenant: {tenant}\nnamespace: ns\ntopics:\n"
OLD = {"type": "record", "name": "Order", "fields": [{"name": "customer", "type": "string"}]}
NEW = {
    "type": "record", "name": "Order",
    "fields": [{"name": "amount", "type": "int", "default": 0}, {"name": "customer", "type": "string"}],
}  # fmt: skip


class Setting:
    """A topology on the broker and a client without it."""

    def __init__(self, broker: Broker, namespace: str, folder: Path) -> None:
        self.broker, self.namespace, self.folder = broker, namespace, folder
        self.file = folder / "t.yaml"
        self.place = broker.client_options
        self.client = pulsar.Client(
            broker.broker_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, str(folder / "log"))
        )

    def write(self, topics: str, head: str = HEAD) -> None:
        text = head.format(tenant=self.namespace.partition("/")[0])
        self.file.write_text(text + topics, encoding="utf-8")

    def topic(self, name: str) -> str:
        return f"persistent://{self.namespace}/{name}"

    def upload(self, name: str, schema: Any) -> None:
        body = {"type": "AVRO", "schema": json.dumps(schema), "properties": {}}
        answer = self.broker.admin("POST", f"schemas/{self.namespace}/{name}/schema", body)
        assert answer.ok, answer.text

    def enforce(self, name: str) -> None:
        answer = self.broker.admin("POST", f"persistent/{self.namespace}/{name}/schemaValidationEnforced", True)
        assert answer.ok, answer.text

    def consumer(self) -> Consumer:
        return Consumer.load(self.file, topic="jobs", subscription="work", **self.place)

    @contextmanager
    def running(self, consumer: Consumer) -> Iterator[None]:
        consumer.start()
        try:
            yield
        finally:
            consumer.stop()

    def read(self, name: str) -> pulsar.Message:
        reader = self.client.create_reader(f"{self.topic(name)}-partition-0", pulsar.MessageId.earliest)
        return reader.read_next(10_000)


@pytest.fixture
def setting(broker: Broker, namespace: str, tmp_path: Path) -> Iterator[Setting]:
    found = Setting(broker, namespace, tmp_path)
    yield found
    found.client.close()


def test_avro_keeps_the_version_it_was_written_with_through_a_wait_a_level_and_the_dead_letters(
    setting: Setting,
) -> None:
    (setting.folder / "order.avsc").write_text(json.dumps(NEW), encoding="utf-8")
    setting.write(
        "  jobs:\n    levels: double\n    payload: {type: avro, schema: order.avsc}\n"
        "    subscriptions: {work: {in_place: [], states: [retrying], retrying: {delays: [1s], attempts: 1}}}\n"
    )
    create_topics(setting.broker, str(setting.file))
    for name in ("jobs", "jobs-L2"):
        setting.upload(name, OLD)
        setting.upload(name, NEW)
        setting.enforce(name)
    older = Payloads("avro", OLD).encode({"customer": "old"})
    setting.client.create_producer(setting.topic("jobs"), schema=PassThrough(OLD)).send(older)
    with Producer.load(setting.file, topic="jobs", **setting.place) as producer:
        producer.send({"customer": "new", "amount": 7})
        with pytest.raises(KodoctlError, match="K716"):
            producer.send({"customer": 1})
    consumer = setting.consumer()
    seen: list[tuple[str, Any]] = []
    lock = threading.Lock()

    @consumer.handler
    def handle(message: Message) -> None:
        with lock:
            seen.append((f"{message.level} {message.state}", message.value))
        if message.level == "L1" and message.state == "ready":
            raise Retry
        if message.level == "L1":
            raise MoveTo("L2")
        raise ValueError

    with setting.running(consumer):
        eventually(lambda: len(seen) >= 6 and not backlog(setting.broker, setting.topic("jobs-L2"), "work"))
    for place in ("L1 ready", "L1 retrying", "L2 ready"):
        values = [value for found, value in seen if found == place]
        assert {"amount": 0, "customer": "old"} in values, place
        assert {"amount": 7, "customer": "new"} in values, place
    reader = setting.client.create_reader(f"{setting.topic('jobs-L2')}-partition-0", pulsar.MessageId.earliest)
    versions = {(found := reader.read_next(10_000)).data(): found._message.int_schema_version() for _ in range(2)}
    assert versions[older] == 0, "moved to a ready topic under the version it was written with"
    assert sorted(versions.values()) == [0, 1]


def test_avro_in_processes(setting: Setting) -> None:
    (setting.folder / "order.avsc").write_text(json.dumps(NEW), encoding="utf-8")
    setting.write(
        "  jobs:\n    payload: {type: avro, schema: order.avsc}\n"
        "    subscriptions: {work: {states: []}}\n"
    )  # fmt: skip
    create_topics(setting.broker, str(setting.file))
    setting.upload("jobs", OLD)
    setting.upload("jobs", NEW)
    older = Payloads("avro", OLD).encode({"customer": "old"})
    setting.client.create_producer(setting.topic("jobs"), schema=PassThrough(OLD)).send(older)
    consumer = setting.consumer()
    consumer.handler(process=1)(dies_with_value)
    with setting.running(consumer):
        eventually(lambda: not backlog(setting.broker, setting.topic("jobs"), "work"))
    assert setting.read("jobs-work-DLQ").properties()["kodo-reason"] == "[('amount', 0), ('customer', 'old')]"


def dies_with_value(message: Message) -> None:
    from kodo_consumer import Dead

    raise Dead(str(sorted(message.value.items())))


def test_what_is_encrypted_for_somebody_else_is_moved_as_it_is_and_can_still_be_read_by_its_owner(
    setting: Setting,
) -> None:
    setting.write("  jobs: {subscriptions: {work: {states: []}}}\n")
    create_topics(setting.broker, str(setting.file))
    private, public = str(setting.folder / "private.pem"), str(setting.folder / "public.pem")
    subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-out", private], check=True, capture_output=True)
    subprocess.run(["openssl", "rsa", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    keys = pulsar.CryptoKeyReader(public, private)
    topic = setting.topic("jobs")
    producer = setting.client.create_producer(topic, encryption_key="owner", crypto_key_reader=keys)
    producer.send(b"secret", properties={"uid": "u"})
    setting.client.create_producer(topic).send(b"plain")
    consumer = setting.consumer()
    seen: list[bytes] = []

    @consumer.handler
    def handle(message: Message) -> None:
        seen.append(message.data)

    with setting.running(consumer):
        eventually(lambda: not backlog(setting.broker, topic, "work"))
    assert seen == [b"plain"]
    dead = setting.read("jobs-work-DLQ")
    assert dead.properties()["kodo-reason"] == "its payload is encrypted for somebody else"
    assert dead.properties()["uid"] == "u"
    assert b"secret" not in dead.data()
    found = json.loads(dead.properties()["kodo-encryption"])
    reader = setting.client.create_reader(
        f"{topic}-partition-0",
        pulsar.MessageId.earliest,
        crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME,
    )
    raw = reader.read_next(10_000)
    context = raw.encryption_context()
    assert context is not None
    assert dead.data() == raw.data()
    assert [(key["name"], b64decode(key["value"])) for key in found["keys"]] == [("owner", context.keys()[0].value)]
    assert b64decode(found["param"]) == context.param()


def test_a_namespace_that_requires_encryption_is_refused_at_start(setting: Setting) -> None:
    head = HEAD.replace("topics:", "namespace_policies: {{encryption_required: true}}\ntopics:")
    setting.write("  jobs: {subscriptions: {work: {}}}\n", head)
    with pytest.raises(KodoctlError, match="K757"):
        setting.consumer()


def test_hostile_payloads_die_once_and_the_next_is_handled(setting: Setting) -> None:
    (setting.folder / "o.json").write_text('{"type": "object", "required": ["amount"]}', encoding="utf-8")
    setting.write(
        "  jobs:\n    payload: {type: json, schema: o.json}\n"
        "    subscriptions: {work: {in_place: [], retrying: {delays: [1s], attempts: 30}}}\n"
    )
    create_topics(setting.broker, str(setting.file))
    producer = setting.client.create_producer(
        setting.topic("jobs"), compression_type=pulsar.CompressionType.ZLib, batching_enabled=False
    )
    hostile = [
        b"{",
        b"[" * 4_000_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b"\x00" * 5_000_000,
        b"9" * 1_000_000,
    ]
    for payload in hostile:
        producer.send(payload)
    setting.client.create_producer(setting.topic("jobs")).send(b"")  # compressed, the client library itself drops it
    producer.send(b'{"amount": 1}')
    consumer = setting.consumer()
    handled: list[Any] = []

    @consumer.handler
    def handle(message: Message) -> None:
        handled.append(message.json())

    with setting.running(consumer):
        eventually(lambda: not backlog(setting.broker, setting.topic("jobs"), "work"))
        counts = consumer._running.worker.counts  # type: ignore[union-attr]
    assert handled == [{"amount": 1}]
    assert counts.started == len(hostile) + 2
    assert counts.finished["dead"] == len(hostile) + 1
