"""What ledgers and consumers are told: sources, settings that only consumers read, entries that end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kodoctl.documents.plan_actions import Action
from kodoctl.plan.ledger_plan import leaving, ledger_after, ledger_pending, with_entry
from kodoctl.plan.plan import desired_digest
from kodoctl.pulsar.values.ledger import OwnershipKind, Source
from kodoctl.pulsar.values.live_objects import validates
from tests.samples.inventories import HERE, SOURCE, applied, empty, planned, topology, wanted, with_ledger

FILE = topology("{J: {fair_by: uid, subscriptions: {s: {concurrency: 8}}}}")


def test_settings_that_only_consumers_read_are_shown_and_change_nothing_on_the_cluster() -> None:
    newer = topology("{J: {fair_by: key, compression: lz4, subscriptions: {s: {weights: {ready: 80}}}}}")
    plan = planned(wanted(newer), applied(wanted(FILE)))
    assert plan.empty
    [change] = plan.consumer_changes
    assert change.subscription == "J/s"
    assert change.settings == (
        ("compression", None, "lz4"),
        ("concurrency", 8, None),
        ("fair_by", "uid", "key"),
        ("weights", None, {"ready": 80}),
    )
    assert ledger_pending(plan.owners, applied(wanted(FILE)))


@pytest.mark.parametrize(
    ("first", "then", "says"),
    [
        ("{states: [retrying, pending]}", "{states: [retrying], draining: [pending]}", ([], ["pending"])),
        ("{states: [retrying], draining: [pending]}", "{states: [retrying, pending]}", (["pending"], [])),
    ],
)
def test_a_lane_that_drains_is_told_to_consumers_although_no_topic_changes(
    first: str, then: str, says: tuple[list[str], list[str]]
) -> None:
    before, after = (topology(f"{{J: {{subscriptions: {{s: {subscription}}}}}}}") for subscription in (first, then))
    plan = planned(wanted(after), applied(wanted(before)))
    assert plan.empty
    assert [(one.subscription, one.settings) for one in plan.consumer_changes] == [("J/s", (("draining", *says),))]


def test_a_level_that_drains_is_told_to_the_consumers_of_every_subscription() -> None:
    before = topology("{J: {levels: double, subscriptions: {s: {}, t: {draining: [pending], states: []}}}}")
    after = topology("{J: {draining: [L2], subscriptions: {s: {}, t: {draining: [pending], states: []}}}}")
    found = planned(wanted(after), applied(wanted(before))).consumer_changes
    assert {one.subscription: one.settings for one in found} == {
        "J/s": (("draining", [], ["L2"]),),
        "J/t": (("draining", ["pending"], ["L2", "pending"]),),
    }


def test_a_new_subscription_has_no_earlier_settings_to_compare_with() -> None:
    newer = topology("{J: {fair_by: uid, subscriptions: {s: {concurrency: 8}, t: {concurrency: 2}}}}")
    assert not planned(wanted(newer), applied(wanted(FILE))).consumer_changes


def test_after_a_complete_apply_nothing_is_left_to_write() -> None:
    before = applied(wanted(FILE))
    assert not ledger_pending(planned(wanted(FILE), before).owners, before)


@pytest.mark.parametrize("damage", [{"digest": "x"}, {"namespace_keys": frozenset({"ttl"})}, {"consumers": {}}])
def test_an_entry_that_an_interrupted_apply_left_is_finished_by_the_next(damage: dict[str, object]) -> None:
    before = applied(wanted(FILE))
    start = with_ledger(before, HERE, replace(before.ledgers[HERE]["trade"], **damage))  # type: ignore[arg-type]
    plan = planned(wanted(FILE), start)
    assert plan.empty
    assert ledger_pending(plan.owners, start)


def test_an_intent_that_came_to_nothing_is_cleared_away_by_the_next_apply() -> None:
    before = applied(wanted(FILE))
    entry = before.ledgers[HERE]["trade"].with_holdings({"topic.persistent://acme/ns/x": OwnershipKind.INTENT})
    start = with_ledger(before, HERE, entry)
    assert ledger_pending(planned(wanted(FILE), start).owners, start)


def test_a_first_apply_and_an_entry_that_ends_have_something_to_write() -> None:
    assert ledger_pending(planned(wanted(FILE), empty()).owners, empty())
    moved = applied(wanted(FILE))
    plan = planned(wanted(FILE.replace("namespace: ns", "namespace: new")), moved)
    assert ledger_pending([owner for owner in plan.owners if owner.leaves], moved)


def test_an_entry_that_ends_and_still_lists_something_is_written_once() -> None:
    new = FILE.replace("namespace: ns", "namespace: new")
    entry = leaving(applied(wanted(FILE)).ledgers[HERE]["trade"])
    left = ledger_after(entry, {"function.acme/ns/enrich": OwnershipKind.CREATED})
    there = replace(applied(wanted(new)), unread_functions={f"function.{HERE}": "no answer"})
    for settings, pending in (({}, False), ({"a/s": {"concurrency": 2}}, True)):
        before = with_ledger(there, HERE, replace(left, consumers=settings))
        plan = planned(wanted(new), before)
        assert plan.empty
        assert ledger_pending(plan.owners, before) == pending


def test_an_intent_of_what_flags_leave_out_is_nothing_to_write() -> None:
    entry = applied(wanted(FILE)).ledgers[HERE]["trade"].with_holdings({"topic.x": OwnershipKind.INTENT})
    before = with_ledger(applied(wanted(FILE)), HERE, entry)
    assert ledger_pending([with_entry(entry)], before)
    assert not ledger_pending([replace(with_entry(entry), partial=True)], before)


def test_a_copy_without_git_does_not_make_the_ledger_forget_where_the_file_is_from() -> None:
    before = applied(wanted(FILE, sources={"trade": SOURCE}))
    plan = planned(wanted(FILE, sources={"trade": Source()}), before)
    assert plan.owners[0].source == SOURCE
    assert not ledger_pending(plan.owners, before)


def test_a_file_that_moved_is_written_down() -> None:
    before = applied(wanted(FILE, sources={"trade": replace(SOURCE, path="old.yaml")}))
    plan = planned(wanted(FILE, sources={"trade": SOURCE}), before)
    assert plan.owners[0].source == SOURCE
    assert ledger_pending(plan.owners, before)


def test_comments_and_order_do_not_change_the_digest_but_owner_environment_and_allowances_do() -> None:
    text = topology("{J: {}, K: {}}")
    same = desired_digest(wanted("# a comment\n" + topology("{K: {}, J: {}}")))
    assert desired_digest(wanted(text)) == same
    others = [
        wanted(topology("{J: {}, K: {}}", name="other")),
        wanted(topology("{J: {}, K: {}}", "allow_destroy: [topic.persistent://acme/ns/x]\n")),
        wanted(topology("{J: {}, K: {}}", "forget: [topic.persistent://acme/ns/x]\n")),
        wanted(topology("{J: {ignore: [ttl]}, K: {}}")),
        wanted(topology("{J: {partitions: 2}, K: {}}")),
        wanted(topology("{J: {}, K: {}}", "environments: {prod: {}}\n"), environment="prod"),
    ]
    assert len({same, *(desired_digest(side) for side in others)}) == len(others) + 1


def test_a_plan_counts_its_verbs() -> None:
    plan = planned(wanted(topology("{J: {}}")), empty())
    assert [plan.count(action) for action in Action] == [2, 0, 0, 0, 0]
    assert not plan.empty


@pytest.mark.parametrize(
    ("namespace", "broker", "expected"), [({}, {}, False), ({}, {"schema_validation": True}, True), ({"schema_validation": False}, {"schema_validation": True}, False)]
)  # fmt: skip
def test_schemas_are_enforced_by_the_namespace_else_by_the_broker(
    namespace: dict[str, bool], broker: dict[str, bool], expected: bool
) -> None:
    assert validates(namespace, broker) is expected
