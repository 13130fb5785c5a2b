"""A confirmed write: sent again only after reading showed that it did not happen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.admin import confirmed_write
from kodoctl.pulsar.admin.admin import LostReplyError, Reply
from kodoctl.pulsar.admin.confirmed_write import CONFLICT_S, WriteFailedError, poll_until, write_confirmed
from kodoctl.pulsar.connection.wait_monitor import FAIL_OVER_S, WaitMonitor


class Line:
    """An admin port that answers from a list; an exception in it is raised."""

    traffic: Any = None

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = list(answers)
        self.sent = 0
        self.pauses: list[float] = []
        self.waits = WaitMonitor(pause=self.pauses.append)

    def call(self, method: str, path: str, *_: Any, **__: Any) -> Reply:
        answer = self.answers[min(self.sent, len(self.answers) - 1)]
        self.sent += 1
        if isinstance(answer, Exception):
            raise answer
        return Reply(method, path, answer, None, "reason" if answer >= 400 else "")


LOST = LostReplyError(error("K515", "no answer to a write", "cut"))


def _write(line: Line, done: Callable[[], bool] = lambda: False, **options: Any) -> tuple[Reply | None, list[float]]:
    return write_confirmed(line, "PUT", "x", {}, done=done, **options), line.pauses


def test_an_accepted_write_is_sent_once_and_not_read_back_here() -> None:
    line = Line(204)
    reply, pauses = _write(line, lambda: pytest.fail("nobody asked"))
    assert reply is not None
    assert (line.sent, pauses) == (1, [])


@pytest.mark.parametrize("answer", [409, 429, 500, 502, 503, 504, LOST])
def test_a_busy_or_silent_broker_is_asked_what_happened_before_it_is_told_again(answer: int | Exception) -> None:
    line = Line(answer, 204)
    asked: list[int] = []

    def done() -> bool:
        asked.append(line.sent)
        return False

    reply, pauses = _write(line, done)
    assert reply is not None
    assert (line.sent, asked, len(pauses)) == (2, [1], 1)


@pytest.mark.parametrize("answer", [409, 500, LOST])
def test_a_write_that_happened_without_an_answer_is_not_sent_again(answer: int | Exception) -> None:
    line = Line(answer)
    reply, _ = _write(line, lambda: True)
    assert reply is None
    assert line.sent == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 412, 422])
def test_an_answer_that_will_not_change_fails_at_once_with_the_brokers_words(status: int) -> None:
    line = Line(status)
    with pytest.raises(WriteFailedError, match=rf"PUT x answered {status} \(reason\)"):
        _write(line)
    assert line.sent == 1


def test_an_answer_that_the_caller_understands_is_handed_back() -> None:
    reply, _ = _write(Line(409), final=frozenset({409}))
    assert reply is not None
    assert reply.status == 409


@pytest.mark.parametrize("first", [503, LOST])
def test_that_it_is_there_already_may_be_about_our_own_first_request_which_shows_late(first: int | Exception) -> None:
    line = Line(first, 409)
    looks = iter([False, False, True])
    reply, pauses = _write(line, lambda: next(looks), final=frozenset({409}))
    assert reply is None
    assert (line.sent, len(pauses)) == (2, 2)


def test_what_somebody_else_made_meanwhile_stays_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmed_write, "PATIENCE_S", 0.0)
    reply, _ = _write(Line(LOST, 409), final=frozenset({409}))
    assert reply is not None
    assert reply.status == 409


def test_a_broker_that_stays_busy_is_given_up_with_the_last_reason() -> None:
    line = Line(503)
    with pytest.raises(WriteFailedError, match=r"answered 503 .* given up after \d+ tries in 6\d s"):
        _write(line)
    assert FAIL_OVER_S <= sum(line.pauses) < FAIL_OVER_S + 4.5
    assert line.sent == len(line.pauses) + 1


def test_a_change_that_stands_in_the_way_for_longer_than_one_lasts_is_given_up_early() -> None:
    line = Line(409)
    with pytest.raises(WriteFailedError, match=r"answered 409 .* given up after"):
        _write(line)
    assert CONFLICT_S <= sum(line.pauses) < CONFLICT_S + 4.5


class Ownerless(Line):
    """An admin port that says so often that a topic has no owner now."""

    def call(self, method: str, path: str, *_: Any, **__: Any) -> Reply:
        reply = super().call(method, path)
        return reply if reply.ok else replace(reply, reason=f"{self.words} persistent://t/ns/x-partition-0")

    words = "Can't find owner for topic"


@pytest.mark.parametrize("words", ["Can't find owner for topic", "Failed to find ownership for topic:"])
@pytest.mark.parametrize("final", [frozenset[int](), frozenset({412})])
def test_a_topic_without_an_owner_is_waited_for(words: str, final: frozenset[int]) -> None:
    line = Ownerless(412, 412, 204)
    line.words = words
    reply, pauses = _write(line, final=final)
    assert reply is not None
    assert (reply.status, line.sent, len(pauses)) == (204, 3, 2)


def test_a_topic_whose_name_says_the_same_is_no_reason_to_wait() -> None:
    line = Ownerless(412)
    line.words = "Topic has active producers/subscriptions: Can't find owner for topic"
    with pytest.raises(WriteFailedError):
        _write(line)
    assert line.sent == 1


def test_a_cluster_that_cannot_be_read_either_is_tried_again() -> None:
    line = Line(LOST, 204)

    def unreadable() -> bool:
        raise ClusterError(error("K514", "no broker answers"))

    reply, _ = _write(line, unreadable)
    assert reply is not None
    assert line.sent == 2


def test_waiting_ends_when_it_came_true_or_when_time_is_up() -> None:
    answers = iter([False, False, True])
    assert poll_until(lambda: next(answers), pause=lambda _: None)
    assert not poll_until(lambda: False, seconds=0.0, pause=lambda _: None)
