"""Whose an object is: every case of ownership (docs/explanation/architecture.md), names that change, files that share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kodoctl.errors import Remedy
from kodoctl.plan.changes import Adopt, Forget, Update
from kodoctl.plan.diff import diff, with_namespaces
from kodoctl.plan.inventory import Desired
from kodoctl.plan.ownership import claim
from kodoctl.plan.targeting import choose
from kodoctl.pulsar.values.ledger import Ledger, OwnershipKind, Source
from kodoctl.pulsar.values.live_objects import LiveObject
from kodoctl.topology.model.policies import Foreign
from kodoctl.topology.names import NamespaceName, TopicName
from kodoctl.topology.resources import NamespaceResource, SubscriptionResource, TopicResource
from kodoctl.topology.target_flags import TargetFlags
from kodoctl.topology.units import Duration
from tests.samples.inventories import (
    HERE,
    SOURCE,
    applied,
    changed,
    difference,
    empty,
    live,
    planned,
    said,
    topology,
    wanted,
    with_ledger,
)

PLAIN = topology("{J: {subscriptions: {s: {states: [], dead_letter: false}}}}")
J = TopicName(HERE, "J")
X = TopicName(HERE, "x")
TTL: dict[str, Any] = {"ttl": Duration(60_000)}


def _topic(name: TopicName = J, marker: str | None = None, **policies: object) -> LiveObject:
    return LiveObject(TopicResource(name, 1, policies), marker)


# --- the table


def test_absent_and_declared_is_created() -> None:
    found = difference(wanted(PLAIN), empty())
    assert said(found.changes) == {
        ("create", "namespace.acme/ns"),
        ("create", "topic.J"),
        ("create", "subscription.J/s"),
    }


def test_ours_and_declared_is_updated_where_it_differs() -> None:
    side = wanted(PLAIN)
    found = difference(side, changed(applied(side), _topic(marker="trade", **TTL)))
    [update] = found.changes
    assert isinstance(update, Update)
    assert [(f.name, str(f.before), f.after) for f in update.fields] == [("policies.ttl", "1m", None)]
    assert not update.adopting


def test_ours_created_and_no_longer_declared_is_deleted() -> None:
    before = applied(wanted(topology("{J: {subscriptions: {s: {}}}, K: {}}")))
    found = difference(wanted(topology("{J: {subscriptions: {s: {}}}}")), before)
    assert said(found.changes) == {("delete", "topic.K")}


def test_ours_adopted_and_no_longer_declared_is_forgotten_unless_its_destruction_is_allowed() -> None:
    before = applied(wanted(topology("{J: {}, K: {}}")))
    ledger = before.ledgers[HERE]["trade"]
    address = "topic.persistent://acme/ns/K"
    before = with_ledger(before, HERE, ledger.with_holdings({address: OwnershipKind.ADOPTED}))
    side = wanted(topology("{J: {}}"))
    assert said(difference(side, before).changes) == {("forget", "topic.K")}
    assert said(difference(side, before, destroy=[address]).changes) == {("delete", "topic.K")}


def test_nobodys_and_declared_is_adopted() -> None:
    found = difference(wanted(PLAIN), live([LiveObject(NamespaceResource(HERE, {})), _topic()], {}))
    assert said(found.changes) == {("adopt", "topic.J"), ("create", "subscription.J/s")}


def test_nobodys_and_different_is_refused_until_its_adoption_is_allowed() -> None:
    side, other = wanted(PLAIN), live([LiveObject(NamespaceResource(HERE, {})), _topic(**TTL)], {})
    [refusal] = difference(side, other).conflicts
    assert refusal.code == "K417"
    assert "ttl" in refusal.detail
    assert "--adopt topic.persistent://acme/ns/J" in refusal.detail
    assert refusal.remedy == Remedy("--adopt", "topic.persistent://acme/ns/J")
    allowed = difference(side, other, adopt=["topic.persistent://acme/ns/J"])
    assert not allowed.conflicts
    assert {"adopt", "update"} <= {verb for verb, address in said(allowed.changes) if address == "topic.J"}


def test_a_half_made_subscription_of_nobody_is_adopted_and_healed_without_asking() -> None:
    half = LiveObject(SubscriptionResource(J, "s", missing_on=(1,)))
    side = wanted(topology("{J: {partitions: 2, subscriptions: {s: {states: [], dead_letter: false}}}}"))
    topic = LiveObject(TopicResource(J, 2, {}))
    found = difference(side, live([LiveObject(NamespaceResource(HERE, {})), topic, half], {}))
    assert not found.conflicts
    assert said(found.changes) == {("adopt", "topic.J"), ("adopt", "subscription.J/s"), ("update", "subscription.J/s")}


def test_nobodys_and_undeclared_is_listed_as_unmanaged_and_never_touched() -> None:
    side = wanted(PLAIN)
    stranger = LiveObject(SubscriptionResource(J, "stranger"))
    beside = LiveObject(SubscriptionResource(X, "on-a-topic-of-nobody"))
    found = difference(side, changed(applied(side), _topic(X), stranger, beside))
    assert not found.changes
    assert found.unmanaged == ("subscription.persistent://acme/ns/J/stranger", "topic.persistent://acme/ns/x")


def test_another_topologys_and_declared_is_refused_with_the_ways_out() -> None:
    found = difference(wanted(PLAIN), applied(wanted(topology(name="other"))))
    codes = {conflict.code for conflict in found.conflicts}
    details = " ".join(conflict.detail for conflict in found.conflicts)
    assert codes == {"K410"}
    assert {conflict.remedy for conflict in found.conflicts} == {Remedy("--take-over")}
    assert "formerly: other" in details
    assert "--take-over" in details
    assert not [c for c in found.changes if c.address.startswith("topic.")]


def test_another_topologys_and_undeclared_is_counted_and_never_touched() -> None:
    both = applied(wanted(PLAIN, topology("{K: {}}", name="other")))
    found = difference(wanted(PLAIN), both)
    assert not found.changes
    assert not found.unmanaged
    assert found.elsewhere == {"other": 1}


def test_objects_of_another_topology_are_counted_in_all_namespaces() -> None:
    both = applied(wanted(PLAIN, topology("{K: {}}", name="other")))
    there = NamespaceName("acme", "there")
    owned = {f"topic.persistent://acme/there/{name}": OwnershipKind.CREATED for name in ("L", "M")}
    found = difference(wanted(PLAIN), with_ledger(both, there, Ledger("other", there, owned=owned)))
    assert found.elsewhere == {"other": 3}


# --- two witnesses


def test_a_topic_in_the_ledger_without_its_marker_was_made_anew_by_somebody_else() -> None:
    side = wanted(PLAIN)
    found = difference(side, changed(applied(side), _topic(marker=None)))
    assert said(found.changes) == {("adopt", "topic.J")}


def test_a_marked_topic_that_no_ledger_holds_is_ours_and_enters_it() -> None:
    side = wanted(PLAIN)
    before = applied(side)
    ledger = before.ledgers[HERE]["trade"].with_holdings({"topic.persistent://acme/ns/J": None})
    [change] = difference(side, with_ledger(before, HERE, ledger)).changes
    assert isinstance(change, Adopt)
    assert "ledger does not hold it" in change.about.reason


def test_an_intent_is_ours_only_with_the_marker() -> None:
    side = wanted(PLAIN)
    before = applied(side)
    address = "subscription.persistent://acme/ns/J/s"
    ledger = before.ledgers[HERE]["trade"].with_holdings({address: OwnershipKind.INTENT})
    now, sub = with_ledger(before, HERE, ledger), SubscriptionResource(J, "s")
    assert claim(address, LiveObject(sub, "trade"), now).owner == "trade"
    assert claim(address, LiveObject(sub, None), now).owner is None


def test_an_intent_for_the_namespace_itself_is_ours_because_only_the_creating_request_writes_it() -> None:
    side = wanted(topology(head="namespace_policies: {ttl: 1h}\n"))
    before = applied(side)
    ledger = before.ledgers[HERE]["trade"].with_holdings({"namespace.acme/ns": OwnershipKind.INTENT})
    now = wanted(topology(head="namespace_policies: {ttl: 2h}\n"))
    found = difference(now, with_ledger(before, HERE, ledger))
    assert not found.conflicts
    assert ("update", "namespace.acme/ns") in said(found.changes)


def test_what_an_interrupted_apply_only_intended_is_not_missed_when_the_file_drops_it() -> None:
    side = wanted(PLAIN)
    before = applied(side)
    ledger = before.ledgers[HERE]["trade"].with_holdings({"topic.persistent://acme/ns/gone": OwnershipKind.INTENT})
    assert not difference(side, with_ledger(before, HERE, ledger)).changes


def test_what_is_ours_undeclared_and_gone_is_forgotten() -> None:
    before = applied(wanted(topology("{J: {}, K: {}}")))
    found = difference(wanted(topology("{J: {}}")), changed(before, without=["topic.persistent://acme/ns/K"]))
    [change] = found.changes
    assert isinstance(change, Forget)
    assert change.about.reason == "is gone already"


# --- the list `forget` in the file


def test_an_address_in_the_files_forget_list_leaves_without_being_touched() -> None:
    before = applied(wanted(topology("{J: {}, K: {}}")))
    address = "topic.persistent://acme/ns/K"
    [change] = difference(wanted(topology("{J: {}}")), before, forget=[address]).changes
    assert isinstance(change, Forget)
    assert change.before is not None


# --- other sources, other environments


def test_a_name_applied_from_another_repository_refuses_the_whole_plan() -> None:
    theirs = Source("example.org/other/files", "trade.yaml")
    before = applied(wanted(PLAIN, sources={"trade": theirs}))
    side = wanted(PLAIN, sources={"trade": SOURCE})
    [refusal] = difference(side, before).conflicts
    assert (refusal.code, refusal.remedy) == ("K415", Remedy("--take-over"))
    assert not difference(side, before, take_over=True).conflicts


def test_a_repository_is_the_same_however_its_name_was_typed() -> None:
    before = applied(wanted(PLAIN, sources={"trade": replace(SOURCE, origin=(SOURCE.origin or "").title())}))
    assert not difference(wanted(PLAIN, sources={"trade": SOURCE}), before).conflicts


def test_a_file_that_moved_in_its_repository_is_a_note() -> None:
    before = applied(wanted(PLAIN, sources={"trade": replace(SOURCE, path="old.yaml")}))
    [finding] = difference(wanted(PLAIN, sources={"trade": SOURCE}), before).conflicts
    assert (finding.code, finding.severity.value) == ("K416", "note")


def test_without_git_only_name_and_environment_are_compared() -> None:
    before = applied(wanted(PLAIN, sources={"trade": SOURCE}))
    assert not difference(wanted(PLAIN, sources={"trade": Source()}), before).conflicts


def test_another_environment_refuses_the_whole_plan() -> None:
    text = topology("{J: {}}", "environments: {prod: {}, dev: {}}\n")
    before = applied(wanted(text, environment="prod"))
    side = wanted(text, environment="dev")
    [refusal] = difference(side, before).conflicts
    assert refusal.code == "K414"
    assert "--env prod" in refusal.detail
    assert refusal.remedy == Remedy("--take-over")
    assert not difference(side, before, take_over=True).conflicts


# --- names that change


def test_a_renamed_topology_takes_over_what_its_earlier_name_owned_and_deletes_what_it_no_longer_declares() -> None:
    before = applied(wanted(topology("{J: {}, K: {}}", name="old")))
    side = wanted(topology("{J: {}}", "formerly: old\n"))
    plan = planned(side, before)
    assert not plan.findings
    assert said(plan.changes) == {("adopt", "topic.J"), ("delete", "topic.K"), ("adopt", "namespace.acme/ns")} or said(
        plan.changes
    ) == {("adopt", "topic.J"), ("delete", "topic.K")}
    [owner] = plan.owners
    assert owner.replaces == ("old",)


def test_take_over_takes_the_objects_of_another_topology() -> None:
    before = applied(wanted(topology(name="other")))
    found = difference(wanted(topology()), before, take_over=True)
    assert not found.conflicts
    taken = [c for c in found.changes if isinstance(c, Adopt) and c.taken_from == "other"]
    assert {c.address for c in taken} >= {"topic.persistent://acme/ns/J", "subscription.persistent://acme/ns/J/s"}


# --- files that share


READS_LETTERS = topology("{J: {subscriptions: {s: {recall: [anna]}}}}")
SENDS_LETTERS = topology("{K: {subscriptions: {t: {workers: [anna], produces: [acme/ns/J-s-DLQ]}}}}", name="other")
LETTERS = "grant.persistent://acme/ns/J-s-DLQ/anna"


def test_two_files_that_grant_one_role_on_one_topic_give_it_what_both_ask_for() -> None:
    for order in ((READS_LETTERS, SENDS_LETTERS), (SENDS_LETTERS, READS_LETTERS)):
        side = wanted(*order)
        grant = side.objects[LETTERS].resource
        assert grant.actions == {"consume", "produce"}  # type: ignore[union-attr]
        assert not difference(side, applied(side)).changes


def test_a_grant_keeps_what_another_file_needs_when_one_drops_it() -> None:
    both = applied(wanted(READS_LETTERS, SENDS_LETTERS))
    without = topology("{K: {subscriptions: {t: {workers: [anna]}}}}", name="other")
    [update] = [c for c in difference(wanted(without), both).changes if c.address == LETTERS]
    assert isinstance(update, Update)
    assert [(f.before, f.after) for f in update.fields] == [(frozenset({"consume", "produce"}), frozenset({"consume"}))]
    assert not difference(wanted(READS_LETTERS), both).changes


def test_a_grant_that_two_topologies_gave_stays_when_one_of_them_drops_it() -> None:
    one = topology("{J: {producers: [anna]}}")
    other = topology("{K: {subscriptions: {t: {workers: [anna], produces: [acme/ns/J]}}}}", name="other")
    both = applied(wanted(one, other))
    [change] = difference(wanted(topology("{J: {}}")), both).changes
    assert isinstance(change, Forget)
    assert "others need it" in change.about.reason


def test_a_file_may_take_the_policies_of_a_namespace_that_another_file_made_bare() -> None:
    before = applied(wanted(topology("{K: {}}", name="other")))
    side = wanted(topology("{J: {}}", "namespace_policies: {ttl: 1h}\n"))
    found = difference(side, before)
    assert {c.code for c in found.conflicts} == {"K417"}  # somebody may rely on what is there
    allowed = difference(side, before, adopt=["namespace.acme/ns"])
    assert not allowed.conflicts
    assert ("update", "namespace.acme/ns") in said(allowed.changes)


def test_a_renamed_topology_is_one_refusal_that_lists_its_objects() -> None:
    topics = "{" + ", ".join(f"T{number:02}: {{}}" for number in range(60)) + "}"
    [found] = difference(wanted(topology(topics)), applied(wanted(topology(topics, name="other")))).conflicts
    lead, *objects = found.detail.split("\n")
    assert lead == (
        "60 objects belong to the topology 'other': declare them in one file only; if 'other' was renamed to 'trade'"
        " write `formerly: other`; --take-over takes them"
    )
    assert objects == [*(f"topic.persistent://acme/ns/T{number:02}" for number in range(20)), "and 40 more"]


def test_a_namespace_whose_policies_another_file_set_is_a_conflict() -> None:
    before = applied(wanted(topology("{K: {}}", "namespace_policies: {ttl: 1h}\n", name="other")))
    side = wanted(topology("{J: {}}", "namespace_policies: {ttl: 1h}\n"))
    assert {c.code for c in difference(side, before).conflicts} == {"K410"}


# --- namespaces


def test_a_policy_taken_out_of_namespace_policies_is_unset_and_others_are_left_alone() -> None:
    before = applied(wanted(topology(head="namespace_policies: {ttl: 1h, max_topics: 5}\n")))
    space = before.objects["namespace.acme/ns"].resource
    assert isinstance(space, NamespaceResource)
    byhand = LiveObject(NamespaceResource(HERE, {**space.policies, "retention": Foreign("x")}))
    found = difference(wanted(topology(head="namespace_policies: {ttl: 1h}\n")), changed(before, byhand))
    [update] = found.changes
    assert isinstance(update, Update)
    assert [(f.name, f.after) for f in update.fields] == [("policies.max_topics", None)]


def test_namespace_policies_taken_out_whole_are_unset() -> None:
    before = applied(wanted(topology(head="namespace_policies: {ttl: 1h}\n")))
    [update] = difference(wanted(topology()), before).changes
    assert isinstance(update, Update)
    assert [(f.name, f.after) for f in update.fields] == [("policies.ttl", None)]


def test_a_topology_that_moves_leaves_its_old_namespace_and_deletes_there() -> None:
    before = applied(wanted(topology("{J: {}}")))
    side = wanted(topology("{J: {}}", namespace="new"))
    plan = planned(side, before)
    assert ("delete", "topic.J") in said(plan.changes)
    assert {(o.namespace, o.leaves) for o in plan.owners} == {(NamespaceName("acme", "new"), False), (HERE, True)}


def test_a_grant_that_is_gone_already_is_forgotten() -> None:
    before = applied(wanted(topology("{J: {producers: [anna]}}")))
    found = difference(wanted(topology("{J: {}}")), changed(before, without=["grant.persistent://acme/ns/J/anna"]))
    [change] = found.changes
    assert isinstance(change, Forget)
    assert change.about.reason == "is gone already"


def test_the_same_source_says_nothing() -> None:
    before = applied(wanted(PLAIN, sources={"trade": SOURCE}))
    assert not difference(wanted(PLAIN, sources={"trade": SOURCE}), before).conflicts


def test_destroying_from_a_file_of_another_environment_is_refused_and_by_name_is_not() -> None:
    text = topology("{J: {}}", "environments: {prod: {}, dev: {}}\n")
    before = applied(wanted(text, environment="prod"))
    doomed = frozenset({"trade"})
    [refusal] = difference(Desired((), "dev", {}, {"trade": Source()}, destroyed=doomed), before).conflicts
    assert refusal.code == "K414"
    assert "destroy --name" in refusal.detail
    assert refusal.remedy is None
    assert not difference(Desired((), None, {}, destroyed=doomed), before).conflicts


def test_a_destroyed_topology_forgets_a_namespace_that_stays_and_deletes_one_that_is_empty() -> None:
    gone = Desired((), None, {}, destroyed=frozenset({"trade"}))
    alone = applied(wanted(PLAIN))
    shared = applied(wanted(PLAIN, topology("{K: {}}", name="other")))
    only_named = replace(alone, ledgers={HERE: {**alone.ledgers[HERE], "other": Ledger("other", HERE)}})
    stays = [
        with_namespaces(difference(gone, shared), gone.names, shared),
        with_namespaces(difference(gone, only_named), gone.names, only_named),  # no topic of the other's keeps it
        with_namespaces(difference(gone, changed(alone, _topic(X))), gone.names, changed(alone, _topic(X))),
        with_namespaces(
            difference(gone, changed(alone, without=["namespace.acme/ns"])),
            gone.names,
            changed(alone, without=["namespace.acme/ns"]),
        ),
    ]
    for found in stays:
        assert ("forget", "namespace.acme/ns") in said(found.changes)
    assert ("delete", "namespace.acme/ns") in said(with_namespaces(difference(gone, alone), gone.names, alone).changes)


@pytest.mark.parametrize("excluded", ["namespace.acme/ns", "grant.acme/ns/ann"])
def test_a_namespace_stays_if_flags_leave_out_what_is_recorded_there(excluded: str) -> None:
    gone = Desired((), None, {}, destroyed=frozenset({"trade"}))
    there = applied(wanted(topology("{J: {}}", "namespace_grants: {ann: [consume]}\n")))
    part = diff(gone, there, chosen=choose(TargetFlags(excludes=(excluded,)), gone, there))
    kinds = {address.partition(".")[0] for _, address in said(with_namespaces(part, gone.names, there).changes)}
    assert kinds == {"topic", "grant"} - {excluded.partition(".")[0]}
