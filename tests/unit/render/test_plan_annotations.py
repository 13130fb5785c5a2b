"""Annotations of a plan for pull requests, and its page."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from kodoctl.errors import Where, note, warning
from kodoctl.plan.changes import (
    Create,
    Delete,
    FieldChange,
    Update,
)
from kodoctl.plan.ledger_plan import ConsumerChange
from kodoctl.plan.plan_file import to_json
from kodoctl.render.annotations import Annotation, code_quality
from kodoctl.render.plan_annotations import plan_github, plan_gitlab
from kodoctl.render.plan_html import plan_html
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import (
    TopicResource,
)
from tests.samples.inventories import HERE, applied, planned, topology, wanted
from tests.unit.render.test_plan_views import ABOUT, TARGET, J, danger, plan_of


def test_annotations_stand_on_lines_of_the_file_and_nobody_forges_one() -> None:
    start = applied(wanted(topology("{J: {policies: {ttl: 1h}}}")))
    plan = planned(wanted(topology("{J: {policies: {ttl: 5s}}}")), start)
    found = warning("K404", "rights: a, b", "100%\n::error::forged", None)
    text = plan_github(to_json(replace(plan, findings=(found,))), TARGET)
    assert "::warning title=K404 rights%3A a%2C b::100%25%0A\\x3a:error::forged" in text
    assert "\n::error::forged" not in text
    assert text.endswith("Plan: 0 to create, 1 to update, 0 to delete, 0 to adopt, 1 unchanged.")


def test_annotations_name_the_object_and_come_by_severity() -> None:
    address = "topic.persistent://acme/ns/K"
    gone = Delete(TopicResource(TopicName(HERE, "K"), 1, {}), danger(address))
    about = replace(ABOUT, dangers=(warning("K405", "order", "keys move"),), where=Where("a.yaml", 3, 5))
    grown = Update(TopicResource(J, 1, {}), TopicResource(J, 2, {}), (FieldChange("partitions", 1, 2),), about)
    lines = plan_github(to_json(plan_of(grown, gone, findings=())), TARGET).splitlines()
    remedy = f"if that is meant: --allow-destroy {address}, or the same address in the file's `allow_destroy`"
    assert lines[0] == f"::error title=K401 deletes data::{address}: 5 unread messages%0A{remedy}"
    assert lines[1] == ("::warning file=a.yaml,line=3,col=5,title=K405 order::topic.persistent://acme/ns/J: keys move")
    assert lines[-1].startswith("refused: ")


def test_a_code_quality_report_names_object_and_place_by_severity() -> None:
    gone = Delete(TopicResource(TopicName(HERE, "K"), 1, {}), danger("topic.persistent://acme/ns/K"))
    about = replace(ABOUT, dangers=(warning("K405", "order", "keys move"),), where=Where("./a.yaml", 3, 5))
    grown = Update(TopicResource(J, 1, {}), TopicResource(J, 2, {}), (FieldChange("partitions", 1, 2),), about)
    plan = replace(plan_of(grown, gone, findings=(note("K999", "hint", "a\x1bb"),)), paths=("topologies",))
    rows = json.loads(plan_gitlab(to_json(plan), TARGET))
    assert [(row["check_name"], row["severity"], row["location"]["path"]) for row in rows] == [
        ("K401", "critical", "topologies"),
        ("K405", "minor", "a.yaml"),
        ("K999", "info", "topologies"),
    ]
    assert rows[1]["description"] == "K405 order: topic.persistent://acme/ns/J: keys move"
    assert rows[1]["location"]["lines"] == {"begin": 3}
    assert "\x1b" not in rows[2]["description"]


def test_a_finding_keeps_its_fingerprint_when_its_line_moves_and_two_alike_have_two() -> None:
    def prints(*lines: int) -> list[str]:
        found = [Annotation("error", "K203", "evict", "orders", ("a.yaml", line, 1)) for line in lines]
        return [row["fingerprint"] for row in json.loads(code_quality(found, "."))]

    assert prints(7, 9) == prints(8, 12)
    assert len(set(prints(7, 9))) == 2


def test_a_page_has_everything_and_asks_for_nothing() -> None:
    evil = '"><script src="https://x.invalid/a.js"></script>'
    plan = plan_of(
        Create(TopicResource(J, 4, {}), ABOUT),
        Delete(TopicResource(TopicName(HERE, "K"), 1, {}), danger("topic.persistent://acme/ns/K")),
        findings=(note("K999", "hint", evil),),
        unmanaged=("topic.persistent://acme/ns/by-hand",),
        consumer_changes=(ConsumerChange("J/s", (("concurrency", None, 8),)),),
    )
    html = plan_html(to_json(plan), TARGET)
    assert "https://x.invalid" in html
    assert not re.search(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=", html)
    assert "default-src &#39;none&#39;" in html
    for words in (
        "acme/ns/J",
        "4 partitions",
        "K401 error: deletes data",
        "by-hand",
        "default → 8",
        "--allow-destroy",
        "K999",
    ):
        assert words in html
    assert "No changes" not in html
    assert '<span class="verdict quiet">no changes</span>' in plan_html(to_json(plan_of()), TARGET)
