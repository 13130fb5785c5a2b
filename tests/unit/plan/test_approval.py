"""What a merge may carry out: what the approved plan has, with the very values it had, and nothing beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kodoctl.errors import Diagnostic, error, warning
from kodoctl.plan.approval import unapproved_changes, with_reviewed_evidence
from kodoctl.plan.changes import Adopt, Change, Delete, Forget
from kodoctl.plan.plan import Plan
from kodoctl.pulsar.values.live_objects import ClusterIdentity, LiveObject
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import TopicResource
from kodoctl.topology.units import Duration
from tests.samples.inventories import HERE, applied, changed, empty, planned, topology, wanted

BEFORE = wanted(topology("{J: {}, old: {}}"))
AFTER = wanted(topology("{J: {policies: {ttl: 14d}}, K: {}}"))
LIVE = applied(BEFORE)
APPROVED = planned(AFTER, LIVE)
J, K = "topic.persistent://acme/ns/J", "topic.persistent://acme/ns/K"


def _told(fresh: Plan, approved: Plan = APPROVED) -> str:
    return "\n".join(f"{finding.code} {finding.detail}" for finding in unapproved_changes(fresh, approved))


def test_the_same_plan_is_approved() -> None:
    assert unapproved_changes(planned(AFTER, LIVE), APPROVED) == ()


def test_what_is_done_already_need_not_be_done() -> None:
    fresh = replace(APPROVED, changes=tuple(change for change in APPROVED.changes if change.address != K))
    assert len(fresh.changes) < len(APPROVED.changes)
    assert unapproved_changes(fresh, APPROVED) == ()


def test_a_change_of_something_else_is_named() -> None:
    told = _told(planned(wanted(topology("{J: {policies: {ttl: 14d}}, K: {}, L: {}}")), LIVE))
    assert "topic.persistent://acme/ns/L: create\n" in told
    assert "nothing was written" in told


def test_another_value_than_the_approved_one_is_shown_beside_it() -> None:
    told = _told(planned(wanted(topology("{J: {policies: {ttl: 1h}}, K: {}}")), LIVE))
    assert f"{J}: update (ttl unset → 1h); approved was update (ttl unset → 14d)" in told


def test_another_value_before_is_another_change_too() -> None:
    drifted = changed(LIVE, LiveObject(TopicResource(TopicName(HERE, "J"), 1, {"ttl": Duration(60_000)}), "trade"))
    assert "update (ttl 1m → 14d); approved was update (ttl unset → 14d)" in _told(planned(AFTER, drifted))


def test_another_verb_is_another_change() -> None:
    nobody_s = changed(LIVE, LiveObject(TopicResource(TopicName(HERE, "K"), 1, {})))
    told = _told(planned(AFTER, nobody_s))
    assert f"{K}: adopt; approved was create" in told


def _of(verb: type[Change], plan: Plan) -> Change:
    return next(change for change in plan.changes if isinstance(change, verb))


def test_a_danger_that_nobody_saw_is_told_and_one_that_was_seen_may_have_grown() -> None:
    delete = _of(Delete, APPROVED)

    def with_danger(detail: str, severity: Callable[[str, str, str], Diagnostic] = warning) -> Plan:
        about = replace(delete.about, dangers=(severity("K401", "data would go", detail),))
        return replace(APPROVED, changes=tuple(replace(c, about=about) if c is delete else c for c in APPROVED.changes))

    assert "at stake now, and not when it was approved: K401 3 messages" in _told(with_danger("3 messages"))
    assert unapproved_changes(with_danger("5 messages"), with_danger("3 messages")) == ()
    refused = with_danger("3 messages", error)
    assert "at stake now, and not when it was approved: K401 3 messages" in _told(refused, with_danger("3 messages"))
    assert unapproved_changes(refused, refused) == ()


def test_clients_that_the_reviewed_evidence_does_not_name_stay_out_of_it() -> None:
    def with_clients(*names: str) -> Plan:
        pairs = [(change, replace(change.about, evidence={"clients": list(names)})) for change in APPROVED.changes]
        return replace(APPROVED, changes=tuple(replace(change, about=about) for change, about in pairs))

    carried = with_reviewed_evidence(with_clients("anna", "mallory"), with_clients("anna"))
    assert {tuple(change.about.evidence["clients"]) for change in carried.changes} == {("anna",)}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda plan: replace(plan, identity=ClusterIdentity("other", plan.identity.uuids)), "K534"),
        (lambda plan: replace(plan, identity=ClusterIdentity("standalone", {"acme": "another"})), "K534"),
        (lambda plan: replace(plan, environment="prod"), "for environment base, this is prod"),
        (lambda plan: replace(plan, owners=(replace(plan.owners[0], leaves=True),)), "topology trade in acme/ns would end"),
        (lambda plan: replace(plan, owners=(replace(plan.owners[0], replaces=("old",)),)), "would replace old"),
        (lambda plan: replace(plan, owners=(replace(plan.owners[0], name="other"),)), "topology other in acme/ns"),
    ],
)  # fmt: skip
def test_cluster_environment_and_ownership_are_part_of_it(change: Callable[[Plan], Plan], said: str) -> None:
    assert said in _told(change(APPROVED))


def test_a_first_apply_that_gave_the_cluster_its_uuid_may_be_run_again() -> None:
    first = replace(APPROVED, identity=ClusterIdentity("standalone", {"acme": None}))
    assert unapproved_changes(APPROVED, first) == ()
    assert unapproved_changes(first, first) == ()
    assert "K534" in _told(first, APPROVED)


def test_many_are_counted() -> None:
    topics = ", ".join(f"t{number}: {{}}" for number in range(30))
    told = _told(planned(wanted(topology(f"{{J: {{}}, old: {{}}, {topics}}}")), LIVE))
    assert "and 10 more" in told


def test_adopting_and_forgetting_are_approved_by_address_and_values_like_the_rest() -> None:
    there = changed(empty(), LiveObject(TopicResource(TopicName(HERE, "J"), 1, {})))
    plan = planned(wanted(topology("{J: {}}")), there)
    adopt = _of(Adopt, plan)
    assert unapproved_changes(plan, plan) == ()
    forget = replace(plan, changes=(Forget(adopt.address, None, adopt.about),))
    assert f"{J}: forget; approved was adopt" in _told(forget, plan)
