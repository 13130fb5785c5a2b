"""Messages as pages show them, and which command equals a page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kodoctl.ui.first_screen import CommandWords
from kodoctl.ui.letter_causes import CauseCount, LetterCauses, Tries
from kodoctl.ui.message_search import LaneCopy, SearchHit, SearchResult
from kodoctl.ui.message_views import (
    LaneMessages,
    LaneQuestion,
    MessageView,
    cause_groups,
    export_command,
    history_sentence,
    hit_view,
    hop_places,
    lane_commands,
    message_view,
)
from tests.samples.consoles import NOW, WORDS, peeked


@pytest.mark.parametrize(
    ("state", "level", "commands"),
    [
        ("dead", None, ["peek", "recall plan"]),
        ("ready", "L1", ["peek"]),
        ("retrying", "L2", ["peek", "waiting plan"]),
    ],
)
def test_every_lane_names_the_commands_that_do_the_same(state: str, level: str | None, commands: list[str]) -> None:
    question = LaneQuestion("trade", "orders-X", "billing", "key = 'a b'")
    nothing: Any = {}
    found = LaneMessages(
        "persistent://kodo/trade/orders-X", "orders", level, state, "kept", nothing, ended=False, longest_wait=0
    )
    words = CommandWords(WORDS.files, WORDS.cluster, ["--env", "prod"])
    lines = lane_commands(words, question, found)
    assert [
        line.removeprefix("kodoctl ").split(" topologies/")[0].split(" persistent:")[0] for line in lines
    ] == commands
    assert all("""--where "key = 'a b'" """ in line for line in lines)
    assert all("--env prod" in line for line in lines)
    assert "--subscription kept" in lines[0]
    out = export_command(words, question, found)
    assert out.endswith("--topology topologies/trade.yaml --env prod --out orders-X.jsonl --context prod")
    assert state != "retrying" or "--lane L2/retrying" in lines[1]


def test_a_hit_leads_with_the_lanes_in_which_it_waits() -> None:
    control = [
        {"name": f"kodo-{name}", "value": value, "means": ""}
        for name, value in {"due": str(NOW + 60_000), "reason": "ConnectionError"}.items()
    ]
    old, new = peeked(published=1), peeked(published=NOW, control=control)
    hit = SearchHit("trade", "orders", old, 3_600_000)
    copies = [LaneCopy(name, "orders", "L1 ready", False, old) for name in ("billing", "mailing", "audited")]
    hit.add("key", new, [*copies, LaneCopy("billing", "orders-B1", "B1 ready", True, new)])
    recorded = frozenset({("trade", "orders", "audited")})
    view = hit_view(hit, NOW, SearchResult((hit,), 2, True, (), (), recorded))
    assert view.places == ((hit.copies[-1], "here now, due 2026-01-01 11:56:00 UTC, ConnectionError"),)
    assert view.ended == (
        (
            "Not waiting for mailing any more: done, skipped or discarded, of which nothing is recorded"
            " (audit: true in the file records it)."
        ),
        "Not waiting for audited any more: its history says what was done with it.",
    )
    assert (view.topics, view.message.reason) == (2, "ConnectionError")


def test_a_message_without_identity_is_named_by_its_position() -> None:
    view = message_view(peeked(control=[]), NOW, 0)
    assert (view.name, view.age, view.reason, view.error) == ("7:1:0:-1", "1 min", "", "")
    assert view.facts == (("uid", "u13", ""),)


def test_a_message_is_as_old_as_when_it_was_first_sent() -> None:
    def view(**control: str) -> MessageView:
        marks = [{"name": f"kodo-{name}", "value": value, "means": ""} for name, value in control.items()]
        return message_view(peeked(control=marks), NOW, 3_600_000)

    moved = view(**{"origin-time": str(NOW - 3 * 3_600_000), "due": str(NOW + 180_000)})
    assert (moved.age, moved.here) == ("3 h", "1 min")
    assert moved.due == "Tried again in 3 min, at 2026-01-01 11:58:00 UTC."
    late = view(due=str(NOW - 1), **{"origin-time": "9" * 15})
    assert (late.age, late.here) == ("1 min", "")
    assert (moved.moment, late.moment) == ("due 2026-01-01 11:58:00 UTC", "due since 2026-01-01 11:54:59 UTC")
    assert late.due == "Due since 2026-01-01 11:54:59 UTC: the next worker tries it."
    forged = view(due="9" * 15).due
    assert forged.startswith("Tried again in 59 min, at 2026-01-01 12:54:00 UTC. Its kodo-due is later than any wait")
    for wrong in ("", "-1", "soon", "9" * 16, "\u0661"):
        assert (view(due=wrong).due, view(**{"origin-time": wrong}).here) == ("", "")


def test_a_message_and_its_lane_name_the_limit_the_tries_and_the_first_time() -> None:
    nothing: Any = {}
    whole = LetterCauses(3, True, (CauseCount("over its limit", 3),), since=NOW - 120_000, recalled=1)
    tries = Tries("kodo-attempts-backup", 3, "dead letters")
    found = LaneMessages(
        "t", "orders", "B1", "ready", "billing", nothing, False, 0, whole, "over its quota 9/h", "customer", tries
    )
    assert found.meaning.startswith("they used up the tries of the usual lanes")
    assert (
        found.facts(NOW) == "over its quota 9/h; the oldest was sent 2 min ago; 1 message sent again by a recall before"
    )
    assert replace(found, whole=None).facts(NOW) == ""
    dead = replace(found, state="dead", whole=replace(whole, since=None, recalled=0))
    assert dead.facts(NOW) == "", "dead letters wait for no limit"
    assert replace(found, level=None, state="?").meaning == ""
    values = {"reason": "over its limit", "attempts-retrying": "2", "attempts-backup": "1"}
    control = [{"name": f"kodo-{name}", "value": value, "means": ""} for name, value in values.items()]
    view = message_view(peeked(control=control), NOW, 0, found)
    assert view.reason == "over its quota 9/h"
    assert view.tries == "failed at least 3 times, 3 tries left, then dead letters"
    plain = message_view(peeked(control=control), NOW, 0)
    assert (plain.reason, plain.tries) == ("over its limit", "failed at least 3 times")
    long = [{"name": "kodo-reason", "value": "no such price " * 10, "means": ""}]
    assert message_view(peeked(control=long), NOW, 0, found).reason == "no such price " * 10


def test_where_a_message_is_now() -> None:
    hops = [
        {"stored": stored, "acknowledged": acknowledged}
        for stored, acknowledged in [(False, True), (True, True), (True, False)]
    ]
    assert [place for _, place in hop_places({"hops": hops})] == ["no longer stored", "", "is here now"]


def hop(place: str, *, here: bool = False, ended: str = "", left: str = "") -> dict[str, Any]:
    at = NOW if ended else None
    return {"place": place, "stored": True, "acknowledged": not here, "ended": ended, "left": left, "ended_at": at}


@pytest.mark.parametrize(
    ("hops", "sentence"),
    [
        ([], ""),
        ([hop("L1/ready"), hop("B1/ready", here=True)], "It is now in B1/ready."),
        ([hop("dead letters", here=True)], "It is a dead letter: nothing tries it again by itself."),
        (
            [hop("L1/ready", ended="done", left="done")],
            "Handled, says the history for billing: done at 2026-01-01 11:55:00 UTC.",
        ),
        ([hop("L1/ready", left="acknowledged")], "It waits nowhere, says the history for billing: acknowledged."),
    ],
)
def test_a_history_begins_with_where_the_message_is(hops: list[dict[str, Any]], sentence: str) -> None:
    assert history_sentence({"hops": hops}, "billing") == sentence


def test_a_long_payload_is_cut_and_says_so() -> None:
    text = "x" * 9_990 + "\nabcdefghij-----"
    view = message_view(peeked(content={"kind": "text", "text": text, "note": "n"}), NOW, 0)
    assert (view.payload[1:], view.kind, view.note) == (("abcdefghi", "… and 6 characters more"), "text", "n")


def test_failures_are_grouped_by_cause_and_tenant_within_the_choice() -> None:
    groups = [{"cause": "it's", "tenant": f"u{number}", "messages": 9 - number} for number in range(8)]
    groups += [{"cause": "other", "tenant": "(none)", "messages": 1}]
    document: Any = {"by_cause": {"it's": 44, "other": 1, "(3 others)": 5}, "groups": groups}
    first, second, rest = cause_groups(LaneQuestion("trade", "orders", "billing", "a = 1 OR b = 2"), document)
    assert (first.messages, first.others, len(first.tenants)) == (44, 2, 6)
    assert first.where == "(a = 1 OR b = 2) AND cause = 'it\\'s'"
    assert first.tenants[1] == ("u1", 8, f"{first.where} AND tenant = 'u1'")
    assert (second.tenants, second.others) == ((), 0)
    assert (rest.where, rest.messages) == ("", 5)
    assert (first.unlisted, second.unlisted) == (0, 0)
    document["left_out"] = 9
    (plain, *_) = cause_groups(LaneQuestion("trade", "orders", "billing"), document)
    assert plain.unlisted == 44 - sum(range(2, 10)), "of tenants whose groups the document leaves out"
    assert plain.where == "cause = 'it\\'s'"
