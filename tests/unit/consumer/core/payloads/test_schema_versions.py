"""Schema versions: senders choose them, and none that a topic does not have costs memory, or stands for one that comes later."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import fastavro
from kodo_consumer.adapters.pulsar.schema_passthrough import SchemaTopics
from kodo_consumer.core.payloads.codec import Payloads
from kodo_consumer.core.payloads.schema_versions import SchemaVersions

from tests.unit.consumer.engine_bench import policy

NOTE = {"name": "note", "type": "string"}
DECLARED: dict[str, Any] = {"type": "record", "name": "Order", "fields": [NOTE]}
NEWER: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "added", "type": "string"}, NOTE]}
"""A later version, whose bytes can be read as the declared one."""


class Registry:
    """The cluster: the schemas of L1's topic, and what it was asked."""

    def __init__(self, *definitions: dict[str, Any]) -> None:
        self.definitions = [*definitions]
        self.asked: list[int | str] = []
        self.now = 100.0

    def schema(self, topic: str, version: int) -> dict[str, Any] | None:
        assert topic == "persistent://p/n/t-L1-ready"
        self.asked.append(version)
        return self.definitions[version]

    def latest_schema(self, topic: str) -> int:
        assert topic == "persistent://p/n/t-L1-ready"
        self.asked.append("newest")
        return len(self.definitions) - 1

    def versions(self) -> SchemaVersions:
        return SchemaVersions(policy(), self, lambda: self.now)  # type: ignore[arg-type]


def encoded(record: dict[str, str], schema: dict[str, Any]) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


def test_each_version_is_asked_for_once() -> None:
    registry = Registry(DECLARED, NEWER)
    versions = registry.versions()
    assert [versions.definition(f"L1:{number}") for number in (1, 0, 1, 0)] == [NEWER, DECLARED, NEWER, DECLARED]
    assert registry.asked == ["newest", 1, 0]


def test_a_version_that_somebody_named_before_it_was_there_is_read_as_what_it_is() -> None:
    """One message of a stranger's had all messages of the next schema read as those of the declared one: other values."""
    registry = Registry(DECLARED)
    payloads = Payloads("avro", DECLARED, None, registry.versions().definition)
    assert payloads.json(encoded({"note": "a"}, DECLARED), "L1:1") == {"note": "a"}, "as declared"
    registry.definitions.append(NEWER)
    assert payloads.json(encoded({"added": "x", "note": "a"}, NEWER), "L1:1") == {"note": "a"}


def test_versions_that_there_are_not_leave_nothing_behind_and_are_asked_for_together() -> None:
    registry = Registry(DECLARED)
    versions = registry.versions()
    payloads = Payloads("avro", DECLARED, None, versions.definition)
    data = encoded({"note": "a"}, DECLARED)
    for number in range(1_000):
        payloads.json(data, f"L1:{10 + number}")
    for odd in ("L9:1", "L1:", "L1:-1", "L1:1.5", f"L1:{'9' * 99}", "L1:\u0663", ":", "x"):
        payloads.json(data, odd)
    assert registry.asked == ["newest"]
    assert (len(versions._known), len(payloads._writers)) == (0, 1)
    registry.now += 1
    registry.definitions += [DECLARED] * 20
    assert versions.definition("L1:20") == DECLARED, "it is looked again"


def test_the_next_versions_wait_for_no_look() -> None:
    registry = Registry(DECLARED)
    versions = registry.versions()
    assert versions.definition("L1:1") is None
    registry.definitions.append(NEWER)
    assert versions.definition("L1:1") == NEWER


def test_made_up_versions_have_a_bounded_number_of_producers() -> None:
    topics = SchemaTopics(frozenset({"t"}), {"t": DECLARED}, lambda _: None)
    found = {topics.version("t", f"L1:{number}") for number in range(10_000)}
    assert (len(found), "" in found) == (101, True)
    assert topics.version("t", "L1:7") == "L1:7"
