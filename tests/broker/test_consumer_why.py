"""`kodo-consumer why` on the real broker: hops of one message among many, nothing consumed."""

from __future__ import annotations

import json

import pytest
from kodo_consumer import Consumer, Message, Producer

from tests.broker.test_consumer_steering import Console
from tests.brokers.topics import backlog
from tests.brokers.wire_producer import WireProducer, numeric, wire_metadata
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
TOPICS = """
orders:
  partitions: 2
  fair_by: uid
  subscriptions:
    billing: {in_place: [], audit: true, retrying: {delays: [1s], attempts: 1}}
"""


def test_every_hop_of_one_message_is_shown_by_any_of_its_names(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    console = Console(workspace, monkeypatch, capsys)
    console.file = str(workspace.topology(TOPICS))
    workspace.apply(console.file)
    place = workspace.broker.client_options
    consumer = Consumer.load(console.file, topic="orders", subscription="billing", **place)

    @consumer.handler
    def handle(message: Message) -> None:
        if message.text() == "bad":
            raise ValueError

    ground = f"persistent://{workspace.namespace}/orders"
    with Producer.load(console.file, topic="orders", **place) as producer:
        for number in range(200):
            producer.post(b"bad" if number == 17 else b"good", id=f"order-{number}", properties={"uid": "u1"})
    consumer.start()
    try:
        eventually(lambda: consumer._running and consumer._running.worker.counts.finished["dead"])
        eventually(lambda: not backlog(workspace.broker, ground, "billing"))
    finally:
        consumer.stop()
    found = json.loads(console.run("why", "order-17", "--json"))
    assert [(hop["place"], hop["ended"], hop["rule"]) for hop in found["hops"]] == [
        ("L1/ready", "moved", "retrying"), ("L1/retrying", "dead", "dead"), ("dead letters", "", ""),
    ]  # fmt: skip
    assert [hop["acknowledged"] for hop in found["hops"]] == [True, True, False]
    for name in (found["hops"][0]["id"], found["hops"][2]["id"]):
        again = json.loads(console.run("why", name, "--json", "--since", "1h"))
        assert again["hops"] == found["hops"]
    text = console.run("why", "order-17")
    assert max(map(len, text.splitlines())) <= 80
    assert "moved on to L1/retrying by rule retrying: ValueError" in " ".join(text.split())
    assert "(is here now)" in text
    assert "  done" in console.run("why", "order-18")
    missing = " ".join(console.run("why", "order-999", code=1).split())
    assert "message not found [K785]" in missing
    assert "'order-999' is none of the" in missing
    assert missing.endswith("a position such as 7:1:0:-1; `kodoctl peek TOPIC` shows both")
    assert f"{ground}-billing-AUDIT" in missing
    assert "K785" in console.run("why", "order-17", "--since", "long", code=64)
    letters = f"{ground.replace('://', '/')}-billing-DLQ/subscription/kodo-hold/skip_all"
    assert workspace.broker.admin("POST", letters).ok, "as a recall does once a letter is sent again"
    assert "is here now" not in console.run("why", "order-17")
    assert workspace.broker.admin("GET", f"{ground.replace('://', '/')}/subscriptions").json() == ["billing"]


def test_entries_that_cannot_be_read_are_told_with_every_answer(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message may be one of them: at the end of a lane they were K561 without an answer, elsewhere nothing told of them."""
    console = Console(workspace, monkeypatch, capsys)
    console.file = str(workspace.topology("orders: {partitions: 1, subscriptions: {billing: {states: []}}}"))
    workspace.apply(console.file)
    place = workspace.broker.client_options
    with Producer.load(console.file, topic="orders", **place) as producer:
        producer.post(b"good", id="order-1")
    part = f"{workspace.full('orders')}-partition-0"
    with WireProducer(workspace.broker.broker_url, part) as wire:
        ledger, entry = wire.send(wire_metadata(numeric(8, 2) + numeric(9, 5)), b"no zlib")
    told = f"{part}: 1 entry cannot be read by the client library: {ledger}:{entry}"
    found = console.run("why", "order-1", code=1)
    assert "is here now" in found
    assert "messages cannot be read [K561]" in found
    assert told in " ".join(found.split())
    missing = " ".join(console.run("why", "order-2", code=1).split())
    assert "message not found [K785]" in missing
    assert told in missing


def test_a_missing_lane_hides_no_history(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(workspace, monkeypatch, capsys)
    console.file = str(workspace.topology(TOPICS))
    assert "K560" in console.run("why", "order-1", code=64), "no topic is there: a wrong cluster, mostly"
    workspace.apply(console.file)
    with Producer.load(console.file, topic="orders", **workspace.broker.client_options) as producer:
        producer.post(b"good", id="order-1", properties={"uid": "u1"})
    ground = f"persistent://{workspace.namespace}/orders"
    path = f"{ground.replace('://', '/')}-billing-RETRYING/partitions"
    assert workspace.broker.admin("DELETE", path, force="true").ok
    found = json.loads(console.run("why", "order-1", "--json"))
    assert [hop["place"] for hop in found["hops"]] == ["L1/ready"]
    assert found["missing"] == [f"{ground}-billing-RETRYING"]
    assert f"not on the cluster: {ground}-billing-RETRYING" in " ".join(console.run("why", "order-1").split())
    assert "not on the cluster" in console.run("why", "order-999", code=1)
