"""What may be sent: the same answers of the test harness, and of producers in memory and on the real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kodoctl.errors import KodoctlError
from tests.contract.senders import HarnessSenders, MemorySenders, PulsarSenders, Senders
from tests.contract.worlds import NATIVE

TAKEN = ""
U = {"uid": "u"}
MIB = 1 << 20
CASES: dict[str, tuple[str, Any, dict[str, Any], str]] = {
    "any payload": ("plain", {"a": 1}, {"key": "k", "event_time": 7, "properties": {"any": True}}, TAKEN),
    "no payload": ("plain", None, {}, TAKEN),
    "an identity": ("plain", b"", {"id": "order-1"}, TAKEN),
    "no JSON": ("plain", {"a": float("nan")}, {}, "K716"),
    "a reserved property": ("plain", b"x", {"properties": {"kodo-for": "s"}}, "K717"),
    "a property that is no text": ("plain", b"x", {"properties": {"a": None}}, "K717"),
    "a key that is no text": ("plain", b"x", {"key": 5}, "K730"),
    "a negative time": ("plain", b"x", {"event_time": -1}, "K730"),
    "declared properties": ("declared", b"x", {"properties": {**U, "size": 9}}, TAKEN),
    "a missing property": ("declared", {"a": 1}, {}, "K717"),
    "an undeclared property": ("declared", b"x", {"properties": {**U, "other": "1"}}, "K717"),
    "a trace": ("declared", b"x", {"properties": {**U, "traceparent": "00-0-0-00"}}, TAKEN),
    "JSON of the schema": ("typed", {"amount": 1}, {}, TAKEN),
    "its bytes": ("typed", b'{"amount": 1}', {}, TAKEN),
    "JSON that breaks the schema": ("typed", {"a": 1}, {}, "K716"),
    "bytes that break the schema": ("typed", b'{"amount": "much"}', {}, "K716"),
    "bytes that are no JSON": ("typed", b"{", {}, "K716"),
    "a record": ("records", {"amount": 1}, {}, TAKEN),
    "its bytes as Avro": ("records", b"\x02", {}, TAKEN),
    "a record that breaks the schema": ("records", {"amount": "much"}, {}, "K716"),
    "bytes that are no record": ("records", b"\x02\x02", {}, "K716"),
    "as large as the file allows": ("small", b"x" * (65 << 10), {}, TAKEN),
    "larger than the file allows": ("small", b"x" * (67 << 10), {}, "K729"),
    "larger with its properties": ("small", b"x" * (65 << 10), {"properties": {"a": "x" * 1_024}}, "K729"),
    "as large as brokers take": ("plain", b"x" * (5 * MIB - (16 << 10)), {}, TAKEN),
    "larger than brokers take": ("plain", b"x" * (5 * MIB + 1), {}, "K729"),
    "larger with what it carries": ("plain", b"x" * (5 * MIB - 1_000), {"properties": {"a": "x" * 1_024}}, "K729"),
    "another level": ("levels", b"x", {"level": "S1"}, TAKEN),
    "a draining level": ("levels", b"x", {"level": "L2"}, "K709"),
    "an unknown level": ("levels", b"x", {"level": "L3"}, "K709"),
    "what is no level": ("levels", b"x", {"level": "top"}, "K709"),
}


@pytest.fixture(
    params=[
        "harness",
        "memory",
        pytest.param("pulsar", marks=pytest.mark.broker),
        pytest.param("native", marks=[pytest.mark.broker, NATIVE]),
    ]
)
def senders(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Senders]:
    match request.param:
        case "harness":
            found: Senders = HarnessSenders(tmp_path)
        case "memory":
            found = MemorySenders(tmp_path)
        case kind:
            broker, tenant = request.getfixturevalue("broker"), request.getfixturevalue("tenant")
            found = PulsarSenders(tmp_path, broker, tenant, native=kind == "native")
    yield found
    found.close()


def _answer(senders: Senders, topic: str, payload: Any, options: dict[str, Any]) -> str:
    """Code of the error; "": it was taken."""
    try:
        senders.send(topic, payload, **options)
    except KodoctlError as problem:
        return problem.diagnostics[0].code
    return TAKEN


def test_all_senders_give_one_answer(senders: Senders) -> None:
    answers = {name: _answer(senders, topic, payload, options) for name, (topic, payload, options, _) in CASES.items()}
    assert answers == {name: code for name, (*_, code) in CASES.items()}


def test_what_was_closed_sends_nothing(senders: Senders) -> None:
    senders.send("plain", b"x")
    senders.close_sender("plain")
    assert _answer(senders, "plain", b"x", {}) == "K731"
