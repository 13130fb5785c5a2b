"""Applies backwards: what comes back, what is refused, what is named as gone for good."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kodoctl.errors import Severity
from kodoctl.plan.changes import Create, Delete, Forget, Update
from kodoctl.plan.diff import Allowances
from kodoctl.plan.history import Applied
from kodoctl.plan.ledger_plan import LedgerPlan
from kodoctl.plan.plan import Plan
from kodoctl.plan.undo import backwards, undo_plan
from kodoctl.pulsar.values import ledger as ledgers
from kodoctl.pulsar.values.ledger import Ledger, OwnershipKind
from kodoctl.pulsar.values.live_objects import Live, LiveObject, TopicFacts
from kodoctl.topology.model.policies import from_json
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import GrantResource, SchemaResource, TenantResource, TopicResource
from tests.samples.inventories import (
    HERE,
    NOW,
    applied,
    changed,
    empty,
    live,
    planned,
    said,
    topology,
    wanted,
    with_ledger,
)

J = TopicName(HERE, "J")
PLAIN = "{subscriptions: {s: {states: [], dead_letter: false}}}"


def _done(before: str, after: str, **allowed: Any) -> tuple[Applied, Live, Live]:
    """An apply from one file to the other, and the cluster before and after it."""
    start = applied(wanted(topology(before))) if before else empty()
    end = applied(wanted(topology(after)))
    plan = planned(wanted(topology(after)), start, **allowed)
    texts = {
        f"{namespace}/{name}": ledgers.encode(start.ledgers[namespace][name]) if namespace in start.ledgers else None
        for namespace, entries in end.ledgers.items()
        for name in entries
    }
    one = Applied("aa11", "apply", "anna", 1, None, "d", texts, ended=2, complete=True, total=9, done=plan.changes)
    return one, start, end


def _undo(one: Applied, there: Live, destroy: frozenset[str] = frozenset()) -> Plan:
    return undo_plan(one, there, evidence={}, allowances=Allowances(destroy=destroy), now=NOW)


def _codes(plan: Plan) -> list[tuple[str, Severity]]:
    return sorted({(finding.code, finding.severity) for finding in plan.findings})


def test_what_was_made_goes_and_the_ledger_says_what_it_said() -> None:
    one, start, end = _done(f"{{J: {PLAIN}}}", f"{{J: {PLAIN}, K: {PLAIN}}}")
    plan = _undo(one, end)
    assert said(plan.changes) == {("delete", "topic.K"), ("delete", "subscription.K/s")}
    assert {change.about.reason for change in plan.changes} == {"undoes aa11"}
    [owner] = plan.owners
    assert owner.digest == start.ledgers[HERE]["trade"].digest
    assert not owner.leaves
    assert not plan.refused


def test_a_first_apply_is_taken_back_but_for_what_others_may_need() -> None:
    one, _, end = _done("", f"{{J: {PLAIN}}}")
    plan = _undo(one, end)
    assert said(plan.changes) == {("delete", "topic.J"), ("delete", "subscription.J/s")}
    assert _codes(plan) == [("K423", Severity.NOTE)]
    assert plan.owners[0].leaves
    gone = _undo(one, replace(end, ledgers={}, objects={}))
    assert (gone.changes, gone.owners) == ((), ())


def test_a_value_that_the_broker_always_shows_is_no_change() -> None:
    one, _, end = _done("{K: {}}", "{K: {}, J: {}}")
    shown = TopicResource(J, 1, {"schema_validation": False})
    assert said(_undo(one, changed(end, LiveObject(shown, "trade"))).changes) == {("delete", "topic.J")}


def test_a_value_comes_back_also_where_there_was_none() -> None:
    one, _, end = _done("{J: {policies: {ttl: 1d, max_producers: 3}}}", "{J: {policies: {ttl: 2d, max_consumers: 4}}}")
    [update] = _undo(one, end).changes
    assert isinstance(update, Update)
    values = {field.name: (str(field.before), str(field.after)) for field in update.fields}
    assert values == {"policies.ttl": ("2d", "1d"), "policies.max_producers": ("None", "3"), "policies.max_consumers": ("4", "None")}  # fmt: skip
    assert isinstance(update.after, TopicResource)
    assert set(update.after.policies) == {"ttl", "max_producers"}


def test_a_namespaces_value_and_a_grant_come_back() -> None:
    heads = [
        f"namespace_policies: {{ttl: {days}d}}\nnamespace_grants: {{ann: [{can}]}}\n"
        for days, can in ((1, "consume"), (2, "consume, produce"))
    ]
    start, end = (applied(wanted(topology("{}", head))) for head in heads)
    plan = planned(wanted(topology("{}", heads[1])), start)
    back = backwards(Applied("a", "apply", "x", 1, None, "", {}, done=plan.changes), end)
    assert not back[1]
    found = {type(change.before).__name__: change for change in back[0] if isinstance(change, Update)}
    assert str(found["NamespaceResource"].after.policies["ttl"]) == "1d"  # type: ignore[union-attr]
    assert found["GrantResource"].after.actions == frozenset({"consume"})  # type: ignore[union-attr]


def test_what_was_deleted_comes_back_empty_and_that_is_said() -> None:
    one, _, end = _done(f"{{J: {PLAIN}, K: {PLAIN}}}", f"{{J: {PLAIN}}}")
    plan = _undo(one, end)
    assert said(plan.changes) == {("create", "topic.K"), ("create", "subscription.K/s")}
    assert [finding.detail.partition(": ")[2] for finding in plan.findings] == [
        "it is made again, empty: its messages are gone"
    ] * 2
    again = _undo(one, changed(end, LiveObject(TopicResource(TopicName(HERE, "K"), 1, {}))))
    assert ("K422", Severity.ERROR) in _codes(again)
    assert again.refused


def test_what_grew_stays_as_it_became() -> None:
    one, _, end = _done("{J: {partitions: 1}}", "{J: {partitions: 3}}")
    plan = _undo(one, end)
    assert not plan.changes
    assert [finding.detail for finding in plan.findings] == [f"topic.{J}: partitions stays as it became"]


def test_adopting_and_forgetting_are_taken_back() -> None:
    there = changed(empty(), LiveObject(TopicResource(J, 1, {})))
    plan = planned(wanted(topology("{J: {}}")), there)
    one = Applied("a", "apply", "x", 1, None, "", {}, done=plan.changes)
    entry = Ledger("trade", HERE, owned={f"topic.{J}": OwnershipKind.ADOPTED})
    mine = with_ledger(changed(there, LiveObject(TopicResource(J, 1, {}), "trade")), HERE, entry)
    assert ("forget", "topic.J") in said(backwards(one, mine)[0])
    assert ("forget", "topic.J") not in said(backwards(one, empty())[0])
    forgot = Applied(
        "b",
        "forget",
        "x",
        1,
        None,
        "",
        {},
        done=(Forget(f"topic.{J}", TopicResource(J, 1, {}), plan.changes[0].about),),
    )
    assert said(backwards(forgot, there)[0]) == {("adopt", "topic.J")}
    assert not backwards(forgot, empty())[0]
    nothing = replace(forgot, done=(Forget(f"topic.{J}", None, plan.changes[0].about),))
    assert not backwards(nothing, there)[0]


@pytest.mark.parametrize("marker", ["other", None])
def test_what_was_adopted_and_is_anothers_or_nobodys_since_is_left_to_them(marker: str | None) -> None:
    """The way back took the marker off a topic that another topology had taken over meanwhile."""
    there = changed(empty(), LiveObject(TopicResource(J, 1, {})))
    adopted = planned(wanted(topology("{J: {}}")), there).changes
    one = Applied("a", "apply", "x", 1, None, "", {}, done=adopted)
    entry = Ledger("other", HERE, owned={f"topic.{J}": OwnershipKind.ADOPTED})
    changes, findings = backwards(
        one, with_ledger(changed(there, LiveObject(TopicResource(J, 1, {}), marker)), HERE, entry)
    )
    assert not said(changes)
    [told] = [finding.detail for finding in findings if finding.code == "K422"]
    assert told.startswith(f"topic.{J}: {'it belongs to' if marker else 'nobody owns it by now'}")


def test_what_was_forgotten_and_has_another_owner_since_is_not_taken_back() -> None:
    about = planned(wanted(topology("{J: {}}")), empty()).changes[0].about
    grant = GrantResource(J, "anna", frozenset({"consume"}))
    forgot = (Forget(f"topic.{J}", TopicResource(J, 1, {}), about), Forget(grant.address, grant, about))
    one = Applied("b", "forget", "x", 1, None, "", {}, done=forgot)
    changes, findings = backwards(
        one, changed(empty(), LiveObject(TopicResource(J, 1, {}), "other"), LiveObject(grant))
    )
    assert said(changes) == {("adopt", "grant.J/anna")}
    assert [finding.detail for finding in findings] == [
        f"topic.{J}: it belongs to 'other' by now; change it by hand, or in the file"
    ]


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (LiveObject(TopicResource(J, 3, {}), "trade"), "somebody changed it after it was made"),
        (
            LiveObject(TopicResource(J, 1, {"ttl": from_json("ttl", "9d")}), "trade"),
            "somebody changed it after it was made",
        ),
        (LiveObject(TopicResource(J, 1, {}), "other"), "it belongs to 'other' by now"),
    ],
)
def test_what_was_made_and_changed_since_is_refused(now: LiveObject, why: str) -> None:
    one, _, end = _done("{K: {}}", "{K: {}, J: {}}")
    plan = _undo(one, changed(end, now))
    assert plan.refused
    assert why in plan.findings[0].detail
    assert not plan.changes


def test_a_value_or_an_object_that_changed_again_is_refused() -> None:
    one, _, end = _done("{J: {policies: {ttl: 1d}}}", "{J: {policies: {ttl: 2d}}}")
    again = _undo(one, changed(end, LiveObject(TopicResource(J, 1, {"ttl": from_json("ttl", "3d")}), "trade")))
    assert "ttl changed again after that" in again.findings[0].detail
    assert "it is gone" in _undo(one, changed(end, without=[f"topic.{J}"])).findings[0].detail


def test_a_value_that_the_broker_shows_for_an_unset_one_was_not_changed_again() -> None:
    one, _, end = _done("{J: {policies: {schema_validation: true}}}", "{J: {}}")
    plan = _undo(one, changed(end, LiveObject(TopicResource(J, 1, {"schema_validation": False}), "trade")))
    assert not plan.refused
    assert said(plan.changes) == {("update", "topic.J")}


def test_a_role_that_was_given_more_since_is_refused() -> None:
    one, _, end = _done("{J: {}}", "{J: {producers: [ann]}}")
    assert [change.address for change in _undo(one, end).changes] == [f"grant.{J}/ann"]
    back, _, without = _done("{J: {producers: [ann]}}", "{J: {}}")
    assert said(_undo(back, without).changes) == {("create", "grant.J/ann")}
    more = changed(end, LiveObject(GrantResource(J, "ann", frozenset({"produce", "consume"}))))
    assert "the role has consume, produce by now, it was given produce" in _undo(one, more).findings[0].detail


def test_dangers_are_judged_as_in_any_plan() -> None:
    one, _, end = _done("{K: {}}", "{K: {}, J: {}}")
    full = changed(end, LiveObject(TopicResource(J, 1, {}), "trade", TopicFacts(backlog_bytes=5)))
    assert [danger.code for change in _undo(one, full).changes for danger in change.about.dangers] == ["K401"]
    assert not _undo(one, full, frozenset({f"topic.{J}"})).refused


def test_what_no_plan_takes_back_is_named() -> None:
    about = planned(wanted(topology("{J: {}}")), empty()).changes[0].about
    schema, tenant = SchemaResource(J, "AVRO", "{}"), TenantResource("acme", frozenset(), frozenset())
    done = (Create(schema, about), Create(tenant, about))
    broken = ((Delete(TopicResource(J, 1, {}), about), "failed: 412"),)
    one = Applied("a", "apply", "x", 1, None, "", {}, done=done, broken=broken)
    changes, findings = backwards(one, live([LiveObject(schema), LiveObject(tenant)], {}))
    assert not changes
    assert [finding.severity for finding in findings] == [Severity.NOTE] * 3
    assert "nobody knows (failed: 412)" in findings[-1].detail


BENS = {"grant.persistent://acme/ns/K/ben": frozenset({"produce"})}


def _later(one: Applied, text: str) -> LedgerPlan:
    """The future entry if an apply is undone after another one of this file."""
    [owner] = _undo(one, applied(wanted(text))).owners
    return owner


def test_grants_that_a_later_apply_gave_stay_in_the_ledger() -> None:
    one, _, _ = _done("{J: {producers: [ann]}}", "{J: {producers: [eve]}}")
    owner = _later(one, topology("{J: {producers: [eve]}, K: {producers: [ben]}}"))
    assert owner.grants == {f"grant.{J}/ann": frozenset({"produce"}), **BENS}
    assert (owner.partial, owner.ends) == (True, False)


@pytest.mark.parametrize(
    ("then", "later", "left"),
    [
        ("ttl: 1d, max_topics: 9", "ttl: 1d, max_topics: 9, max_consumers: 3", {"ttl", "max_consumers"}),
        ("max_topics: 9", "max_topics: 9, max_consumers: 3", {"ttl", "max_consumers"}),
        ("max_topics: 9", "max_consumers: 3", {"ttl", "max_consumers"}),
        ("ttl: 1d", "ttl: 1d, max_consumers: 3", {"ttl", "max_consumers"}),
    ],
)
def test_namespace_policies_that_a_later_apply_names_stay_in_the_ledger(then: str, later: str, left: set[str]) -> None:
    heads = [f"namespace_policies: {{{policies}}}\n" for policies in ("ttl: 1d", then, later)]
    files = [topology("{}", head) for head in heads]
    start = applied(wanted(files[0]))
    changes = planned(wanted(files[1]), start).changes
    texts = {f"{HERE}/trade": ledgers.encode(start.ledgers[HERE]["trade"])}
    one = Applied("aa11", "apply", "anna", 1, None, "d", texts, ended=2, complete=True, total=9, done=changes)
    assert _later(one, files[2]).namespace_keys == left


def test_a_first_apply_leaves_what_a_later_one_recorded() -> None:
    one, _, _ = _done("", f"{{J: {PLAIN}}}")
    owner = _later(one, topology(f"{{J: {PLAIN}, K: {{producers: [ben]}}}}", "namespace_policies: {ttl: 1d}\n"))
    assert owner.leaves
    assert owner.grants == BENS
    assert owner.namespace_keys == {"ttl"}


def test_an_entry_with_an_intent_stays_because_its_object_may_exist() -> None:
    one, _, end = _done("", f"{{J: {PLAIN}}}")
    entry = end.ledgers[HERE]["trade"].with_holdings({"topic.persistent://acme/ns/K": OwnershipKind.INTENT})
    [owner] = _undo(one, with_ledger(end, HERE, entry)).owners
    assert (owner.ends, owner.partial) == (False, True)


def test_policies_of_an_adopted_namespace_are_given_up_with_it() -> None:
    head = "namespace_policies: {ttl: 1d}\n"
    there = applied(wanted(topology("{}", head)))
    adopting = planned(wanted(topology("{}", head)), replace(there, ledgers={})).changes
    texts = {f"{HERE}/trade": None}
    one = Applied("aa11", "apply", "anna", 1, None, "d", texts, ended=2, complete=True, total=9, done=adopting)
    [owner] = _undo(one, there).owners
    assert owner.leaves
    assert not owner.namespace_keys


def test_grants_of_a_topology_that_was_renamed_go_back_to_its_earlier_entry() -> None:
    old, new = (topology("{J: {producers: [ann]}}", name=name) for name in ("old", "trade"))
    start, end = applied(wanted(old)), applied(wanted(new))
    entry = start.ledgers[HERE]["old"]
    texts = {f"{HERE}/old": ledgers.encode(entry), f"{HERE}/trade": None}
    one = Applied("aa11", "apply", "anna", 1, None, "d", texts, ended=2, complete=True, total=9)
    owners = {owner.name: owner for owner in _undo(one, end).owners}
    assert owners["old"].grants == entry.grants
    assert (owners["trade"].leaves, owners["trade"].grants) == (True, {})
    cleared = replace(entry, grants={})  # something that could not be read kept the entry
    owners = {owner.name: owner for owner in _undo(one, with_ledger(end, HERE, cleared)).owners}
    assert owners["old"].grants == entry.grants


FORGOTTEN = "{J: {subscriptions: {s: {states: [], dead_letter: false, workers: [anna]}}}}"


@pytest.mark.parametrize("marked", ["trade", None, "other"])
@pytest.mark.parametrize("held", [True, False])
def test_only_what_marker_and_ledger_call_ours_is_deleted(marked: str | None, held: bool) -> None:
    """`kodoctl forget` takes both away: what it promised to leave alone stays."""
    one, _, end = _done("", FORGOTTEN)
    made = {a for a, found in end.objects.items() if a.startswith(("topic.", "subscription."))}
    there = changed(end, *[replace(end.objects[address], marker=marked) for address in made])
    if not held:
        entry = replace(end.ledgers[HERE]["trade"], owned={}, grants={})
        there = replace(there, ledgers={HERE: {"trade": entry}})
    plan = _undo(one, there)
    gone = {address for action, address in said(plan.changes) if action == "delete"}
    if marked == "trade" and held:
        assert {"topic.J", "subscription.J/s"} <= gone
        assert any(address.startswith("grant.") for address in gone)
    else:
        assert not any(address.startswith(("topic.", "subscription.")) for address in gone)
        assert plan.refused
        told = " ".join(finding.detail for finding in plan.findings if finding.code == "K422")
        assert all(address in told for address in made)
    if not held:
        assert gone == set()


def test_after_forget_by_name_there_is_no_ledger_and_nothing_goes() -> None:
    one, _, end = _done("", FORGOTTEN)
    there = replace(changed(end, *[replace(f, marker=None) for f in end.objects.values()]), ledgers={HERE: {}})
    plan = _undo(one, there)
    assert not any(isinstance(change, Delete) for change in plan.changes)
    assert plan.refused
    assert "nobody owns it by now" in " ".join(finding.detail for finding in plan.findings)
