"""What may be sent: the same answers of the test harness, and of producers in memory and on the real broker."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kodoctl.errors import KodoctlError
from tests.contract.senders import HarnessSenders, MemorySenders, PulsarSenders, Senders
from tests.contract.worlds import NATIVE

TAKEN = ""
U = {"uid": "u"}
MIB = 1 << 20
NOISE = random.Random(7).randbytes(6 * MIB)  # no compression makes it smaller
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
    "compressed less than brokers take": ("packed", b"x" * (6 * MIB), {}, TAKEN),
    "compressed also more than brokers take": ("packed", NOISE, {}, "K729"),
    "compressed less than the file allows": ("packed-small", b"x" * (200 << 10), {}, TAKEN),
    "noise that compression makes too large": ("packed-small", NOISE[: 65 << 10], {}, TAKEN),
    "compressed also more than the file allows": ("packed-small", NOISE[: 67 << 10], {}, "K729"),
    "compressed for readers that keep order": ("packed-keys", b"x" * (6 * MIB), {"key": "k"}, TAKEN),
    "a time of another clock": ("plain", b"x", {"event_time": datetime(2026, 1, 2, tzinfo=UTC)}, TAKEN),
    "a time without a zone": ("plain", b"x", {"event_time": datetime(2026, 1, 2)}, "K730"),  # noqa: DTZ001
    "an ordering key": ("plain", b"x", {"ordering_key": "o"}, TAKEN),
    "an ordering key that is no text": ("plain", b"x", {"ordering_key": 5}, "K730"),
    "a delay": ("plain", b"x", {"delay": "10m"}, TAKEN),
    "a delay in seconds": ("plain", b"x", {"delay": 0.5}, TAKEN),
    "a delay as a timedelta": ("plain", b"x", {"delay": timedelta(minutes=1)}, TAKEN),
    "a moment that is over": ("plain", b"x", {"deliver_at": 1_000}, TAKEN),
    "a delay that is none": ("plain", b"x", {"delay": "soon"}, "K730"),
    "a negative delay": ("plain", b"x", {"delay": -1}, "K730"),
    "a delay and a moment": ("plain", b"x", {"delay": "1s", "deliver_at": 5}, "K730"),
    "a delay by key": ("short", b"x", {"key": "k", "delay": "50m"}, TAKEN),
    "a delay beyond the time to live": ("short", b"x", {"delay": "2h"}, "K732"),
    "a delay for readers that keep order": ("ordered", b"x", {"delay": "1s"}, "K732"),
    "no delay for readers that keep order": ("ordered", b"x", {"delay": 0}, TAKEN),
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


def test_keys_and_times_are_stored_as_they_were_sent(senders: Senders) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    senders.send("plain", b"x", key="k", ordering_key="o", event_time=at)
    senders.send("plain", b"x", ordering_key="o", delay="1s")
    ms = int(at.timestamp() * 1000)
    assert sorted(senders.stored("plain")) == [("", "o", 0), ("k", "o", ms)]


def test_what_was_closed_sends_nothing(senders: Senders) -> None:
    senders.send("plain", b"x")
    senders.close_sender("plain")
    assert _answer(senders, "plain", b"x", {}) == "K731"
