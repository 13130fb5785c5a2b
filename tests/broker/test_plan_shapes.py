"""The five shapes on the real broker: what apply makes, that a second plan is empty, and what destroy leaves."""

from __future__ import annotations

import pytest

from tests.broker.shapes import SHAPES, Shape
from tests.brokers.workspace import Workspace


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest, workspace: Workspace) -> Shape:
    found = SHAPES[request.param]
    workspace.topology(f"J: {found.ground}", "defaults: {partitions: 3, policies: {ttl: 14d}}\n")
    return found


def test_apply_makes_exactly_the_topics_of_the_table_and_destroy_takes_them_all(
    workspace: Workspace, shape: Shape
) -> None:
    workspace.apply()
    partitions = shape.partitions(3)
    assert workspace.topics() == partitions
    for local, expected in shape.expected.items():
        assert workspace.subscriptions(local) == [expected] * partitions[local], local
        assert workspace.marker(local) == "trade"
    workspace.assert_settled()
    again = workspace.apply()
    assert again.summary.startswith("No changes")
    workspace.run("destroy", "topologies", "--auto-approve")
    assert workspace.admin("GET", f"namespaces/{workspace.tenant}") == [f"{workspace.tenant}/kodoctl"]
