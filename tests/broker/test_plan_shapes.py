"""The five shapes on the real broker: what apply makes, that a second plan is empty, what changes by hand look like,
and what destroy leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from tests.cluster import Workspace

STATES = ("PENDING", "BLOCKING", "RETRYING")


@dataclass(frozen=True)
class Shape:
    """One row of the table: how it is written, and topic -> subscriptions it must have."""

    ground: str
    expected: Mapping[str, set[str]]


def _family(levels: tuple[str, ...], states: tuple[str, ...], *, backup: bool, dead: bool) -> dict[str, set[str]]:
    found = {f"J{level}": {"s"} for level in levels}
    found |= {f"J{level}-s-{state}": {"s"} for level in levels for state in states}
    found |= {"J-B1": {"s"}} if backup else {}
    found |= {"J-s-DLQ": {"kodo-hold"}} if dead else {}
    return found


SHAPES = {
    "simplest": Shape("{subscriptions: {s: {states: [], dead_letter: false}}}", _family(("",), (), backup=False, dead=False)),
    "simple": Shape("{subscriptions: {s: {states: [retrying]}}}", _family(("",), ("RETRYING",), backup=False, dead=True)),
    "single level": Shape("{subscriptions: {s: {}}}", _family(("",), STATES, backup=False, dead=True)),
    "single level with backup": Shape("{backup: true, subscriptions: {s: {}}}", _family(("",), STATES, backup=True, dead=True)),
    "double level with backup": Shape(
        "{levels: double, backup: true, subscriptions: {s: {}}}", _family(("", "-L2"), STATES, backup=True, dead=True)
    ),
}  # fmt: skip


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest, workspace: Workspace) -> Shape:
    found = SHAPES[request.param]
    workspace.topology(f"J: {found.ground}", "defaults: {partitions: 3, policies: {ttl: 14d}}\n")
    return found


def test_apply_makes_exactly_the_topics_of_the_table_and_destroy_takes_them_all(
    workspace: Workspace, shape: Shape
) -> None:
    workspace.apply()
    partitions = {local: 1 if local.endswith("-DLQ") else 3 for local in shape.expected}
    assert workspace.topics() == dict(sorted(partitions.items()))
    for local, expected in shape.expected.items():
        assert workspace.subscriptions(local) == [expected] * partitions[local], local
        assert workspace.marker(local) == "trade"
    workspace.assert_settled()
    again = workspace.apply()
    assert again.summary.startswith("No changes")
    workspace.run("destroy", "topologies", "--auto-approve")
    assert workspace.admin("GET", f"namespaces/{workspace.tenant}") == [f"{workspace.tenant}/kodoctl"]
