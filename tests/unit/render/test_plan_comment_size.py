"""A plan as a comment of limited size: what destroys is named before anything else, and what does not fit is counted."""

from __future__ import annotations

import re

import pytest

from kodoctl.errors import error
from kodoctl.plan.changes import Change, Create, Delete
from kodoctl.plan.plan import Plan
from kodoctl.render.plan_markdown import LIMIT
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import SubscriptionResource, TopicResource
from kodoctl.topology.units import Duration
from tests.samples.inventories import HERE
from tests.unit.render.test_plan_views import ABOUT, J, danger, hostile, markdown, plan_of


def _many(number: int, dangers: bool, name: str = "a-rather-long-name-of-a-topic-") -> Plan:
    changes: list[Change] = []
    for index in range(number):
        topic = TopicName(HERE, f"{name}{index}")
        changes.append(Delete(TopicResource(topic, 1, {}), danger(f"topic.{topic}") if dangers else ABOUT))
        changes += [Delete(SubscriptionResource(topic, f"s{n}"), ABOUT) for n in range(3)]
    return plan_of(*changes)


@pytest.mark.parametrize("number", [10, 200, 600, 1200])
@pytest.mark.parametrize("dangers", [True, False])
def test_every_destroyed_topic_is_named_however_many_there_are(number: int, dangers: bool) -> None:
    text = markdown(_many(number, dangers))
    assert len(text.encode()) <= LIMIT
    outside = text.partition("<details>")[0]
    for index in range(number):
        assert re.search(rf"a-rather-long-name-of-a-topic-{index}`", outside), index
    assert "could not be listed" not in text


def test_more_than_any_comment_holds_is_said_loudly_and_first() -> None:
    text = markdown(_many(5000, dangers=True))
    assert len(text.encode()) <= LIMIT
    named = len(re.findall(r"^- delete `topic\.", text, flags=re.MULTILINE))
    assert named > 500
    warning_line = text.split("\n\n")[3]
    assert f"{5000 - named:,} destructive changes could not be listed" in warning_line
    assert "before you approve" in warning_line


def test_thousands_of_harmless_changes_are_cut_and_the_destructive_one_is_not() -> None:
    creates = [
        Create(TopicResource(TopicName(HERE, f"new-{n}"), 1, {"ttl": Duration(60_000)}), ABOUT) for n in range(4000)
    ]
    gone = Delete(TopicResource(J, 1, {}), danger("topic.persistent://acme/ns/J"))
    text = markdown(plan_of(*creates, gone))
    assert len(text.encode()) <= LIMIT
    assert "5 unread messages" in text.partition("<details>")[0]
    cut = re.search(r"([\d,]+) lines did not fit: the plan file \(artifact\) has all of them", text)
    assert cut
    assert text.count("<details>") == text.count("</details>") == 1


def test_thousands_of_findings_are_counted_when_they_do_not_fit() -> None:
    text = markdown(
        plan_of(
            findings=tuple(error("K417", "adoption would change it", f"topic {n} " + "x" * 100) for n in range(2000))
        )
    )
    assert len(text.encode()) <= LIMIT
    assert re.search(r"… and [\d,]+ more findings", text)


@pytest.mark.parametrize("limit", [3_000, 5_000, 20_000])
def test_any_limit_is_kept(limit: int) -> None:
    assert len(markdown(_many(300, dangers=True), limit).encode()) <= limit
    assert len(markdown(hostile(), limit).encode()) <= limit
