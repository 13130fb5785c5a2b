"""A run without progress is cancelled, and the process given up where that does not end the run; nothing else is."""

from __future__ import annotations

import threading
import time

from kodo_pipeline.run.run_deadline import RunDeadline


class Calls:
    """What a deadline asked for. `cancelled` is set by the cancellation."""

    def __init__(self, limit: float, grace: float = 30.0) -> None:
        self.cancelled, self.given_up = threading.Event(), threading.Event()
        self.last = ""
        self.deadline = RunDeadline(limit, grace, self.cancelled.set, self.give_up)

    def give_up(self, last: str) -> None:
        self.last = last
        self.given_up.set()


def test_a_run_that_ends_in_time_is_not_cancelled() -> None:
    calls = Calls(30.0)
    with calls.deadline.watch():
        calls.deadline.progress("a batch")
    assert (calls.cancelled.is_set(), calls.deadline.exceeded) == (False, None)


def test_a_run_that_gets_on_may_take_longer_than_the_limit() -> None:
    calls = Calls(0.5)
    with calls.deadline.watch():
        began = time.monotonic()
        while time.monotonic() - began < 1.0:
            calls.deadline.progress("a batch")
            time.sleep(0.01)
    assert calls.deadline.exceeded is None


def test_a_run_without_progress_is_cancelled_and_the_process_goes_on() -> None:
    calls = Calls(0.05)
    calls.deadline.progress("the beginning of audit")
    with calls.deadline.watch():
        assert calls.cancelled.wait(30)
    assert calls.deadline.exceeded == "the beginning of audit"
    assert not calls.given_up.is_set()


def test_a_run_that_does_not_end_when_it_is_cancelled_has_the_process_given_up() -> None:
    calls = Calls(0.0, 0.05)
    with calls.deadline.watch():
        assert calls.given_up.wait(30)
    assert (calls.last, calls.cancelled.is_set()) == ("its beginning", True)


def test_a_cancellation_that_hangs_keeps_nobody() -> None:
    hanging, given_up = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.wait(60)

    deadline = RunDeadline(0.0, 0.05, hang, lambda _: given_up.set())
    with deadline.watch():
        assert given_up.wait(30)
    hanging.set()
