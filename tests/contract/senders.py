"""Senders of every kind to the topics of one file: the test harness, and producers in memory and on the real broker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kodo_consumer import Consumer, Producer
from kodo_consumer.core.checks.message_validation import validator_of
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.policy_builder import load, policy_of, send_target_of
from kodo_consumer.testing import Harness, MemoryBroker, StoredMessage

from tests.brokers.broker import Broker
from tests.brokers.topics import create_topics, messages
from tests.unit.consumer.pump import Pump

JSON_SCHEMA = {"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer"}}}
AVRO_SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "int"}]}
TOPICS = """
  plain:
    subscriptions: {s: {type: shared, states: [], in_place: [], dead_letter: false}}
  declared:
    message_properties: {uid: required, size: optional}
    subscriptions: {s: {type: shared, states: [], in_place: [], dead_letter: false}}
  typed:
    payload: {type: json, schema: order.json}
    subscriptions: {s: {type: shared, states: [], in_place: [], dead_letter: false}}
  records:
    payload: {type: avro, schema: order.avsc}
    subscriptions: {s: {type: shared, states: [], in_place: [], dead_letter: false}}
  small:
    policies: {max_message_size: 66KiB}
    subscriptions: {s: {type: shared, states: [], in_place: [], dead_letter: false}}
  packed:
    compression: lz4
    subscriptions: {s: {type: shared, states: [], in_place: [], dead_letter: false}}
  packed-small:
    compression: snappy
    policies: {max_message_size: 66KiB}
    subscriptions: {s: {type: shared, states: [], in_place: [], dead_letter: false}}
  packed-keys:
    compression: lz4
    subscriptions: {s: {type: key_shared, states: [], dead_letter: false, on_failure: block}}
  short:
    policies: {ttl: 1h}
    subscriptions: {s: {type: key_shared, states: [], dead_letter: false, on_failure: block}}
  ordered:
    subscriptions:
      s: {type: failover, states: [], dead_letter: false, on_failure: block}
      t: {type: shared, states: [], in_place: [], dead_letter: false}
  levels:
    levels: [S1, L1]
    draining: [L2]
    subscriptions: {s: {type: shared, states: [], in_place: [], dead_letter: false}}
"""


class Senders:
    """Sends to one topic and level at a time; each sender is made once."""

    def __init__(self, folder: Path, tenant: str = "p") -> None:
        (folder / "order.json").write_text(json.dumps(JSON_SCHEMA), encoding="utf-8")
        (folder / "order.avsc").write_text(json.dumps(AVRO_SCHEMA), encoding="utf-8")
        self.file = folder / "t.yaml"
        head = f"version: 1\nname: t\ntenant: {tenant}\nnamespace: ns\ntopics:"
        self.file.write_text(head + TOPICS, encoding="utf-8")
        self._made: dict[tuple[str, str], Any] = {}
        self._ends = ExitStack()

    def make(self, topic: str, level: str) -> Any:
        """Returns an object with `send` and `close`."""
        raise NotImplementedError

    def send(self, topic: str, payload: Any, *, level: str = "L1", **options: Any) -> None:
        if (topic, level) not in self._made:
            self._made[topic, level] = self.make(topic, level)
            self._ends.callback(self._made[topic, level].close)
        self._send(self._made[topic, level], payload, level, options)

    def _send(self, sender: Any, payload: Any, level: str, options: dict[str, Any]) -> None:
        sender.send(payload, **options)

    def stored(self, topic: str) -> list[tuple[str, str, int]]:
        """Key, ordering key and event time of what was sent to level L1, marks left out."""
        raise NotImplementedError

    def close_sender(self, topic: str) -> None:
        self._made[topic, "L1"].close()

    def close(self) -> None:
        self._ends.close()


class HarnessSenders(Senders):
    """The harness: one for each ground topic."""

    def make(self, topic: str, level: str) -> Harness:  # it takes the level with each message
        consumer = Consumer.load(self.file, topic=topic, subscription="s", environ={})
        consumer.handler(_ignore)
        return Harness(consumer)

    def _send(self, sender: Any, payload: Any, level: str, options: dict[str, Any]) -> None:
        sender.send(payload, level=level, **options)

    def stored(self, topic: str) -> list[tuple[str, str, int]]:
        harness = self._made[topic, "L1"]
        return _places(harness.broker.messages(harness.policy.ground_lane.topic))


class MemorySenders(Senders):
    """Producers on the broker in memory."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.brokers: dict[str, tuple[MemoryBroker, str]] = {}

    def stored(self, topic: str) -> list[tuple[str, str, int]]:
        broker, full = self.brokers[topic]
        return _places(broker.messages(full))

    def make(self, topic: str, level: str) -> Producer:
        loaded = load(str(self.file), None)
        target = send_target_of(loaded, topic, level)
        broker = MemoryBroker(SystemClock())
        broker.create_for(policy_of(loaded, topic, "s"))
        self._ends.callback(Pump(broker).stop)
        self.brokers[topic] = broker, target.topic
        return Producer(target.topic, broker, form=validator_of(target, target.largest.get(target.topic, 0)))


class PulsarSenders(Senders):
    """Producers on the real broker, by the Python binding or by the native border."""

    def __init__(self, folder: Path, broker: Broker, tenant: str, *, native: bool) -> None:
        super().__init__(folder, tenant)
        self._place: dict[str, Any] = {
            **broker.client_options,
            "environ": {"KODO_CONSUMER_NATIVE": str(native).lower()},
        }
        self._native, self._broker, self._tenant = native, broker, tenant
        assert broker.admin("PUT", f"namespaces/{tenant}/ns").ok
        create_topics(broker, str(self.file))

    def make(self, topic: str, level: str) -> Producer:
        producer = Producer.load(self.file, topic=topic, level=level, **self._place)
        broker: Any = producer._sender._broker
        assert broker.border.native == self._native, broker.border
        return producer

    def stored(self, topic: str) -> list[tuple[str, str, int]]:
        found = messages(self._broker, f"persistent://{self._tenant}/ns/{topic}")
        return [(one.partition_key(), one.ordering_key(), one.event_timestamp()) for one in found]


def _places(stored: Sequence[StoredMessage]) -> list[tuple[str, str, int]]:
    return [(one.message.key, one.message.ordering_key, one.message.event_time) for one in stored]


def _ignore(_: object) -> None: ...
