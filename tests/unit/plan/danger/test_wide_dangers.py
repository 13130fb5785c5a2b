"""K403, K404, K406 and K408: what a plan does to many objects, to roles, to copies and to lanes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kodoctl.errors import Diagnostic, Remedy, Severity
from kodoctl.plan.inventory import Desired
from kodoctl.plan.plan import Plan
from kodoctl.pulsar.values.live_objects import Live, LiveObject, SubscriptionFacts, TopicFacts
from kodoctl.topology.model.policies import from_json
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import GrantResource, TopicResource
from tests.samples.inventories import HERE, applied, changed, live, planned, topology, wanted

KIB = 1 << 10
TOPICS = "persistent://acme/ns"


def _found(plan: Plan, code: str) -> dict[str, Diagnostic]:
    """Address -> its danger of one code."""
    return {change.address: d for change in plan.changes for d in change.about.dangers if d.code == code}


def _with_facts(side: Live, facts: Mapping[str, Any]) -> Live:
    """The live side with figures for some addresses."""
    return changed(side, *(replace(side.objects[address], facts=known) for address, known in facts.items()))


# --- K403


def _grounds(number: int, first: int = 0) -> str:
    """Each ground is six objects: itself, RETRYING and DLQ, with a subscription on each."""
    bodies = (f"g{n}: {{subscriptions: {{s: {{states: [retrying]}}}}}}" for n in range(first, number))
    return f"{{{', '.join(bodies)}}}"


def _share(before: int, after: int, **allowed: Any) -> tuple[Diagnostic, ...]:
    plan = planned(wanted(topology(_grounds(before, after))), applied(wanted(topology(_grounds(before)))), **allowed)
    return tuple(finding for finding in plan.findings if finding.code == "K403")


def test_more_than_a_fifth_at_once_is_refused_with_the_flag_that_allows_it() -> None:
    [refusal] = _share(5, 2)
    assert refusal.severity is Severity.ERROR
    assert "12 of 30 owned topics and subscriptions (40%)" in refusal.detail
    assert refusal.detail.endswith("if that is meant: --allow-share=0.4")
    assert refusal.remedy == Remedy("--allow-share", "0.4")


def test_the_share_in_the_flag_is_never_below_the_plans() -> None:
    [refusal] = _share(3, 2)
    assert "12 of 18" in refusal.detail
    assert refusal.detail.endswith("--allow-share=0.67")
    side, there = wanted(topology(_grounds(3, 2))), applied(wanted(topology(_grounds(3))))
    allowing = [_allowing(side, there, share) for share in (0.66, 0.67)]
    assert [finding.severity for finding in allowing] == [Severity.ERROR, Severity.WARNING]
    assert "allowed up to 67%" in allowing[1].detail


def _allowing(side: Desired, there: Live, share: float) -> Diagnostic:
    from kodoctl.plan.diff import Allowances, diff
    from kodoctl.plan.plan import make_plan

    allowances = Allowances(share=share)
    plan = make_plan(side, there, diff(side, there), evidence={}, allowances=allowances, now=0)
    [finding] = [finding for finding in plan.findings if finding.code == "K403"]
    return finding


@pytest.mark.parametrize(("before", "after"), [(2, 1), (10, 2), (60, 3)])
def test_few_objects_or_a_small_share_are_not_asked_about(before: int, after: int) -> None:
    assert not _share(before, after)


def test_a_destroy_is_not_asked_about_its_share() -> None:
    side = wanted(topology(_grounds(5)))
    gone = Desired((), None, {}, destroyed=side.names)
    assert not [finding for finding in planned(gone, applied(side)).findings if finding.code == "K403"]


def test_objects_that_lose_copies_count_towards_the_share() -> None:
    three, two = (f"{{persistence: {{ensemble: {number}, write_quorum: 2, ack_quorum: 2}}}}" for number in (3, 2))
    body = "{{{}}}".format(", ".join(f"g{n}: {{}}" for n in range(12)))
    start = applied(wanted(topology(body, f"defaults: {{policies: {three}}}\n")))
    plan = planned(wanted(topology(body, f"defaults: {{policies: {two}}}\n")), start)
    [refusal] = [finding for finding in plan.findings if finding.code == "K403"]
    assert "12 of 12" in refusal.detail


def test_a_lowered_value_of_a_namespace_counts_for_all_topics_that_it_weakens() -> None:
    body = "{{{}}}".format(", ".join(f"g{n}: {{}}" for n in range(12)))
    three, two = (f"{{persistence: {{ensemble: {number}, write_quorum: 2, ack_quorum: 2}}}}" for number in (3, 2))
    start = applied(wanted(topology(body, f"namespace_policies: {three}\n")))
    plan = planned(wanted(topology(body, f"namespace_policies: {two}\n")), start)
    [refusal] = [finding for finding in plan.findings if finding.code == "K403"]
    assert "12 of 12" in refusal.detail


# --- K404


def _roles(before: str, after: str, *roles: tuple[str, int]) -> dict[str, Diagnostic]:
    start = applied(wanted(topology(f"{{J: {before}}}")), facts=TopicFacts(roles=roles))
    return _found(planned(wanted(topology(f"{{J: {after}}}")), start), "K404")


def test_a_revoked_grant_names_the_consumers_that_are_connected_with_it() -> None:
    told = _roles(
        "{subscriptions: {s: {workers: [ann], states: []}}}", "{subscriptions: {s: {states: []}}}", ("ann", 2)
    )
    revoked = told[f"grant.{TOPICS}/J/ann"]
    assert revoked.severity is Severity.WARNING
    assert "ann loses consume, produce; connected with that role: 2 consumers of J;" in revoked.detail
    assert "its producers, if any, are not known" in revoked.detail


def test_a_widened_and_a_narrowed_grant_say_what_changes() -> None:
    one, both = "{producers: [ann], subscriptions: {s: {}}}", "{producers: [ann], subscriptions: {s: {workers: [ann]}}}"
    assert (
        "ann gets consume; no consumer is connected with that role" in _roles(one, both)[f"grant.{TOPICS}/J/ann"].detail
    )
    assert "ann loses consume; connected with that role: 1 consumer of J;" in _roles(both, one, ("ann", 1))[f"grant.{TOPICS}/J/ann"].detail  # fmt: skip


def test_a_grant_on_a_namespace_counts_the_consumers_of_all_its_topics() -> None:
    body = "{{{}}}".format(", ".join(f"t{n}: {{}}" for n in range(5)))
    start = applied(
        wanted(topology(body, "namespace_grants: {ann: [consume]}\n")), facts=TopicFacts(roles=(("ann", 1), ("ben", 2)))
    )
    told = _found(planned(wanted(topology(body)), start), "K404")["grant.acme/ns/ann"]
    assert "1 consumer of t0, 1 consumer of t1, 1 consumer of t2 and of 2 more topics" in told.detail


def test_a_new_grant_takes_nothing_from_anybody() -> None:
    assert not _roles("{}", "{producers: [ann]}")


# --- K406


def _weakened(before: str, after: str, broker: dict[str, Any] | None = None) -> dict[str, Diagnostic]:
    start = applied(wanted(topology(f"{{J: {before}}}")))
    defaults = {name: from_json(name, value) for name, value in (broker or {}).items()}
    there = live(start.objects.values(), start.ledgers, defaults)
    return _found(planned(wanted(topology(f"{{J: {after}}}")), there), "K406")


def _copies(ensemble: int, write: int, ack: int) -> str:
    return f"{{policies: {{persistence: {{ensemble: {ensemble}, write_quorum: {write}, ack_quorum: {ack}}}}}}}"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (_copies(3, 3, 2), _copies(3, 2, 2), "write quorum 3 → 2;"),
        (_copies(5, 3, 2), _copies(3, 2, 1), "ensemble 5 → 3, write quorum 3 → 2, ack quorum 2 → 1;"),
        (_copies(3, 3, 2), "{}", "to the broker's own, which it does not tell"),
        ("{replication: [east, west]}", "{replication: [east]}", "replication: west no longer gets new messages"),
        (_copies(3, 2, 2), _copies(3, 3, 2), ""),
        ("{}", _copies(2, 2, 1), ""),
    ],
)
def test_fewer_copies_are_told(before: str, after: str, said: str) -> None:
    told = _weakened(before, after)
    assert [said in finding.detail for finding in told.values()] == ([True] if said else [])
    assert all(finding.severity is Severity.WARNING for finding in told.values())


def test_the_brokers_own_numbers_count_where_nothing_is_said() -> None:
    default = {"persistence": {"ensemble": 2, "write_quorum": 2, "ack_quorum": 2}}
    assert "ack quorum 2 → 1" in _weakened("{}", _copies(2, 2, 1), default)[f"topic.{TOPICS}/J"].detail


# --- K408


def _dropped(before: str, after: str, waiting: str, **allowed: Any) -> Plan:
    address = f"topic.{TOPICS}/{waiting}"
    start = _with_facts(applied(wanted(topology(f"{{J: {before}}}"))), {address: TopicFacts(backlog_bytes=2 * KIB)})
    return planned(wanted(topology(f"{{J: {after}}}")), start, **allowed)


S = "{subscriptions: {s: {states: [retrying]}}}"


@pytest.mark.parametrize(
    ("before", "after", "lane", "advice"),
    [
        ("{subscriptions: {s: {states: [retrying, pending]}}}", S, "J-s-PENDING", "`draining: [pending]` under topics.J.subscriptions.s"),
        ("{levels: double, subscriptions: {s: {states: [retrying]}}}", S, "J-L2", "`draining: [L2]` under topics.J,"),
        ("{levels: double, subscriptions: {s: {states: [retrying]}}}", S, "J-L2-s-RETRYING", "`draining: [L2]` under topics.J,"),
        ("{backup: true, subscriptions: {s: {states: [retrying]}}}", S, "J-B1", "`draining: [B1]` under topics.J,"),
    ],
)  # fmt: skip
def test_a_lane_with_messages_is_drained_first(before: str, after: str, lane: str, advice: str) -> None:
    address = f"topic.{TOPICS}/{lane}"
    refused = _found(_dropped(before, after, lane), "K408")
    assert set(refused) == {address}
    assert refused[address].severity is Severity.ERROR
    assert advice in refused[address].detail
    assert "messages wait in it (2KiB)" in refused[address].detail
    assert f"--allow-destroy {address}" in refused[address].detail
    allowed = _found(_dropped(before, after, lane, destroy=[address]), "K408")
    assert allowed[address].severity is Severity.WARNING


def test_an_empty_lane_goes_and_one_of_a_removed_subscription_is_no_lane_any_more() -> None:
    start = applied(wanted(topology(f"{{J: {S}}}")), facts=TopicFacts())
    assert not _found(planned(wanted(topology("{J: {subscriptions: {s: {states: []}}}}")), start), "K408")
    assert not _found(_dropped(S, "{}", "J-s-RETRYING"), "K408")


def _renamed(start: str, stored: int, unread: int) -> list[Diagnostic]:
    plain = "{J: {subscriptions: {%s: {states: [], dead_letter: false, start: %s}}}}"
    there = _with_facts(
        applied(wanted(topology(plain % ("old", start)))),
        {
            f"topic.{TOPICS}/J": TopicFacts(storage_bytes=stored),
            f"subscription.{TOPICS}/J/old": SubscriptionFacts(backlog_entries=unread, backlog_bytes=unread * KIB),
        },
    )
    return list(_found(planned(wanted(topology(plain % ("new", start))), there), "K408").values())


@pytest.mark.parametrize(
    ("start", "stored", "unread", "said"),
    [
        ("latest", 9 * KIB, 3, "3 entries (3KiB) that old has not read would be skipped"),
        ("earliest", 9 * KIB, 3, "up to 6KiB that old has read would be delivered again; 3 entries (3KiB) that old has not read come to it"),
        ("earliest", 9 * KIB, 0, "up to 9KiB that old has read would be delivered again"),
        ("earliest", KIB, 1, "1 entry (1KiB) that old has not read come to it"),
    ],
)  # fmt: skip
def test_a_renamed_subscription_says_what_comes_again_or_never(start: str, stored: int, unread: int, said: str) -> None:
    [told] = _renamed(start, stored, unread)
    assert told.severity is Severity.WARNING
    assert told.detail.endswith(f"it takes the place of old: {said}")


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_a_renamed_subscription_of_an_empty_topic_is_nothing_to_tell(start: str) -> None:
    assert not _renamed(start, 0, 0)


def test_figures_that_are_not_known_are_no_reason_to_tell() -> None:
    plain = "{J: {subscriptions: {%s: {states: [], dead_letter: false}}}}"
    assert not _found(planned(wanted(topology(plain % "new")), applied(wanted(topology(plain % "old")))), "K408")


def test_objects_of_another_kind_are_no_consumers() -> None:
    """A role with a grant, a topic without figures."""
    grant = GrantResource(TopicName(HERE, "J"), "ann", frozenset({"produce"}))
    start = changed(
        applied(wanted(topology("{J: {producers: [ann]}}"))),
        LiveObject(TopicResource(TopicName(HERE, "J"), 1, {}), "trade"),
    )
    told = _found(planned(wanted(topology("{J: {}}")), start), "K404")
    assert "its clients, if any, are not known" in told[grant.address].detail
