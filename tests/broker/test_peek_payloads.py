"""`kodoctl peek --topology` on the real broker: payloads as declared, redacted, those of one subscription, as files."""

from __future__ import annotations

import json

import pytest
from kodo_consumer import Producer
from pyarrow import parquet

from tests.broker.test_console import console
from tests.brokers.workspace import Workspace

pytestmark = pytest.mark.broker
TOPICS = """\
orders:
  partitions: 1
  fair_by: uid
  payload: {type: avro, schema: order.avsc}
  payloads: {mask: [$.email]}
  subscriptions:
    billing: {states: [], error_text: {redact: ['[0-9]{13,16}']}}
notes:
  partitions: 1
  subscriptions:
    reading: {states: [], error_text: {redact: ['[0-9]{13,16}']}}
"""
SCHEMA = {
    "type": "record", "name": "Order",
    "fields": [{"name": name, "type": "string"} for name in ("email", "card", "text")],
}  # fmt: skip
MARKUP = "<img src=x onerror=alert(1)>"


def test_payloads_are_shown_as_declared_in_peek_in_files_and_in_the_console(workspace: Workspace) -> None:
    file = workspace.topology(TOPICS)
    (file.parent / "order.avsc").write_text(json.dumps(SCHEMA))
    workspace.apply()
    place = workspace.broker.client_options
    with Producer.load(str(file), topic="orders", **place) as producer:
        for number in range(3):
            order = {"email": "a@b", "card": "4111111111111111", "text": f"{MARKUP} {number}"}
            producer.post(order, id=f"order-{number}", properties={"uid": f"u{number}"})
    with Producer.load(str(file), topic="notes", **place) as producer:
        producer.post(b"card 4111111111111111", id="note-1")
    topic, chosen = workspace.full("orders"), ("--topology", str(file), "--subscription", "billing")
    found = workspace.run("peek", topic, *chosen, "--where", "tenant = 'u1'", "--format", "json").json()
    assert (found["read"], found["matched"]) == (3, 1)
    (message,) = found["messages"]
    content = {"email": "***", "card": "[redacted]", "text": f"{MARKUP} 1"}
    assert message["content"]["kind"] == "avro"
    assert json.loads(message["content"]["text"]) == content
    text = workspace.run("peek", topic, workspace.full("notes"), "--topology", str(file)).out
    assert "card [redacted]" in text
    assert "4111" not in text
    assert "a@b" not in text
    assert "4111" in workspace.run("peek", workspace.full("notes")).out, "without the file nothing is known of it"

    lines, table = workspace.folder / "orders.jsonl", workspace.folder / "orders.parquet"
    assert "3 messages written" in workspace.run("peek", topic, *chosen, "--out", str(lines)).err
    assert lines.stat().st_mode & 0o777 == 0o600
    rows = [json.loads(one) for one in lines.read_text().splitlines()]
    assert [(one["id"], one["tenant"]) for one in rows] == [(f"order-{n}", f"u{n}") for n in range(3)]
    assert json.loads(rows[1]["payload"]) == content
    only = workspace.run("peek", topic, *chosen, "--out", str(table), "--limit", "2")
    assert "There are more messages" in only.err
    assert [one["payload"] for one in parquet.read_table(table).to_pylist()] == [one["payload"] for one in rows[:2]]

    lane = {"topology": "trade", "topic": "orders", "subscription": "billing"}
    with console(workspace) as ui:
        page = ui.get("/lane", **lane)
        assert '"card": "[redacted]"' in page
        assert f'"text": "{MARKUP} 1"' in page
        assert "4111" not in page
        exported = ui.get("/export", **lane, where="tenant = 'u1'", **{"as": "jsonl"})
        assert json.loads(exported) == rows[1]
        assert "4111" not in ui.get("/find", q="u1")
        message = {"topology": "trade", "ground": "orders", "subscription": "billing", "span": "all"}
        history = ui.get("/message", **message, message="order-2")
        assert f'"card": "[redacted]", "text": "{MARKUP} 2" }}' in history


def test_wrong_files_topics_and_subscriptions_are_told(workspace: Workspace) -> None:
    file = str(workspace.topology("orders: {partitions: 1, subscriptions: {billing: {states: []}}}"))
    workspace.apply()
    workspace.make_topic("others")
    topic = workspace.full("orders")
    assert "does not declare" in workspace.run("peek", workspace.full("others"), "--topology", file, code=64).err
    assert "K560" in workspace.run("peek", topic, "--subscription", "nobody", code=64).err
    assert "K585" in workspace.run("peek", topic, "--out", "x.csv", code=64).err
    assert "K585" in workspace.run("peek", topic, "--out", "/no/folder/x.jsonl", code=64).err
    assert "K585" in workspace.run("peek", topic, "--out", "x.jsonl", "--follow", code=64).err
    assert "K585" in workspace.run("peek", topic, "--out", "x.jsonl", "--limit", "0", code=64).err
    assert "K021" in workspace.run("peek", topic, "--out", file, code=64).err
