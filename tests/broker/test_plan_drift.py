"""Changes by hand on the real broker: named as what they are by `plan` and `drift`, and put back by apply where it may."""

from __future__ import annotations

import pytest
from pulsar.schema import JsonSchema, Record, String

from tests.broker.shapes import SHAPES, Shape
from tests.brokers.topics import EARLIEST
from tests.brokers.workspace import Json, Workspace

SMALL = "{subscriptions: {s: {states: [], dead_letter: false}}}"


class Order(Record):
    """A payload."""

    id = String()


def _said(changes: list[Json]) -> set[tuple[str, str]]:
    """(verb, address) of each change."""
    return {(change["action"], change["address"]) for change in changes}


def _drift(workspace: Workspace, *arguments: str, code: int = 3) -> Json:
    document: Json = workspace.run("drift", "--format", "json", *arguments, code=code).json()
    assert document["drifted"] is (code == 3)
    return document


def _forget_ttl(workspace: Workspace, local: str) -> None:
    workspace.admin("POST", f"{workspace.path(local)}/messageTTL", messageTTL="60")


def _drop(workspace: Workspace, local: str, subscription: str) -> None:
    """A subscription deleted by hand: on all partitions, or on the one that is named."""
    workspace.admin("DELETE", f"{workspace.path(local)}/subscription/{subscription}")


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest, workspace: Workspace) -> Shape:
    """A shape that has been applied."""
    found = SHAPES[request.param]
    workspace.topology(f"J: {found.ground}", "defaults: {partitions: 3, policies: {ttl: 14d}}\n")
    workspace.apply()
    return found


def test_a_topic_that_somebody_terminated_is_drift(workspace: Workspace) -> None:
    """No figure of the topic and no plan without changes shows it, while all of its producers fail."""
    workspace.topology("J: {subscriptions: {s: {states: [retrying]}}}", "defaults: {partitions: 2}\n")
    workspace.apply()
    assert not _drift(workspace, code=0)["beyond_repair"]
    workspace.admin("POST", f"{workspace.path('J-s-RETRYING')}/terminate/partitions")
    [finding] = _drift(workspace)["beyond_repair"]
    assert finding["code"] == "K442"
    assert f"{workspace.full('J-s-RETRYING')} was terminated" in finding["detail"]


def test_a_difference_that_six_topics_share_is_shown_once(workspace: Workspace) -> None:
    names = [f"T{number}" for number in range(6)]
    workspace.topology("{" + ", ".join(f"{name}: {{policies: {{ttl: 9d}}}}" for name in names) + "}")
    workspace.apply()
    for name in names:
        _forget_ttl(workspace, name)
    for shown in (workspace.run("plan").out, workspace.run("drift", code=3).out):
        assert shown.count("→ 9d") == 1
        assert "6 topics: ttl 1m → 9d" in shown, shown


def test_schema_validation_that_somebody_switched_on_is_reported(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}")
    workspace.apply()
    with workspace.client() as client:
        client.create_producer(workspace.full("J"), schema=JsonSchema(Order)).close()
    namespace = f"namespaces/{workspace.namespace}"
    workspace.admin("POST", f"{namespace}/schemaValidationEnforced", body=True)
    assert [one["code"] for one in workspace.plan_json()["findings"]] == ["K443"]
    assert not workspace.plan_json()["changes"]


def test_a_subscription_that_is_put_back_says_how_much_comes_again(workspace: Workspace) -> None:
    workspace.topology(
        "J: {policies: {retention: {time: 1d, size: 10MiB}}, subscriptions: {s: {}}}", "defaults: {partitions: 2}\n"
    )
    workspace.apply()
    with workspace.client() as client:
        producer = client.create_producer(workspace.full("J"))
        for number in range(10):
            producer.send(b"%d" % number, partition_key=f"k{number}")
    subscription = f"subscription.{workspace.full('J')}/s"
    _drop(workspace, "J-partition-1", "s")
    part = _drift(workspace)["returning"][subscription]
    assert 0 < part < 10
    _drop(workspace, "J-partition-0", "s")
    assert _drift(workspace)["returning"] == {subscription: 10}
    assert "about 10 stored messages come again" in " ".join(workspace.run("drift", code=3).out.split())


def test_what_was_changed_by_hand_is_told_apart_and_put_back(workspace: Workspace, shape: Shape) -> None:
    _forget_ttl(workspace, "J")
    _drop(workspace, "J-partition-1", "s")
    workspace.make_topic("extra", 1, "theirs")
    topic, subscription = f"topic.{workspace.full('J')}", f"subscription.{workspace.full('J')}/s"
    found = _drift(workspace)
    assert _said(found["by_hand"]) == {("update", topic), ("update", subscription)}
    assert found["unmanaged"] == [f"topic.{workspace.full('extra')}"]
    assert (found["either"], found["not_applied"], found["conflicts"]) == ([], [], [])
    plan = workspace.plan_json("--detailed-exitcode", code=2)
    fields = {one["name"]: (one["before"], one["after"]) for change in plan["changes"] for one in change["fields"]}
    assert fields == {"policies.ttl": ("1m", "14d"), "missing_on": ([1], [])}
    workspace.apply()
    assert workspace.policy("J", "messageTTL") == 14 * 86_400
    assert workspace.subscriptions("J") == [{"s"}] * 3
    deleted = set()
    for local, (name,) in shape.expected.items():
        _drop(workspace, local, name)
        deleted.add(("create", f"subscription.{workspace.full(local)}/{name}"))
    assert _said(_drift(workspace)["by_hand"]) == deleted
    workspace.apply()
    for local, expected in shape.expected.items():
        assert workspace.subscriptions(local) == [expected] * shape.partitions(3)[local], local
    assert _drift(workspace, code=0)["unmanaged"] == [f"topic.{workspace.full('extra')}"]
    assert workspace.topics() == {**shape.partitions(3), "extra": 1}


def test_drift_in_text_says_what_was_changed_and_what_the_next_apply_does(workspace: Workspace) -> None:
    workspace.topology("J: {policies: {ttl: 14d}, subscriptions: {s: {}}}")
    workspace.apply()
    assert "No drift." in workspace.run("drift").out
    _forget_ttl(workspace, "J")
    found = workspace.run("drift", code=3).out
    assert "Changed by hand (the next apply puts it back):" in found
    assert "ttl  1m → 14d" in found
    assert "Drift: 1 object." in found


def test_messages_that_came_while_a_partition_lacked_its_subscription_are_delivered_after_healing(
    workspace: Workspace,
) -> None:
    workspace.topology(
        "J: {partitions: 2, policies: {retention: {time: 1d, size: 10MiB}}, subscriptions: {s: {start: latest}}}"
    )
    workspace.apply()
    _drop(workspace, "J-partition-1", "s")
    workspace.publish("J-partition-1", 3)
    workspace.apply()
    stats = workspace.admin("GET", f"{workspace.path('J')}/partitioned-stats", getPreciseBacklog="true")
    assert stats["subscriptions"]["s"]["msgBacklog"] == 3
    workspace.assert_settled()


def test_a_topic_deleted_by_hand_is_drift_and_made_again(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}\nK: {SMALL}")
    workspace.apply()
    workspace.admin("DELETE", f"{workspace.path('K')}/partitions")
    expected = {("create", f"topic.{workspace.full('K')}"), ("create", f"subscription.{workspace.full('K')}/s")}
    assert _said(_drift(workspace)["by_hand"]) == expected
    workspace.apply()
    assert workspace.marker("K") == "trade"
    _drift(workspace, code=0)


def test_a_topic_deleted_and_made_anew_by_hand_is_nobodys_until_it_is_adopted(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}\nK: {SMALL}")
    workspace.apply()
    workspace.admin("DELETE", f"{workspace.path('K')}/partitions")
    workspace.make_topic("K", 1, "s")
    assert _said(_drift(workspace)["by_hand"]) == {("adopt", f"topic.{workspace.full('K')}")}
    workspace.apply()
    assert workspace.marker("K") == "trade"
    _drift(workspace, code=0)


def test_one_partition_deleted_by_hand_is_drift_and_made_again_with_its_subscription(workspace: Workspace) -> None:
    workspace.topology("J: {partitions: 3, subscriptions: {s: {states: [], dead_letter: false}}}")
    workspace.apply()
    workspace.admin("DELETE", f"{workspace.path('J-partition-2')}")
    found = _drift(workspace)
    assert _said(found["by_hand"]) == {("update", f"topic.{workspace.full('J')}")}
    workspace.apply()
    assert workspace.subscriptions("J") == [{"s"}] * 3
    _drift(workspace, code=0)


def test_partitions_grown_by_hand_are_drift_that_no_apply_can_put_back(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}")
    workspace.apply()
    workspace.admin("POST", f"{workspace.path('J')}/partitions", 4)
    assert [finding["code"] for finding in _drift(workspace)["beyond_repair"]] == ["K411"]
    refused = workspace.plan(code=4)
    assert "partitions never shrink. Write 4" in " ".join(refused.out.split())
    workspace.topology("J: {partitions: 4, subscriptions: {s: {states: [], dead_letter: false}}}")
    workspace.apply()
    assert workspace.subscriptions("J") == [{"s"}] * 4
    _drift(workspace, code=0)


def test_a_subscription_by_hand_on_a_topic_of_ours_is_unmanaged_and_stays(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}")
    workspace.apply()
    workspace.admin("PUT", f"{workspace.path('J')}/subscription/theirs", EARLIEST)
    address = f"subscription.{workspace.full('J')}/theirs"
    assert f"not counted without --unmanaged: {address}" in " ".join(workspace.run("drift").out.split())
    assert _drift(workspace, "--unmanaged")["unmanaged"] == [address]
    workspace.apply()
    assert workspace.subscriptions("J") == [{"s", "theirs"}]


def test_a_changed_file_is_not_drift_and_a_change_by_hand_beside_it_is(workspace: Workspace) -> None:
    workspace.topology("J: {policies: {ttl: 14d}, subscriptions: {s: {states: [], dead_letter: false}}}")
    workspace.apply()
    workspace.topology(
        f"J: {{policies: {{ttl: 20d}}, subscriptions: {{s: {{states: [], dead_letter: false}}}}}}\nK: {SMALL}"
    )
    _drop(workspace, "J", "s")
    found = _drift(workspace)
    assert found["stale_topologies"] == ["trade"]
    assert _said(found["by_hand"]) == {("create", f"subscription.{workspace.full('J')}/s")}
    assert _said(found["either"]) == {("update", f"topic.{workspace.full('J')}")}
    assert ("create", f"topic.{workspace.full('K')}") in _said(found["not_applied"])
    assert "not applied yet: trade" in workspace.run("drift", code=3).out
    workspace.apply()
    _drift(workspace, code=0)
