"""Replay plans, reports and lists as text of at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kodoctl.documents.replay_document import ReplayPlanDocument, ReplayReport, ReplayRow
from kodoctl.render.replay_text import replay_list_lines, replay_plan_lines, replay_report_lines
from kodoctl.text.line import Line
from tests.unit.recall.letters import NOW
from tests.unit.recall.plan.test_replay_plan import PARTITION, made


def text(lines: Iterable[Line]) -> str:
    return "\n".join(line.text for line in lines)


def summed(**changes: Any) -> ReplayPlanDocument:
    """A plan with these numbers."""
    return made(summary={**made()["summary"], **changes})


def shown(plan: ReplayPlanDocument) -> str:
    return text(replay_plan_lines(plan, "here"))


def test_a_plan_says_what_runs_again_and_who_protects() -> None:
    plan = shown(made(because="the bank was down", until=NOW))
    assert "4 run again" in plan
    assert "5 s" not in plan
    assert "6 s before this plan" in plan
    assert "clock  the broker's" in plan
    assert "clock  the producers'" in shown(made(clocks="producers"))
    assert "clock" not in shown(made(message="1:2:0:-1"))
    assert "until  2027-01-15 08:00:00 UTC" in plan
    assert "why    the bank was down" in plan
    assert "What is done is not known" in plan
    assert "4 messages of 1 partition to deliver again" in plan


def test_a_plan_with_a_store_says_what_is_skipped() -> None:
    plan = shown(made(store=True, summary={**made()["summary"], "done": 3}))
    assert "3 are skipped: done, says the workers' store" in plan
    assert "not known (--store" not in plan
    assert "For such messages run `kodo-consumer inbox retry`." in plan


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("unfinished", "2 come anyway"),
        ("copies", "2 stay done: copies"),
        ("others", "2 stay done: for another"),
        ("elsewhere", "2 of them also wait in another lane"),
        ("by_place", "2 were published outside of this time"),
        ("expiring", "2 are older than the time to live"),
        ("in_batches", "2 of those not acknowledged are in batches"),
    ],
)
def test_each_number_has_its_line(number: str, words: str) -> None:
    assert words in shown(summed(**{number: 2}))
    assert words not in shown(made())


@pytest.mark.parametrize(
    ("duration", "words"),
    [
        ({}, "not known: workers were not busy in the last minute"),
        ({"rate": 2.0, "ms": 2_000}, "about 2 s: 4 messages at 2.0/s (as said), while nothing arrives"),
        ({"rate": 2.0, "measured": True, "arriving": 3.0}, "for ever: workers handle 2.0/s (as measured"),
    ],
)
def test_the_duration_is_said_or_why_it_is_not_known(duration: dict[str, Any], words: str) -> None:
    assert words in shown(made(duration={**made()["duration"], **duration}))


def test_what_is_gone_unread_unknown_or_refused_is_said() -> None:
    found = shown(made(gone=["old"], unread=["broken"], unknown=["ttl"], refusals=["quota"]))
    for words in (
        "never sent):\n    old",
        "Stored, but no",
        "Not known:\n    ttl",
        "Cannot be carried out:\n    quota",
    ):
        assert words in found
    assert found.endswith("Nothing was changed.")
    assert "Refused" in found


def test_order_a_message_and_tenants_are_said() -> None:
    tenants = {f"t{number}": 2 for number in range(7)}
    found = shown(
        made(ordered=True, message="1:4:0:-1", summary={**made()["summary"], "by_tenant": {**tenants, "": 3}})
    )
    assert "The subscription keeps order" in found
    assert "from   message 1:4:0:-1, to the end of its partition" in found
    assert "tenant t0 2, t1 2, t2 2, t3 2, t4 2, others 7" in found


def test_a_plan_that_is_carried_out_now_does_not_say_that_nothing_was_changed() -> None:
    lines = [line.text for line in replay_plan_lines(made(), "context prod", is_applied=True)]
    assert "Nothing was changed" not in "\n".join(lines)


def test_a_plan_of_nothing_says_so() -> None:
    nothing = {**made()["summary"], "again": 0, "by_tenant": {}}
    found = shown(made(partitions=[], summary=nothing, ordered=True))
    assert found.endswith("Nothing to replay: no acknowledged message is stored there. Nothing was changed.")
    assert "tenant" not in found
    assert "!" not in found


def test_lanes_have_a_line_each() -> None:
    found = shown(made(partitions=[PARTITION, {**PARTITION, "partition": 1}, {**PARTITION, "lane": "L2/ready"}]))
    assert "(L1/ready): 8 messages" in found
    assert "(L2/ready): 4 messages" in found


def test_reports_say_what_comes_and_what_does_not() -> None:
    done = ReplayReport("r1", "replay", 2, 9, kept=1, complete=True)
    assert text(replay_report_lines(done)) == (
        "Replay r1: 9 entries of 2 partitions come again.\n"
        "  1 entry stays acknowledged behind the new position: handled since, or not of the plan."
    )
    undone = ReplayReport("r1", "undo", 1, 1, again_done=2, problems=["p0: not shown"])
    assert text(replay_report_lines(undone)) == (
        "Undone r1: 1 entry of 1 partition acknowledged again, which come no more.\n"
        "  2 entries were handled again meanwhile: what handlers did stays done.\n"
        "  p0: not shown\n"
        "Not complete: run the same command again."
    )
    assert "handled again" not in text(replay_report_lines(ReplayReport("r1", "undo", complete=True)))
    assert "behind" not in text(replay_report_lines(ReplayReport("r1", "replay", complete=True)))
    unclear = text(replay_report_lines(ReplayReport("r1", "replay", unclear=["p0: 4 entries"], complete=True)))
    assert "Not known whether these came again" in unclear
    assert unclear.endswith("\n    p0: 4 entries")


def test_the_list_names_each_replay() -> None:
    row: ReplayRow = {
        "run": "r1", "began": NOW, "who": "me", "topic": "orders", "subscription": "billing", "messages": 3,
        "because": "bank", "state": "undone",
    }  # fmt: skip
    assert text(replay_list_lines([row, {**row, "because": ""}], "kodo/trade")) == (
        "r1  2027-01-15 08:00 UTC  orders/billing: 3 messages, undone\n  by me: bank\n"
        "r1  2027-01-15 08:00 UTC  orders/billing: 3 messages, undone\n  by me"
    )
    assert text(replay_list_lines([], "kodo/trade")) == "No replay in kodo/trade yet."
