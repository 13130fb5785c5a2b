"""A plan as text and as Markdown: what a reader must see, what nobody may forge, and that it fits."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from kodoctl.errors import Remedy, Where, error, error_with_remedy, note, warning
from kodoctl.plan.changes import Adopt, Change, ChangeContext, Create, Delete, FieldChange, Forget, PolicyChange, Update
from kodoctl.plan.danger.data_loss import refusal
from kodoctl.plan.drift import split
from kodoctl.plan.drift import to_json as drift_json
from kodoctl.plan.ledger_plan import ConsumerChange
from kodoctl.plan.plan import Plan
from kodoctl.plan.plan_file import to_json
from kodoctl.pulsar.values.live_objects import ClusterIdentity, LiveObject
from kodoctl.render.drift_text import drift_lines
from kodoctl.render.plan_markdown import LIMIT, plan_markdown
from kodoctl.render.plan_text import plan_lines
from kodoctl.status.lane_status import LaneStatus, OtherReaders, StatusReading, TopologyStatus
from kodoctl.status.status_text import status_lines
from kodoctl.topology.model.policies import Foreign
from kodoctl.topology.names import NamespaceName, TopicName
from kodoctl.topology.resources import (
    GrantResource,
    NamespaceResource,
    Resource,
    SchemaResource,
    SubscriptionResource,
    TenantResource,
    TopicResource,
)
from kodoctl.topology.units import Duration
from tests.samples.inventories import HERE, applied, changed, empty, planned, topology, wanted

J = TopicName(HERE, "J")
TARGET = "context dev, http://127.0.0.1:8080"
ABOUT = ChangeContext("trade")


def plan_of(*changes: Change, **parts: Any) -> Plan:
    """A plan of these changes."""
    return replace(planned(wanted(topology()), empty()), changes=changes, findings=parts.pop("findings", ()), **parts)


def _text(plan: Plan) -> str:
    return "\n".join(line.text for line in plan_lines(to_json(plan), TARGET))


def markdown(plan: Plan, limit: int = LIMIT) -> str:
    return plan_markdown(to_json(plan), TARGET, limit=limit)


def danger(address: str, code: str = "K401") -> ChangeContext:
    """Something at stake."""
    found = refusal(code, "deletes data", address, "5 unread messages", allowed=False)
    return ChangeContext("trade", "no longer declared", None, (found,))


def test_the_head_says_which_cluster_and_environment() -> None:
    plan = plan_of(environment="prod")
    assert _text(plan).startswith("context dev, http://127.0.0.1:8080 (cluster standalone, 11111111), environment prod")
    first = plan_of(identity=ClusterIdentity("standalone", {"acme": None}))
    assert "(cluster standalone, first apply)" in _text(first)


def test_every_kind_of_object_is_described_where_it_is_made() -> None:
    created: list[Resource] = [
        TenantResource("acme", frozenset({"standalone"}), frozenset()),
        NamespaceResource(HERE, {"ttl": Duration(60_000)}),
        TopicResource(J, 4, {"ttl": Duration(60_000), "max_producers": 5}),
        SubscriptionResource(J, "s", "latest"),
        GrantResource(J, "anna", frozenset({"consume", "produce"})),
        SchemaResource(J, "AVRO", "{}"),
    ]
    text = _text(plan_of(*(Create(resource, ABOUT) for resource in created)))
    for words in (
        "+ tenant.acme", "clusters standalone", "+ namespace.acme/ns", "ttl 1m", "4 partitions; max_producers 5; ttl 1m",
        "+ subscription s: from latest", "+ grant anna: consume, produce", "+ schema: AVRO",
    ):  # fmt: skip
        assert words in text, text
    assert "Plan: 6 to create, 0 to update, 0 to delete, 0 to adopt, 0 unchanged." in text


def test_an_update_shows_changed_fields_with_what_counts_and_where_it_comes_from() -> None:
    start = applied(wanted(topology("{J: {policies: {ttl: 1h}}}", "namespace_policies: {ttl: 9h}\n")))
    text = _text(
        planned(wanted(topology("{J: {policies: {max_producers: 5}}}", "namespace_policies: {ttl: 9h}\n")), start)
    )
    assert re.search(r"~ topic\.persistent://acme/ns/J  \(file0\.yaml:\d+\)", text)
    assert "ttl            1h → unset (namespace: 9h)" in text
    assert "max_producers  unset (broker default) → 5" in text
    assert "Plan: 0 to create, 1 to update, 0 to delete, 0 to adopt, 1 unchanged." in text


def test_a_topic_that_must_be_unloaded_says_so() -> None:
    fields = (FieldChange("delayed_delivery", "set", None), FieldChange("definition", "a", "b"))
    text = _text(plan_of(Update(TopicResource(J, 1, {}), TopicResource(J, 1, {}), fields, ABOUT, unload=True)))
    assert "delayed delivery (topic level)  set → unset" in text
    assert "schema                          a version → a version" in text
    assert "the topic is unloaded once: its consumers reconnect" in text


@pytest.mark.parametrize(
    ("suffix", "after", "said"), [("s-PENDING", True, True), ("s-PENDING", None, False), ("L2", True, False)]
)
def test_waiting_lanes_that_get_deduplication_are_explained(suffix: str, after: bool | None, said: bool) -> None:
    lane = TopicResource(TopicName(HERE, f"J-{suffix}"), 1, {})
    fields = (PolicyChange("max_producers", 2, 3), PolicyChange("deduplication", None, after))
    text = " ".join(_text(plan_of(Update(lane, lane, fields, ABOUT))).split())
    assert ("Waiting lanes get deduplication: what `kodoctl waiting`" in text) is said
    assert ("`state_policies: {deduplication: inherit}`" in text) is said


def test_dangerous_changes_come_first_with_the_reason_and_the_way_out() -> None:
    address = "topic.persistent://acme/ns/K"
    plan = plan_of(
        Create(TopicResource(J, 1, {}), ABOUT), Delete(TopicResource(TopicName(HERE, "K"), 1, {}), danger(address))
    )
    text = _text(plan)
    assert text.index("- topic.persistent://acme/ns/K") < text.index("+ topic.persistent://acme/ns/J")
    assert "! K401 error: deletes data" in text
    assert "This plan is refused" in text
    assert text.endswith(f"  --allow-destroy {address}")
    assert text.count("--allow-destroy") == 1


def test_each_remedy_of_a_refused_plan_stands_once_below_its_sentence() -> None:
    share = error_with_remedy("K403", "a share", "much", Remedy("--allow-share", "0.4"), "--allow-share=0.4")
    other = error_with_remedy("K999", "other", "more", Remedy("--evil\x1b[31m"), "see the manual")
    address = "topic.persistent://acme/ns/K"
    twice = replace(danger(address), dangers=danger(address).dangers * 2)
    text = _text(plan_of(Delete(TopicResource(TopicName(HERE, "K"), 1, {}), twice), findings=(share, other)))
    assert text.endswith(
        "If their loss is meant, say so for each (or in the file's `allow_destroy`):\n"
        f"  --allow-destroy {address}\n"
        "If so large a share is meant to go:\n  --allow-share=0.4\n"
        "If that is meant:\n  --evil\\x1b[31m"
    )
    assert "see the manual" not in text


def test_a_remedy_that_is_one_way_of_several_stands_in_its_sentence_alone() -> None:
    way = error(
        "K410", "another topology owns it", "declare it once; --take-over takes it", None, Remedy("--take-over")
    )
    text = _text(plan_of(findings=(way,)))
    assert text.count("--take-over") == 1
    assert "declare it once; --take-over takes it" in text
    assert to_json(plan_of(findings=(way,)))["findings"][0]["remedy"] == {"flag": "--take-over", "value": None}


def test_adopting_and_forgetting_say_why() -> None:
    text = _text(
        plan_of(
            Adopt(TopicResource(J, 1, {}), ChangeContext("trade", "there, and nobody's yet")),
            Forget("topic.x", None, ChangeContext("trade", "is gone already")),
        )
    )
    assert "○ topic.persistent://acme/ns/J\n      there, and nobody's yet" in text
    assert ". topic.x\n      is gone already" in text
    assert "1 to forget" in text


def test_what_only_consumers_read_what_is_unmanaged_and_what_is_elsewhere_is_told() -> None:
    consumers = (ConsumerChange("J/s", (("concurrency", 8, None), ("weights", None, {"ready": 80}))),)
    unmanaged = tuple(f"topic.persistent://acme/ns/x{n}" for n in range(30))
    text = _text(
        plan_of(consumer_changes=consumers, unmanaged=unmanaged, elsewhere={"other": 1, "third": 2}, unchanged=7)
    )
    assert "J/s  concurrency  8 → default" in text
    assert "J/s  weights  default → {ready: 80}" in text
    assert "… and 10 more (--format json lists all)" in text
    assert "topologies other (1 object), third (2 objects)" in text
    assert text.endswith("No changes. 7 objects are as the files say.")


def test_of_a_list_of_maps_only_what_comes_and_goes_is_shown() -> None:
    rate, quota = {"kind": "rate", "limit": "1/s"}, {"kind": "quota", "limit": "5/h"}
    changes = (ConsumerChange("J/s", (("limits", [rate], [dict(reversed(rate.items())), quota]),)),)
    assert "J/s  limits  + {kind: quota, limit: 5/h}" in _text(plan_of(consumer_changes=changes))
    faster = {"kind": "rate", "limit": "2/s"}
    changes = (ConsumerChange("J/s", (("limits", [{"burst": 3, "limit": "1/s", "kind": "rate"}], [faster]),)),)
    assert "J/s  limits  - {kind: rate, limit: 1/s, burst: 3}  + {kind: rate, limit: 2/s}" in _text(
        plan_of(consumer_changes=changes)
    )
    changes = (ConsumerChange("J/s", (("routes", [rate, quota], [quota, rate]),)),)
    assert "J/s  routes  in another order" in _text(plan_of(consumer_changes=changes))


def test_findings_carry_their_code_and_place() -> None:

    text = _text(
        plan_of(
            findings=(
                warning("K405", "grown", "1 → 4"),
                note("K416", "the file moved", "a is now b", Where("t.yaml", 3, 1)),
            )
        )
    )
    assert "Warning: grown [K405]\n  1 → 4" in text
    assert "Note: the file moved [K416]\n  at t.yaml:3\n  a is now b" in text


def test_a_deleted_topic_and_what_goes_with_it_is_one_group() -> None:
    changes = [Delete(TopicResource(J, 1, {}), ABOUT), Delete(SubscriptionResource(J, "s"), ABOUT)]
    assert "  - topic.persistent://acme/ns/J\n      - subscription s" in _text(plan_of(*changes))


@pytest.mark.parametrize(("before", "after"), [("{}", "one"), ("one", "{}"), ("one", "other")])
def test_what_hangs_on_a_topic_stands_below_its_own_line_and_never_below_a_grant(before: str, after: str) -> None:
    """A revoked grant is told in full, with its warning; the topic's subscription must not look like the grant's."""
    files = {
        "{}": "{K: {}}",
        "one": "{J: {producers: [p], subscriptions: {s: {workers: [w], recall: [sre]}}}, K: {}}",
        "other": "{J: {producers: [q], subscriptions: {t: {workers: [w]}}}, K: {}}",
    }
    plan = planned(wanted(topology(files[after])), applied(wanted(topology(files[before]))))
    lines = [line for line in _text(plan).splitlines() if re.match(r" +[-+~○.] [a-z]+", line)]
    assert any(line.startswith("      ") for line in lines)
    for above, line in itertools.pairwise(lines):
        if line.startswith("      "):
            assert above.startswith(("      ", "  + topic.", "  - topic.")), f"{line.strip()} below {above.strip()}"


def test_markdown_folds_details_by_namespace() -> None:
    other = TopicName(NamespaceName("acme", "other"), "K")
    text = markdown(plan_of(Create(TopicResource(J, 1, {}), ABOUT), Create(TopicResource(other, 2, {}), ABOUT)))
    assert text.startswith("### kodoctl plan: changes\n\n")
    assert (
        "<summary>acme/ns: 1 change</summary>\n\n```diff\n+ topic.persistent://acme/ns/J will be created\n+     1 partition\n```\n\n</details>"
        in text
    )
    assert "<summary>acme/other: 1 change</summary>" in text
    assert "did not fit" not in text


def test_markdown_of_nothing_is_short() -> None:
    assert markdown(plan_of(unchanged=3)).startswith("### kodoctl plan: no changes")


def test_markdown_shows_every_section() -> None:
    consumers = (ConsumerChange("J/s", (("concurrency", 8, None),)),)
    update = Update(TopicResource(J, 1, {}), TopicResource(J, 4, {}), (FieldChange("partitions", 1, 4),), ABOUT)
    plan = plan_of(
        update, consumer_changes=consumers, unmanaged=("topic.x",), findings=(error("K410", "not ours", "see"),)
    )
    text = markdown(plan)
    for words in (
        "⛔ refused",
        "**error** K410 not ours: see",
        "`J/s` concurrency: `8 → default`",
        "1 unmanaged object",
        "!     partitions: 1 → 4",
    ):
        assert words in text, text


# --- nobody may forge


EVIL = (
    "x\n\x1b[2J\x9b31m</details>```\n| a | b |\n# Plan: 0 to delete\u202e\u2028@all `code` <img src=x> \ud800"
    + "y" * 1_000_000
)
EVIL_LINES = ("\n# Plan", "\n| a", "\x1b", "\x9b", "\u202e", "\u2028", "\ud800")


def hostile() -> Plan:
    """Every text that a cluster or a plan file could bring along is hostile."""
    evil = TopicName(HERE, EVIL)
    topic = TopicResource(evil, 1, {"dispatch_rate": Foreign(EVIL)})
    about = ChangeContext(EVIL, EVIL, None, (error(EVIL, EVIL, EVIL),))
    changes: list[Change] = [
        Delete(topic, about), Delete(SubscriptionResource(J, EVIL), about), Create(topic, ChangeContext(EVIL)), Adopt(topic, ChangeContext(EVIL, EVIL), EVIL),
        Update(topic, topic, (PolicyChange("dispatch_rate", Foreign(EVIL), None),), about), Forget(f"topic.{EVIL}", None, ChangeContext(EVIL, EVIL)),
        Create(GrantResource(J, EVIL, frozenset({"consume"})), ChangeContext(EVIL)), Create(TenantResource(EVIL, frozenset({EVIL}), frozenset()), ChangeContext(EVIL)),
        Create(SchemaResource(J, EVIL, EVIL), ChangeContext(EVIL)),  # type: ignore[arg-type]
    ]  # fmt: skip
    return plan_of(
        *changes,
        findings=(error(EVIL, EVIL, EVIL),),
        identity=ClusterIdentity(EVIL, {"acme": EVIL}),
        environment=EVIL,
        unmanaged=(f"topic.{EVIL}",),
        elsewhere={EVIL: 3},
        consumer_changes=(ConsumerChange(EVIL, ((EVIL, {EVIL: [EVIL]}, EVIL),)),),
    )


def test_hostile_names_and_values_are_escaped_in_text() -> None:
    lines = list(plan_lines(to_json(hostile()), TARGET))
    assert all(line.text.isprintable() for line in lines)
    assert not any(line.text.startswith(("# Plan", "Plan: 0 to delete", "| a")) for line in lines)
    assert sum(len(line.text) for line in lines) < 100_000


def test_hostile_names_and_values_are_escaped_inmarkdown() -> None:
    text = markdown(hostile())
    for forged in EVIL_LINES:
        assert forged not in text
    assert len(text.encode()) <= LIMIT
    lines = text.splitlines()
    assert lines.count("<details>") == lines.count("</details>") > 0
    outside = re.sub(r"```diff\n.*?\n```", "", text, flags=re.DOTALL)
    assert not re.search(
        r"(?<!\\)<img", re.sub(r"`[^`\n]*`", "", outside.replace("\\`", ""))
    )  # nothing but inline code holds it
    assert text.count("```") % 2 == 0
    for block in re.findall(r"```diff\n(.*?)\n```", text, flags=re.DOTALL):
        assert all(re.match(r"[+\-!#…] ", line) for line in block.splitlines())


def test_hostile_names_and_values_are_plain_ascii_in_json() -> None:
    from kodoctl.plan.plan_file import dumps

    text = dumps(hostile())
    assert text.isascii()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    assert json.loads(text)["changes"]


def test_hostile_drift_and_status_are_escaped() -> None:
    there = changed(applied(wanted(topology())), LiveObject(TopicResource(TopicName(HERE, EVIL), 1, {})))
    document = drift_json(split(planned(wanted(topology()), there), there, count_unmanaged=True), {})
    document["stale_topologies"] = [EVIL]
    assert all(line.text.isprintable() for line in drift_lines(document, EVIL))
    lane = LaneStatus("J", "s", "L1", "ready", "J", there=True)
    lanes = (replace(lane, ground=EVIL, subscription=EVIL),)
    status = TopologyStatus(EVIL, EVIL, lanes, (OtherReaders(EVIL, (EVIL,), 1),))
    assert all(line.text.isprintable() for line in status_lines(StatusReading(0, (status,))))
