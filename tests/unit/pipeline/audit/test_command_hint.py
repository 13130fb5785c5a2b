"""Commands to copy."""

from __future__ import annotations

import pytest
from kodo_pipeline.audit.audit_document import LostLaneRow
from kodo_pipeline.audit.command_hint import resend_commands
from kodo_pipeline.landing.command_line import command_line, duration
from kodo_pipeline.recall.lost_planning import plan_file

from kodoctl.errors import UsageError


def test_what_was_typed_is_typed_again():
    assert command_line("topologies/trade.yaml", None, ".kodoctl/landing") == "topologies/trade.yaml"
    assert command_line("my file.yaml", "base", "s3a://b/k") == "'my file.yaml' --env base --landing s3a://b/k"
    assert command_line("my\nfile.yaml", None, ".kodoctl/landing") == r"$'my\u000afile.yaml'", "one line, to be copied"


def lost(*lanes: str) -> list[LostLaneRow]:
    return [{"topic": "jobs", "subscription": "work", "lane": lane, "messages": 1} for lane in lanes]


def test_what_several_lanes_lost_is_planned_by_one_command():
    assert resend_commands([], "t.yaml") == []
    assert resend_commands(lost("dead"), "t.yaml", "books")[:2] == [
        "kodoctl pipeline recall plan t.yaml --topic jobs --subscription work --lane dead --lost --out lost.json --ledger books",
        "kodoctl recall apply lost.json --ledger books",
    ]
    assert resend_commands(lost("L1/ready", "dead"), "t.yaml") == [
        "kodoctl pipeline recall plan t.yaml --lost --out lost.json",
        "kodoctl recall apply lost-1.json",
        "kodoctl recall apply lost-2.json",
        "kodoctl pipeline ingest t.yaml",
        "kodoctl pipeline audit t.yaml",
    ]
    assert [plan_file("a/lost.json", 2, 2), plan_file("lost", 1, 2), plan_file("lost.json", 1, 1), plan_file(None, 1, 2)] == [
        "a/lost-2.json", "lost-1", "lost.json", None,
    ]  # fmt: skip


def test_a_time_is_ms_and_what_is_none_is_told_with_its_option():
    assert (duration("--goal", "10s"), duration("--goal", "5ms")) == (10_000, 5)
    for text, told in (("soon", "--goal: "), ("0s", "--goal: must be longer than zero")):
        with pytest.raises(UsageError, match=f"K804.*{told}"):
            duration("--goal", text)
