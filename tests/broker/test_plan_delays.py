"""A plan says where the real broker does not keep messages as long as they are to wait (K211)."""

from __future__ import annotations

import pytest

from tests.brokers.workspace import Workspace

pytestmark = pytest.mark.broker


def _set(workspace: Workspace, **delays: object) -> None:
    value = {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 0, **delays}
    workspace.admin("POST", f"namespaces/{workspace.namespace}/delayedDelivery", value)


def test_a_plan_warns_of_waits_that_the_broker_does_not_keep(workspace: Workspace) -> None:
    workspace.topology("J: {subscriptions: {s: {states: [retrying], retrying: {delays: [1m, 1h], attempts: 3}}}}")
    workspace.apply()
    assert "K211" not in workspace.plan().text
    _set(workspace, maxDeliveryDelayInMillis=60_000)
    assert "keeps them 1m at most" in " ".join(workspace.plan().text.split())
    _set(workspace, active=False)
    assert "delayed delivery is off" in " ".join(workspace.plan().text.split())


def test_what_the_cluster_does_by_itself_and_cannot_do_is_told(workspace: Workspace) -> None:
    """Few bookies, automatic creation turned on by hand, and a broker that may delete what has no subscription."""
    name = f"{workspace.tenant}/ns"
    workspace.admin("PUT", f"namespaces/{name}")
    creation = {"allowAutoTopicCreation": True, "topicType": "non-partitioned"}
    workspace.admin("POST", f"namespaces/{name}/autoTopicCreation", creation)
    inactive = "inactive_topic: {delete: no_subscriptions, after: 1h}"
    workspace.topology(f"J: {{policies: {{persistence: {{ensemble: 9, write_quorum: 2, ack_quorum: 2}}, {inactive}}}}}")
    told = [finding["detail"] for finding in workspace.plan_json()["findings"] if finding["code"] in ("K207", "K210")]
    too_few = f"ensemble of 9, the cluster knows {len(workspace.admin('GET', 'bookies/all')['bookies'])}"
    for words in ("topics are created automatically (namespace)", "deletes J once", too_few):
        assert sum(words in detail for detail in told) == 1, told
