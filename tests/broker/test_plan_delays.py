"""A plan says where the real broker does not keep messages as long as they are to wait (K211)."""

from __future__ import annotations

import pytest

from tests.cluster import Workspace

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
