"""`import` of a grown tenant: every live object and each setting that somebody made is in a file or in a list with its reason."""

from __future__ import annotations

import pytest
from pulsar.schema import JsonSchema, Record, String

from kodoctl.pulsar.admin.admin import schema_path, subscription_path
from kodoctl.topology.names import TopicName
from tests.brokers.workspace import EARLIEST, Workspace

RATE = {
    "dispatchThrottlingRateInMsg": 10, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1,
    "relativeToPublishRate": True,
}  # fmt: skip
NO_DRIVER = {
    "managedLedgerOffloadDriver": "filesystem", "managedLedgerOffloadThresholdInBytes": 1, "fileSystemURI": "file:///none",
}  # fmt: skip


class Order(Record):
    """A payload."""

    id = String()


@pytest.fixture
def grown(workspace: Workspace) -> Workspace:
    """A tenant of three namespaces, as people make them over years."""
    space, tenant = workspace, workspace.tenant
    for namespace in ("ns", "bare", "cold"):
        space.admin("PUT", f"namespaces/{tenant}/{namespace}")
    space.make_topic("orders", 2, "billing", "shop/front")
    space.make_topic("orders-billing-DLQ", 1, "people")
    space.make_topic("orders-billing-RETRY", 1)
    space.make_topic("closed", 2)
    space.admin("POST", f"{space.path('closed')}/terminate/partitions")
    space.admin("PUT", space.path("plain"))
    space.admin("PUT", space.path("ended"))
    space.admin("POST", f"{space.path('ended')}/terminate")
    space.admin("PUT", f"{space.path('plain')}/subscription/reader", "latest")
    space.admin("PUT", f"non-persistent/{tenant}/ns/beats/partitions", 3)
    for local, role, actions in (
        ("orders", "shop", ["produce"]), ("orders", "report", ["consume"]), ("plain", "app", ["produce"]),
    ):  # fmt: skip
        space.admin("POST", f"{space.path(local)}/permissions/{role}", actions)
    space.admin("POST", f"{space.path('orders')}/subscriptionTypesEnabled", ["Failover"])
    with space.client() as client:
        client.create_producer(space.full("orders"), schema=JsonSchema(Order)).close()
    space.admin("POST", f"namespaces/{tenant}/bare/dispatchRate", RATE)
    space.admin("POST", f"namespaces/{tenant}/bare/messageTTL", 60)
    space.admin("POST", f"namespaces/{tenant}/bare/antiAffinity", "apart")
    space.admin("PUT", f"namespaces/{tenant}/bare/property/team/billing")
    space.admin("PUT", f"namespaces/{tenant}/bare/offloadThreshold", 1 << 30)
    space.make_topic("old", 1, namespace="cold")
    space.admin("POST", f"{space.path('old', 'cold')}/offloadPolicies", NO_DRIVER)
    space.admin("PUT", f"namespaces/{tenant}/cold/unload")
    return space


def test_nothing_that_is_there_vanishes_from_an_import_and_what_cannot_be_read_holds_nobody_up(
    grown: Workspace,
) -> None:
    files = grown.folder / "topologies"
    found = grown.run("import", grown.tenant, "--out", str(files))
    assert "Waiting for the cluster" not in found.err, "a driver that is not installed does not come with time"
    texts = {file.stem: file.read_text(encoding="utf-8") for file in files.glob("*.yaml")}
    here = f"persistent://{grown.tenant}/ns"
    expected = {
        "ns": (
            "producers: [shop]",
            f"#   grant.{here}/orders/report: a grant on a topic",
            "plain:\n    partitioned: false\n    producers: [app]\n    subscriptions:\n      reader:",
            f"#   schema.{here}/orders: a schema (JSON)",
            f"#   subscription.{here}/orders-billing-DLQ/people: it reads a -DLQ topic",
            f"#   subscription.{here}/orders/shop/front: its name: ",
            f"#   topic.non-{here}/beats: a non-persistent topic",
            "policies: {subscription_types: [failover]}",
            f"#   topic.{here}/closed terminated: it takes no more messages",
            f"#   topic.{here}/ended terminated: it takes no more messages",
            f"#   topic.{here}/orders-billing-RETRY as a retry topic: Java clients name theirs so",
        ),
        "bare": (
            "ttl: 1m",
            "anti_affinity_group: apart",
            "dispatch_rate: {messages: 10, size: unlimited, period: 1s, relative: true}",
            f"#   namespace.{grown.tenant}/bare offload: the format cannot express its value",
            "properties: {team: billing}",
        ),
    }
    for name, lines in expected.items():
        for line in lines:
            assert line in texts[name], texts[name]
    everything = "".join(texts.values()) + found.err
    assert f"/{grown.tenant}/cold/old: it cannot be read: " in everything
    assert "No offloader found for driver 'filesystem'" in everything
    actions = {change["action"] for change in grown.plan_json()["changes"]}
    assert actions == {"adopt", "create"}, "the holder of the dead letters alone is created"


def test_schemas_and_subscriptions_with_odd_names_are_those_of_no_other_object(workspace: Workspace) -> None:
    """Pulsar decodes both names twice in paths: `a+b`, encoded once, was read as `a b`."""
    space = workspace
    space.admin("PUT", f"namespaces/{space.namespace}")
    names = ("a+b", "a b", "a%2Fb", "50%")
    for name in names:
        space.admin("PUT", space.path(name))
    topic = TopicName.parse(space.full("a+b"))
    space.admin("POST", f"{schema_path(topic)}/schema", {"type": "STRING", "schema": "", "properties": {}})
    listed = [line for line in space.run("import", space.namespace).out.splitlines() if "schema." in line]
    assert listed == [f"#   schema.{topic}: a schema (STRING); declare it as `payload` of the topic"]
    for name in names:
        space.admin("PUT", subscription_path(topic, name), EARLIEST)
    assert set(space.admin("GET", f"{space.path('a+b')}/subscriptions")) == set(names)


def test_an_imported_namespace_is_adopted_with_a_policy_that_is_read_by_a_request_of_its_own(
    grown: Workspace,
) -> None:
    file = grown.folder / "bare.yaml"
    grown.run("import", f"{grown.tenant}/bare", "--out", str(file))
    assert "anti_affinity_group: apart" in file.read_text(encoding="utf-8")
    grown.run("apply", str(file), "--auto-approve")
    assert grown.run("plan", str(file)).summary.startswith("No changes")


def test_a_plan_that_needs_a_topic_which_cannot_be_loaded_says_so_at_once_and_how_to_go_on(grown: Workspace) -> None:
    path = grown.topology("{old: {}}", namespace="cold")
    refused = grown.plan(code=1)
    old = f"persistent://{grown.tenant}/cold/old"
    assert "No offloader found for driver 'filesystem'" in refused.err
    assert (
        f"take the policy off the topic by `pulsar-admin topicPolicies remove-offload-policies {old}` `plan`, `apply` and"
        f" `destroy` go on without it by --exclude topic.persistent://{grown.tenant}/cold/old"
        in " ".join(refused.err.split())
    )
    assert "Waiting for the cluster" not in refused.err
    grown.run("plan", str(path), "--exclude", f"topic.persistent://{grown.tenant}/cold/old*")


def test_a_plan_that_adopts_a_terminated_topic_says_so(grown: Workspace) -> None:
    grown.topology("closed: {partitions: 2}\nended: {partitioned: false}")
    plan = grown.plan_json()
    assert sorted(one["detail"] for one in plan["findings"] if one["code"] == "K442") == [
        f"{grown.full(local)} was terminated: its stored messages can be read, and no producer can send there again"
        for local in ("closed", "ended")
    ]


def test_a_plan_says_that_a_topic_with_a_schema_refuses_producers_without_one(grown: Workspace) -> None:
    file = "plain: {partitioned: false}\norders: {partitions: 2, policies: {subscription_types: [failover]}}"
    grown.topology(file, "namespace_policies: {schema_validation: true}\n")
    plan = grown.plan_json("--adopt", f"namespace.{grown.namespace}")
    assert [one["detail"] for one in plan["findings"] if one["code"] == "K443"] == [
        f"{grown.full('orders')} has a schema and validates: it refuses producers without one, as those of this file are"
    ]


def test_a_plan_says_so_too_where_the_namespace_alone_begins_to_validate(workspace: Workspace) -> None:
    space = workspace
    topics = "orders: {subscriptions: {billing: {states: [], dead_letter: false}}}"
    file = space.topology(topics, "namespace_policies: {ttl: unlimited}\n")
    space.run("apply", str(file), "--auto-approve")
    with space.client() as client:
        client.create_producer(space.full("orders"), schema=JsonSchema(Order)).close()
    space.topology(topics, "namespace_policies: {ttl: unlimited, schema_validation: true}\n")
    plan = space.plan_json()
    assert [change["address"] for change in plan["changes"]] == [f"namespace.{space.namespace}"]
    assert [finding["code"] for finding in plan["findings"]] == ["K443"]


def test_a_plan_warns_where_a_topic_forbids_the_type_of_its_workers(grown: Workspace) -> None:
    types = "policies: {subscription_types: [failover]}"
    grown.topology(
        f"{{orders: {{partitions: 2, {types}, subscriptions: {{billing: {{states: [], dead_letter: false}}}}}}}}"
    )
    findings = {finding["code"]: finding["detail"] for finding in grown.plan_json(code=0)["findings"]}
    assert findings["K439"] == (
        f"{grown.full('orders')}: the topic allows failover only: no worker of type shared can subscribe"
    )
