"""What `kodoctl peek` counts by cause: on one screen, however many messages there are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kodoctl.cli.letters.peek_command import look
from kodoctl.pulsar.binary.message_reader import ReadMessage
from kodoctl.recall.cluster import letter_of
from kodoctl.recall.filter.condition import parse
from kodoctl.recall.message.stored_message import DeadLetter
from kodoctl.render.recall import peek_lines


def _letter(number: int, reason: str = "ConnectionError") -> DeadLetter:
    properties = {"kodo-reason": reason, "kodo-error": f"bank {number} answered 503"} if reason else {}
    return _stored(number, properties)


def _stored(number: int, properties: dict[str, str]) -> DeadLetter:
    return letter_of(
        ReadMessage(None, 0, 7, number, -1, b"{}", properties, "", "", 0, 9, ""), "persistent://p/n/t", None
    )


def test_messages_are_counted_by_cause_and_those_without_one_are_left_out() -> None:
    letters = [_letter(number, ("ConnectionError", "KeyError", "")[number % 3]) for number in range(300)]
    found = {**look(iter(letters), parse("true", 1), 2, 1_000), "unread": []}
    causes = {"ConnectionError: bank # answered #": 100, "KeyError: bank # answered #": 100}
    assert found["by_cause"] == causes
    text = [line.text for line in peek_lines(found, 10)]  # type: ignore[arg-type]
    assert "    100  ConnectionError: bank # answered #" in text
    assert "    one of them: --where \"cause = '…'\"" in text


def test_groups_of_many_tenants_that_are_left_out_are_counted() -> None:
    letters = (replace(_letter(1), tenant=f"u{number}") for number in range(2_100))
    found = look(letters, parse("true", 1), 0, 10_000)
    assert (len(found["groups"]), found["left_out"], [*found["by_cause"].values()]) == (2_000, 100, [2_100])


def test_where_every_message_is_shown_causes_are_not() -> None:
    found = {**look(iter([_letter(1)]), parse("true", 1), 2, 1_000), "unread": []}
    assert not any("by cause" in line.text for line in peek_lines(found, 10))  # type: ignore[arg-type]


def test_only_what_meets_the_condition_counts() -> None:
    letters = [_letter(1), _letter(2, "KeyError")]
    assert look(iter(letters), parse("reason = 'KeyError'", 1), 0, 9)["by_cause"] == {"KeyError: bank # answered #": 1}


@pytest.mark.parametrize(
    ("limit", "scan", "end"),
    [
        (10, 100, "3 messages of 3 read; beside them 1 mark of producers. Nothing was consumed."),
        (0, 100, "3 messages of 3 read; 0 shown (--limit); beside them 1 mark of producers. Nothing was consumed."),
        (2, 100, "3 messages of 3 read; 2 shown (--limit); beside them 1 mark of producers. Nothing was consumed."),
        (10, 2, "2 messages of 2 read; there are more (--scan). Nothing was consumed."),
    ],
)
def test_the_end_says_which_limit_hides_what_and_counts_no_mark(limit: int, scan: int, end: str) -> None:
    mark = _stored(4, {"kodo-for": "(mark)", "kodo-seq": "1a221f894fd5f235953:0:high=3:end"})
    letters = [_letter(1), _letter(2), _letter(3), mark]
    found = {**look(iter(letters), parse("true", 1), limit, scan), "unread": []}
    lines = [line.text for line in peek_lines(found, 10)]  # type: ignore[arg-type]
    assert lines[-1] == end
    assert found["complete"] == (limit == 10 and scan == 100)
    assert sum("a mark: nobody handles it" in line for line in lines) == (limit == 10 and scan == 100)


@pytest.mark.parametrize(
    ("error", "means"),
    [("iban DE1 is closed", "(what its last error said)"), ("iban [redacted]", "(what its last error said, redacted)")],
)
def test_only_a_redacted_error_is_called_so(error: str, means: str) -> None:
    found = {**look(iter([_stored(1, {"kodo-error": error})]), parse("true", 1), 2, 9), "unread": []}
    assert any(line.text.endswith(means) for line in peek_lines(found, 10))  # type: ignore[arg-type]


def test_a_message_that_was_moved_says_when_it_was_first_sent() -> None:
    hour = 3_600_000
    for origin, more in (("0", 0), ("x", 0), ("1", 1)):
        found = {**look(iter([_stored(1, {"kodo-origin-time": origin})]), parse("true", 1), 2, 1_000), "unread": []}
        text = [line.text for line in peek_lines(found, hour)]  # type: ignore[arg-type]
        assert text.count("  first sent 1970-01-01 00:00:00 UTC, 59m ago") == more
