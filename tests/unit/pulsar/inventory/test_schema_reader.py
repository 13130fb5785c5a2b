"""The schema of a topic: equal to a declared one by its JSON, and never an error by its text, which clients choose."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kodoctl.pulsar.admin.admin import Reply
from kodoctl.pulsar.inventory.schema_reader import read_schema
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import SchemaResource

TOPIC = TopicName.parse("acme/ns/orders")
DECLARED = SchemaResource(TOPIC, "AVRO", '{"name":"o","type":"string"}')


def cluster(*versions: tuple[str, str]) -> Any:
    """A cluster whose topic has these (type, text), the latest one last."""
    found = [{"version": nth, "type": kind, "data": text} for nth, (kind, text) in enumerate(versions, 1)]

    def call(method: str, path: str, **_: Any) -> Reply:
        return Reply(method, path, 200, {"getSchemaResponses": found} if path.endswith("/schemas") else found[-1])

    return SimpleNamespace(call=call)


def test_the_order_of_keys_makes_no_difference() -> None:
    assert read_schema(cluster(("AVRO", ' {"type": "string", "name": "o"}')), TOPIC, DECLARED) == DECLARED
    assert (
        read_schema(cluster(("AVRO", '{"type":"string","name":"o"}'), ("AVRO", '"int"')), TOPIC, DECLARED) == DECLARED
    )


@pytest.mark.parametrize("text", ['/* ours */ {"type": "string"}', "", "[" * 99_999])
def test_an_avro_schema_that_is_not_plain_json_is_another_one(text: str) -> None:
    found = read_schema(cluster(("AVRO", text)), TOPIC)
    assert found == SchemaResource(TOPIC, "AVRO", f"AVRO: {text}")
    assert read_schema(cluster(("AVRO", text), ("AVRO", DECLARED.definition)), TOPIC, DECLARED) == DECLARED
    assert read_schema(cluster(("AVRO", DECLARED.definition), ("AVRO", text)), TOPIC, DECLARED) == DECLARED


def test_the_text_of_another_schema_begins_with_its_type() -> None:
    found = read_schema(cluster(("JSON", DECLARED.definition)), TOPIC, DECLARED)
    assert found == SchemaResource(TOPIC, "AVRO", f"JSON: {DECLARED.definition}")
