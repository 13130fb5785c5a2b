"""What `kodoctl peek` counts by cause: on one screen, however many messages there are."""

from __future__ import annotations

from kodoctl.cli.peek_command import _look
from kodoctl.pulsar.message_reader import ReadMessage
from kodoctl.recall.cluster import letter_of
from kodoctl.recall.filter.condition import parse
from kodoctl.recall.stored_message import DeadLetter
from kodoctl.render.recall import peek_lines


def _letter(number: int, reason: str = "ConnectionError") -> DeadLetter:
    properties = {"kodo-reason": reason, "kodo-error": f"bank {number} answered 503"} if reason else {}
    return letter_of(
        ReadMessage(None, 0, 7, number, -1, b"{}", properties, "", "", 0, 9, ""), "persistent://p/n/t", None
    )


def test_messages_are_counted_by_cause_and_those_without_one_are_left_out() -> None:
    letters = [_letter(number, ("ConnectionError", "KeyError", "")[number % 3]) for number in range(300)]
    found = {**_look(iter(letters), parse("true", 1), 2, 1_000), "unread": []}
    causes = {"ConnectionError: bank # answered #": 100, "KeyError: bank # answered #": 100}
    assert found["by_cause"] == causes
    text = [line.text for line in peek_lines(found, 10)]  # type: ignore[arg-type]
    assert "    100  ConnectionError: bank # answered #" in text
    assert "    one of them: --where \"cause = '…'\"" in text


def test_where_every_message_is_shown_causes_are_not() -> None:
    found = {**_look(iter([_letter(1)]), parse("true", 1), 2, 1_000), "unread": []}
    assert not any("by cause" in line.text for line in peek_lines(found, 10))  # type: ignore[arg-type]


def test_only_what_meets_the_condition_counts() -> None:
    letters = [_letter(1), _letter(2, "KeyError")]
    assert _look(iter(letters), parse("reason = 'KeyError'", 1), 0, 9)["by_cause"] == {"KeyError: bank # answered #": 1}
