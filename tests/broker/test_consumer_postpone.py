"""Postponed messages on the real broker: they come again at their time, as the same message, and count no attempt."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from kodo_consumer import Consumer, Message, Producer

from tests.brokers.broker import Broker
from tests.brokers.topics import create_topics
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
FILE = """
version: 1
name: p
tenant: {tenant}
namespace: ns
topics:
  J:
    fair_by: uid
    message_properties: {{uid: required}}
    subscriptions:
      s:
        states: [retrying]
        retrying: {{delays: [1m], attempts: 1}}
"""


def test_a_message_is_postponed_more_often_than_it_may_be_tried(broker: Broker, tenant: str, tmp_path: Path) -> None:
    assert broker.admin("PUT", f"namespaces/{tenant}/ns").ok
    file = tmp_path / "t.yaml"
    file.write_text(FILE.format(tenant=tenant), encoding="utf-8")
    create_topics(broker, str(file))
    seen: list[tuple[str, str, str, int, int]] = []
    times: list[float] = []
    lock = threading.Lock()

    def handle(message: Message) -> None:
        with lock:
            times.append(time.time())
            seen.append((message.id, message.tenant, message.state, message.postponements, message.attempt))
        if message.postponements == 0:
            message.postpone(datetime.now(UTC) + timedelta(seconds=2), "closed")
        if message.postponements < 3:
            message.postpone("1s")

    consumer = Consumer.load(file, topic="J", subscription="s", **broker.client_options)
    consumer.handler(handle)
    consumer.start()
    try:
        with Producer.load(file, topic="J", **broker.client_options) as producer:
            producer.send(b"x", properties={"uid": "u"}, id="order-1")
            eventually(lambda: consumer.counts.done == 1, within=90)
    finally:
        consumer.stop()
    assert seen == [("order-1", "u", "retrying" if count else "ready", count, 1) for count in range(4)]
    waits = [later - before for before, later in pairwise(times)]
    assert all(wait >= least for wait, least in zip(waits, (1.9, 0.9, 0.9), strict=True)), waits
    assert (consumer.counts.finished["postponed"], consumer.counts.failed) == (3, {})
