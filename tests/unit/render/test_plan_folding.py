"""Repetition in a plan's views: one cause is one warning, alike changes are one entry, and no loss is ever folded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kodoctl.errors import Diagnostic, Where, error, warning
from kodoctl.plan.changes import Change, ChangeContext, Create, Delete, Forget, PolicyChange, Update
from kodoctl.plan.danger.data_loss import refusal
from kodoctl.plan.drift import split
from kodoctl.plan.drift import to_json as drift_json
from kodoctl.plan.plan_file import to_json
from kodoctl.render import plan_words as words
from kodoctl.render.drift_text import drift_lines
from kodoctl.render.plan_annotations import plan_github
from kodoctl.render.plan_folding import DELETIONS_FOLDED_FROM, FOLDED_FROM, loses
from kodoctl.render.plan_html import plan_html
from kodoctl.render.plan_text import plan_lines
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import GrantResource, NamespaceResource, SubscriptionResource, TopicResource
from tests.samples.inventories import HERE, applied, changed, planned, topology, wanted
from tests.unit.render.test_plan_views import ABOUT, TARGET, markdown, plan_of

K404 = "rights of a connected role may change"


def _name(number: int) -> TopicName:
    return TopicName(HERE, f"T{number:02}")


def updated(number: int, ttl: str = "3d", *dangers: Diagnostic) -> Update:
    """A topic that keeps messages for another time."""
    topic = TopicResource(_name(number), 1, {})
    about = ChangeContext("trade", "differs from the file", Where("t.yaml", number + 1, 3), dangers)
    return Update(topic, topic, (PolicyChange("ttl", "7d", ttl),), about)


def revoked(number: int, connected: str = "no consumer is connected") -> Delete:
    """A grant that goes, with the warning that it does."""
    grant = GrantResource(_name(number), "anna", frozenset({"consume"}))
    detail = f"{grant.address}: anna loses consume; {connected}"
    return Delete(grant, ChangeContext("trade", "no longer declared", None, (warning("K404", K404, detail),)))


def text(*changes: Change) -> str:
    """The plan as people read it in a terminal, not folded to its width."""
    return "\n".join(line.text for line in plan_lines(to_json(plan_of(*changes)), TARGET))


def test_alike_changes_of_many_topics_are_one_entry_that_names_the_topics() -> None:
    shown = text(*(updated(number) for number in range(60)))
    assert "  ~ 60 topics: ttl 7d → 3d\n      acme/ns/T00, acme/ns/T01, acme/ns/T02 and 57 more (--verbose" in shown
    assert "Plan: 0 to create, 60 to update" in shown
    assert len(shown.splitlines()) < 10


def test_few_alike_changes_and_others_stay_as_they_are() -> None:
    few = text(*(updated(number) for number in range(FOLDED_FROM - 1)))
    assert few.count("ttl  7d → 3d") == FOLDED_FROM - 1
    mixed = text(updated(50, "9d"), *(updated(number) for number in range(FOLDED_FROM)))
    assert "ttl  7d → 9d" in mixed
    assert f"{FOLDED_FROM} topics: ttl 7d → 3d" in mixed


@pytest.mark.parametrize(
    "holding", [TopicResource(_name(0), 1, {}).address, SubscriptionResource(_name(0), "s").address]
)
def test_deletions_of_what_holds_messages_are_named_one_by_one(holding: str) -> None:
    topic = holding.startswith("topic.")
    gone = [TopicResource(_name(n), 1, {}) if topic else SubscriptionResource(_name(n), "s") for n in range(30)]
    shown = text(*(Delete(resource, ABOUT) for resource in gone))
    assert all(resource.address in shown for resource in gone)


def test_very_many_alike_deletions_are_one_entry_but_for_those_with_data_at_stake() -> None:
    names = [TopicName(HERE, f"T{number:03}") for number in range(DELETIONS_FOLDED_FROM + 1)]
    stake = refusal("K401", "messages would be lost", "", "5 messages", allowed=False)
    gone = [Delete(TopicResource(name, 1, {}), ABOUT) for name in names]
    shown = text(replace(gone[0], about=replace(ABOUT, dangers=(stake,))), *gone[1:])
    assert f"  - topic.{names[0]}\n" in shown
    assert "! K401" in shown
    assert f"  - {DELETIONS_FOLDED_FROM} topics\n" in shown
    assert "acme/ns/T001, acme/ns/T002, acme/ns/T003 and 97 more (--verbose names all)" in shown
    assert len(shown.splitlines()) < 25


def test_grants_that_go_alike_are_one_entry_and_one_warning_with_the_topics() -> None:
    shown = text(*(revoked(number) for number in range(30)))
    assert shown.count("K404") == 1
    assert "  anna loses consume; no consumer is connected\n  grant.persistent://acme/ns/T00/anna\n" in shown
    assert "  grant.persistent://acme/ns/T19/anna\n  and 10 more\n" in shown
    assert "  - grant anna of 30 topics\n      no longer declared\n" in shown


def test_a_warning_that_names_its_own_topic_is_the_same_for_each_and_one_of_another_kind_is_not() -> None:
    mine = [revoked(number, f"1 consumer of {_name(number)}") for number in range(3)]
    shown = text(*mine, revoked(9, "2 consumers of persistent://acme/ns/other"))
    assert shown.count("anna loses consume; 1 consumer of this topic") == 1
    assert "      ! K404 warning" in shown, "a warning of one object stays with it"
    assert shown.count("K404") == 2


def test_what_frames_the_topics_stands_alone() -> None:
    shown = text(*(Create(NamespaceResource(HERE, {}), ABOUT) for _ in range(9)))
    assert shown.count("+ namespace.acme/ns") == 9
    assert text(*(Forget(f"tenant.t{n}", None, ABOUT) for n in range(9))).count(". tenant.t") == 9


@pytest.mark.parametrize("allowed", [False, True])
def test_a_loss_is_never_folded_and_is_at_stake_even_when_it_is_allowed(allowed: bool) -> None:
    changes = []
    for number in range(9):
        address = TopicResource(_name(number), 1, {}).address
        stake = refusal("K402", "a lowered value would drop stored data", address, "5 messages", allowed=allowed)
        changes.append(updated(number, "3d", stake))
    assert text(*changes).count("! K402") == 9
    assert all(loses(change) for change in to_json(plan_of(*changes))["changes"])


@pytest.mark.parametrize(
    ("dangers", "stake"),
    [((), False), ((warning("K406", "lowered", "x"),), False), ((error("K999", "refused", "x"),), True)],
)
def test_a_warning_alone_puts_nothing_at_stake(dangers: tuple[Diagnostic, ...], stake: bool) -> None:
    [change] = to_json(plan_of(updated(0, "3d", *dangers)))["changes"]
    assert loses(change) is stake
    page = plan_html(to_json(plan_of(updated(0, "3d", *dangers))), TARGET)
    assert ('<span class="verdict refused">at stake</span>' in page) is stake
    assert ("At stake: 1 object" in page) is stake
    assert ('<span class="verdict warned">warning</span>' in page) is (bool(dangers) and not stake)
    comment = markdown(plan_of(updated(0, "3d", *dangers)))
    assert ("**Destructive: 1 object**" in comment) is stake
    assert ("**Warnings: 1 object**" in comment) is (bool(dangers) and not stake)


def test_a_page_folds_by_change_names_every_topic_and_shows_no_backticks() -> None:
    finding = warning("K207", "a lane `a`", "write `draining: [blocking]`, not `b")
    page = plan_html(to_json(plan_of(*(updated(number) for number in range(60)), findings=(finding,))), TARGET)
    assert page.count("<details") == 1
    assert "60 topics</span>: ttl 7d → 3d" in page
    assert all(f"<code>acme/ns/T{number:02}</code>" in page for number in range(1, 60))
    assert "a lane <code>a</code>" in page
    assert "write `draining: [blocking]`, not `b" in page, "a backtick without its second stays as it is"


def test_comments_and_annotations_say_one_cause_once_and_destroy_nothing_by_a_warning() -> None:
    changes = [revoked(number) for number in range(30)]
    document = to_json(plan_of(*changes))
    assert markdown(plan_of(*changes)).count("K404") == 1
    assert "and 10 more" in markdown(plan_of(*changes))
    assert plan_github(document, TARGET).count("K404") == 1
    assert all(change["dangers"] for change in document["changes"]), "the plan's JSON has each at its object"


def test_a_warning_of_many_places_names_the_first_one() -> None:
    lowered = [updated(n, "3d", warning("K406", "lowered", f"topic.{_name(n)}: persistence")) for n in range(6)]
    assert "Warning: lowered [K406]\n  at t.yaml:1\n  persistence\n  topic.persistent://acme/ns/T00" in text(*lowered)


def test_drift_says_alike_changes_once() -> None:
    side = wanted(topology("{" + ", ".join(f"T{n:02}: {{policies: {{ttl: 1h}}}}" for n in range(30)) + "}"))
    live = applied(side)
    bare = [
        replace(found, resource=TopicResource(found.resource.name, 1, {}))
        for found in live.objects.values()
        if isinstance(found.resource, TopicResource)
    ]
    there = changed(live, *bare)
    document = drift_json(split(planned(side, there), there, count_unmanaged=False), {})
    shown = "\n".join(line.text for line in drift_lines(document, TARGET))
    assert shown.count("→ 1h") == 1
    assert "30 topics: ttl unset" in shown


def test_drift_says_a_warning_of_many_changes_once() -> None:
    changes = to_json(plan_of(*map(revoked, range(6))))["changes"]
    side = wanted(topology("{}"))
    document = drift_json(split(planned(side, applied(side)), applied(side), count_unmanaged=False), {})
    shown = "\n".join(line.text for line in drift_lines({**document, "by_hand": changes}, TARGET))
    assert (shown.count("K404"), shown.count("anna loses consume")) == (1, 1)
    assert "T05" in shown


def test_drift_shows_the_subscription_of_a_new_topic_with_it() -> None:
    side = wanted(topology("{J: {subscriptions: {s: {states: [], dead_letter: false}}}}"))
    there = applied(wanted(topology("{}")))
    document = drift_json(split(planned(side, there), there, count_unmanaged=False), {})
    shown = [line.text for line in drift_lines(document, TARGET)]
    first = shown.index("  + topic.persistent://acme/ns/J")
    assert shown[first : first + 3] == [shown[first], "      1 partition", "      + subscription s: from earliest"]


def test_verbose_names_every_topic_of_alike_changes() -> None:
    document = to_json(plan_of(*(updated(number) for number in range(60))))
    shown = [line.text for line in plan_lines(document, TARGET, verbose=True)]
    assert all(f"        acme/ns/T{number:02}" in shown for number in range(60))


def test_a_comment_folds_by_change_and_names_every_topic() -> None:
    text = markdown(plan_of(*(updated(number) for number in range(60))))
    assert "! 60 topics will be updated\n!     ttl: 7d → 3d\n#         acme/ns/T00\n" in text
    assert text.count("\n#         acme/ns/T") == 60
    assert text.count("what is there now → what the plan writes") == 1


def test_the_error_that_decides_comes_before_the_changes_and_its_code_at_the_end() -> None:
    findings = (warning("K207", "a lane", "x"), error("K413", "Pulsar tenant not found", "y"))
    plan = plan_of(updated(1), findings=findings)
    shown = [line.text for line in plan_lines(to_json(plan), TARGET)]
    places = [next(i for i, line in enumerate(shown) if line.startswith(b)) for b in ("Error: ", "  ~ ", "Warning: ")]
    assert places == sorted(places)
    assert "This plan is refused by K413: nothing can be applied until that is settled." in shown
    comment = markdown(plan)
    assert comment.index("**error** K413") < comment.index("! topic.persistent")


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ({"time": "7d", "size": "1GiB"}, {"time": "3d", "size": "1GiB"}, "time 7d → 3d"),
        ({"time": "7d"}, {"time": "7d", "size": "1GiB"}, "size unset → 1GiB"),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, "a.c 2 → 3"),
        ({"foreign": "relative"}, {"rate": 5}, "relative → {rate: 5}"),
        (None, {"rate": 5}, "unset → {rate: 5}"),
    ],
)
def test_of_a_map_only_the_keys_that_differ_are_shown(before: object, after: object, shown: str) -> None:
    field: Any = {"name": "policies.retention", "before": before, "after": after}
    assert words.field_text(field) == shown
    assert words.setting_text(before, after) == shown.replace("unset →", "default →" if before is None else "unset →")


def _refusals(number: int, detail: str = "differs in ttl") -> list[Diagnostic]:
    places = (f"topic.persistent://acme/ns/T{n:02}" for n in range(number))
    return [error("K417", "adoption would change it", f"{place} {detail}: --adopt {place}") for place in places]


def test_a_refusal_of_many_topics_for_one_cause_is_one_with_their_addresses() -> None:
    other = error("K417", "adoption would change it", "topic.persistent://acme/ns/T90 differs in size")
    plan = plan_of(findings=(*_refusals(60), other))
    shown = "\n".join(line.text for line in plan_lines(to_json(plan), TARGET))
    assert shown.count("Error: adoption would change it [K417]") == 2
    assert "  the same for 59 more objects:\n  topic.persistent://acme/ns/T01\n" in shown
    assert "  and 39 more\n" in shown
    assert len(to_json(plan)["findings"]) == 61


def test_refusals_that_name_no_topic_or_have_flags_of_their_own_stay_apart() -> None:
    nameless = [error("K900", "odd", "the same text") for _ in range(9)]
    with_flags = [refusal("K401", "loss", f"topic.T{n}", "5 messages", allowed=False) for n in range(9)]
    shown = "\n".join(line.text for line in plan_lines(to_json(plan_of(findings=(*nameless, *with_flags))), TARGET))
    assert (shown.count("[K900]"), shown.count("[K401]")) == (9, 9)
    assert shown.count("--allow-destroy topic.T") == 9
