"""Figures for people: counts with their nouns, ages, durations and times."""

from __future__ import annotations

import pytest

from kodoctl.text.formatting import age_text, duration_text, many, partitions_text, shorten_lines, size_text, time_text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0.4, "0.4 ms"),
        (84.2, "84 ms"),
        (999.6, "1 s"),
        (59_700, "1 min"),
        (1_000, "1 s"),
        (1_240, "1.2 s"),
        (200_000, "3.3 min"),
        (5 * 3_600_000, "5 h"),
        (86_400_000, "1 d"),
    ],
)
def test_times_are_spelt_as_people_say_them(ms, text):
    assert duration_text(ms) == text


@pytest.mark.parametrize(
    ("ms", "text", "short"),
    [
        (0, "0 s", "0s"),
        (59_999, "59 s", "59s"),
        (60_000, "1 min", "1m"),
        (90 * 60_000, "1 h", "1h"),
        (86_400_000, "1 d", "1d"),
    ],
)
def test_an_age_is_rounded_down_to_its_largest_unit(ms, text, short):
    assert age_text(ms) == text
    assert age_text(ms, short=True) == short


def test_a_time_is_utc_and_a_number_beyond_every_calendar_stands_as_it_is():
    assert time_text(1_769_868_000_000) == "2026-01-31 14:00 UTC"
    assert time_text(1_769_868_005_000, seconds=True) == "2026-01-31 14:00:05 UTC"
    assert time_text(1_769_868_000_000, zone=False) == "2026-01-31 14:00"
    assert time_text(10**18) == "1000000000000000000"


@pytest.mark.parametrize(("number", "text"), [(0, "0 entries"), (1, "1 entry"), (2_000, "2,000 entries")])
def test_a_noun_agrees_with_its_number(number, text):
    assert many(number, "entry", "entries") == text


def test_a_plain_topic_has_no_partitions() -> None:
    assert [partitions_text(one) for one in (0, 1, 4)] == ["no partitions", "1 partition", "4 partitions"]


def test_sizes():
    assert [size_text(one) for one in (0, 1_536, (1 << 20) - 1, 1 << 30)] == ["0B", "1.5KiB", "1MiB", "1GiB"]


def test_of_many_lines_the_first_twenty_are_shown_and_the_rest_is_counted() -> None:
    assert shorten_lines([]) == []
    assert shorten_lines(["x"] * 20) == ["x"] * 20
    assert shorten_lines(["x"] * 21) == [*["x"] * 20, "and 1 more"]
