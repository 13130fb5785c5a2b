"""Search for messages: what a text is compared with, when it is a condition, and the words for a result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kodoctl.errors import UsageError
from kodoctl.recall.message.stored_message import DeadLetter, Position
from kodoctl.ui.message_search import LaneCopy, SearchHit, SearchText
from tests.samples.consoles import NOW, peeked
from tests.samples.reports import EVIL


def stored(**values: Any) -> DeadLetter:
    return DeadLetter("persistent://kodo/trade/orders", Position(0, 7, 1, -1), b"{}", **{"properties": {}, **values})


@pytest.mark.parametrize(
    ("text", "letter", "fact"),
    [
        ("order-4711", stored(properties={"kodo-id": "order-4711"}), "kodo-id"),
        ("7:1:0:-1", stored(properties={"kodo-id": "other"}), "position"),
        ("9:9:0:-1", stored(properties={"kodo-origin-id": "9:9:0:-1"}), "first position"),
        ("4711", stored(key="4711"), "key"),
        ("u7", stored(properties={"uid": "u7"}), "tenant"),
        (" 4711 ", stored(properties={"order": "4711"}), "order"),
        ("a'b\\", stored(properties={"it's": "a'b\\"}), "it's"),
        (EVIL, stored(key=EVIL), "key"),
    ],
)
def test_a_message_is_found_by_identity_position_key_and_declared_properties(
    text: str, letter: DeadLetter, fact: str
) -> None:
    wanted, names = SearchText.of(text, NOW), ["uid", "order", "it's", "key"]
    assert wanted.condition is None
    assert wanted.fact_of(wanted.text, letter, names, "uid") == fact
    other = replace(stored(key="47110", properties={"secret": text}), position=Position(0, 8, 1, -1))
    assert wanted.fact_of(wanted.text, other, names, "uid") == ""


@pytest.mark.parametrize("text", ["", "  ", "x" * 501])
def test_an_empty_or_endless_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="K785"):
        SearchText.of(text, NOW)


@pytest.mark.parametrize("text", ["payload.order = 4711", "payload.order = '4711'", "tenant = 'acme' AND attempts < 3"])
def test_a_condition_is_read_as_one(text: str) -> None:
    condition = SearchText.of(text, NOW).condition
    assert condition is not None
    letter = stored(tenant="acme")
    assert condition.chooses(replace(letter, payload=b'{"order": 4711}'))
    assert condition.chooses(replace(letter, payload=b'{"order": 4712}')) is text.startswith("tenant")


@pytest.mark.parametrize("text", ["4711", "order-4711", "acme", "1 = 1", "true", "it's"])
def test_a_text_without_a_question_is_no_condition(text: str) -> None:
    wanted = SearchText.of(text, NOW)
    assert (wanted.condition, wanted.problems) == (None, ())


def test_what_looks_like_a_condition_and_is_none_says_why() -> None:
    assert [one.code for one in SearchText.of("kye = 1", NOW).problems] == ["K552"]
    assert [SearchText.of(text, NOW).value for text in ("kye >", "kye = 4711 <", "order: 4711")] == ["", "4711", "4711"]


def hits(count: int, *facts: str) -> list[SearchHit]:
    return [SearchHit("trade", "orders", peeked(), 0, [*facts]) for _ in range(count)]


@pytest.mark.parametrize(
    ("text", "found", "title"),
    [
        ("acme", hits(7, "tenant"), "7 messages with tenant acme"),
        ("4711", hits(1, "payload.order"), "1 message with payload.order 4711"),
        ("4711", [*hits(1, "key"), *hits(1, "order", "key")], "2 messages with key or order 4711"),
        ("4711", [], 'No stored message has the value "4711"'),
        ("order 4711", [], 'No stored message has the value "order 4711" or "4711"'),
        ("4711", hits(50, "key"), "50 messages or more with key 4711"),
        ("key = 'a'", hits(1, ""), "1 message meets key = 'a'"),
        ("key = 'a'", hits(2, ""), "2 messages meet key = 'a'"),
        ("key = 'a'", [], "No stored message meets key = 'a'"),
    ],
)
def test_a_result_is_told_in_plain_words(text: str, found: list[SearchHit], title: str) -> None:
    assert SearchText.of(text, NOW).title(found, text) == title


@pytest.mark.parametrize(
    "text",
    [
        "order 4711", "Order #4711", "order=4711", "order = 4711", "order: 4711", "order:4711", "order no. 4711",
        "order '4711'", "where is order 4711?", "#4711",
    ],
)  # fmt: skip
def test_the_last_word_is_searched_as_well_with_the_name_before_it(text: str) -> None:
    wanted = SearchText.of(text, NOW)
    assert (wanted.texts, wanted.name) == ((text, "4711"), "" if text == "#4711" else "order")


@pytest.mark.parametrize("text", ["4711", "7:1:0:-1", "order-4711", "key = '4711'", "a1:2"])
def test_a_text_of_one_word_or_a_condition_is_searched_as_it_is(text: str) -> None:
    assert SearchText.of(text, NOW).texts == (text,)


def test_what_is_equal_as_a_whole_counts_before_the_last_word_and_a_named_value_before_others() -> None:
    wanted = SearchText.of("Order 4711", NOW)
    whole, order, member, other = (hits(1, fact) for fact in ("key", "order", "payload.Order", "customer"))
    assert wanted.best([whole, order]) == ("Order 4711", tuple(whole))
    assert wanted.best([[], [*other, *order, *member]]) == ("4711", (*order, *member))
    assert wanted.best([[], other]) == ("4711", tuple(other))
    assert wanted.best([[], []]) == ("Order 4711", ())
    asked = SearchText.of("order = 4711", NOW)
    assert asked.best([[], [*other, *order]]) == ("4711", tuple(order))
    assert asked.best([[], other]) == ("order = 4711", ()), "a misspelt condition is no search for its last word"
    assert asked.title((), "order = 4711") == 'No stored message has the value "order = 4711"'


def test_a_hit_shows_its_newest_copy_and_where_it_waits() -> None:
    old, new = peeked(published=1), peeked(published=2)
    hit = SearchHit("trade", "orders", old, 0)

    def copy(subscription: str, topic: str, message: Any, *, waits: bool | None) -> LaneCopy:
        return LaneCopy(subscription, topic, "L1 ready", waits, message)

    hit.add(
        "key", old, [copy(name, "a", old, waits=waits) for name, waits in (("x", False), ("y", False), ("z", None))]
    )
    hit.add("key", new, [copy("x", "b", new, waits=True)])
    hit.add("order", peeked(published=0), [copy("y", "c", peeked(published=0), waits=False)])
    assert (hit.message, hit.facts, hit.subscriptions) == (new, ["key", "order"], ["x", "y", "z"])
    assert [one.topic for one in hit.places] == ["b"]
    assert hit.ended == ["y"], "of z it is not known"
