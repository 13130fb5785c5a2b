"""Drift: what somebody changed by hand, apart from what the file has not applied yet."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kodoctl.errors import warning
from kodoctl.plan.drift import Drift, split, to_json
from kodoctl.plan.inventory import Desired
from kodoctl.pulsar.values.ledger import OwnershipKind
from kodoctl.pulsar.values.live_objects import Live, LiveObject
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import SubscriptionResource, TopicResource
from kodoctl.topology.units import Duration
from tests.samples.inventories import HERE, applied, changed, planned, said, topology, wanted, with_ledger

J = TopicName(HERE, "J")
FILE = topology("{J: {subscriptions: {s: {states: [], dead_letter: false}}}}")
NEWER = topology("{J: {policies: {max_producers: 5}, subscriptions: {s: {states: [], dead_letter: false}}}, K: {}}")
BY_HAND = LiveObject(TopicResource(J, 1, {"ttl": Duration(60_000)}), "trade")


def _drift(side: Desired, there: Live, *, count_unmanaged: bool = False) -> Drift:
    return split(planned(side, there), there, count_unmanaged=count_unmanaged)


def test_nothing_changed_is_no_drift() -> None:
    found = _drift(wanted(FILE), applied(wanted(FILE)))
    assert not found.drifted
    assert not found.refused


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (changed(applied(wanted(FILE)), BY_HAND), ("update", "topic.J")),
        (changed(applied(wanted(FILE)), without=["subscription.persistent://acme/ns/J/s"]), ("create", "subscription.J/s")),
        (changed(applied(wanted(FILE)), LiveObject(SubscriptionResource(J, "s", missing_on=(0,)), "trade")), ("update", "subscription.J/s")),
        (changed(applied(wanted(FILE)), LiveObject(TopicResource(J, 1, {}))), ("adopt", "topic.J")),
    ],
    ids=["a policy", "a subscription deleted", "a subscription half there", "a marker taken off"],
)  # fmt: skip
def test_a_change_by_hand_is_drift_where_the_file_is_applied(there: Live, expected: tuple[str, str]) -> None:
    found = _drift(wanted(FILE), there)
    assert said(found.by_hand) == {expected}
    assert found.drifted


def test_what_only_the_newer_file_says_is_not_drift() -> None:
    found = _drift(wanted(NEWER), applied(wanted(FILE)))
    assert said(found.not_applied) == {("create", "topic.K")}
    assert said(found.either) == {("update", "topic.J")}  # the file's or somebody's: nobody can tell
    assert found.stale_topologies == ("trade",)


def test_what_a_newer_file_no_longer_declares_is_not_drift() -> None:
    found = _drift(wanted(topology("{}")), applied(wanted(FILE)))
    assert said(found.not_applied) == {("delete", "topic.J"), ("delete", "subscription.J/s")}
    assert not found.drifted


def test_an_applied_object_that_is_gone_is_drift_whatever_the_file_says_now() -> None:
    there = changed(
        applied(wanted(FILE)), without=["topic.persistent://acme/ns/J", "subscription.persistent://acme/ns/J/s"]
    )
    assert said(_drift(wanted(NEWER), there).by_hand) == {("create", "topic.J"), ("create", "subscription.J/s")}
    assert said(_drift(wanted(topology("{}")), there).by_hand) == {
        ("forget", "topic.J"),
        ("forget", "subscription.J/s"),
    }


def test_a_lost_partition_is_drift_whatever_the_file_says_now() -> None:
    there = changed(applied(wanted(FILE)), LiveObject(TopicResource(J, 1, {}, (0,)), "trade"))
    assert said(_drift(wanted(NEWER), there).by_hand) == {("update", "topic.J")}


def test_what_an_interrupted_apply_only_intended_is_not_drift() -> None:
    before = applied(wanted(FILE))
    entry = before.ledgers[HERE]["trade"].with_holdings({"topic.persistent://acme/ns/K": OwnershipKind.INTENT})
    found = _drift(wanted(NEWER), with_ledger(before, HERE, entry))
    assert ("create", "topic.K") in said(found.not_applied)
    assert not found.by_hand


def test_more_partitions_by_hand_are_drift_that_no_apply_can_undo() -> None:
    found = _drift(wanted(FILE), changed(applied(wanted(FILE)), LiveObject(TopicResource(J, 4, {}), "trade")))
    assert [finding.code for finding in found.beyond_repair] == ["K411"]
    assert found.drifted
    assert not found.refused


def test_a_topic_that_was_terminated_is_drift_that_no_apply_can_undo() -> None:
    there = applied(wanted(FILE))
    plan = planned(wanted(FILE), there)
    ended = warning("K442", "a terminated topic", "J")
    found = split(replace(plan, findings=(*plan.findings, ended)), there, count_unmanaged=False)
    assert (found.beyond_repair, found.drifted, found.refused) == ((ended,), True, False)


def test_fewer_partitions_in_a_newer_file_are_its_own_mistake() -> None:
    before = applied(wanted(topology("{J: {partitions: 4}}")))
    found = _drift(wanted(topology("{J: {partitions: 2}}")), before)
    assert [finding.code for finding in found.conflicts] == ["K411"]
    assert found.refused
    assert not found.drifted


def test_what_another_environment_applied_cannot_be_compared() -> None:
    text = topology("{J: {}}", "environments: {prod: {}, dev: {}}\n")
    found = _drift(wanted(text, environment="dev"), applied(wanted(text, environment="prod")))
    assert found.refused


def test_unmanaged_objects_count_only_where_asked_for() -> None:
    there = changed(applied(wanted(FILE)), LiveObject(TopicResource(TopicName(HERE, "x"), 1, {})))
    assert not _drift(wanted(FILE), there).drifted
    assert _drift(wanted(FILE), there, count_unmanaged=True).drifted


def test_the_machine_form_holds_all_groups() -> None:
    there = changed(applied(wanted(FILE)), BY_HAND)
    document = json.loads(json.dumps(to_json(_drift(wanted(NEWER), there), {})))
    assert document["drifted"] is True
    assert [change["address"] for change in document["either"]] == ["topic.persistent://acme/ns/J"]
    assert {"by_hand", "not_applied", "beyond_repair", "conflicts", "unmanaged", "stale_topologies"} <= document.keys()
