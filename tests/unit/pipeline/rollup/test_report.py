"""Widths of windows, and what people read of a rollup."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kodo_pipeline.rollup.report import DAY, document, parse_window
from kodo_pipeline.rollup.rollup_text import lines

from kodoctl.errors import UsageError

ZERO = dict.fromkeys(
    ("arrivals", "done", "failed", "rerouted", "over_limit", "retries", "dead", "discarded", "repeated"), 0
)


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("5m", 300_000),
        ("5 minutes", 300_000),
        (" 1 hour ", 3_600_000),
        ("1d", DAY),
        ("30 secs", 30_000),
        ("8h", 28_800_000),
    ],
)
def test_windows_are_written_as_people_do(text, window):
    assert parse_window(text) == window


@pytest.mark.parametrize(
    ("text", "why"),
    [("7m", "'7m' does not divide a day; 5m does"), ("2d", "1d does"), ("0m", "no time"), ("m", "no time")],
)
def test_windows_divide_a_day(text, why):
    with pytest.raises(UsageError, match=why) as found:
        parse_window(text)
    assert found.value.diagnostics[0].code == "K800"


@given(st.integers(1, 200_000))
def test_what_is_named_instead_is_accepted(seconds):
    try:
        assert DAY % parse_window(f"{seconds}s") == 0
    except UsageError as problem:
        named = str(problem.diagnostics[0].detail).partition("; ")[2].removesuffix(" does")
        assert parse_window(named) <= seconds * 1000


def lane(state, subscription="billing", level="L1", topic="orders", **counts):
    return {"topic": topic, "subscription": subscription, "level": level, "state": state, **ZERO, **counts}


def test_a_rollup_without_windows_has_no_end() -> None:
    made = document(300_000, (0, 0, 0, 0), (), (), {"lanes": {}, "tenants": {}})
    assert (made["since"], made["until"], made["windows"]) == (0, 0, 0)
    assert next(lines(made)).text == "0 windows of 5m", "and none of 1970"


def told(lanes, tenants=(), late=None):
    made = document(300_000, (0, 600_000, 2, 0), lanes, tenants, {"lanes": {}, "tenants": {}} | (late or {}))
    return made, [line.text for line in lines(made)]


def test_lanes_stand_in_the_order_of_a_life_and_arrivals_with_who_works_on_them():
    late = {"lanes": {("orders", "billing", "L1", "ready"): {"p50": 1.2, "p95": 30.0, "p99": 12_345_678.0}}}
    lanes = [
        lane("dead", level=None, arrivals=1),
        lane("retrying", arrivals=3, done=2),
        lane("ready", done=5, failed=3),
        lane("ready", None, arrivals=9),
        lane(None, level=None, done=1),
        lane("ready", None, topic="unread", arrivals=4),
    ]
    made, text = told(lanes, late=late)
    assert text[0] == "2 windows of 5m, 1970-01-01 00:00 to 1970-01-01 00:15 UTC"
    one = document(300_000, (0, 0, 1, 1_204), lanes, (), {"lanes": {}, "tenants": {}})
    first, more, *_ = lines(one)
    assert first.text.startswith("1 window of 5m, ")
    assert more.text == "1,204 windows more, of impossible times (a sender writes the publish time)"
    assert [line.split() for line in text[2:9]] == [
        ["orders", "/", "billing:", "what", "happened", "in", "each", "lane,", "until", "done", "in", "ms"],
        ["lane", "arrivals", "done", "failed", "p50", "p95", "p99"],
        ["L1", "ready", "9", "5", "3", "1", "30", "12.3M"],
        ["L1", "retrying", "3", "2", "0", "-", "-", "-"],
        ["dead", "letters", "1", "0", "0", "-", "-", "-"],
        ["not", "in", "the", "file", "0", "1", "0", "-", "-", "-"],
        [],
    ]
    assert [line.split() for line in text[9:12]] == [
        ["unread:", "what", "happened", "in", "each", "lane,", "until", "done", "in", "ms"], ["lane", "arrivals", "done"], ["L1", "ready", "4", "0"],
    ]  # fmt: skip
    assert sum(one["arrivals"] for one in made["lanes"]) == 17


def test_tenants_by_size_and_names_never_push_numbers_off_the_screen():
    tenants = [
        {"topic": "orders", "tenant": name, **ZERO, "arrivals": many, "over_limit": 1_000_000}
        for name, many in (("u2", 5), ("x" * 200, 9), (None, 1))
    ]
    _, text = told([], tenants, {"tenants": {("orders", "u2"): {"p50": 0.0, "p95": 1.0, "p99": 2.0}}})
    table = text[3:7]
    assert table[1].split()[0].startswith("xxx")
    assert [line.split()[0] for line in table[2:]] == ["u2", "None"]
    assert max(map(len, text[:-1])) <= 80
