"""One topic that the broker cannot load holds up nothing else: it is named with the broker's answer, and can be left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.brokers.workspace import Workspace
from tests.services.servers import Answer, Proxy, Request, answer_json

NO_DRIVER = {
    "managedLedgerOffloadDriver": "filesystem", "managedLedgerOffloadThresholdInBytes": 1, "fileSystemURI": "file:///none",
}  # fmt: skip
ANSWER = "No offloader found for driver 'filesystem'"
TOPICS = "{{orders: {{subscriptions: {{billing: {{states: []}}}}}}, news: {{partitions: {}, subscriptions: {{mail: {{states: []}}}}}}}}"


@pytest.fixture
def broken(workspace: Workspace) -> tuple[Workspace, Path]:
    """An applied topology with one topic that the broker can load no more, and an unmanaged topic like it."""
    space = workspace
    file = space.topology(TOPICS.format(1))
    space.run("apply", str(file), "--auto-approve")
    space.make_topic("strange", 2)
    for local in ("orders", "strange"):
        space.admin("POST", f"{space.path(local)}/offloadPolicies", NO_DRIVER)
    space.admin("PUT", f"namespaces/{space.namespace}/unload")
    return space, file


def test_plan_and_apply_name_it_and_go_on_without_it(broken: tuple[Workspace, Path]) -> None:
    space, file = broken
    out = f"topic.persistent://{space.namespace}/orders"
    refused = " ".join(space.run("plan", str(file), code=1).err.split())
    assert ANSWER in refused
    topic = f"persistent://{space.namespace}/orders"
    assert f"`pulsar-admin topicPolicies remove-offload-policies {topic}`" in refused
    assert f"`plan`, `apply` and `destroy` go on without it by --exclude {out}" in refused
    assert "strange" not in refused
    space.topology(TOPICS.format(2))
    planned = space.run("plan", str(file), "--exclude", out)
    assert "1 to update" in " ".join(planned.out.split())
    assert f"    topic.persistent://{space.namespace}/strange" in planned.out
    space.run("apply", str(file), "--exclude", out, "--auto-approve")
    assert space.run("plan", str(file), "--exclude", out).summary.startswith("No changes")


def test_drift_compares_the_rest_and_does_not_call_it_clean(broken: tuple[Workspace, Path]) -> None:
    space, file = broken
    space.admin("POST", f"{space.path('news')}/messageTTL", messageTTL="60")
    found = space.run("drift", str(file), "--format", "json", code=4).json()
    assert [change["address"] for change in found["by_hand"]] == [f"topic.persistent://{space.namespace}/news"]
    errors = [finding for finding in found["conflicts"] if finding["severity"] == "error"]
    assert [finding["code"] for finding in errors] == ["K580"]
    assert ANSWER in errors[0]["detail"]


def test_status_shows_the_rest_and_lists_it(broken: tuple[Workspace, Path]) -> None:
    space, file = broken
    found = json.loads(space.run("status", str(file), "--format", "json", code=1).out)
    assert [topic["topic"] for topic in found["unread"]] == ["orders"]
    assert ANSWER in found["unread"][0]["reason"]
    lanes = {(lane["ground"], lane["state"]) for lane in found["topologies"][0]["lanes"]}
    assert lanes == {("orders", "dead"), ("news", "ready"), ("news", "dead")}
    assert f"persistent://{space.namespace}/orders: NOT READ" in space.run("status", str(file), code=1).out


def test_destroy_names_it_and_deletes_the_rest(broken: tuple[Workspace, Path]) -> None:
    space, file = broken
    out = f"topic.persistent://{space.namespace}/orders"
    assert ANSWER in " ".join(space.run("destroy", str(file), "--auto-approve", code=1).err.split())
    space.run("destroy", str(file), "--exclude", out, "--auto-approve")
    assert space.topics().keys() == {"orders", "strange"}
    again = space.run("destroy", str(file), "--exclude", out, "--auto-approve")
    assert again.summary.startswith("No changes")


LOST = "Failed to open ledger - No such ledger exists on Metadata Server - ledger=12"
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
SCHEMA = """
orders: {subscriptions: {billing: {states: []}}, payload: {type: avro, schema: order.avsc}}
news: {subscriptions: {mail: {states: []}}}
"""


def _without_schema(request: Request) -> Answer | None:
    return answer_json({"reason": LOST}, 500) if request.path.endswith("/orders/schema") else None


def test_a_schema_that_the_broker_lost_costs_no_minute(workspace: Workspace, proxy: Proxy) -> None:
    """The broker's answer is made up: no request of its API loses the ledger of a schema."""
    space = workspace
    file = space.topology(SCHEMA)
    file.with_name("order.avsc").write_text(json.dumps(AVRO), encoding="utf-8")
    space.run("apply", str(file), "--auto-approve")
    proxy.choose = _without_schema
    out = f"schema.persistent://{space.namespace}/orders"
    refused = " ".join(space.run("plan", str(file), code=1).err.split())
    assert LOST in refused
    assert f"`plan` and `apply` go on without it by --exclude {out}" in refused
    assert space.run("plan", str(file), "--exclude", out).summary.startswith("No changes")
    found = space.run("drift", str(file), "--format", "json", code=4).json()
    assert [finding["severity"] for finding in found["conflicts"]] == ["error"]
    space.run("forget", "--name", "trade", "--namespace", space.namespace, "--auto-approve")
    imported = space.run("import", space.namespace).out
    assert f"#   {out}: it cannot be read: " in imported
    assert "topics:\n  news:" in imported
