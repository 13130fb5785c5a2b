"""Hooks around acknowledged messages on the real broker, through the library's own binding and the native border."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Consumer, Dead, Message, Producer, Retry

from tests.brokers.broker import Broker
from tests.brokers.topics import backlog, create_topics
from tests.contract.worlds import NATIVE
from tests.services.polling import eventually

pytestmark = pytest.mark.broker
TOPOLOGY = """
version: 1
name: hooks
tenant: {tenant}
namespace: ns
topics:
  jobs:
    partitions: 3
    {schema}
    subscriptions:
      s: {{states: [retrying], in_place: [], retrying: {{delays: [1s], attempts: 1}}}}
"""
SCHEMA = "payload: {type: avro, schema: job.avsc}"
AVRO = {"type": "record", "name": "Job", "fields": [{"name": "n", "type": "int"}]}
PLACES = ["binding", pytest.param("native", marks=NATIVE), pytest.param("schemas", marks=NATIVE)]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("later", [False, True], ids=["plain", "async"])
def test_every_message_is_reported_once_when_the_broker_has_its_acknowledgement(
    broker: Broker, namespace: str, tmp_path: Path, place: str, later: bool
) -> None:
    file = tmp_path / "t.yaml"
    (tmp_path / "job.avsc").write_text(json.dumps(AVRO), encoding="utf-8")
    schema = SCHEMA if place == "schemas" else ""
    file.write_text(TOPOLOGY.format(tenant=namespace.partition("/")[0], schema=schema), encoding="utf-8")
    create_topics(broker, str(file))
    environ = {"KODO_CONSUMER_NATIVE": str(place != "binding").lower()}
    at: dict[str, Any] = {"admin_url": broker.admin_url, "broker_url": broker.broker_url}
    consumer = Consumer.load(file, topic="jobs", subscription="s", environ=environ, **at)
    seen: Counter[tuple[int, str]] = Counter()
    threads = set[str]()

    def number_of(message: Message) -> int:
        found: int = message.value["n"] if place == "schemas" else int(message.data)
        return found

    def handle(message: Message) -> None:
        if number_of(message) % 100 == 1 and message.attempt == 1:
            raise Retry("1s")
        if number_of(message) % 100 == 2:
            raise Dead("no")

    async def handle_later(message: Message) -> None:
        handle(message)

    def note(message: Message, rule: str) -> None:
        seen[number_of(message), rule] += 1
        threads.add(threading.current_thread().name)

    async def note_later(message: Message, rule: str) -> None:
        await asyncio.sleep(0)
        note(message, rule)

    consumer.handler(handle_later if later else handle)
    consumer.middleware("acknowledged")(note_later if later else note)
    with Producer.load(file, topic="jobs", environ=environ, **at) as producer:
        producer.send_many([{"n": number} if place == "schemas" else b"%d" % number for number in range(1_000)])
    consumer.start()
    try:
        eventually(lambda: sum(seen.values()) >= 1_010, within=60)
    finally:
        consumer.stop()
    expected: Counter[tuple[int, str]] = Counter((number, "done") for number in range(1_000) if number % 100 != 2)
    expected.update((number, "retrying") for number in range(1, 1_000, 100))
    expected.update((number, "dead") for number in range(2, 1_000, 100))
    assert seen == expected
    assert threads == {"kodo-handlers" if later else "kodo-acknowledged"}
    topic = f"persistent://{namespace}/jobs"
    assert not backlog(broker, topic, "s")


def test_a_worker_that_stops_waits_for_the_last_confirmations(broker: Broker, namespace: str, tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(TOPOLOGY.format(tenant=namespace.partition("/")[0], schema=""), encoding="utf-8")
    create_topics(broker, str(file))
    at: dict[str, Any] = {"admin_url": broker.admin_url, "broker_url": broker.broker_url, "environ": {}}
    consumer = Consumer.load(file, topic="jobs", subscription="s", **at)
    handled, seen = threading.Event(), list[bytes]()

    @consumer.handler
    def handle(message: Message) -> None:
        handled.set()

    consumer.middleware("acknowledged")(lambda message, rule: seen.append(message.data))
    consumer.start()
    with Producer.load(file, topic="jobs", **at) as producer:
        producer.send(b"1")
    assert handled.wait(30)
    consumer.stop()  # an acknowledgement takes 100 ms to go out
    assert seen == [b"1"]
