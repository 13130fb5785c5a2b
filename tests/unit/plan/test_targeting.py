"""A part of a plan: what is in it, what comes along, what is held back, and what the ledger then may claim."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kodoctl.errors import ClusterError, UsageError
from kodoctl.plan.changes import PolicyChange, Update
from kodoctl.plan.diff import Allowances
from kodoctl.plan.ledger_plan import ledger_pending
from kodoctl.plan.plan import Plan
from kodoctl.plan.plan_file import dumps, loads, to_json
from kodoctl.plan.targeting import choose
from kodoctl.pulsar.values.ledger import Ledger, OwnershipKind
from kodoctl.pulsar.values.live_objects import Live, LiveObject
from kodoctl.topology.names import NamespaceName, TopicName
from kodoctl.topology.resources import NamespaceResource, SubscriptionResource, TopicResource
from kodoctl.topology.target_flags import TargetFlags
from tests.samples.inventories import (
    HERE,
    applied,
    changed,
    empty,
    live,
    planned,
    planned_part,
    said,
    topology,
    topology_texts,
    wanted,
    with_ledger,
)
from tests.samples.profiles import examples

J, K = (f"topic.persistent://acme/ns/{local}" for local in "JK")
J_S, K_S = (f"subscription.persistent://acme/ns/{local}/s" for local in "JK")
S = "subscriptions: {s: {states: [], dead_letter: false}}"
TWO = topology(f"{{J: {{{S}}}, K: {{{S}}}}}")
ONE = topology(f"{{J: {{{S}}}}}")


def _held(plan: Plan) -> dict[str, str]:
    assert plan.portion is not None
    return dict(plan.portion.held_back)


def _along(plan: Plan) -> dict[str, str]:
    assert plan.portion is not None
    return dict(plan.portion.along)


def _left(plan: Plan) -> dict[str, int]:
    assert plan.portion is not None
    return dict(plan.portion.left_out)


# --- what is in it


def test_a_target_comes_with_what_must_be_there_before_it_and_nothing_else() -> None:
    plan = planned_part(wanted(TWO), empty(), J_S)
    assert said(plan.changes) == {
        ("create", "namespace.acme/ns"),
        ("create", "topic.J"),
        ("create", "subscription.J/s"),
    }
    assert _along(plan) == {J: J_S, "namespace.acme/ns": J}
    assert _left(plan) == {"subscription": 1, "topic": 1}


def test_what_is_there_already_does_not_come_along() -> None:
    there = changed(applied(wanted(TWO)), without=[K_S, J_S])
    plan = planned_part(wanted(TWO), there, K_S)
    assert said(plan.changes) == {("create", "subscription.K/s")}
    assert not _along(plan)


def test_a_star_stands_for_any_text_and_flags_may_be_repeated() -> None:
    assert said(planned_part(wanted(TWO), empty(), "*/K*").changes) == {
        ("create", "namespace.acme/ns"), ("create", "topic.K"), ("create", "subscription.K/s"),
    }  # fmt: skip
    both = planned_part(wanted(TWO), empty(), J, K, exclude=[K])
    assert said(both.changes) == {("create", "namespace.acme/ns"), ("create", "topic.J")}


def test_what_needs_something_excluded_is_held_back_with_it() -> None:
    plan = planned_part(wanted(TWO), empty(), exclude=[K])
    assert ("create", "subscription.J/s") in said(plan.changes)
    assert not [change for change in plan.changes if "/K" in change.address]
    assert _held(plan) == {K_S: K}
    with pytest.raises(UsageError, match="leaves out again"):
        planned_part(wanted(TWO), empty(), J, exclude=["namespace.acme/ns"])


def test_a_tenant_and_a_grant_come_with_their_like() -> None:
    head = "create_tenant: {clusters: [standalone]}\nnamespace_grants: {anna: [consume]}\n"
    side = wanted(topology(f"{{J: {{producers: [dora], {S}}}}}", head))
    none = replace(live([], {}), absent_tenants=frozenset({"acme"}))
    plan = planned_part(side, none, "grant.acme/ns/anna")
    assert said(plan.changes) == {
        ("create", "tenant.acme"), ("create", "namespace.acme/ns"), ("create", "grant.acme/ns/anna")
    }  # fmt: skip
    on_topic = planned_part(side, none, "grant.*/dora")
    assert ("create", "topic.J") in said(on_topic.changes)
    assert not plan.refused


def test_a_subscription_comes_with_the_partitions_it_is_made_for() -> None:
    wider = wanted(ONE.replace("{J: {", "{J: {partitions: 3, "))
    there = changed(applied(wanted(ONE)), without=[J_S])
    assert said(planned_part(wider, there, J_S).changes) == {("update", "topic.J"), ("create", "subscription.J/s")}
    torn = changed(there, LiveObject(TopicResource(TopicName(HERE, "J"), 1, {}, missing=(0,)), "trade"))
    assert J in _along(planned_part(wanted(ONE), torn, J_S))


def test_a_quota_comes_with_the_namespaces_retention_that_makes_room_for_it() -> None:
    before = topology("{J: {}, K: {}}", "namespace_policies: {retention: {time: 1h, size: 1GiB}}\n")
    after = topology(
        "{J: {policies: {backlog_quota: {size: 2GiB, when_full: hold_producers}}}, K: {}}",
        "namespace_policies: {retention: {time: 1h, size: 9GiB}}\n",
    )
    there = applied(wanted(before))
    assert said(planned_part(wanted(after), there, J).changes) == {
        ("update", "namespace.acme/ns"),
        ("update", "topic.J"),
    }
    assert not planned_part(wanted(after), there, K).changes


def test_effective_values_are_those_without_a_namespace_that_is_left_out() -> None:
    before = topology("{J: {policies: {ttl: 5h}}}", "namespace_policies: {ttl: 9h}\n")
    after = topology("{J: {}}", "namespace_policies: {ttl: 1h}\n")
    [update] = planned_part(wanted(after), applied(wanted(before)), J).changes
    assert isinstance(update, Update)
    [field] = update.fields
    assert isinstance(field, PolicyChange)
    assert field.effective_after is not None
    assert str(field.effective_after.value) == "9h"


def test_a_topic_that_goes_takes_what_hangs_on_it_along() -> None:
    plan = planned_part(wanted(ONE), applied(wanted(TWO)), K)
    assert said(plan.changes) == {("delete", "topic.K"), ("delete", "subscription.K/s")}
    assert _along(plan) == {K_S: K}
    kept = planned_part(wanted(ONE), applied(wanted(TWO)), exclude=[K_S])
    assert not kept.changes
    assert _held(kept) == {K: K_S}


def test_unmanaged_objects_are_listed_where_the_flags_name_them() -> None:
    there = changed(applied(wanted(TWO)), LiveObject(TopicResource(TopicName(HERE, "by-hand"), 1, {})))
    assert not planned_part(wanted(TWO), there, "*/J*").unmanaged
    assert planned_part(wanted(TWO), there, exclude=[J]).unmanaged == ("topic.persistent://acme/ns/by-hand",)


def test_conflicts_of_what_is_left_out_refuse_nothing() -> None:
    there = changed(
        applied(wanted(TWO)), LiveObject(TopicResource(TopicName(HERE, "K"), 5, {}), "trade"), without=[J_S]
    )
    assert planned(wanted(TWO), there).refused
    assert not planned_part(wanted(TWO), there, "*/J*").refused


# --- names that fit nothing


@pytest.mark.parametrize(
    ("targets", "exclude", "told"),
    [
        (["topic.persistent://acme/ns/JJ"], [], r"--target topic.*JJ: .*near it: topic\.persistent://acme/ns/J"),
        (["K"], [], r"--target K: .*near it: topic\.persistent://acme/ns/K"),
        ([], ["*zzz*"], r"--exclude \*zzz\*: .*kodoctl expand"),
        (["*"], ["*"], "leaves out again"),
    ],
)
def test_a_name_that_fits_nothing_is_a_slip_and_tells_what_is_near(
    targets: list[str], exclude: list[str], told: str
) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        planned_part(wanted(TWO), empty(), *targets, exclude=exclude)
    assert {finding.code for finding in caught.value.diagnostics} == {"K426"}


# --- laws


@given(topology_texts(), topology_texts(), st.data())
@examples(30)
def test_target_and_exclude_of_the_same_are_the_whole_plan_but_for_what_needs_it(
    one: str, other: str, data: st.DataObject
) -> None:
    side, there = wanted(one), applied(wanted(other))
    known = sorted(choose(TargetFlags(("*",)), side, there).known)
    names = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
    whole, named = _keys(planned(side, there)), planned_part(side, there, *names)
    assert _keys(named) <= whole
    try:
        rest = planned_part(side, there, exclude=names)
    except UsageError:
        return  # nothing is left
    assert _keys(rest) <= whole
    missing = {address for address, _ in whole - _keys(named) - _keys(rest)}
    assert missing <= _held(rest).keys()
    assert {address for address, _ in _keys(named) & _keys(rest)} <= _along(named).keys()
    assert _fingerprints(named) | _fingerprints(rest) <= _fingerprints(planned(side, there))


def _keys(plan: Plan) -> set[tuple[str, str]]:
    return {(change.address, type(change).__name__) for change in plan.changes}


def _fingerprints(plan: Plan) -> set[tuple[str, str]]:
    return set(plan.fingerprints.items())


@given(topology_texts(), topology_texts())
@examples(25)
def test_a_part_that_is_all_of_it_is_the_whole_plan(one: str, other: str) -> None:
    side, there = wanted(one), applied(wanted(other))
    whole, all_of_it = planned(side, there), planned_part(side, there, "*")
    assert replace(all_of_it, portion=None) == whole
    assert loads(dumps(all_of_it), "plan.json") == all_of_it


# --- what the ledger may claim


def test_a_part_claims_neither_the_file_nor_what_it_left_out() -> None:
    text = topology(f"{{J: {{producers: [anna], {S[:-2]}, concurrency: 8}}}}}}, K: {{producers: [dora]}}}}")
    plan = planned_part(wanted(text), empty(), "*/J*")
    [owner] = plan.owners
    assert owner.partial
    assert owner.digest == ""
    assert set(owner.grants) == {"grant.persistent://acme/ns/J/anna"}
    assert owner.consumers == {}
    assert not plan.consumer_changes
    assert ledger_pending(planned(wanted(text), empty()).owners, empty())


def test_a_part_keeps_what_the_ledger_says_of_the_rest() -> None:
    before = topology("{J: {producers: [anna]}, K: {producers: [dora]}}", "namespace_policies: {ttl: 1h}\n")
    after = topology("{J: {}, K: {}}", "namespace_policies: {max_producers: 5}\n")
    there = applied(wanted(before))
    [owner] = planned_part(wanted(after), there, "grant.*anna").owners
    assert set(owner.grants) == {"grant.persistent://acme/ns/K/dora"}
    assert owner.namespace_keys == {"ttl"}
    assert owner.digest == ""
    [owner] = planned_part(wanted(after), there, "namespace.acme/ns").owners
    assert owner.namespace_keys == {"max_producers"}


def test_healing_a_part_of_an_applied_file_leaves_it_applied() -> None:
    there = changed(applied(wanted(TWO)), without=[J_S, K_S])
    [owner] = planned_part(wanted(TWO), there, J_S).owners
    assert owner.partial
    assert owner.digest == there.ledgers[HERE]["trade"].digest != ""


def test_a_topology_of_which_nothing_changes_is_not_written_to_and_a_whole_one_as_ever() -> None:
    other = topology("{X: {subscriptions: {t: {states: [], dead_letter: false}}}, Y: {}}", name="other")
    side = wanted(TWO, other)
    there = changed(applied(side), without=[J_S])
    assert [owner.name for owner in planned_part(side, there, "*/J*").owners] == ["trade"]
    whole = planned_part(side, there, exclude=["*/Y*"])
    assert {owner.name: owner.partial for owner in whole.owners} == {"trade": False}
    assert planned_part(side, empty(), "*/X*").consumer_changes == ()


def test_a_renamed_topology_goes_over_in_one_step() -> None:
    there = applied(wanted(TWO.replace("name: trade", "name: old")))
    side = wanted(TWO.replace("name: trade\n", "name: trade\nformerly: old\n"))
    plan = planned_part(side, there, J)
    assert [finding.code for finding in plan.findings if finding.severity == "error"] == ["K427"]
    assert not planned_part(side, there, "*").refused


THERE = NamespaceName("acme", "old")


def _moved(extra: str = "") -> tuple[Any, Live]:
    """A topology that moved to another namespace, where nothing is yet."""
    side = wanted(ONE)
    before = applied(wanted(topology(f"{{J: {{producers: [anna], {S}}}, K: {{}}}}", namespace="old")))
    return side, before


def test_what_was_left_behind_elsewhere_keeps_its_entry_until_all_of_it_is_named() -> None:
    side, there = _moved()
    plan = planned_part(side, there, "*acme/old/J*")
    [owner] = plan.owners
    assert (owner.namespace, owner.leaves, owner.partial, owner.ends) == (THERE, True, True, False)
    assert owner.namespace_keys == there.ledgers[THERE]["trade"].namespace_keys
    assert ("forget", "namespace.acme/old") not in said(plan.changes)
    whole = planned_part(side, there, "*acme/old*")
    assert ("forget", "namespace.acme/old") in said(whole.changes)
    assert [(owner.namespace, owner.ends) for owner in whole.owners] == [(THERE, True)]


def test_a_change_elsewhere_is_not_written_where_the_topology_lives_now() -> None:
    side, there = _moved()
    named = planned_part(side, there, "*acme/ns/J")
    assert [owner.namespace for owner in named.owners] == [HERE]
    assert planned_part(side, there, "*acme/old/J*", "*acme/ns/J").owners[0].namespace == HERE


def test_objects_in_a_part_count_for_the_size_of_the_ledgers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodoctl.pulsar.values.ledger.MAX_BYTES", 10)
    there = changed(applied(wanted(TWO)), without=[J_S])
    assert "K420" in {finding.code for finding in planned_part(wanted(TWO), there, J_S).findings}


def test_an_intent_of_a_cut_off_apply_is_known() -> None:
    entry = Ledger("trade", HERE, owned={"topic.persistent://acme/ns/gone": OwnershipKind.INTENT})
    chosen = choose(TargetFlags(("*/gone",)), wanted(ONE), with_ledger(empty(), HERE, entry))
    assert chosen.addresses == {"topic.persistent://acme/ns/gone"}


# --- the file


def test_without_flags_there_is_no_part() -> None:
    assert not TargetFlags()
    assert TargetFlags(excludes=("*",))


def test_the_plan_file_says_what_part_it_is() -> None:
    plan = planned_part(wanted(TWO), empty(), J_S, exclude=[K])
    assert to_json(plan)["part"] == {
        "targets": [J_S],
        "excludes": [K],
        "taken_along": [
            {"address": "namespace.acme/ns", "needed_by": J},
            {"address": J, "needed_by": J_S},
        ],
        "held_back": [],
        "left_out": {"subscription": 1, "topic": 1},
    }
    assert loads(dumps(plan), "plan.json") == plan
    assert plan.digest == planned(wanted(TWO), empty()).digest


def test_a_danger_of_the_part_refuses_it_and_what_is_allowed_counts() -> None:
    doomed = Allowances(destroy=frozenset({K}))
    plan = planned_part(wanted(ONE), applied(wanted(TWO)), K, allowances=doomed)
    assert not plan.refused
    assert plan.allowances == doomed


def test_a_bare_namespace_and_a_foreign_subscription_need_nothing() -> None:
    there = changed(
        applied(wanted(TWO)),
        LiveObject(NamespaceResource(HERE, {})),
        LiveObject(SubscriptionResource(TopicName(HERE, "J"), "theirs")),
    )
    assert not planned_part(wanted(TWO), there, "namespace.acme/ns").changes


# --- what cannot be read


UNREAD = TopicName(HERE, "K")


def _unreadable(*without: str) -> Live:
    """Everything was applied, and of K no more than its name can be read now."""
    there = changed(applied(wanted(TWO)), without=[K_S, *without])
    bare = {K: LiveObject(TopicResource(UNREAD, 0, {}))}
    return replace(there, objects={**there.objects, **bare}, unread={UNREAD: "its broker is gone"})


def test_what_cannot_be_read_is_left_out_with_all_that_hangs_on_it_and_stays_ours() -> None:
    plan = planned_part(wanted(TWO), _unreadable(J_S), exclude=[K])
    assert said(plan.changes) == {("create", "subscription.J/s")}
    assert _held(plan) == {K_S: K}
    removed = planned_part(wanted(ONE), _unreadable(), exclude=[K])
    assert not removed.changes
    assert _held(removed) == {K_S: K}


@pytest.mark.parametrize(("targets", "exclude"), [((), (J,)), ((K,), ()), ((K_S,), ()), ((), (K_S,))])
def test_what_cannot_be_read_and_is_not_left_out_is_refused(targets: tuple[str, ...], exclude: tuple[str, ...]) -> None:
    with pytest.raises(ClusterError, match=rf"K580.*{K}: its broker is gone; --exclude {K} leaves it out"):
        planned_part(wanted(TWO), _unreadable(), *targets, exclude=exclude)
