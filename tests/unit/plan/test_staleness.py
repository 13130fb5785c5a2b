"""Whether the cluster is still what a plan saw: every touched object and ledger entry, all of them told at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kodoctl.plan.changes import Adopt, Change, ChangeContext, Create, Forget, Update
from kodoctl.plan.plan import fingerprint
from kodoctl.plan.staleness import of_others, other_cluster, staleness
from kodoctl.pulsar.values.ledger import Ledger
from kodoctl.pulsar.values.live_objects import ClusterIdentity, LiveObject
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import (
    GrantResource,
    NamespaceResource,
    SubscriptionResource,
    TenantResource,
    TopicResource,
)
from kodoctl.topology.units import Duration
from tests.samples.inventories import HERE, applied, changed, empty, live, planned, topology, wanted, with_ledger

J = TopicName(HERE, "J")
BEFORE = topology("{J: {producers: [anna], subscriptions: {s: {}}}}")
AFTER = topology(
    "{J: {partitions: 2, producers: [anna, ben], subscriptions: {s: {}, t: {}}}, K: {}}",
    "namespace_policies: {ttl: 1h}\n",
)


def test_nothing_changed_is_not_stale() -> None:
    start = applied(wanted(BEFORE))
    assert staleness(planned(wanted(AFTER), start), start) == ()


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (LiveObject(TopicResource(J, 1, {"ttl": Duration(60_000)}), "trade"), "topic.persistent://acme/ns/J: planned update; was partitions 1; now partitions 1, ttl 1m"),
        (LiveObject(TopicResource(J, 5, {}), "trade"), "now partitions 5"),
        (LiveObject(TopicResource(J, 1, {}), "other"), "now partitions 1, marked 'other'"),
        (LiveObject(TopicResource(J, 1, {}, (0,)), "trade"), "now partitions 1, missing 0"),
        (LiveObject(TopicResource(J, 1, {}), "trade", stalls_delivery=True), "topic.persistent://acme/ns/J"),
        (LiveObject(TopicResource(TopicName(HERE, "K"), 1, {})), "planned create; was absent; now partitions 1"),
        (LiveObject(SubscriptionResource(J, "t")), "planned create; was absent; now there"),
        (LiveObject(GrantResource(J, "ben", frozenset({"consume"}))), "planned create; was absent; now actions consume"),
        (LiveObject(NamespaceResource(HERE, {"ttl": Duration(60_000)})), "namespace.acme/ns: planned update"),
    ],
    ids=["policy", "partitions", "marker", "a partition gone", "stalling value", "topic made", "subscription made", "grant given", "namespace"],
)  # fmt: skip
def test_a_touched_object_that_changed_is_told_as_planned_was_and_now(found: LiveObject, said: str) -> None:
    start = applied(wanted(BEFORE))
    plan = planned(wanted(AFTER), start)
    [finding] = staleness(plan, changed(start, found))
    assert finding.code == "K533"
    assert said in finding.detail
    assert finding.detail.endswith("nothing was written: plan again")


def test_an_object_that_went_away_is_told() -> None:
    start = applied(wanted(BEFORE))
    [finding] = staleness(planned(wanted(AFTER), start), changed(start, without=["topic.persistent://acme/ns/J"]))
    assert "now absent" in finding.detail


def test_a_name_from_the_cluster_cannot_add_a_line_to_the_message() -> None:
    start = applied(wanted(BEFORE))
    found = LiveObject(TopicResource(J, 1, {}), "x\nError: all is well")
    [finding] = staleness(planned(wanted(AFTER), start), changed(start, found))
    assert "\nError" not in finding.detail


def test_an_object_that_the_plan_does_not_touch_may_change() -> None:
    start = applied(wanted(BEFORE))
    beside = LiveObject(TopicResource(TopicName(HERE, "beside"), 3, {}))
    assert staleness(planned(wanted(AFTER), start), changed(start, beside)) == ()


def test_data_and_clients_that_came_do_not_make_a_plan_stale() -> None:
    start = applied(wanted(BEFORE))
    from kodoctl.pulsar.values.live_objects import TopicFacts

    busy = LiveObject(start.objects["topic.persistent://acme/ns/J"].resource, "trade", TopicFacts(producers=3))
    assert staleness(planned(wanted(AFTER), start), changed(start, busy)) == ()


def test_a_ledger_that_another_apply_wrote_is_told() -> None:
    start = applied(wanted(BEFORE))
    other = replace(start.ledgers[HERE]["trade"], digest="another")
    [finding] = staleness(planned(wanted(AFTER), start), with_ledger(start, HERE, other))
    assert "the ledger of acme/ns/trade was written by another apply" in finding.detail


def test_a_ledger_that_a_take_over_writes_is_looked_at_too() -> None:
    theirs = applied(wanted(topology(name="other")))
    plan = planned(wanted(topology()), theirs, take_over=True)
    changed_entry = replace(theirs.ledgers[HERE]["other"], digest="another")
    [finding] = staleness(plan, with_ledger(theirs, HERE, changed_entry))
    assert "acme/ns/other" in finding.detail


def test_a_tenant_that_somebody_made_meanwhile_is_welcome() -> None:
    text = topology(head="create_tenant: {clusters: [standalone]}\n")
    plan = planned(wanted(text), replace(empty(), absent_tenants=frozenset({"acme"})))
    now = live([LiveObject(TenantResource("acme", frozenset({"standalone"}), frozenset()))], {})
    assert staleness(plan, now) == ()


def test_many_changed_objects_are_counted_after_the_first_twenty() -> None:
    grounds = ", ".join(f"t{n}: {{}}" for n in range(30))
    plan = planned(wanted(topology(f"{{{grounds}}}")), empty())
    made = [LiveObject(TopicResource(TopicName(HERE, f"t{n}"), 1, {})) for n in range(30)]
    [finding] = staleness(plan, changed(empty(), *made))
    assert len(finding.detail.splitlines()) == 22
    assert "and 10 more" in finding.detail


def test_a_ledger_entry_that_is_gone_is_told() -> None:
    start = applied(wanted(BEFORE))
    assert any(
        "acme/ns/trade" in f.detail
        for f in staleness(planned(wanted(AFTER), start), replace(start, ledgers={HERE: {}}))
    )


def test_another_entry_in_the_ledger_does_not_matter() -> None:
    start = applied(wanted(BEFORE))
    assert staleness(planned(wanted(AFTER), start), with_ledger(start, HERE, Ledger("stranger", HERE))) == ()


# --- the cluster's identity


@pytest.mark.parametrize(
    ("cluster", "uuids", "said"),
    [
        ("standalone", {"acme": "11111111-2222-3333-4444-555555555555"}, None),
        ("prod", {"acme": "11111111-2222-3333-4444-555555555555"}, "the plan is for 'standalone', this is 'prod'"),
        ("standalone", {"acme": "99"}, "now 99"),
        ("standalone", {}, "now none"),
    ],
)
def test_a_plan_for_another_cluster_is_refused(cluster: str, uuids: dict[str, str | None], said: str | None) -> None:
    found = [finding.detail for finding in other_cluster(planned(wanted(BEFORE), empty()), cluster, uuids)]
    assert (said is None and not found) or (said is not None and said in found[0])


def test_a_plan_made_before_the_first_apply_is_refused_after_it() -> None:
    plan = replace(planned(wanted(BEFORE), empty()), identity=ClusterIdentity("standalone", {"acme": None}))
    [finding] = other_cluster(plan, "standalone", {"acme": "11"})
    assert "had no UUID yet when the plan was made, now 11" in finding.detail
    assert not list(other_cluster(plan, "standalone", {"acme": None}))


@pytest.mark.parametrize("marker", ["trade", "bank", None])
def test_a_plan_changes_nothing_of_a_topology_that_it_is_not_about(marker: str | None) -> None:
    """Whatever the file says: its seal has no key, and who edits it writes one of his own."""
    before = applied(wanted(topology("{J: {}, K: {}}")))
    plan = planned(wanted(topology("{J: {}}")), before)
    gone = {change.address for change in plan.changes if change.address.startswith("topic.")}
    assert gone
    there = changed(before, *[replace(before.objects[address], marker=marker) for address in gone])
    edited = replace(plan, fingerprints={c.address: fingerprint(c.address, there) for c in plan.changes})
    assert not list(staleness(edited, there))
    found = list(of_others(edited, there))
    assert {finding.code for finding in found} == (set() if marker == "trade" else {"K410"})
    if marker != "trade":
        assert f"belongs to {marker or 'nobody'}" in found[0].detail


def test_objects_of_one_other_topology_are_one_refusal() -> None:
    before = applied(wanted(topology("{J: {}, K: {}, L: {}}")))
    plan = planned(wanted(topology("{J: {}}")), before)
    there = changed(
        before, *[replace(before.objects[f"topic.persistent://acme/ns/{name}"], marker="bank") for name in "KL"]
    )
    [found] = of_others(plan, there)
    assert found.detail == (
        "2 objects belong to bank, of which this plan is not: plan again\n"
        "topic.persistent://acme/ns/K\ntopic.persistent://acme/ns/L"
    )


@pytest.mark.parametrize("marker", ["trade", "bank", None])
@pytest.mark.parametrize("kind", ["adopt", "forget", "take over"])
def test_nor_is_it_taken_over_or_given_up(kind: str, marker: str | None) -> None:
    """Who owned it when the plan was made says nothing of now, and less in a plan that somebody edited."""
    about, topic = ChangeContext("trade"), TopicResource(J, 1, {})
    before = applied(wanted(topology("{J: {}}")))
    address = topic.address
    change: Change = Forget(address, topic, about) if kind == "forget" else Adopt(topic, about)
    change = replace(change, taken_from="bank") if kind == "take over" and isinstance(change, Adopt) else change
    there = changed(before, replace(before.objects[address], marker=marker))
    plan = replace(planned(wanted(topology("{J: {}}")), before), changes=(change,))
    fine = marker != "bank" or kind == "take over"
    assert [finding.code for finding in of_others(plan, there)] == ([] if fine else ["K410"])
    harmless = (
        Forget(address, None, about),
        Create(topic, about),
        Adopt(TopicResource(TopicName(HERE, "K"), 1, {}), about),
    )
    assert not list(of_others(replace(plan, changes=harmless), there))


@pytest.mark.parametrize("marker", ["trade", "bank", None])
def test_an_update_of_what_is_another_s_is_refused_and_of_what_is_nobody_s_only_its_adoption_is_not(
    marker: str | None,
) -> None:
    before = applied(wanted(topology("{J: {}}")))
    plan = planned(wanted(topology("{J: {policies: {ttl: 1h}}}")), before)
    [update] = plan.changes
    assert isinstance(update, Update)
    assert not update.adopting
    there = changed(before, replace(before.objects[update.address], marker=marker))
    found = list(of_others(plan, there))
    assert [finding.code for finding in found] == ([] if marker == "trade" else ["K410"])
    adopting = replace(plan, changes=(replace(update, adopting=True),))
    assert [finding.code for finding in of_others(adopting, there)] == (["K410"] if marker == "bank" else [])
