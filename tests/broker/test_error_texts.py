"""Error texts on the real broker: from a handler to the dead letters, to every view, and to one recall a cause; and a message
that the broker refuses because of them gets on without them.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from kodo_consumer import Consumer, Message, Producer
from kodo_pipeline.ingest.events import events, roles
from kodo_pipeline.landing.tables import MESSAGES

from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from tests.broker.recalling import Recalls
from tests.broker.test_consumer_steering import Console
from tests.brokers.topics import backlog
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

pytestmark = pytest.mark.broker
CANARY = "4111222233334444"
TOPICS = """
orders:
  fair_by: uid
  message_properties: {uid: required}
  subscriptions:
    billing:
      in_place: []
      audit: true
      error_text: {keep: 2KiB, audit: true, redact: ['[0-9]{16}']}
      retrying: {delays: [1s], attempts: 1}
"""
LIMIT = 65_536


def test_what_an_error_said_is_with_the_letter_in_every_view_and_its_cause_can_be_recalled(
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    console = Console(workspace, monkeypatch, capsys)
    recalls = Recalls(workspace, TOPICS)
    console.file = str(workspace.folder / "topologies/trade.yaml")
    place = workspace.broker.client_options
    consumer = Consumer.load(console.file, topic="orders", subscription="billing", **place)

    @consumer.handler
    def handle(message: Message) -> None:
        if message.data.startswith(b"bank"):
            more = " and so on" * 200 if message.id == "large" else ""
            raise ConnectionError(f"{message.data[:60].decode().rstrip()} for card {CANARY}{more}")
        raise KeyError("amount")

    dead = workspace.full("orders-billing-DLQ")
    for local in ("orders-billing-RETRYING", "orders-billing-DLQ"):
        recalls.limit(local, LIMIT)
    with Producer.load(console.file, topic="orders", **place) as producer:
        _send(producer)
    consumer.start()
    try:
        eventually(lambda: consumer._running and consumer._running.worker.counts.finished["dead"] == 21)
        eventually(lambda: not backlog(workspace.broker, workspace.full("orders"), "billing"))
    finally:
        consumer.stop()
    letters = {
        json.loads(json.dumps(dict(one.properties)))["kodo-id"]: one.properties
        for one in recalls.stored("orders-billing-DLQ")
    }
    assert letters["order-3"]["kodo-error"] == "bank 3 answered 503 for card [redacted]"
    assert letters["order-3"]["kodo-error-stack"].rpartition(":")[0].endswith("<locals>.handle")
    assert letters["order-4"]["kodo-error"] == "'amount'"
    assert letters["large"]["kodo-reason"] == "ConnectionError"
    assert "kodo-error" not in letters["large"], "with it, it would be larger than its topic takes"

    peeked = workspace.run("peek", dead, "--where", "id = 'order-3'").out
    assert "kodo-error = bank 3 answered 503 for card [redacted]" in " ".join(peeked.split())
    why = console.run("why", "order-3")
    assert "error: bank 3 answered 503 for card [redacted]" in " ".join(why.split())
    found = json.loads(console.run("why", "order-3", "--json"))
    assert [hop["ended_error"] for hop in found["hops"]] == ["bank 3 answered 503 for card [redacted]"] * 2 + [""]
    plan = recalls.plan("cause LIKE '%'", file="all.json")
    causes = {"ConnectionError: bank # answered # for card [redacted]": 10, "KeyError: 'amount'": 10}
    assert causes.items() <= plan["summary"]["by_cause"].items()
    one = recalls.plan("cause = \"KeyError: 'amount'\"")
    assert one["summary"]["chosen"] == 10
    assert recalls.apply()["sent"] == 10
    again = [one.properties for one in recalls.stored("orders-billing-RETRYING") if "kodo-recall" in one.properties]
    assert len(again) == 10
    assert not any(name.startswith("kodo-error") for properties in again for name in properties)

    views = (peeked, why, json.dumps(found), json.dumps(plan), caplog.text, *consumer.summary())
    landed = _landed(recalls, console.file)
    assert Counter(row["cause"] for row in landed if row["state"] == "dead") >= Counter(causes)
    for output in (*views, *_stored(recalls), str(landed)):
        assert CANARY not in output


def _send(producer: Producer) -> None:
    """Ten messages of each of two causes, and one that its topic would refuse with the text of its error."""
    for number in range(20):
        text = f"bank {number} answered 503" if number % 2 else "order"
        producer.post(text.encode(), id=f"order-{number}", properties={"uid": "u"})
    filling = random.Random(1).randbytes(LIMIT - 1_544)  # of which compression leaves all
    producer.post(b"bank 99 is large".ljust(60) + filling, id="large", properties={"uid": "u"})


def _landed(recalls: Recalls, file: str) -> list[dict[str, Any]]:
    """Rows that an ingest makes of everything that failed and of the audit records."""
    known = roles(expand(load_topology(file)))
    found: list[dict[str, Any]] = []
    for local in ("orders-billing-RETRYING", "orders-billing-DLQ", "orders-billing-AUDIT"):
        topic = recalls.workspace.full(local)
        rows = [
            {
                "topic": topic, "partition": 0, "ledger": one.ledger, "entry": one.entry, "batch_index": one.batch,
                "publish_ts": one.publish_time * 1000, "properties": list(one.properties.items()), "payload": one.payload,
            }
            for one in recalls.stored(local)
        ]  # fmt: skip
        batch = pa.RecordBatch.from_pylist(rows, schema=MESSAGES.arrow())
        found += events(batch, known[topic], "run-1").to_pylist()
    return found


def _stored(recalls: Recalls) -> list[str]:
    """Payload and properties of everything that failed, and the audit records."""
    return [
        str((one.payload, dict(one.properties)))
        for local in ("orders-billing-RETRYING", "orders-billing-DLQ", "orders-billing-AUDIT")
        for one in recalls.stored(local)
    ]
