"""The first screen as values: which lanes a row shows, what needs a person, and with which command."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from kodoctl.ui.first_screen import Sentence, audit_sentence, first_screen
from tests.samples.consoles import NIGHT, NOW, WORDS, lane, reading


def test_a_row_shows_lanes_with_messages_or_trouble_and_counts_the_others() -> None:
    (section,) = first_screen(NIGHT, WORDS).sections
    billing, mailing = section.rows
    assert [(one.name, one.entries, one.oldest, one.note) for one in billing.lanes] == [
        ("L1 ready", 1_240, "9 min", ""),
        ("L1 retrying", 12, "1 h", "no worker reads it"),
        ("L1 pending", 0, "", "1 of 2 consumers blocked"),
    ]
    assert (billing.workers, billing.empty) == (2, 0)
    assert billing.dead is not None
    assert (billing.dead.name, billing.dead.entries) == ("dead letters", 3)
    assert billing.pace == "ready lanes: 70/s more come than go"
    assert billing.dead.link == {"topology": "trade", "topic": "orders-billing-DLQ", "subscription": "billing"}
    assert [(one.name, one.note) for one in mailing.lanes] == [("L1 ready", ""), ("L2 ready", "missing")]
    assert mailing.dead is None


def test_what_needs_a_person_is_named_worst_first_each_with_its_command() -> None:
    needs = first_screen(NIGHT, WORDS).needs
    assert [one.text for one in needs] == [
        "1 topic not read: parcels",
        "1 lane of trade missing",
        "orders / billing: 3 entries of dead letters, the oldest 8 h old",
        "orders / billing: no worker reads L1 retrying",
        "orders / mailing: 4 entries and no worker",
        "orders / billing: 1 of 2 consumers of L1 pending blocked",
        "orders / billing: ready lanes: 70/s more come than go",
    ]
    commands = [one.command for one in needs]
    assert commands[1] == "kodoctl plan topologies/trade.yaml --context prod"
    assert commands[2] == (
        "kodoctl recall plan topologies/trade.yaml --topic orders --subscription billing --where true --out recall.json --context prod"
    )
    assert commands[3].endswith("--handler MODULE:FUNCTION --lanes L1/retrying --context prod")
    assert needs[0].means == "503: no broker owns it"


def test_nothing_needs_a_person_where_all_is_quiet() -> None:
    screen = first_screen(reading(lane(consumers=1), lane("dead")), WORDS)
    assert screen.needs == ()
    (row,) = screen.sections[0].rows
    assert (row.lanes, row.empty, row.workers) == ((), 1, 1)


def test_an_unknown_age_is_not_guessed() -> None:
    needs = first_screen(reading(lane("dead", entries=1)), WORDS).needs
    assert [one.text for one in needs] == ["orders / billing: 1 entry of dead letters"]


def test_live_orders_are_badges_once_each() -> None:
    screen = first_screen(reading(lane(steered="x"), lane("retrying", steered="x")), WORDS)
    (badge,) = screen.sections[0].rows[0].badges
    assert badge.startswith("steered by something workers cannot read")


def test_names_in_commands_are_quoted_for_a_shell() -> None:
    line = WORDS.line("kodoctl recall plan", "trade", "--topic", "a'; rm -rf /; '")
    assert shlex.split(line)[5] == "a'; rm -rf /; '"


COVERAGE = [{"topic": "persistent://kodo/trade/orders"}]
TOPICS = {"trade": ["persistent://kodo/trade/orders", "persistent://kodo/trade/orders-AUDIT"]}


@pytest.mark.parametrize(
    ("verdict", "style", "text"),
    [
        ("no loss", "good", "No message was lost, as read 3 min ago"),
        ("loss", "bad", "Messages were lost, as read 3 min ago: 2 messages of orders"),
        ("inconclusive", "open", "It is open whether a message was lost, as read 3 min ago: 2 messages of orders"),
    ],
)
def test_the_sentence_says_the_verdict_and_its_age(verdict: str, style: str, text: str) -> None:
    reasons = [] if verdict == "no loss" else [{"text": "2 messages of orders"}, {"text": "more"}]
    document = {"verdict": verdict, "reasons": reasons, "read_at": NOW - 180_000, "coverage": COVERAGE}
    assert audit_sentence(document, NOW, "run this", TOPICS) == Sentence(
        style, text, "" if style == "good" else "run this"
    )


def test_without_an_audit_nothing_is_claimed() -> None:
    assert audit_sentence(None, NOW, "run this", TOPICS) == Sentence(
        "open", "Not judged whether a message was lost", "run this"
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"read_at": NOW - 3 * 86_400_000}, "as read 3 d ago"),
        ({"read_at": NOW + 3_600_000}, "as read 0 s ago"),
        ({"read_at": None}, "as read at an unknown time"),
        ({"coverage": []}, "not judged: trade"),
    ],
)
def test_an_audit_that_is_old_or_of_something_else_is_no_good_news(change: dict[str, Any], text: str) -> None:
    document = {"verdict": "no loss", "reasons": [], "read_at": NOW - 180_000, "coverage": COVERAGE} | change
    if document["read_at"] is None:
        del document["read_at"]
    sentence = audit_sentence(document, NOW, "run this", TOPICS)
    assert (sentence.style, sentence.command) == ("open", "run this")
    assert text in sentence.text
