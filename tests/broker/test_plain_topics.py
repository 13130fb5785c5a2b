"""Plain topics, without partitions, as Pulsar creates by itself: imported, planned, applied, drained and deleted like others."""

from __future__ import annotations

import pytest

from tests.brokers.workspace import Workspace, run_main

PLAIN = (
    "orders: {partitioned: false, subscriptions: {billing: {states: [retrying], dead_letter: {partitioned: false}}}}"
)


@pytest.fixture
def by_hand(workspace: Workspace) -> Workspace:
    workspace.admin("PUT", f"namespaces/{workspace.namespace}")
    return workspace


def _auto_created(workspace: Workspace, local: str, *subscriptions: str) -> None:
    """A topic that a producer brought into being, with a message."""
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
    workspace.run("undo", "last", "--auto-approve", code=None)
    status = workspace.run("status", "--format", "json").json()
    assert "MISSING" not in workspace.run("status").out, status
    workspace.publish("orders", 2)
    refused = workspace.run("destroy", "--name", "trade", "--namespace", workspace.namespace, "--auto-approve", code=4)
    assert "K401" in refused.text
    assert _lists(workspace, "orders")
    names = ("orders", "orders-billing-RETRYING", "orders-billing-DLQ")
    allowed = [flag for local in names for flag in ("--allow-destroy", f"topic.{workspace.full(local)}")]
    subscription = f"subscription.{workspace.full('orders')}/billing"
    workspace.run(
        "destroy", "--name", "trade", "--namespace", workspace.namespace, "--auto-approve", *allowed,
        "--allow-destroy", subscription, "--allow-share", "1",
    )  # fmt: skip
    assert not any(_lists(workspace, local) for local in names)


def test_neither_kind_becomes_the_other_and_the_way_is_said(workspace: Workspace) -> None:
    workspace.topology(
        "{events: {partitioned: false}, orders: {}}".replace("{events", "events").replace(
            "}, orders: {}}", "}\norders: {}"
        )
    )
    workspace.apply()
    workspace.topology("events: {}\norders: {partitioned: false}")
    said = workspace.plan(code=4).text
    assert "[K412]" in said
    assert "[K437]" in said
    assert "2. deploy consumers that read both topics" in said
    assert _lists(workspace, "events")
    assert workspace.topics() == {"orders": 1}
