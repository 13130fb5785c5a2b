"""Plans by a role that sees topics alone: what is said of those is what a whole plan says, and nothing of the rest."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given

from kodoctl.errors import RefusedError
from kodoctl.plan.changes import Change
from kodoctl.plan.diff import Allowances, diff
from kodoctl.plan.inventory import Desired
from kodoctl.plan.ownership import namespace_of
from kodoctl.plan.partial_access import drop_unseen, refuse_reduced, unseen_finding
from kodoctl.plan.plan import Plan, make_plan
from kodoctl.plan.plan_file import dumps, loads
from kodoctl.pulsar.values.live_objects import Live
from kodoctl.topology.resources import SubscriptionResource, TopicResource
from tests.samples.inventories import (
    HERE,
    NOW,
    applied,
    difference,
    empty,
    planned,
    said,
    topology,
    topology_texts,
    wanted,
)
from tests.samples.profiles import examples

SEEN = (TopicResource, SubscriptionResource)


def _denied(whole: Live, side: Desired) -> Live:
    """What a role with `consume` reads of it, where the files grant rights in other namespaces too."""
    objects = {address: found for address, found in whole.objects.items() if isinstance(found.resource, SEEN)}
    spaces = {space for one in side.objects.values() if (space := namespace_of(one.resource)) is not None}
    return replace(whole, objects=objects, ledgers={HERE: {}}, namespace_policies={HERE: {}}, unseen=frozenset(spaces))


def _planned(side: Desired, there: Live) -> Plan:
    desired, live = drop_unseen(side, _denied(there, side))
    found = diff(desired, live)
    return make_plan(desired, live, found, evidence={}, allowances=Allowances(), now=NOW)


def _of_topics(changes: tuple[Change, ...]) -> set[tuple[str, str]]:
    return {(verb, address) for verb, address in said(changes) if address.startswith(("topic.", "subscription."))}


@given(topology_texts(), topology_texts())
@examples(50)
def test_topics_and_subscriptions_are_planned_as_in_a_whole_plan_and_nothing_else_is(before: str, after: str) -> None:
    there = applied(wanted(before))
    plan = _planned(wanted(after), there)
    assert said(plan.changes) == _of_topics(difference(wanted(after), there).changes)
    assert HERE in plan.unseen


def test_a_tenant_and_grants_are_neither_created_nor_revoked() -> None:
    head = (
        "create_tenant: {clusters: [standalone]}\nnamespace_grants: {ann: [consume]}\nnamespace_policies: {ttl: 3d}\n"
    )
    side = wanted(topology("{J: {subscriptions: {s: {workers: [bob]}}}}", head))
    plan = _planned(side, applied(side))
    assert plan.changes == ()
    assert not plan.refused
    without = _planned(wanted(topology()), applied(side))
    assert without.changes == ()


def test_objects_of_other_topologies_stay_theirs() -> None:
    there = applied(wanted(topology(name="other")))
    side = wanted(topology("{K: {}}"))
    found = diff(*drop_unseen(side, _denied(there, side)))
    assert {change.address for change in found.changes} == {f"topic.persistent://{HERE}/K"}
    assert found.unmanaged == ()
    assert found.elsewhere == {"other": sum(isinstance(one.resource, SEEN) for one in there.objects.values())}


def test_what_nobody_owns_is_adopted_or_listed_as_in_a_whole_plan() -> None:
    side = wanted(topology("{J: {}}"))
    there = applied(wanted(topology("{J: {}, K: {}}")))
    unmarked = {address: replace(found, marker=None) for address, found in there.objects.items()}
    found = diff(*drop_unseen(side, _denied(replace(there, objects=unmarked), side)))
    assert said(found.changes) == {("adopt", "topic.J")}
    assert found.unmanaged == (f"topic.persistent://{HERE}/K",)


def test_what_was_seen_whole_is_left_as_it_is() -> None:
    side, there = wanted(topology()), empty()
    assert drop_unseen(side, there) == (side, there)
    refuse_reduced(planned(side, there))
    assert list(unseen_finding(())) == []


def test_the_plan_file_says_that_it_is_reduced_and_cannot_be_applied() -> None:
    plan = _planned(wanted(topology()), applied(wanted(topology())))
    again = loads(dumps(plan), "plan.json")
    assert again.unseen == plan.unseen
    assert json.loads(dumps(plan))["complete"] is False
    with pytest.raises(RefusedError, match="may not see all of acme/ns"):
        refuse_reduced(again, "plan.json")
    (told,) = unseen_finding({HERE})
    assert (told.code, told.severity.value) == ("K429", "warning")
