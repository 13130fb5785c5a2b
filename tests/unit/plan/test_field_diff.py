"""Field by field: what counts as different, what cannot be done, what only looks different."""

from __future__ import annotations

from typing import Any

import pytest

from kodoctl.plan.changes import PolicyChange, Update
from kodoctl.plan.field_diff import normalize
from kodoctl.plan.plan import desired_digest
from kodoctl.pulsar.values.live_objects import LiveObject
from kodoctl.topology.model.policies import AutoTopicCreation, Foreign, Retention, from_json
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import NamespaceResource, SchemaResource, SubscriptionResource, TopicResource
from kodoctl.topology.units import Duration, Size
from tests.samples.inventories import HERE, applied, changed, difference, live, planned, said, topology, wanted

J = TopicName(HERE, "J")


def _fields(text: str, found: LiveObject, **options: Any) -> list[tuple[str, Any, Any]]:
    """Fields of the one update that this object on the cluster would get."""
    there = changed(applied(wanted(text)), found)
    updates = [c for c in difference(wanted(text), there, **options).changes if isinstance(c, Update)]
    return [(field.name, field.before, field.after) for update in updates for field in update.fields]


def test_a_topic_is_owned_whole_and_what_the_file_does_not_say_is_unset() -> None:
    found = LiveObject(TopicResource(J, 1, {"ttl": Duration(1000), "max_producers": 3}), "trade")
    text = topology("{J: {policies: {ttl: 2s}}}")
    assert _fields(text, found) == [
        ("policies.ttl", Duration(1000), Duration(2000)),
        ("policies.max_producers", 3, None),
    ]


def test_an_ignored_policy_is_neither_shown_nor_touched() -> None:
    found = LiveObject(TopicResource(J, 1, {"ttl": Duration(1000)}), "trade")
    assert _fields(topology("{J: {ignore: [ttl]}}"), found) == []


def test_replication_is_managed_only_where_it_is_named_and_knows_no_order() -> None:
    found = LiveObject(TopicResource(J, 1, {"replication": ("east", "west")}), "trade")
    assert _fields(topology("{J: {}}"), found) == []
    assert _fields(topology("{J: {replication: [west, east]}}"), found) == []
    assert [name for name, *_ in _fields(topology("{J: {replication: [east]}}"), found)] == ["policies.replication"]


def test_replication_that_is_named_as_inherited_is_unset_and_a_later_value_counts_again() -> None:
    """A default has it, or an earlier apply set it: `inherit` names the policy, and is not the same as no line."""
    found = LiveObject(TopicResource(J, 1, {"replication": ("east", "west")}), "trade")
    gone = [("policies.replication", ("east", "west"), None)]
    head = "defaults: {policies: {replication: [east, west]}}\n"
    assert _fields(topology("{J: {policies: {replication: inherit}}}", head), found) == gone
    assert _fields(topology("{J: {policies: {replication: inherit}}}"), found) == gone
    off = "defaults: {policies: {replication: inherit}}\n"
    assert _fields(topology("{J: {}}", off), found) == gone
    assert _fields(topology("{J: {replication: [east, west]}}", off), found) == []
    assert _fields(topology("{J: {policies: {replication: inherit}, ignore: [replication]}}"), found) == []
    assert desired_digest(wanted(topology("{J: {}}", off))) != desired_digest(wanted(topology("{J: {}}")))


def test_a_value_the_format_cannot_say_differs_from_everything() -> None:
    found = LiveObject(TopicResource(J, 1, {"dispatch_rate": Foreign("{}")}), "trade")
    assert _fields(topology("{J: {}}"), found) == [("policies.dispatch_rate", Foreign("{}"), None)]


def test_schema_validation_that_is_false_is_as_good_as_unset_because_it_cannot_be_unset() -> None:
    off, on = (LiveObject(TopicResource(J, 1, {"schema_validation": value}), "trade") for value in (False, True))
    assert _fields(topology("{J: {}}"), off) == []
    assert _fields(topology("{J: {}}"), on) == [("policies.schema_validation", True, None)]
    assert _fields(topology("{J: {policies: {schema_validation: false}}}"), off) == []


def test_an_effective_value_is_told_with_the_level_it_comes_from() -> None:
    before = applied(wanted(topology("{J: {policies: {ttl: 1h}}}", "namespace_policies: {ttl: 2h}\n")))
    [update] = difference(wanted(topology("{J: {}}", "namespace_policies: {ttl: 3h}\n")), before).changes[1:]
    assert isinstance(update, Update)
    [field] = update.fields
    assert isinstance(field, PolicyChange)
    assert (field.effective_before, field.effective_after) is not None
    assert field.effective_after is not None
    assert (str(field.effective_after.value), field.effective_after.source) == ("3h", "namespace")


def test_a_topic_level_delayed_delivery_is_always_removed_and_needs_an_unload() -> None:
    there = changed(applied(wanted(topology())), LiveObject(TopicResource(J, 1, {}), "trade", stalls_delivery=True))
    [update] = difference(wanted(topology()), there).changes
    assert isinstance(update, Update)
    assert update.unload
    assert update.fields[0].name == "delayed_delivery"


def test_a_subscription_that_some_partitions_lack_is_put_again() -> None:
    half = LiveObject(SubscriptionResource(J, "s", missing_on=(1, 2)), "trade")
    assert _fields(topology(), half) == [("missing_on", (1, 2), ())]


def test_a_plain_topic_that_is_there_as_declared_changes_nothing() -> None:
    assert _fields(topology("{J: {partitioned: false}}"), LiveObject(TopicResource(J, 0, {}), "trade")) == []


def test_partitions_grow_and_lost_ones_are_made_anew() -> None:
    text = topology("{J: {partitions: 4}}")
    assert _fields(text, LiveObject(TopicResource(J, 2, {}), "trade")) == [("partitions", 2, 4)]
    assert _fields(text, LiveObject(TopicResource(J, 4, {}, (3,)), "trade")) == [("missing_partitions", (3,), ())]


@pytest.mark.parametrize(
    ("declared", "live_partitions", "code", "said"),
    [
        ("partitions: 4", 8, "K411", "partitions never shrink. Write 8"),
        ("partitions: 4", 0, "K412", "is a plain topic and cannot become partitioned. Write `partitioned: false`, or move to a new topic:"),
        ("partitioned: false", 1, "K437", "has 1 partition and cannot become a plain topic. Leave `partitioned` out, or move to a new topic:"),
    ],
)  # fmt: skip
def test_what_pulsar_cannot_do_is_refused_with_the_way_to_do_it_by_hand(
    declared: str, live_partitions: int, code: str, said: str
) -> None:
    text = topology(f"{{J: {{{declared}}}}}")
    there = changed(applied(wanted(text)), LiveObject(TopicResource(J, live_partitions, {}), "trade"))
    found = difference(wanted(text), there)
    [refusal] = found.conflicts
    assert refusal.code == code
    assert said in refusal.detail
    assert not found.changes


def test_the_steps_to_the_other_kind_are_listed_once() -> None:
    text = topology("{J: {}, K: {}}")
    both = [LiveObject(TopicResource(TopicName(HERE, local), 0, {}), "trade") for local in ("J", "K")]
    details = [one.detail for one in difference(wanted(text), changed(applied(wanted(text)), *both)).conflicts]
    assert ["1. declare" in detail for detail in details] == [True, False]


def test_a_new_version_of_a_payload_schema_is_an_update_and_one_without_owner_stays() -> None:
    side = wanted(topology())
    old, new = (SchemaResource(J, "AVRO", text) for text in ('"int"', '"long"'))
    from dataclasses import replace

    from kodoctl.plan.inventory import DesiredObject

    side = replace(side, objects={**side.objects, new.address: DesiredObject(new, "trade")})
    there = changed(applied(wanted(topology())), LiveObject(old))
    assert ("update", "schema.J") in said(difference(side, there).changes)
    assert ("update", "schema.J") not in said(difference(side, changed(there, LiveObject(new))).changes)
    assert not difference(wanted(topology()), there).changes  # removing `payload` leaves the schema


# --- namespaces


def _namespace_fields(policies: str, live_policies: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    text = topology(head=f"namespace_policies: {policies}\n")
    return _fields(text, LiveObject(NamespaceResource(HERE, live_policies)), adopt=["namespace.acme/ns"])


def test_on_a_namespace_only_the_keys_of_the_file_are_managed() -> None:
    assert _namespace_fields("{ttl: 1h}", {"ttl": Duration(3_600_000), "max_topics": 3}) == []
    assert _namespace_fields("{ttl: inherit}", {"ttl": Duration(1000), "max_topics": 3}) == [
        ("policies.ttl", Duration(1000), None)
    ]


@pytest.mark.parametrize(
    ("policies", "there"),
    [
        ("{schema_validation: inherit}", {"schema_validation": False}),
        ("{encryption_required: inherit}", {"encryption_required": False}),
        ("{allow_auto_update_schema: inherit}", {"allow_auto_update_schema": True}),
        ("{auto_topic_creation: {type: partitioned}}", {"auto_topic_creation": AutoTopicCreation(type="partitioned", partitions=1)}),
        ("{auto_topic_creation: {type: non-partitioned, partitions: 4}}", {"auto_topic_creation": True}),
    ],
)  # fmt: skip
def test_values_that_pulsar_answers_otherwise_and_mean_the_same_are_no_difference(
    policies: str, there: dict[str, Any]
) -> None:
    assert _namespace_fields(policies, there) == []


def test_a_policy_that_this_broker_does_not_have_is_left_out() -> None:
    from dataclasses import replace

    old_broker = replace(live([], {}), unsupported=frozenset({"subscription_expiry"}))
    side = wanted(topology())
    creates = {c.address: c for c in difference(side, old_broker).changes}
    letters = creates["topic.persistent://acme/ns/J-s-DLQ"]
    assert "subscription_expiry" not in letters.after.policies  # type: ignore[union-attr]
    assert "ttl" in letters.after.policies  # type: ignore[union-attr]
    there = applied(side)
    stripped = [
        LiveObject(TopicResource(r.name, r.partitions, {k: v for k, v in r.policies.items() if k != "subscription_expiry"}), "trade")
        for r in (f.resource for f in there.objects.values())
        if isinstance(r, TopicResource)
    ]  # fmt: skip
    assert not difference(side, replace(changed(there, *stripped), unsupported=old_broker.unsupported)).changes


def test_a_policy_that_this_broker_does_not_have_is_told_where_something_else_counts() -> None:
    from dataclasses import replace

    old_broker = replace(live([], {}), unsupported=frozenset({"subscription_expiry"}))
    expiring = topology("{J: {subscriptions: {s: {}, t: {}}}}", "namespace_policies: {subscription_expiry: 30d}\n")
    [told] = difference(wanted(expiring), old_broker).conflicts
    assert (told.code, told.severity.value) == ("K421", "warning")
    assert told.detail.startswith(
        "subscription_expiry of topic.persistent://acme/ns/J-s-DLQ and 1 more is not written: "
    )
    assert "what counts there is 30d (namespace)" in told.detail
    [one] = difference(wanted(expiring.replace(", t: {}", "")), old_broker).conflicts
    assert "J-s-DLQ is not written" in one.detail
    assert not difference(wanted(topology()), old_broker).conflicts  # nothing expires there anyway


def test_brokers_defaults_are_shown_where_nothing_else_says_anything() -> None:
    keep = from_json("retention", {"time": "1h", "size": "1GiB"})
    there = applied(wanted(topology("{J: {policies: {retention: {time: 2h, size: 2GiB}}}}")))
    known = live(there.objects.values(), there.ledgers, {"retention": keep})
    for side, source in ((there, "broker default"), (known, "broker")):
        [update] = difference(wanted(topology("{J: {}}")), side).changes
        assert isinstance(update, Update)
        assert isinstance(update.fields[0], PolicyChange)
        assert update.fields[0].effective_after is not None
        assert update.fields[0].effective_after.source == source


def test_a_namespace_whose_tenant_is_missing_is_refused_unless_the_file_makes_it() -> None:
    from dataclasses import replace

    nowhere = replace(live([], {}), absent_tenants=frozenset({"acme"}))
    [finding] = planned(wanted(topology()), nowhere).findings
    assert finding.code == "K413"
    assert "create_tenant: {clusters: [standalone]}" in finding.detail
    assert not planned(wanted(topology(head="create_tenant: {clusters: [standalone]}\n")), nowhere).findings


def test_zero_retention_differs_from_an_unset_one() -> None:
    zero = Retention(time=Duration(0), size=Size(0))
    assert _fields(topology("{J: {}}"), LiveObject(TopicResource(J, 1, {"retention": zero}), "trade")) == [
        ("policies.retention", zero, None)
    ]


def test_values_with_the_same_meaning_are_equal_however_they_are_written() -> None:
    def form(name: str, value: Any) -> Any:
        return normalize(from_json(name, value))

    both = {"size": "1GiB", "time": "1d", "when_full": "evict"}
    assert form("backlog_quota", {**both, "when_old": "evict"}) == form("backlog_quota", both)
    assert form("backlog_quota", {**both, "when_old": "hold_producers"}) != form("backlog_quota", both)
    by_age = form("backlog_quota", {"time": "1d", "when_full": "evict", "when_old": "fail_producers"})
    assert by_age == form("backlog_quota", {"time": "1d", "when_full": "fail_producers"})
    threads, rounds = "managedLedgerOffloadMaxThreads", "managedLedgerOffloadPrefetchRounds"
    offload = form("offload", {"driver": "aws-s3", "settings": {threads: 2, rounds: "3"}})
    assert offload == form("offload", {"driver": "aws-s3", "settings": {rounds: 3}}), "2 threads are Pulsar's default"
    assert form("offload", {"driver": "aws-s3", "settings": {threads: "2"}}) == form("offload", {"driver": "aws-s3"})
    assert form("subscription_roles", {"s": ["a", "b"]}) == form("subscription_roles", {"s": ["b", "a"]})


def test_the_number_of_bundles_is_no_change_of_a_namespace_that_is_there() -> None:
    side = wanted(topology("{J: {}}", "namespace_policies: {bundles: 8}\n"))
    other = changed(live([], {}), LiveObject(NamespaceResource(HERE, {})))
    assert not [one for one in difference(side, other).changes if isinstance(one, Update)]
