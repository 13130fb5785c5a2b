"""Result of a release: what was released in each lane, and what stays and why."""

from __future__ import annotations

from dataclasses import replace

from kodoctl.documents.waiting_document import LaneReleaseRow, WaitingReleaseDocument
from kodoctl.render.waiting_text import release_lines


def row(lane: str, released: int, *, complete: bool = True, **stays: int) -> LaneReleaseRow:
    problems = [] if complete else ["1:2:0:-1: it is\nnot the letter that was planned"]
    return LaneReleaseRow(lane, "", released, stays, problems, complete, seconds=1.0)


def text(*rows: LaneReleaseRow) -> str:
    document = WaitingReleaseDocument(1, "orders", "billing", "true", [*rows])
    return "\n".join(line.text for line in release_lines(document, "http://here"))


def test_each_lane_says_what_was_released_and_what_stays_and_why() -> None:
    found = text(row("L1/blocking", 35, other=1_200, due=1), row("L2/blocking", 0))
    assert "L1/blocking: 35 messages released, 1,201 stay\n" in found
    assert "1,200 do not meet the condition" in found
    assert "L2/blocking: 0 messages released\n" in found
    assert "due at once" in found
    assert "Not complete" not in found


def test_what_an_earlier_run_left_is_reported_as_that() -> None:
    found = text(replace(row("L1/blocking", 6), earlier_run="run-\x1b1"), row("L1/blocking", 2))
    assert "L1/blocking: 6 messages released by the plan that run run-\\x1b1 left\n" in found
    assert "L1/blocking: 2 messages released\n" in found


def test_what_is_not_complete_says_to_run_it_again() -> None:
    found = text(row("L1/blocking", 0, complete=False, other=1))
    assert "0 messages released, 1 stays" in found
    assert "not the letter that was planned" in found
    assert found.endswith("run the same command again, which sends nothing twice.")
    assert "due at once" not in found
