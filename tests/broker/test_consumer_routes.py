"""Routes on the real broker: sent straight to a level, routed at the first receipt, and out of every waiting state."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from kodo_consumer import Blocking, Consumer, Message, MoveTo, Pending, Producer, Retry
from kodo_consumer.adapters.pulsar import PulsarBroker

from kodoctl.pulsar.connection.connection import Connection
from tests.brokers.broker import Broker
from tests.brokers.topics import create_topics
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
FILE = """
version: 1
name: r
tenant: {tenant}
namespace: ns
topics:
  J:
    levels: double
    backup: true
    fair_by: uid
    message_properties: {{uid: required}}
    subscriptions:
      s:
        retrying: {{delays: [1s], attempts: 3}}
        pending: {{delays: [1s], attempts: 3}}
        blocking: {{delays: [1s], attempts: 3}}
        backup: {{delays: [1s], attempts: 3}}
        routes:
          - {{when: "tenant = 'sent' AND payload_size < 100", to: L2}}
          - {{when: "tenant = state AND attempts = 1", at: [retrying, pending, blocking], to: L2}}
          - {{when: "tenant = 'backup' AND attempts_backup = 1", at: [backup], to: L2}}
"""
ASKS = {"retrying": Retry("1s"), "pending": Pending("p"), "blocking": Blocking("b"), "backup": MoveTo("B1")}


def test_messages_reach_the_level_of_their_route_at_every_moment(broker: Broker, tenant: str, tmp_path: Path) -> None:
    assert broker.admin("PUT", f"namespaces/{tenant}/ns").ok
    file = tmp_path / "t.yaml"
    file.write_text(FILE.format(tenant=tenant), encoding="utf-8")
    create_topics(broker, str(file))
    place = broker.client_options
    done: dict[str, list[str]] = {}
    hops: dict[str, int] = {}
    lock = threading.Lock()

    def handle(message: Message) -> None:
        where, name = f"{message.level}/{message.state}", message.text()
        with lock:
            done.setdefault(name, []).append(where)
            hops[name] = int(message._delivery.properties.get("kodo-hop", 0))
        if message.level == "L1" and name in ASKS:
            raise ASKS[name]
        if message.level == "B1":
            raise Retry("1s")

    consumer = Consumer.load(file, topic="J", subscription="s", **place)
    consumer.handler(handle)
    consumer.start()
    plain = Producer(f"persistent://{tenant}/ns/J", PulsarBroker(Connection(broker.admin_url, broker.broker_url)))
    try:
        with plain, Producer.load(file, topic="J", **place) as producer:
            producer.send(b"straight", properties={"uid": "sent"})
            plain.send(b"first receipt", properties={"uid": "sent"})
            producer.send(b"large" * 50, properties={"uid": "sent"})
            for name in ASKS:
                producer.send(name.encode(), properties={"uid": name})
            eventually(lambda: sum(places[-1].startswith("L2") for places in done.values()) == 6, within=90)
    finally:
        consumer.stop()
    assert done == {
        "straight": ["L2/ready"],
        "first receipt": ["L2/ready"],
        "large" * 50: ["L1/ready"],
        "retrying": ["L1/ready", "L2/ready"],
        "pending": ["L1/ready", "L2/ready"],
        "blocking": ["L1/ready", "L2/ready"],
        "backup": ["L1/ready", "B1/ready", "L2/ready"],
    }
    assert (hops["straight"], hops["first receipt"], hops["retrying"]) == (0, 1, 2)
