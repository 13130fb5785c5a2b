"""Definitions that promise something to whoever speaks them already."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from kodoctl.topology.payload_definition import is_schema, why_unusable


@pytest.mark.parametrize(
    ("kind", "definition", "found"),
    [
        ("json", {"pattern": "(?=a)b"}, True), ("json", True, True), ("json", {"type": 5}, False), ("json", [], False),
        ("json", {"$ref": "http://127.0.0.1:9/x"}, False), ("avro", "string", True), ("avro", {"type": "reco"}, False),
    ],
)  # fmt: skip
def test_an_earlier_version_is_a_schema_whether_or_not_it_can_be_used_now(
    kind: str, definition: Any, found: bool
) -> None:
    assert is_schema(kind, definition) is found


def test_an_earlier_avro_schema_counts_where_nobody_can_judge_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else lint lets the type of a topic's payloads change on a machine without the extra, and refuses it on others."""
    monkeypatch.setitem(sys.modules, "fastavro", None)
    assert is_schema("avro", "string")
    assert why_unusable("avro", "string").startswith("Avro needs fastavro: pip install")
