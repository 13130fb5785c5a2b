"""Import: a live namespace as a file. The law: what it writes lints, and plans to Adopt only, but for holders of dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kodoctl.errors import KodoctlError, has_errors
from kodoctl.plan.changes import Adopt, Create
from kodoctl.plan.diff import diff
from kodoctl.plan.importing.import_planner import Import, _java_retries, import_namespace
from kodoctl.plan.inventory import desired_inventory
from kodoctl.pulsar.values.live_objects import Live, LiveObject
from kodoctl.topology.lint.linter import check_set, lint
from kodoctl.topology.load import source_of
from kodoctl.topology.model.policies import TOPIC_POLICY_NAMES, Foreign, from_json
from kodoctl.topology.names import HOLDER, TopicName
from kodoctl.topology.resources import (
    GrantResource,
    NamespaceResource,
    SchemaResource,
    SubscriptionResource,
    TopicResource,
)
from tests.samples.inventories import (
    HERE,
    applied,
    changed,
    live,
    policy_values,
    said,
    topology,
    topology_texts,
    wanted,
)
from tests.samples.profiles import examples


def _by_hand(
    topics: Mapping[str, tuple[int, set[str]]],
    policies: Mapping[str, Mapping[str, Any]] | None = None,
    **namespace: Any,
) -> Live:
    """A namespace that people made: topic -> (partitions, subscriptions)."""
    found = [LiveObject(NamespaceResource(HERE, namespace))]
    for local, (partitions, subscriptions) in topics.items():
        name = TopicName(HERE, local)
        values = {key: from_json(key, value) for key, value in (policies or {}).get(local, {}).items()}
        values.setdefault("schema_validation", False)  # as the reader shows it, unless the namespace validates
        found.append(LiveObject(TopicResource(name, partitions, values)))
        found += [LiveObject(SubscriptionResource(name, sub)) for sub in sorted(subscriptions)]
    return live(found, {})


def _imported(there: Live) -> tuple[Import, set[tuple[str, str]]]:
    """The import, and what planning its file would do; asserts that the file lints."""
    found = import_namespace(there, HERE, "trade")
    files = [source_of(found.text.encode(), "trade.yaml")]
    report = lint(files)
    assert not report.failed, (report.findings, found.text)
    expansions, findings = check_set(files, None)
    assert not has_errors(findings)
    difference = diff(desired_inventory(expansions, None), there)
    assert not difference.conflicts, difference.conflicts
    return found, said(difference.changes)


def _only_adopts(changes: set[tuple[str, str]]) -> bool:
    return all(verb == "adopt" or (verb == "create" and address.endswith(f"/{HOLDER}")) for verb, address in changes)


FAMILY = {
    "J": (3, {"s"}),
    "J-s-RETRYING": (3, {"s"}),
    "J-s-PENDING": (3, {"s"}),
    "J-s-BLOCKING": (3, {"s"}),
    "J-s-DLQ": (1, set[str]()),
}


def test_a_family_made_by_hand_is_recognised_and_adopted_whole() -> None:
    found, changes = _imported(_by_hand(FAMILY))
    assert ("create", f"subscription.J-s-DLQ/{HOLDER}") in changes
    assert _only_adopts(changes)
    assert {address for verb, address in changes if verb == "adopt" and address.startswith("topic.")} == {
        f"topic.{t}" for t in FAMILY
    }
    assert found.left_out == ()
    assert found.families == 1
    assert "partitions: 3" in found.text
    assert "schema_validation" not in found.text


@pytest.mark.parametrize(
    ("topics", "written"),
    [
        ({"J": (1, {"s"})}, ["states: []", "dead_letter: false"]),
        ({"J": (1, {"s"}), "J-s-RETRYING": (1, {"s"}), "J-s-DLQ": (1, {HOLDER})}, ["states: [retrying]"]),
        ({"J": (1, {"s"}), "J-B1": (1, {"s"})}, ["backup: true"]),
        ({"J": (1, {"s"}), "J-L2": (1, {"s"})}, ["levels: double"]),
        ({"J": (1, {"s"}), "J-S1": (1, {"s"}), "J-L2": (1, {"s"})}, ["levels: [L1, S1, L2]"]),
        ({"J": (1, {"s"}), "J-s-AUDIT": (1, set())}, ["audit:"]),
        ({"J": (1, {"s"}), "J-s-DLQ": (3, {HOLDER})}, ["dead_letter:", "partitions: 3"]),
        ({"J": (1, set())}, ["J: {}"]),
    ],
)
def test_shapes_are_written_as_people_write_them(topics: dict[str, tuple[int, set[str]]], written: list[str]) -> None:
    found, changes = _imported(_by_hand(topics))
    for words in written:
        assert words in found.text, found.text
    assert _only_adopts(changes)
    assert not found.left_out


def test_values_that_are_not_live_are_written_as_inherit() -> None:
    found, changes = _imported(_by_hand(FAMILY))
    for policy in ("ttl", "subscription_expiry", "inactive_topic", "backlog_quota"):
        assert f"{policy}: inherit" in found.text  # of the dead letters, where expand would set it
    assert "deduplication: inherit" in found.text
    assert _only_adopts(changes)


def test_findings_that_are_live_already_are_allowed_with_the_reason() -> None:
    there = _by_hand({"J": (1, {"s"}), "J-s-DLQ": (1, {HOLDER})}, {"J-s-DLQ": {"ttl": "1d"}})
    found, changes = _imported(there)
    assert "# kodoctl: allow K201 because found by import" in found.text
    assert _only_adopts(changes)


def test_namespace_policies_and_grants_are_written_but_not_what_every_namespace_answers() -> None:
    there = _by_hand(
        {"J": (1, set())}, ttl=from_json("ttl", "3d"), encryption_required=False, replication=("standalone",)
    )
    there = changed(there, LiveObject(GrantResource(HERE, "anna", frozenset({"produce", "consume"}))))
    found, changes = _imported(there)
    assert "ttl: 3d" in found.text
    assert "anna: [consume, produce]" in found.text
    assert "encryption_required" not in found.text
    assert "replication" not in found.text
    assert ("adopt", "grant.acme/ns/anna") in changes


def test_odd_names_are_listed_and_left_alone() -> None:
    there = _by_hand(
        {"J": (1, {"s"}), "a-partition-0": (0, set()), "we ird": (1, set()), "nl\nx": (1, set()), "x-L2": (1, set())}
    )
    found, changes = _imported(there)
    assert dict(found.left_out).keys() == {
        f"topic.persistent://acme/ns/{n}" for n in ("a-partition-0", "we ird", "nl\nx", "x-L2")
    }
    assert not any("ird" in address for _, address in changes)
    assert "ends in -L2 and does not fit a family" in found.text
    assert "\nx" not in found.text.replace("\\nx", "")  # a name cannot end the comment


def test_plain_topics_and_their_families_are_imported_as_such() -> None:
    plain = {local: (0, subscriptions) for local, (_, subscriptions) in FAMILY.items()}
    found, changes = _imported(_by_hand(plain))
    assert found.left_out == ()
    assert found.text.count("partitioned: false") == 2, "of the family, and of its dead letters"
    assert "partitions:" not in found.text
    assert _only_adopts(changes)


def test_a_plain_dead_letter_topic_of_a_partitioned_family_is_imported_with_it() -> None:
    found, changes = _imported(_by_hand({**FAMILY, "J-s-DLQ": (0, set())}))
    assert found.left_out == ()
    assert _only_adopts(changes)


def test_a_state_topic_of_another_kind_than_its_family_stays_outside() -> None:
    found, _ = _imported(_by_hand({"J": (0, {"s"}), "J-s-RETRYING": (1, {"s"})}))
    assert [name for name, _ in found.left_out if name.startswith("topic.")] == [
        "topic.persistent://acme/ns/J-s-RETRYING"
    ]


def test_no_answer_of_the_cluster_goes_on_as_a_part_of_the_file() -> None:
    there = _by_hand({"J": (1, {"s"}), "K": (1, {"s"})})
    why = "500 of a proxy:\n<html>\ntopics: {J: {}}"
    found, _ = _imported(replace(there, unread={TopicName(HERE, "K"): why}))
    whole, _ = _imported(replace(there, unread={TopicName(HERE, "K"): "500"}))
    assert "<html>" in found.text
    assert len(found.text.splitlines()) == len(whole.text.splitlines())


def test_a_subscription_that_the_family_does_not_explain_is_listed() -> None:
    there = _by_hand({"J": (1, {"s"}), "J-s-RETRYING": (1, {"s", "peek"})})
    found, _ = _imported(there)
    assert "subscription.persistent://acme/ns/J-s-RETRYING/peek" in dict(found.left_out)


def test_a_subscription_whose_name_the_format_refuses_is_listed_and_its_topic_imported() -> None:
    found, changes = _imported(_by_hand({"J": (1, {"s", "kodo-x", "a/b", "y-DLQ", "new\nallow_destroy: [topic.x]"})}))
    assert {n.rpartition("/J/")[2] for n in dict(found.left_out)} == {
        "kodo-x",
        "a/b",
        "y-DLQ",
        "new\nallow_destroy: [topic.x]",
    }
    assert ("adopt", "subscription.J/s") in changes
    assert _only_adopts(changes)


def test_under_a_namespace_that_validates_an_unset_value_is_told_from_false() -> None:
    there = _by_hand(FAMILY, schema_validation=True)
    unset = [LiveObject(TopicResource(TopicName(HERE, local), number, {})) for local, (number, _) in FAMILY.items()]
    found, changes = _imported(changed(there, *unset))
    assert "schema_validation: inherit" in found.text
    assert _only_adopts(changes)


def test_a_member_with_other_partitions_or_without_the_subscription_stays_outside() -> None:
    there = _by_hand({"J": (3, {"s"}), "J-s-RETRYING": (2, {"s"}), "J-s-PENDING": (3, set()), "J-B1": (3, set())})
    found, changes = _imported(there)
    assert {n.rpartition("/ns/")[2] or n for n in dict(found.left_out)} == {
        "J-s-RETRYING", "J-s-RETRYING/s", "J-s-PENDING", "J-B1",
    }  # fmt: skip
    assert changes == {("adopt", "topic.J"), ("adopt", "subscription.J/s")}


@pytest.mark.parametrize(
    ("topics", "local", "reason"),
    [
        ({"K": (1, {"s"})}, "J-s-DLQ", "-DLQ and does not fit a family: no topic, or no subscription of it, has the name"),
        ({"J": (1, {"t"})}, "J-s-DLQ", "-DLQ and does not fit a family: no topic, or no subscription of it, has the name"),
        ({"J": (3, set())}, "J-L2", "-L2 and does not fit a family: it has 1 partition, and J 3 partitions"),
        ({"J": (0, {"s"})}, "J-s-RETRYING", "-RETRYING and does not fit a family: it has 1 partition, and J no partitions"),
        ({"J": (1, {"s"})}, "J-L2", "-L2 and does not fit a family: it lacks a subscription of J, or another level"),
        ({"half": (2, {"s"})}, "half-s-DLQ", "-DLQ and does not fit a family: it is of the family of half, which is not in"),
    ],
)  # fmt: skip
def test_a_member_that_does_not_fit_leaves_with_what_it_lacks(
    topics: dict[str, tuple[int, set[str]]], local: str, reason: str
) -> None:
    there = _by_hand({**topics, local: (1, set())})
    half = LiveObject(TopicResource(TopicName(HERE, "half"), 2, {"schema_validation": False}, (1,)))
    found, _ = _imported(changed(there, half) if "half" in topics else there)
    assert dict(found.left_out)[f"topic.persistent://acme/ns/{local}"].startswith(f"it ends in {reason}")


def test_a_member_whose_policies_its_family_cannot_say_leaves_with_the_reason() -> None:
    topics = {"J": (1, {"s"}), "J-L2": (1, {"s"})}
    found, changes = _imported(_by_hand(topics, {"J-L2": {"ttl": "1h"}}))
    left_out = dict(found.left_out)
    assert left_out.pop("topic.persistent://acme/ns/J-L2").startswith("its ttl differs from what the file can declare")
    assert left_out == {"subscription.persistent://acme/ns/J-L2/s": "its topic is left out"}
    assert changes == {("adopt", "topic.J"), ("adopt", "subscription.J/s")}


def test_a_topic_with_a_value_the_format_cannot_say_leaves_with_the_reason() -> None:
    odd = LiveObject(TopicResource(TopicName(HERE, "odd"), 1, {"dispatch_rate": Foreign('{"x": 1}')}))
    found, _ = _imported(changed(_by_hand({"J": (1, set())}), odd))
    assert dict(found.left_out)["topic.persistent://acme/ns/odd"] == (
        'dispatch_rate: the format cannot express its value {"x": 1}'
    )


def test_what_an_apply_would_change_on_a_topic_is_the_reason() -> None:
    half = LiveObject(TopicResource(TopicName(HERE, "half"), 3, {"schema_validation": False}, (1,)))
    late = LiveObject(TopicResource(TopicName(HERE, "late"), 1, {"schema_validation": False}), stalls_delivery=True)
    found, changes = _imported(changed(_by_hand({"J": (1, set())}), half, late))
    assert changes == {("adopt", "topic.J")}
    left_out = dict(found.left_out)
    assert left_out["topic.persistent://acme/ns/half"] == ("partition 1 of 3 is missing, and an apply would create it")
    assert "a delayed-delivery policy of its own" in left_out["topic.persistent://acme/ns/late"]


def _grant(local: str, role: str, *actions: str) -> LiveObject:
    return LiveObject(GrantResource(TopicName(HERE, local), role, frozenset(actions)))


def test_roles_that_produce_to_every_level_are_producers_and_other_grants_are_listed() -> None:
    topics = {"J": (1, {"s"}), "J-L2": (1, {"s"}), "K": (1, set[str]())}
    grants = [
        _grant("J", "web", "produce"), _grant("J-L2", "web", "produce"), _grant("J", "half", "produce"),
        _grant("K", "reader", "consume"), _grant("a b", "app", "produce"),
    ]  # fmt: skip
    odd = LiveObject(TopicResource(TopicName(HERE, "a b"), 0, {}))
    found, changes = _imported(changed(_by_hand(topics), odd, *grants))
    assert "producers: [web]" in found.text
    assert _only_adopts(changes)
    listed = {name for name in dict(found.left_out) if name.startswith("grant.")}
    assert {name.rpartition("/ns/")[2] for name in listed} == {"J/half", "K/reader", "a b/app"}


def test_schemas_and_odd_subscriptions_are_listed_with_their_reason() -> None:
    topics = {"J": (1, {"s", "shop/front", "jobs-DLQ"}), "J-s-DLQ": (1, {HOLDER, "people"}), "K": (1, set[str]())}
    json_one = LiveObject(SchemaResource(TopicName(HERE, "J"), "AVRO", "JSON: {}"))
    avro_one = LiveObject(SchemaResource(TopicName(HERE, "K"), "AVRO", '{"fields":[],"name":"O","type":"record"}'))
    left_out = dict(_imported(changed(_by_hand(topics), json_one, avro_one))[0].left_out)
    prefix = "subscription.persistent://acme/ns"
    assert left_out[f"{prefix}/J/shop/front"].startswith("its name: ")
    assert left_out[f"{prefix}/J/jobs-DLQ"] == "its name ends in -DLQ, which marks topics of a family"
    assert left_out[f"{prefix}/J-s-DLQ/people"].startswith("it reads a -DLQ topic")
    assert left_out["schema.persistent://acme/ns/J"] == "a schema (JSON); declare it as `payload` of the topic"
    assert left_out["schema.persistent://acme/ns/K"] == "a schema (AVRO); declare it as `payload` of the topic"


def test_many_objects_with_one_reason_are_counted_and_each_is_named() -> None:
    plain = [LiveObject(TopicResource(TopicName(HERE, f"p{number:02}\n"), 0, {})) for number in range(21)]
    found, _ = _imported(changed(_by_hand({"J": (1, set())}), *plain))
    assert "#   21 of topic.persistent://acme/ns/…: its name: it holds '\\n': letters" in found.text
    lines = found.text.splitlines()
    names = " ".join(line.lstrip("# ") for line in lines if line.startswith("#     ")).split()
    assert names == [f"p{number:02}\\n" for number in range(21)]
    assert max(len(line) for line in lines if line.startswith("#     ")) <= 120


def test_what_a_namespace_has_beside_the_format_is_in_the_file_of_that_namespace_alone() -> None:
    there = replace(
        _by_hand({"J": (1, set())}),
        undeclarable={
            "namespace.acme/ns offload_policies": "set to 1; the format has no such setting",
            "topic.non-persistent://acme/ns/x": "a non-persistent topic; the format knows persistent ones",
            "topic.non-persistent://acme/ns2/x": "a non-persistent topic; the format knows persistent ones",
        },
    )
    left_out = dict(_imported(there)[0].left_out)
    assert set(left_out) == {"namespace.acme/ns offload_policies", "topic.non-persistent://acme/ns/x"}


def test_what_somebody_owns_is_not_imported() -> None:
    owned = applied(wanted(topology("{K: {}}", name="other")))
    there = changed(owned, *_by_hand({"J": (1, set())}).objects.values())
    found, changes = _imported(there)
    assert {address for _, address in changes} == {"topic.J"}
    assert "K:" not in found.text
    shared = "namespace_policies: {ttl: 7d}\nnamespace_grants: {web: [consume]}\n"
    there = changed(
        applied(wanted(topology("{}", shared, name="other"))), *_by_hand({"J": (1, set())}).objects.values()
    )
    found, _ = _imported(there)
    assert ("ttl" in found.text, "web" in found.text) == (False, False), "its owner keeps them"


def test_an_empty_namespace_gives_a_file_without_topics() -> None:
    found, changes = _imported(_by_hand({}))
    assert not changes
    assert found.families == 0


def test_a_half_made_subscription_is_adopted_and_healed() -> None:
    there = changed(
        _by_hand({"J": (2, {"s"})}), LiveObject(SubscriptionResource(TopicName(HERE, "J"), "s", missing_on=(1,)))
    )
    _, changes = _imported(there)
    assert changes == {("adopt", "topic.J"), ("adopt", "subscription.J/s"), ("update", "subscription.J/s")}


def test_a_holder_of_dead_letters_that_reads_another_topic_is_listed() -> None:
    found, _ = _imported(_by_hand({"J": (1, {"s", HOLDER}), "J-s-DLQ": (1, {HOLDER})}))
    assert dict(found.left_out) == {
        "subscription.persistent://acme/ns/J/kodo-hold": "its name begins with kodo-, which marks subscriptions of kodoctl"
    }


def test_a_subscription_that_reads_a_topic_of_another_ones_family_is_listed() -> None:
    found, _ = _imported(_by_hand({"J": (1, {"s"}), "J-s-RETRYING": (1, {"s", "t"})}))
    assert dict(found.left_out)["subscription.persistent://acme/ns/J-s-RETRYING/t"] == (
        "it reads a -RETRYING topic; only subscriptions of the family read there"
    )


def test_what_pulsar_does_not_store_is_said_to_be_a_default() -> None:
    found, _ = _imported(_by_hand({"J": (1, {"s"})}))
    assert "Pulsar stores neither subscription types nor delays" in found.text


# --- the law, on anything


_LOCALS = [
    "a",
    "a-L2",
    "a-B1",
    "a-s-RETRYING",
    "a-s-PENDING",
    "a-L2-s-RETRYING",
    "a-s-DLQ",
    "a-t-DLQ",
    "a-s-AUDIT",
    "b",
    "b-D1",
    "c d",
    "-DLQ",
]


@st.composite
def _namespaces(draw: st.DrawFn) -> Live:
    """Names that look like families, policies and subscriptions at random."""
    found = [LiveObject(NamespaceResource(HERE, {}))]
    for local in draw(st.lists(st.sampled_from(_LOCALS), unique=True)):
        name = TopicName(HERE, local)
        chosen = draw(
            st.lists(st.sampled_from(sorted(set(TOPIC_POLICY_NAMES) - {"replication"})), unique=True, max_size=2)
        )
        policies = {policy: draw(policy_values(policy)) for policy in chosen}
        partitions = draw(st.integers(0, 3))
        found.append(LiveObject(TopicResource(name, partitions, policies)))
        for sub in draw(st.lists(st.sampled_from(["s", "t", HOLDER, "kodo-x"]), unique=True)):
            missing = draw(st.sampled_from([(), (0,)])) if partitions > 1 else ()
            found.append(LiveObject(SubscriptionResource(name, sub, missing_on=missing)))
    return live(found, {})


@given(_namespaces())
@examples(60)
def test_importing_any_namespace_and_planning_it_adopts_heals_and_makes_holders_and_nothing_else(there: Live) -> None:
    found = import_namespace(there, HERE, "trade")
    expansions, findings = check_set([source_of(found.text.encode(), "trade.yaml")], None)
    assert not has_errors(findings), (findings, found.text)
    difference = diff(desired_inventory(expansions, None), there)
    assert not difference.conflicts, difference.conflicts
    for change in difference.changes:
        match change:
            case Adopt():
                pass
            case Create(after=SubscriptionResource(name=name)):
                assert name == HOLDER
            case _:
                assert isinstance(change.before, SubscriptionResource)  # type: ignore[union-attr]
                assert change.before.missing_on  # type: ignore[union-attr]
    live_topics = {address for address in there.objects if address.startswith("topic.")}
    adopted = {change.address for change in difference.changes if isinstance(change, Adopt)}
    assert live_topics <= adopted | dict(found.left_out).keys(), "every topic is in the file or in the list"


@given(topology_texts())
@examples(40)
def test_importing_what_a_file_made_covers_its_topics_or_says_why_not(text: str) -> None:
    side = wanted(text)
    found = [LiveObject(one.resource) for one in applied(side).objects.values()]  # as if nobody owned them
    there = live(found, {})
    imported = import_namespace(there, HERE, "trade")
    expansions, _ = check_set([source_of(imported.text.encode(), "trade.yaml")], None)
    changes = diff(desired_inventory(expansions, None), there).changes
    assert all(isinstance(change, Adopt) or HOLDER in change.address for change in changes)


def test_an_audit_topic_with_other_partitions_stays_outside() -> None:
    found, changes = _imported(_by_hand({"J": (3, {"s"}), "J-s-AUDIT": (1, set())}))
    assert set(dict(found.left_out)) == {"topic.persistent://acme/ns/J-s-AUDIT"}
    assert _only_adopts(changes)


def test_a_name_that_no_file_could_have_is_refused() -> None:
    with pytest.raises(KodoctlError):
        import_namespace(_by_hand({}), HERE, "")


@pytest.mark.parametrize(
    ("role", "reason"),
    [
        ("we\nird", "its role: a key of several lines"),
        ("esc\x1bz", "its role: control character"),
        ("u\u2028z", "its role: YAML would read another one"),
        ("null", None),
        ("x" * 300, None),
    ],
)
def test_a_role_that_no_file_can_hold_is_left_out_and_ends_no_import(role: str, reason: str | None) -> None:
    there = _by_hand({"J": (1, set())})
    odd = GrantResource(HERE, role, frozenset({"produce"}))
    on_topic = GrantResource(TopicName(HERE, "J"), role, frozenset({"produce"}))
    found, changes = _imported(changed(there, LiveObject(odd), LiveObject(on_topic)))
    assert dict(found.left_out).get(odd.address) == reason
    assert (on_topic.address in dict(found.left_out)) is (reason is not None)
    assert all(verb == "adopt" for verb, _ in changes)


def test_retry_topics_of_java_clients_are_named() -> None:
    seen: Any = SimpleNamespace(namespace="t/n", topics={"orders": 1, "orders-billing-RETRY": 1})
    families: Any = dict.fromkeys(["orders", "orders-billing-RETRY", "parcels-RETRY"])
    assert list(_java_retries(seen, families)) == [
        (
            "topic.persistent://t/n/orders-billing-RETRY as a retry topic",
            "Java clients name theirs so; it is a ground topic of its own in the file",
        )
    ]
