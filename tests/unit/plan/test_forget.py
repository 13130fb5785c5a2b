"""Giving up ownership: single objects, whole topologies, what nobody owns."""

from __future__ import annotations

from dataclasses import replace

from kodoctl.plan.forget import forget_plan
from kodoctl.plan.plan_file import dumps, loads
from kodoctl.status.lane_status import LaneStatus, TopologyStatus
from tests.samples.inventories import HERE, applied, changed, said, topology, wanted

TEXT = topology("{J: {producers: [anna], subscriptions: {s: {states: [], dead_letter: false}}}, K: {}}")
K = "topic.persistent://acme/ns/K"


def test_one_object_leaves_its_ledger_and_everything_else_stays() -> None:
    plan = forget_plan(applied(wanted(TEXT)), [K], frozenset())
    assert said(plan.changes) == {("forget", "topic.K")}
    [owner] = plan.owners
    assert (owner.name, owner.leaves) == ("trade", False)
    assert owner.grants.keys() == {"grant.persistent://acme/ns/J/anna"}
    assert owner.digest == ""  # what is applied is no longer what the file says
    assert owner.partial  # intents of other objects stay
    assert not plan.refused


def test_a_grant_that_is_forgotten_leaves_the_list_of_grants() -> None:
    plan = forget_plan(applied(wanted(TEXT)), ["grant.persistent://acme/ns/J/anna"], frozenset())
    assert plan.owners[0].grants == {}


def test_a_whole_topology_leaves_with_its_entry() -> None:
    both = applied(wanted(TEXT, topology("{L: {}}", name="other")))
    plan = forget_plan(both, [], frozenset({"trade"}))
    assert ("forget", "namespace.acme/ns") in said(plan.changes)
    assert ("forget", "topic.L") not in said(plan.changes)
    assert [(owner.name, owner.leaves) for owner in plan.owners] == [("trade", True)]
    assert plan.namespaces == (HERE,)


def test_what_is_gone_already_can_be_forgotten() -> None:
    [change] = forget_plan(changed(applied(wanted(TEXT)), without=[K]), [K], frozenset()).changes
    assert change.before is None  # type: ignore[union-attr]


def test_the_marker_of_another_topology_is_left_alone() -> None:
    """The topic was made anew by another one: only what the ledger still says of it goes."""
    there = applied(wanted(TEXT))
    plan = forget_plan(changed(there, replace(there.objects[K], marker="other")), [K], frozenset())
    [change] = plan.changes
    assert change.before is None  # type: ignore[union-attr]
    assert change.about.reason == "belongs to other by now, and stays so"
    assert not plan.refused


def test_what_nobody_owns_is_a_finding() -> None:
    plan = forget_plan(applied(wanted(TEXT)), ["topic.persistent://acme/ns/x"], frozenset({"stranger"}))
    assert [finding.code for finding in plan.findings] == ["K419", "K419"]
    assert "topic.persistent://acme/ns/x is in no topology's ledger" in plan.findings[0].detail
    assert "no topology 'stranger'" in plan.findings[1].detail
    assert plan.refused


def test_such_a_plan_is_a_plan_file_like_any_other() -> None:
    plan = forget_plan(applied(wanted(TEXT)), [K], frozenset())
    assert loads(dumps(plan), "plan.json") == plan


def test_a_status_counts_the_lanes_that_are_missing() -> None:
    lanes = tuple(LaneStatus("J", "s", "L1", "ready", "J", there=there) for there in (True, False, False))
    assert TopologyStatus("trade", "acme/ns", lanes, ()).missing == 2
