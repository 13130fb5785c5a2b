"""Waiting messages within 80 columns, whatever their names are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kodoctl.documents.recall_document import SendReport
from kodoctl.documents.waiting_document import WaitingGroupRow, WaitingLaneRow, WaitingListDocument
from kodoctl.render.waiting_text import waiting_lines
from kodoctl.text.formatting import time_text
from kodoctl.ui import application

NOW = 1_800_000_000_000


def document(**changes: Any) -> WaitingListDocument:
    lane = WaitingLaneRow(
        "orders", "billing", "L1/retrying", "t", 1_200, overdue=3, oldest=NOW - 7_200_000, next_due=NOW - 60_000,
        last_due=NOW + 5,
    )  # fmt: skip
    group = WaitingGroupRow("orders", "billing", "L1/retrying", "ConnectionError", "u1", "in 1 h", 7, oldest=NOW)
    long = replace(group, cause="e" * 300, tenant="t" * 300, messages=2)
    made = WaitingListDocument(
        1, NOW, "true", 1_200, 1_200, [lane, WaitingLaneRow("orders", "billing", "B1/ready", "t")],
        [group, long, replace(group, messages=1)], [],
    )  # fmt: skip
    return replace(made, **changes)


def lines(shown: WaitingListDocument, most: int = 20) -> list[str]:
    return [line.text for line in waiting_lines(shown, "context dev", most)]


def test_lanes_and_groups_fit_a_screen() -> None:
    text = lines(document())
    assert max(map(len, text)) <= 80
    assert "  L1/retrying     1,200        3  1 min ago  2 h ago" in text
    assert "  B1/ready            0        0" in text
    assert any(line.split() == ["7", "L1/retrying", "in", "1", "h", "u1", "ConnectionError"] for line in text)
    assert text[-1] == "1,200 of 1,200 waiting messages. Nothing was consumed."


def test_groups_beyond_the_most_are_counted() -> None:
    assert "  3 in 2 more groups (--most, or JSON)" in lines(document(), 1)
    assert not [line for line in lines(document(), 3) if "more group" in line]


def test_only_what_was_asked_for_is_a_column_and_the_condition_is_said() -> None:
    group = replace(document().groups[0], lane=None, tenant=None, due=None)
    text = lines(document(groups=[group], where="tenant = 'u1'", matched=7))
    assert "  messages  cause" in text
    assert "7 of 1,200 waiting messages meet tenant = 'u1'. Nothing was consumed." in text
    assert not [line for line in lines(document(groups=[])) if "cause" in line]


def test_a_lane_that_is_due_later_and_names_that_steer_terminals() -> None:
    lane = replace(document().lanes[0], next_due=NOW + 90_000)
    group = replace(document().groups[0], tenant="\x1b[2J")
    text = lines(document(lanes=[lane], groups=[group]))
    assert any("in 1 min" in line for line in text)
    assert not any("\x1b" in line for line in text)


def test_a_plan_of_waiting_messages_speaks_of_them_and_of_its_own_commands() -> None:
    from kodoctl.recall.plan import recall_plan_file
    from kodoctl.recall.plan.recall_plan import RecallAction
    from kodoctl.render.recall import recall_plan_lines, recall_report_lines
    from tests.unit.recall.plan.test_plan_file import PLAN

    plan = replace(PLAN, action=RecallAction.MOVE, lane="L1/retrying", edit=None)
    shown = recall_plan_file.to_json(plan)
    shown["summary"] = {**shown["summary"], "left_out": {"unfinished": 2, "already": 1, "due": 3}}
    text = "\n".join(line.text for line in recall_plan_lines(shown, "context dev"))
    assert "Move of waiting messages: orders / billing" in text
    assert "(L1/retrying)" in text
    assert "run its `waiting apply` again" in text
    assert "--again" not in text
    assert "to move" in text
    assert "made " not in text, "it is shown as it is made"
    shown["summary"] = {**shown["summary"], "left_out": {"of tomorrow {x}": 4}}
    assert "    4 of tomorrow {x}" in [line.text for line in recall_plan_lines(shown, "context dev")]
    applied = [line.text for line in recall_plan_lines(shown, "context dev", earlier=True)]
    assert f"  made   {time_text(PLAN.made_at)}; the ages below are as of then" in applied
    report = SendReport(
        sent=1, already=2, acknowledged=1, unacknowledged=1, gone=1, duplicates=2,
        stored_twice=["persistent://a/b/c-partition-0 5:1: a second copy of 1:0:0:-1"],
    )  # fmt: skip
    told = "\n".join(line.text for line in recall_report_lines(report, "move", 1.0, "message"))
    assert "2 messages of the plan sent by an earlier attempt" in told
    assert "2 messages stored twice when a broker took the lane over: one copy of each is acknowledged" in told
    assert "  persistent://a/b/c-partition-0 5:1: a second copy of 1:0:0:-1" in told
    assert "letter" not in told


def test_a_page_names_its_own_fields_in_place_of_flags() -> None:
    from kodoctl.cli.ui.letter_actions import PAGE_WORDS
    from kodoctl.recall.plan import recall_plan_file
    from kodoctl.render.recall import _LEFT_OUT, COMMAND_WORDS, recall_plan_lines, recall_report_lines
    from tests.unit.recall.plan.test_plan_file import PLAN

    shown = recall_plan_file.to_json(replace(PLAN, edit=None))
    summary = {"left_out": dict.fromkeys(_LEFT_OUT, 2), "died_at_once": 1, "by_cause": {"a": 1, "b": 1}}
    shown["summary"] = cast("Any", {**shown["summary"], **summary})
    report = SendReport(refused=["one"] * 101)

    def flags(names: Mapping[str, str]) -> set[str]:
        lines = [
            *recall_plan_lines(shown, "dev", names=names),
            *recall_report_lines(report, "send", 1, "letter", names),
        ]
        return {one for line in lines for one in re.findall("--[a-z]+", line.text)}

    assert flags(COMMAND_WORDS) == {"--again", "--edit", "--limit", "--where", "--format"}
    assert flags(PAGE_WORDS) == {"--edit"}, "of the command that can do what no page does"
    assert PAGE_WORDS.keys() == COMMAND_WORDS.keys()
    form = (Path(application.__file__).parent / "templates/action_letters.html.j2").read_text()
    named = [one for word in PAGE_WORDS.values() for one in re.findall("“(.+?)”", word)]
    assert named == ["Also letters that a recall sent before", "At most"]
    assert all(one in form for one in named)


def test_a_report_names_a_hundred_messages_of_a_kind_and_counts_the_others() -> None:
    from kodoctl.render.recall import recall_report_lines

    report = SendReport(refused=[f"{number}:0:0:-1: too large" for number in range(1_234)], unclear=["7:0:0:-1: why"])
    told = [line.text for line in recall_report_lines(report, "send", 1.0, "letter")]
    assert told[99] == "  never taken, still where it was: 99:0:0:-1: too large"
    assert told[100] == "  … and 1,134 more (--format json lists all)"
    assert told[101].endswith(": 7:0:0:-1: why")


@pytest.mark.parametrize(
    ("action", "values", "summary", "notes"),
    [
        ("send", {}, {"died_at_once": 1}, ["! It died without a later attempt"]),
        ("send", {}, {"chosen": 2, "died_at_once": 2}, ["! All 2 died without a later attempt"]),
        ("send", {}, {"chosen": 2, "died_at_once": 1}, []),
        ("send", {"edit": {"a": 1}}, {"died_at_once": 1}, []),
        ("discard", {}, {"died_at_once": 1}, []),
        ("release", {"lane": "L1/blocking"}, {}, ["! Carrying it out pauses L1/blocking", "! It changes no limit"]),
        ("discard", {"lane": "L1/blocking"}, {}, ["! Carrying it out pauses L1/blocking"]),
        ("release", {"lane": "L1/blocking"}, {"chosen": 0}, []),
        ("resend", {"lane": "L1/blocking"}, {}, []),
    ],
)
def test_a_plan_says_what_it_means_beside_its_messages(
    action: str, values: dict[str, Any], summary: dict[str, Any], notes: list[str]
) -> None:
    from kodoctl.recall.plan import recall_plan_file
    from kodoctl.recall.plan.recall_plan import RecallAction
    from kodoctl.render.recall import recall_plan_lines
    from tests.unit.recall.plan.test_plan_file import PLAN

    shown = recall_plan_file.to_json(replace(PLAN, action=RecallAction(action), **{"edit": None, **values}))
    shown["summary"] = cast("Any", {**shown["summary"], **summary})
    found = [line.text.strip() for line in recall_plan_lines(shown, "context dev") if line.text.startswith("  ! ")]
    assert [one.startswith(note) for one, note in zip(found, notes, strict=True)] == [True] * len(notes)
