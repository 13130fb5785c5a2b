"""Letters that are encrypted, or that the client library gives to nobody: each is moved as it is, or told."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.broker.recalling import DLQ, RETRYING, Recalls
from tests.brokers.wire_producer import WireProducer, binary, numeric, wire_metadata
from tests.brokers.workspace import Workspace

pytestmark = pytest.mark.broker


@pytest.fixture
def recalls(workspace: Workspace) -> Recalls:
    """Applied topics without messages."""
    return Recalls(workspace)


def test_letters_with_encrypted_payloads_are_shown_and_move_as_they_are(recalls: Recalls) -> None:
    """By default the client keeps them to itself: neither shown nor sent, and told by nobody."""
    key = binary(13, binary(1, b"owner") + binary(2, b"wrapped"))
    level = binary(4, binary(1, b"kodo-level") + binary(2, b"L1"))
    ciphertexts = [b"\x00alone", b"\x01a compressed batch"]
    forms = [b"", numeric(11, 3) + numeric(8, 2) + numeric(9, 900)]
    topic = recalls.workspace.full(DLQ)
    with WireProducer(recalls.workspace.broker.broker_url, f"{topic}-partition-0") as producer:
        for payload, form in zip(ciphertexts, forms, strict=True):
            producer.send(wire_metadata(key + level + form), payload)
        producer.send(wire_metadata(key + binary(6, b"\xff")), b"its key is lost")
    found = recalls.workspace.run("peek", topic, "--json").json()
    assert [one["broken"] for one in found["messages"]] == [
        *["its payload is encrypted for somebody else"] * 2,
        "not UTF-8 text, and lost: key; its payload is encrypted for somebody else",
    ]
    plan = recalls.plan()
    assert (plan["summary"]["read"], plan["summary"]["chosen"]) == (3, 2), (
        "what is lost of a message nobody can carry on"
    )
    report = recalls.apply()
    assert (report["sent"], report["acknowledged"], report["complete"]) == (2, 2, True)
    arrived = recalls.stored(RETRYING)
    assert [one.payload for one in arrived] == ciphertexts
    told = [json.loads(one.properties["kodo-encryption"]) for one in arrived]
    assert [(one["keys"][0]["name"], one["compression"], one["batch_size"]) for one in told] == [
        ("owner", "NONE", -1),
        ("owner", "ZLib", 3),
    ]
    assert recalls.recall("plan", "topologies", "--topic", "orders", "--subscription", "billing", "--where", "true").out
    left = recalls.plan(file="again.json")
    assert (left["summary"]["chosen"], left["letters"]) == (0, []), "nothing is sent twice, nothing was let go unsent"


def test_what_the_client_library_gives_to_nobody_is_told_and_stops_no_reading(recalls: Recalls) -> None:
    """At the end of a topic one of them was K561 after 15 seconds; elsewhere nothing told of it."""
    topic = recalls.workspace.full(DLQ)
    garbled = wire_metadata(numeric(8, 2) + numeric(9, 5))
    part = wire_metadata(binary(26, b"u1") + numeric(27, 2) + numeric(28, 8) + numeric(29, 1))
    recalls.die(range(2))
    with WireProducer(recalls.workspace.broker.broker_url, f"{topic}-partition-0") as producer:
        (ledger, first) = producer.send(garbled, b"no zlib")
        producer.send(wire_metadata(numeric(20, 10)), b"a marker")
    recalls.die([2])
    with WireProducer(recalls.workspace.broker.broker_url, f"{topic}-partition-0") as producer:
        (_, last) = producer.send(part, b"two")
        producer.send(garbled, b"no zlib")
    told = f"4 entries cannot be read by the client library: {ledger}:{first}..{first + 1}, {ledger}:{last}..{last + 1}"
    run = recalls.workspace.run("peek", topic, "--json", code=1)
    found = run.json()
    assert (found["read"], found["unread"]) == (3, [f"{topic}-partition-0: {told}"])
    assert "messages cannot be read [K561]" in run.err
    some = recalls.workspace.run("peek", topic, "--json", "--scan", "3", "--limit", "3", code=1).json()
    assert (some["read"], len(some["unread"])) == (3, 1)
    run = recalls.workspace.run("peek", topic, "--since", "1h", code=1)
    assert "3 messages of 3 read" in run.out
    assert told in " ".join(run.err.split())
    named = ("topologies", "--topic", "orders", "--subscription", "billing", "--where", "true", "--out", "p.json")
    run = recalls.recall("plan", *named, "--format", "json")
    assert run.json()["summary"]["read"] == 3
    assert "Warning: messages cannot be read [K561]" in run.err
    assert "4 entries cannot be read" in " ".join(run.err.split())
    report = recalls.apply()
    assert (report["sent"], report["complete"]) == (3, True)
    assert recalls.arrived() == Counter(range(3))
