"""K401, K402, K405: what a change would destroy, by tables. A refusal stays visible as a warning once it is allowed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kodoctl.errors import Severity, warning
from kodoctl.plan.changes import Change, ChangeContext, Delete, FieldChange, Update
from kodoctl.plan.danger.data_loss import DangerRules
from kodoctl.plan.danger.evidence import DAY_MS, evidence_wanted
from kodoctl.plan.inventory import Desired
from kodoctl.pulsar.values.evidence import Evidence
from kodoctl.pulsar.values.ledger import Ledger
from kodoctl.pulsar.values.live_objects import Live, LiveObject, SubscriptionFacts, TopicFacts
from kodoctl.topology.model.policies import from_json
from kodoctl.topology.names import NamespaceName, TopicName
from kodoctl.topology.resources import GrantResource, NamespaceResource, SubscriptionResource, TopicResource
from tests.samples.inventories import HERE, NOW, applied, changed, difference, live, planned, topology, wanted

J = TopicName(HERE, "J")
TOPIC = TopicResource(J, 1, {})
SUB = SubscriptionResource(J, "s")
MB = 1 << 20
HOUR = 3_600_000


def _judge(
    change: Change, there: Live, evidence: Evidence | None = None, *, allowed: bool = False, ordered: bool = False
) -> Any:
    found = {change.address: evidence} if evidence else {}
    judge = DangerRules(
        frozenset({change.address} if ordered else ()),
        there,
        found,
        frozenset({change.address} if allowed else ()),
        NOW,
    )
    [judged] = judge.judge([change])
    return judged


def _deleted(
    resource: TopicResource | SubscriptionResource, facts: Any, evidence: Evidence | None = None, **options: Any
) -> Any:
    there = live([LiveObject(resource, "trade", facts)], {})
    return _judge(Delete(resource, ChangeContext("trade")), there, evidence, **options).about.dangers


# --- K401


@pytest.mark.parametrize(
    ("facts", "evidence", "said"),
    [
        (TopicFacts(storage_bytes=3 * MB, backlog_bytes=2 * MB), Evidence(entries=7), ["7 unread entries (2MiB)", "1MiB of kept messages"]),
        (TopicFacts(backlog_bytes=MB), Evidence(entries=2, messages=1000), ["1,000 unread messages (1MiB)"]),
        (TopicFacts(backlog_bytes=MB), Evidence(entries=2, messages=1000, at_least=True), ["at least 1,000 unread messages"]),
        (TopicFacts(backlog_bytes=MB), Evidence(entries=2, messages=0, marks=1, at_least=True), ["2 unread entries"]),
        (TopicFacts(backlog_bytes=MB), Evidence(entries=2, messages=2000, unseen_marks=True), ["2,000 unread messages and marks of producers (1MiB)"]),
        (TopicFacts(backlog_bytes=MB), Evidence(entries=1, messages=0, marks=1, oldest=None), ["no unread message, 1 mark of producers (1MiB)"]),
        (TopicFacts(backlog_bytes=MB), Evidence(entries=2, oldest=NOW - 3 * HOUR), ["the oldest 3 h old"]),
        (TopicFacts(storage_bytes=MB), None, ["1MiB of kept messages"]),
        (TopicFacts(storage_bytes=3 << 50), None, ["3072TiB of kept messages"]),
        (TopicFacts(consumers=1), Evidence(clients=("c@10.0.0.1:1 as billing",)), ["1 consumer connected (c@10.0.0.1:1 as billing)"]),
        (TopicFacts(consumers=2), Evidence(clients=("a", "b", "c", "d")), ["2 consumers connected (a, b, c, …)"]),
        (TopicFacts(producers=2), Evidence(clients=("p@10.0.0.2:1",)), ["2 producers connected (p@10.0.0.2:1)"]),
        (TopicFacts(producers=1, consumers=1), Evidence(clients=("x",)), ["1 consumer connected (x), 1 producer connected"]),
        (TopicFacts(last_publish=NOW - HOUR), None, ["last publish 1 h ago"]),
        (TopicFacts(last_publish=NOW - 90_000), None, ["last publish 1 min ago"]),
        (TopicFacts(last_publish=NOW - 500), None, ["last publish 0 s ago"]),
        (TopicFacts(unreplicated=(("west", 1200),)), None, ["1,200 entries that cluster west does not have yet"]),
    ],
)  # fmt: skip
def test_a_topic_with_something_in_it_or_in_use_is_not_deleted(
    facts: TopicFacts, evidence: Evidence | None, said: list[str]
) -> None:
    [refusal] = _deleted(TOPIC, facts, evidence)
    assert (refusal.code, refusal.severity) == ("K401", Severity.ERROR)
    for words in said:
        assert words in refusal.detail
    assert f"--allow-destroy {TOPIC.address}" in refusal.detail


@pytest.mark.parametrize("facts", [None, TopicFacts(), TopicFacts(last_publish=NOW - DAY_MS - 1)])
def test_an_empty_topic_that_nobody_used_for_a_day_may_go(facts: TopicFacts | None) -> None:
    assert not _deleted(TOPIC, facts)


@pytest.mark.parametrize(
    ("facts", "evidence", "said"),
    [
        (SubscriptionFacts(backlog_entries=5, backlog_bytes=MB), Evidence(entries=5, messages=50, bytes=MB), "50 unread messages (1MiB)"),
        (SubscriptionFacts(backlog_entries=5), None, "5 unread entries"),
        (SubscriptionFacts(consumers=1), Evidence(clients=("w",)), "1 consumer connected (w)"),
    ],
)  # fmt: skip
def test_a_subscription_with_a_backlog_or_consumers_is_not_deleted(
    facts: SubscriptionFacts, evidence: Evidence | None, said: str
) -> None:
    [refusal] = _deleted(SUB, facts, evidence)
    assert said in refusal.detail


def test_an_empty_subscription_without_consumers_may_go() -> None:
    assert not _deleted(SUB, SubscriptionFacts())


def test_an_allowed_destruction_is_a_warning_that_still_says_what_goes() -> None:
    [finding] = _deleted(TOPIC, TopicFacts(storage_bytes=MB), allowed=True)
    assert finding.severity is Severity.WARNING
    assert "1MiB of kept messages; allowed by name" in finding.detail


def test_a_subscription_that_goes_with_its_topic_is_judged_there_alone() -> None:
    there = live(
        [
            LiveObject(TOPIC, "trade", TopicFacts(backlog_bytes=MB)),
            LiveObject(SUB, "trade", SubscriptionFacts(backlog_entries=3)),
        ],
        {},
    )
    changes = (Delete(TOPIC, ChangeContext("trade")), Delete(SUB, ChangeContext("trade")))
    topic, sub = DangerRules(frozenset(), there, {}, frozenset(), NOW).judge(changes)
    assert topic.about.dangers
    assert not sub.about.dangers


def test_the_evidence_is_shown_with_the_change() -> None:
    there = live([LiveObject(TOPIC, "trade", TopicFacts(backlog_bytes=MB))], {})
    judged = _judge(Delete(TOPIC, ChangeContext("trade")), there, Evidence(entries=2, messages=9, clients=("x",)))
    assert judged.about.evidence["messages"] == 9
    assert judged.about.evidence["clients"] == ["x"]


def test_a_danger_that_is_over_is_no_danger_of_the_change_any_more() -> None:
    before = Delete(SUB, ChangeContext("trade", dangers=(warning("K401", "deletes data", "100 unread messages"),)))
    there = live([LiveObject(SUB, "trade", SubscriptionFacts())], {})
    assert not _judge(before, there).about.dangers


# --- K402


def _lowered(
    before: str, after: str, facts: TopicFacts, evidence: Evidence | None = None, *, allowed: bool = False
) -> Any:
    """The dangers of changing a topic's policies."""
    start = applied(wanted(topology(f"{{J: {{policies: {before}}}}}")), facts=facts)
    [update] = difference(wanted(topology(f"{{J: {{policies: {after}}}}}")), start).changes
    return _judge(update, start, evidence, allowed=allowed).about.dangers


FULL = TopicFacts(storage_bytes=10 * MB, backlog_bytes=4 * MB)
UNREAD = TopicFacts(storage_bytes=4 * MB, backlog_bytes=4 * MB)
OLD = Evidence(ledgers=((NOW - 5 * HOUR, 3 * MB), (NOW - HOUR, 2 * MB), (0, MB)))
KEPT = "{retention: {time: 9h, size: 1GiB}}"


@pytest.mark.parametrize(
    ("before", "after", "facts", "evidence", "loss"),
    [
        (KEPT, "{retention: {time: 2h, size: 1GiB}}", FULL, OLD, "up to 4MiB of kept messages"),
        (KEPT, "{retention: {time: 8h, size: 1GiB}}", FULL, OLD, "up to 1MiB of kept messages"),
        (KEPT, "{retention: {time: 9h, size: 5MiB}}", FULL, OLD, "up to 1MiB of kept messages"),
        (KEPT, "{retention: {time: 2h, size: 1GiB}}", FULL, None, "up to 6MiB of kept messages"),
        (KEPT, "{}", FULL, OLD, "up to 6MiB of kept messages"),
        ("{retention: {time: unlimited, size: unlimited}}", KEPT, FULL, OLD, "up to 1MiB of kept messages"),
        (KEPT, "{retention: {time: 2h, size: 1GiB}}", UNREAD, OLD, ""),  # retention keeps read messages
        (KEPT, "{retention: {time: 10h, size: 2GiB}}", FULL, OLD, ""),
        ("{ttl: 9h}", "{ttl: 2h}", FULL, Evidence(oldest=NOW - 3 * HOUR), "up to 4MiB of unread messages, the oldest 3 h old"),
        ("{ttl: 9h}", "{ttl: 2h}", FULL, None, "up to 4MiB of unread messages"),
        ("{}", "{ttl: 2h}", FULL, Evidence(oldest=NOW - 3 * HOUR), "up to 4MiB of unread messages"),
        ("{ttl: 2h}", "{ttl: 9h}", FULL, Evidence(oldest=NOW - 3 * HOUR), ""),
        ("{ttl: 9h}", "{ttl: 2h}", TopicFacts(storage_bytes=MB), Evidence(oldest=NOW - 3 * HOUR), ""),
        ("{backlog_quota: {size: 9MiB}}", "{backlog_quota: {size: 1MiB, when_full: evict}}", FULL, None, "up to 3MiB of unread messages"),
        ("{backlog_quota: {size: 3MiB, when_full: evict}}", "{backlog_quota: {size: 1MiB, when_full: evict}}", FULL, None, "up to 3MiB"),
        ("{backlog_quota: {size: 1MiB, when_full: evict}}", "{backlog_quota: {size: 3MiB, when_full: evict}}", FULL, None, ""),
        ("{backlog_quota: {size: 9MiB}}", "{backlog_quota: {size: 5MiB, when_full: evict}}", FULL, None, ""),
        ("{backlog_quota: {time: 9h}}", "{backlog_quota: {time: 1h, when_full: evict}}", FULL, Evidence(oldest=NOW - 3 * HOUR), "of unread messages"),
        ("{backlog_quota: {time: 9h, when_full: evict}}", "{backlog_quota: {time: 1h, when_full: evict}}", FULL, Evidence(oldest=NOW - 3 * HOUR), "up to 4MiB"),
        ("{backlog_quota: {size: 9MiB, time: 1h, when_full: evict}}", "{backlog_quota: {size: 9MiB, time: 2h, when_full: evict}}", FULL, Evidence(oldest=NOW - 3 * HOUR), ""),
        ("{backlog_quota: {size: 9MiB, time: 1h}}", "{backlog_quota: {size: 9MiB, time: 1h, when_old: evict}}", FULL, Evidence(oldest=NOW - 3 * HOUR), "9MiB hold_producers → 9MiB hold_producers, 1h evict would drop up to 4MiB"),
        ("{backlog_quota: {size: 9MiB, time: 9h}}", "{backlog_quota: {size: 9MiB, time: 1h, when_full: evict, when_old: fail_producers}}", FULL, Evidence(oldest=NOW - 3 * HOUR), ""),
        ("{backlog_quota: {size: 1MiB}}", "{backlog_quota: {size: 1MiB, when_full: evict}}", FULL, None, "up to 3MiB of unread messages"),
        ("{}", "{backlog_quota: {size: 1MiB, when_full: evict}}", FULL, None, "up to 3MiB of unread messages"),
        ("{backlog_quota: {size: 9MiB}}", "{backlog_quota: {size: 1MiB}}", FULL, None, ""),  # producers wait, nothing goes
        ("{}", "{subscription_expiry: 2h}", TopicFacts(consumers=1, idle_bytes=MB), None, "subscriptions without consumers and their 1MiB"),
        ("{subscription_expiry: 2h}", "{subscription_expiry: 1h}", TopicFacts(backlog_bytes=MB, consumers=1), None, ""),
        ("{subscription_expiry: 2h}", "{subscription_expiry: unlimited}", FULL, None, ""),
        ("{inactive_topic: {delete: never}}", "{inactive_topic: {delete: caught_up, after: 1h}}", FULL, None, "the whole topic with 10MiB"),
        ("{}", "{inactive_topic: {delete: no_subscriptions, after: 1h}}", FULL, None, "the whole topic with 10MiB"),
        ("{inactive_topic: {delete: caught_up, after: 2h}}", "{inactive_topic: {delete: caught_up, after: 1h}}", FULL, None, ""),
        ("{inactive_topic: {delete: caught_up, after: 2h}}", "{inactive_topic: {delete: never}}", FULL, None, ""),
        ("{max_producers: 9}", "{max_producers: 1}", FULL, None, ""),
    ],
)  # fmt: skip
def test_a_lowered_value_is_refused_where_stored_data_would_go(
    before: str, after: str, facts: TopicFacts, evidence: Evidence | None, loss: str
) -> None:
    dangers = _lowered(before, after, facts, evidence)
    if not loss:
        assert not dangers
        return
    [refusal] = dangers
    assert (refusal.code, refusal.severity) == ("K402", Severity.ERROR)
    assert loss in refusal.detail
    assert _lowered(before, after, facts, evidence, allowed=True)[0].severity is Severity.WARNING


@pytest.mark.parametrize(
    ("before", "after", "oldest", "expiry"),
    [
        ("{ttl: unlimited}", "{ttl: 2h}", NOW - HOUR, "ttl unlimited → 2h: up to 4MiB of unread messages, the oldest 1 h old, would expire at an age of 2h"),
        ("{ttl: 9h}", "{ttl: 2h}", NOW + HOUR, "the oldest 0 s old, would expire at an age of 2h"),  # clocks differ
        ("{backlog_quota: {time: 9h}}", "{backlog_quota: {time: 5h, when_full: evict}}", NOW - 3 * HOUR, "would expire at an age of 5h"),
        ("{backlog_quota: {time: 9h, when_full: evict}}", "{backlog_quota: {time: 5h, when_full: evict}}", NOW - 3 * HOUR, "would expire at an age of 5h"),
        ("{backlog_quota: {size: 9MiB, time: 5h}}", "{backlog_quota: {size: 9MiB, time: 5h, when_old: evict}}", NOW - 3 * HOUR, "would expire at an age of 5h"),
        ("{backlog_quota: {time: 5h, when_full: evict}}", "{backlog_quota: {time: 9h, when_full: evict}}", NOW - 3 * HOUR, ""),
        ("{ttl: 2h}", "{ttl: 9h}", NOW - HOUR, ""),
        ("{max_producers: 9}", "{max_producers: 1}", NOW - HOUR, ""),
    ],
)  # fmt: skip
def test_a_warning_names_unread_messages_that_expire_earlier_but_not_yet(
    before: str, after: str, oldest: int, expiry: str
) -> None:
    dangers = _lowered(before, after, FULL, Evidence(oldest=oldest))
    assert [(one.code, one.severity) for one in dangers] == [("K441", Severity.WARNING)] * bool(expiry)
    assert all(expiry in one.detail for one in dangers)
    assert not _lowered(before, after, TopicFacts(storage_bytes=MB), Evidence(oldest=oldest)), "nothing is unread"


def _namespace_lowered(topics: str, facts: TopicFacts, change: str = "{ttl: 9h}", to: str = "{ttl: 1h}") -> Any:
    start = applied(wanted(topology(topics, f"namespace_policies: {change}\n")), facts=facts)
    end = wanted(topology(topics, f"namespace_policies: {to}\n"))
    judge = DangerRules(frozenset(), start, {}, frozenset(), NOW)
    return [danger for change in judge.judge(difference(end, start).changes) for danger in change.about.dangers]


def test_a_namespaces_lowered_value_counts_for_topics_that_have_none_of_their_own() -> None:
    [refusal] = _namespace_lowered("{J: {}, K: {}, L: {policies: {ttl: 9h}}}", FULL)
    assert "topic.persistent://acme/ns/J up to 4MiB of unread messages and 1 more topic" in refusal.detail
    assert "--allow-destroy namespace.acme/ns" in refusal.detail
    assert not _namespace_lowered("{L: {policies: {ttl: 9h}}}", FULL)


@pytest.mark.parametrize(
    "policies", ["{ttl: 1h}", "{backlog_quota: {size: 1MiB, when_full: evict}}", "{subscription_expiry: 1h}"]
)
def test_topics_of_a_namespace_that_were_not_read_may_lose_by_its_lowered_value(policies: str) -> None:
    """Neither those of another topology nor one that cannot be read counted: a plan expired their messages."""
    before = applied(wanted(topology("{J: {}}", "namespace_policies: {max_topics: 9}\n")))
    far = TopicName(NamespaceName("acme", "far"), "Z")
    shared = replace(before, others={far: "shop", TopicName(HERE, "K"): "shop"})
    unread = replace(
        changed(before, LiveObject(TopicResource(TopicName(HERE, "K"), 0, {}))),
        unread={far: "gone", TopicName(HERE, "K"): "gone"},
    )
    side = wanted(topology("{J: {}}", f"namespace_policies: {policies}\n"))
    for there, why in (
        (shared, "a topic of the topology shop, which a plan of other files does not read"),
        (unread, "it cannot be read: gone"),
    ):
        [refusal] = [one for change in planned(side, there).changes for one in change.about.dangers]
        assert refusal.code == "K402"
        assert f"may drop messages of topic.persistent://acme/ns/K: {why}" in refusal.detail
    assert not [one for change in planned(side, before).changes for one in change.about.dangers]


def test_a_topic_that_takes_the_value_over_in_the_same_plan_loses_nothing_to_its_namespace() -> None:
    start = applied(wanted(topology("{J: {}}", "namespace_policies: {ttl: 9h}\n")), facts=FULL)
    end = wanted(topology("{J: {policies: {ttl: 9h}}}", "namespace_policies: {ttl: 1h}\n"))
    judge = DangerRules(frozenset(), start, {}, frozenset(), NOW)
    assert not [danger for change in judge.judge(difference(end, start).changes) for danger in change.about.dangers]


def test_a_topic_that_drops_its_value_while_the_namespaces_falls_is_judged_by_what_counts_in_the_end() -> None:
    start = applied(wanted(topology("{J: {policies: {ttl: 9h}}}", "namespace_policies: {ttl: 9h}\n")), facts=FULL)
    end = wanted(topology("{J: {}}", "namespace_policies: {ttl: 1h}\n"))
    judge = DangerRules(frozenset(), start, {}, frozenset(), NOW)
    found = {change.address: change.about.dangers for change in judge.judge(difference(end, start).changes)}
    [refusal] = found["topic.persistent://acme/ns/J"]
    assert "ttl 9h → 1h" in refusal.detail


def test_the_brokers_default_is_what_an_unset_value_falls_to() -> None:
    before = applied(wanted(topology("{J: {policies: {ttl: 9h}}}")), facts=FULL)
    there = live(before.objects.values(), before.ledgers, {"ttl": from_json("ttl", "1h")})
    [update] = difference(wanted(topology("{J: {}}")), there).changes
    assert isinstance(update, Update)
    [refusal] = _judge(update, there).about.dangers
    assert "ttl 9h → 1h" in refusal.detail


# --- K405


def test_growing_partitions_under_an_ordered_subscription_is_a_warning() -> None:
    start = applied(wanted(topology("{J: {subscriptions: {s: {type: key_shared}}}}")))
    side = wanted(topology("{J: {partitions: 4, subscriptions: {s: {type: key_shared}}}}"))
    changes = difference(side, start).changes
    judged = DangerRules(side.ordered, start, {}, frozenset(), NOW).judge(changes)
    found = {change.address: change.about.dangers for change in judged if change.about.dangers}
    [warning] = found["topic.persistent://acme/ns/J"]
    assert set(found) == {"topic.persistent://acme/ns/J"}  # state topics keep no order
    assert (warning.code, warning.severity) == ("K405", Severity.WARNING)
    assert "1 → 4" in warning.detail


# --- which figures are asked for


def test_evidence_is_asked_for_only_where_something_is_at_stake() -> None:
    side = wanted(topology("{J: {}, K: {}, L: {subscriptions: {s: {}}}}"))
    busy = {"J": TopicFacts(storage_bytes=1), "K": TopicFacts()}
    start = changed(
        applied(side), *(LiveObject(TopicResource(TopicName(HERE, n), 1, {}), "trade", f) for n, f in busy.items())
    )
    gone = Desired((), None, {}, destroyed=side.names)
    assert list(evidence_wanted(difference(gone, start).changes, start)) == ["topic.persistent://acme/ns/J"]


def test_a_lowered_namespace_asks_for_the_topics_that_inherit() -> None:
    topics = "{J: {}, L: {policies: {ttl: 9h}}}"
    start = applied(wanted(topology(topics, "namespace_policies: {ttl: 9h}\n")), facts=FULL)
    end = wanted(topology(topics, "namespace_policies: {ttl: 1h}\n"))
    assert list(evidence_wanted(difference(end, start).changes, start)) == ["topic.persistent://acme/ns/J"]


def test_a_changed_retention_asks_for_its_topic_and_a_changed_limit_does_not() -> None:
    start = applied(wanted(topology(f"{{J: {{policies: {KEPT}}}}}")), facts=FULL)
    kept = difference(wanted(topology("{J: {}}")), start).changes
    assert list(evidence_wanted(kept, start)) == ["topic.persistent://acme/ns/J"]
    limit = difference(wanted(topology(f"{{J: {{policies: {KEPT[:-1]}, max_producers: 3}}}}}}")), start).changes
    assert isinstance(limit[0], Update)
    assert not list(evidence_wanted(limit, start))


@pytest.mark.parametrize("resource", [NamespaceResource(HERE, {}), SubscriptionResource(TopicName(HERE, "gone"), "s")])
def test_what_holds_nothing_asks_for_nothing(resource: Any) -> None:
    assert not list(
        evidence_wanted([Delete(resource, ChangeContext("trade"))], live([LiveObject(NamespaceResource(HERE, {}))], {}))
    )


def test_a_change_that_keeps_less_of_nothing_and_a_subscription_with_a_backlog() -> None:
    start = applied(wanted(topology(f"{{J: {{policies: {KEPT}}}}}")), facts=TopicFacts())
    assert not list(evidence_wanted(difference(wanted(topology("{J: {}}")), start).changes, start))
    there = live([LiveObject(SUB, "trade", SubscriptionFacts(backlog_entries=1))], {})
    assert list(evidence_wanted([Delete(SUB, ChangeContext("trade"))], there)) == [SUB.address]


# --- K409

BANK, BOTH = NamespaceName("bank", "payments"), frozenset({"consume", "produce"})
PAYER = GrantResource(BANK, "payer", BOTH)


def _grant_change(left: frozenset[str]) -> Delete | Update:
    if not left:
        return Delete(PAYER, ChangeContext("trade"))
    fields = (FieldChange("actions", BOTH, left),)
    return Update(PAYER, GrantResource(BANK, "payer", left), fields, ChangeContext("trade"))


@pytest.mark.parametrize("left", [frozenset(), frozenset({"consume"})])
@pytest.mark.parametrize("allowed", [False, True])
def test_a_ledger_does_not_take_away_rights_of_another_tenant_by_itself(left: frozenset[str], allowed: bool) -> None:
    """Whoever may write the properties of one namespace steered the role that applies."""
    mine = Ledger("trade", HERE, grants={PAYER.address: BOTH})
    there = live([LiveObject(PAYER)], {HERE: {"trade": mine}})
    dangers = _judge(_grant_change(left), there, allowed=allowed).about.dangers
    [found] = [danger for danger in dangers if danger.code == "K409"]
    assert found.severity is (Severity.WARNING if allowed else Severity.ERROR)
    assert "the ledger that says it was given is that of acme/ns" in found.detail


def test_the_tenants_own_ledger_may_and_to_give_more_takes_nothing_away() -> None:
    theirs = Ledger("pay", NamespaceName("bank", "other"), grants={PAYER.address: BOTH})
    there = live([LiveObject(PAYER)], {theirs.namespace: {"pay": theirs}})
    assert {danger.code for danger in _judge(_grant_change(frozenset()), there).about.dangers} == {"K404"}
    more = frozenset({*BOTH, "functions"})
    fields = (FieldChange("actions", BOTH, more),)
    wider = Update(PAYER, GrantResource(BANK, "payer", more), fields, ChangeContext("trade"))
    assert {danger.code for danger in _judge(wider, live([LiveObject(PAYER)], {})).about.dangers} == {"K404"}
