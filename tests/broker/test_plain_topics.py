"""Plain topics, without partitions, as Pulsar creates by itself: imported, planned, applied, drained and deleted like others."""

from __future__ import annotations

import json
import threading
from collections import Counter

import pytest
from kodo_consumer import Consumer, Message, Producer

from tests.brokers.topics import messages
from tests.brokers.workspace import Workspace, run_main
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
PLAIN = (
    "orders: {partitioned: false, subscriptions: {billing: {states: [retrying], dead_letter: {partitioned: false}}}}"
)


@pytest.fixture
def by_hand(workspace: Workspace) -> Workspace:
    workspace.admin("PUT", f"namespaces/{workspace.namespace}")
    return workspace


def _auto_created(workspace: Workspace, local: str, *subscriptions: str) -> None:
    """A topic that a producer brought into being, with a message."""
    creation = {"allowAutoTopicCreation": True, "topicType": "non-partitioned"}
    workspace.admin("POST", f"namespaces/{workspace.namespace}/autoTopicCreation", creation)
    workspace.publish(local, 1)
    for name in subscriptions:
        workspace.make_subscription(local, name)


def _properties(workspace: Workspace, local: str) -> dict[str, str]:
    found: dict[str, str] = workspace.admin("GET", f"{workspace.path(local)}/properties")
    return found


def _lists(workspace: Workspace, local: str) -> bool:
    return workspace.full(local) in workspace.admin("GET", f"persistent/{workspace.namespace}")


def test_an_auto_created_topic_is_imported_adopted_and_kept(by_hand: Workspace) -> None:
    _auto_created(by_hand, "events", "audit")
    retention = {"retentionTimeInMinutes": 1440, "retentionSizeInMB": 100}
    by_hand.admin("POST", f"{by_hand.path('events')}/retention", retention)
    path = by_hand.folder / "topologies" / "taken.yaml"
    by_hand.run("import", by_hand.namespace, "--out", str(path))
    assert "partitioned: false" in path.read_text(encoding="utf-8")
    assert run_main("lint", "--strict", str(path)).code == 0
    plan = by_hand.plan_json()
    assert {change["action"] for change in plan["changes"]} == {"adopt"}
    by_hand.apply()
    by_hand.assert_settled()
    assert _properties(by_hand, "events") == {"kodoctl": "ns"}
    assert by_hand.policy("events", "retention") == retention
    assert by_hand.topics() == {}, "no partitioned topic was made"
    stats = by_hand.admin("GET", f"{by_hand.path('events')}/stats")
    assert stats["subscriptions"]["audit"]["msgBacklog"] == 1


def test_a_plain_family_is_created_changed_drifts_is_undone_and_deleted(workspace: Workspace) -> None:
    workspace.topology(PLAIN)
    workspace.apply()
    workspace.assert_settled()
    for local in ("orders", "orders-billing-RETRYING", "orders-billing-DLQ"):
        assert _properties(workspace, local) == {"kodoctl": "trade"}
    assert workspace.topics() == {}
    workspace.topology(PLAIN.replace("{partitioned", "{policies: {ttl: 1h}, partitioned", 1))
    workspace.apply()
    workspace.assert_settled()
    assert workspace.policy("orders", "messageTTL") == 3600
    workspace.admin("DELETE", f"{workspace.path('orders')}/messageTTL")
    assert "ttl" in workspace.run("drift", code=3).out
    workspace.apply()
    workspace.run("undo", "last", workspace.namespace, "--auto-approve")
    assert workspace.policy("orders", "messageTTL") is None
    assert "MISSING" not in workspace.run("status").out
    workspace.publish("orders", 2)
    refused = workspace.run("destroy", "--name", "trade", "--namespace", workspace.namespace, "--auto-approve", code=4)
    assert "K401" in refused.text
    assert _lists(workspace, "orders")
    names = ("orders", "orders-billing-RETRYING", "orders-billing-DLQ")
    allowed = [flag for local in names for flag in ("--allow-destroy", f"topic.{workspace.full(local)}")]
    subscription = f"subscription.{workspace.full('orders')}/billing"
    workspace.run(
        "destroy", "--name", "trade", "--namespace", workspace.namespace, "--auto-approve", *allowed,
        "--allow-destroy", subscription,
    )  # fmt: skip
    assert {workspace.broker.admin("GET", f"{workspace.path(local)}/stats").status_code for local in names} == {404}


def test_neither_kind_becomes_the_other_and_the_way_is_said(workspace: Workspace) -> None:
    workspace.topology("events: {partitioned: false}\norders: {}")
    workspace.apply()
    workspace.topology("events: {}\norders: {partitioned: false}")
    said = workspace.plan(code=4).text
    assert "[K412]" in said
    assert "[K437]" in said
    assert "2. deploy consumers that read both topics" in said
    assert _lists(workspace, "events")
    assert workspace.topics() == {"orders": 1}


WORKED = """
orders:
  partitioned: false
  fair_by: uid
  subscriptions:
    billing:
      states: [retrying]
      dead_letter: {partitioned: false}
      in_place: []
      retrying: {delays: [1s], attempts: 1}
      audit: true
"""


def test_a_worker_retries_and_gives_up_and_a_recall_brings_back(workspace: Workspace) -> None:
    file = str(workspace.topology(WORKED))
    workspace.apply(file)
    place = workspace.broker.client_options
    seen: Counter[str] = Counter()
    healed = threading.Event()
    consumer = Consumer.load(file, topic="orders", subscription="billing", **place)

    @consumer.handler
    def handle(message: Message) -> None:
        seen[message.text()] += 1
        if message.text() == "bad" and not healed.is_set():
            raise ValueError

    with Producer.load(file, topic="orders", **place) as producer:
        for number in range(20):
            producer.post(b"bad" if number == 7 else b"good", id=f"order-{number}", properties={"uid": "u1"})
    sent = workspace.run("send", "orders", "good", "--topology", file, "--property", "uid=u2", "--format", "json").out
    assert ":-1:" in sent, "a position of a plain topic has no partition"
    consumer.start()
    try:
        eventually(lambda: consumer._running and consumer._running.worker.counts.finished["dead"])
        eventually(lambda: seen["good"] == 20)
        assert seen["bad"] == 2, "once at first, once after its wait"
        letters = workspace.run("peek", workspace.full("orders-billing-DLQ"), "--json").json()
        assert letters["read"] == 1
        named = [file, "--topic", "orders", "--subscription", "billing"]
        plan = workspace.run("recall", "plan", *named, "--where", "true", "--out", "p.json", "--format", "json").json()
        assert (plan["dead_partitions"], plan["lanes"][0]["partition"], plan["summary"]["chosen"]) == (0, -1, 1)
        assert "Exact" not in workspace.run("recall", "show", "p.json", code=None).err
        healed.set()
        report = json.loads(workspace.run("recall", "apply", "p.json", "--format", "json").out)
        assert (report["sent"], report["acknowledged"], report["complete"]) == (1, 1, True)
        eventually(lambda: seen["bad"] == 3)
    finally:
        consumer.stop()
    status = workspace.run("status", file, "--format", "json").json()
    lanes = {lane["topic"]: lane["entries"] for lane in status["topologies"][0]["lanes"]}
    assert set(lanes.values()) == {0}, lanes
    assert messages(workspace.broker, workspace.full("orders-billing-AUDIT"))
    workspace.assert_settled(file)


def test_order_is_kept_by_failover_on_a_plain_topic(workspace: Workspace) -> None:
    file = str(
        workspace.topology("orders: {partitioned: false, subscriptions: {billing: {type: failover, states: []}}}")
    )
    workspace.apply(file)
    place = workspace.broker.client_options
    seen: list[str] = []
    consumer = Consumer.load(file, topic="orders", subscription="billing", **place)
    consumer.handler(lambda message: seen.append(message.text()))
    with Producer.load(file, topic="orders", **place) as producer:
        for number in range(50):
            producer.post(b"%d" % number, key="k")
    consumer.start()
    try:
        eventually(lambda: len(seen) >= 50)
    finally:
        consumer.stop()
    assert seen == [str(number) for number in range(50)]
