"""Threads end with a word, or not at all."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from consumer.threads import EndedError, begin, leave, log_end
from tests.support import eventually


def raising() -> None:
    raise SystemExit(3)


def test_whatever_ends_a_thread_is_told() -> None:
    told: list[BaseException] = []
    begin(raising, "t", told.append).join()
    assert [type(problem) for problem in told] == [SystemExit]


@pytest.mark.parametrize(
    ("over", "problems"), [(False, ["the thread t has ended, and nobody asked it to"]), (True, [])]
)
def test_a_thread_that_returns_although_nobody_asked_it_to_is_told(over: bool, problems: list[str]) -> None:
    told: list[BaseException] = []
    begin(lambda: None, "t", told.append, over=lambda: over).join()
    assert [str(problem) for problem in told] == problems
    assert all(isinstance(problem, EndedError) for problem in told)


def test_a_thread_that_may_return_at_any_time_does_so_without_a_word() -> None:
    told: list[BaseException] = []
    begin(lambda: None, "t", told.append).join()
    assert not told


def test_the_log_names_a_thread_without_which_a_worker_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        begin(raising, "kodo-view", log_end).join()
    assert "the thread kodo-view has ended: SystemExit(3)" in caplog.text


def test_what_does_not_end_is_named_and_left_behind_after_one_time_limit_for_all() -> None:
    gate, ended = threading.Event(), []
    began = time.monotonic()
    late = leave({"a": gate.wait, "b": lambda: ended.append("b"), "c": gate.wait}, 0.2)
    assert late == ["a", "c"]
    assert time.monotonic() - began < 5
    eventually(lambda: ended == ["b"])
    gate.set()
