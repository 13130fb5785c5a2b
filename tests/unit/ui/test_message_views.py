"""Questions about messages: what a search compares, and which command equals a page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kodoctl.errors import UsageError
from kodoctl.recall.filter.condition import parse
from kodoctl.recall.message.stored_message import DeadLetter, Position
from kodoctl.ui.first_screen import CommandWords
from kodoctl.ui.message_views import (
    LaneMessages,
    LaneQuestion,
    MessageView,
    SearchHit,
    cause_groups,
    export_command,
    hop_places,
    lane_commands,
    message_view,
    search_condition,
)
from tests.samples.consoles import NOW, WORDS, peeked
from tests.samples.reports import EVIL


def stored(**values: Any) -> DeadLetter:
    return DeadLetter("persistent://kodo/trade/orders", Position(0, 7, 1, -1), b"{}", **{"properties": {}, **values})


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("order-4711", stored(properties={"kodo-id": "order-4711"})),
        ("7:1:0:-1", stored(properties={"kodo-id": "other"})),
        ("9:9:0:-1", stored(properties={"kodo-origin-id": "9:9:0:-1"})),
        ("4711", stored(key="4711")),
        ("u7", stored(properties={"uid": "u7"})),
        (" u7 ", stored(properties={"uid": "u7"})),
        ("a'b\\", stored(properties={"it's": "a'b\\"})),
        (EVIL, stored(key=EVIL)),
    ],
)
def test_a_message_is_named_by_identity_position_key_and_declared_properties(text: str, letter: DeadLetter) -> None:
    condition = parse(search_condition(text, ["uid", "it's", "key"]), NOW)
    assert condition.chooses(letter)
    assert not condition.chooses(
        replace(stored(key="47110", properties={"secret": text}), position=Position(0, 8, 1, -1))
    )


@pytest.mark.parametrize("text", ["", "  ", "x" * 501])
def test_an_empty_or_endless_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="K785"):
        search_condition(text, [])


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
    assert all("""--where 'key = '"'"'a b'"'"''""" in line for line in lines)
    assert all("--env prod" in line for line in lines)
    assert "--subscription kept" in lines[0]
    out = export_command(words, question, found)
    assert out.endswith("--topology topologies/trade.yaml --env prod --out orders-X.jsonl --context prod")
    assert state != "retrying" or "--lane L2/retrying" in lines[1]


def test_a_hit_shows_its_newest_copy_and_counts_topics_once() -> None:
    old, new = peeked(topic="a", published=1), peeked(topic="b", published=2)
    hit = SearchHit("trade", "orders", old, 0)
    for one in (old, new, peeked(topic="a", published=0)):
        hit.add(one, ["billing"])
    assert (hit.message, hit.topics, hit.subscriptions) == (new, ["a", "b"], ["billing"])


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
    assert late.due == "Due since 2026-01-01 11:54:59 UTC: the next worker tries it."
    forged = view(due="9" * 15).due
    assert forged.startswith("Tried again in 59 min, at 2026-01-01 12:54:00 UTC. Its kodo-due is later than any wait")
    for wrong in ("", "-1", "soon", "9" * 16, "\u0661"):
        assert (view(due=wrong).due, view(**{"origin-time": wrong}).here) == ("", "")


def test_where_a_message_is_now() -> None:
    hops = [
        {"stored": stored, "acknowledged": acknowledged}
        for stored, acknowledged in [(False, True), (True, True), (True, False)]
    ]
    assert [place for _, place in hop_places({"hops": hops})] == ["no longer stored", "", "is here now"]


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
