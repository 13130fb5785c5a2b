"""Waits: how long, how often, and what is reported of them."""

from __future__ import annotations

import threading

import pytest

from kodoctl.pulsar.connection.wait_monitor import FAIL_OVER_S, REPORT_AFTER_S, REPORT_EVERY_S, WaitMonitor


class Clock:
    """A clock that moves only when somebody pauses."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def test_tries_go_on_for_the_time_of_a_fail_over_with_pauses_that_grow_and_differ() -> None:
    clock = Clock()
    with WaitMonitor(clock=clock, pause=clock.pause).during("a broker") as wait:
        while wait.again("503"):
            pass
    assert FAIL_OVER_S <= sum(clock.pauses) < FAIL_OVER_S + 4.5
    assert clock.pauses[0] <= 0.3
    assert all(1.5 <= pause <= 4.5 for pause in clock.pauses[5:])
    assert len(set(clock.pauses)) == len(clock.pauses)
    assert wait.seconds >= wait.limit


def test_a_reason_with_a_limit_of_its_own_is_given_up_earlier() -> None:
    clock = Clock()
    with WaitMonitor(clock=clock, pause=clock.pause).during("a broker") as wait:
        while wait.again("409", 10.0):
            pass
    assert 10.0 <= sum(clock.pauses) < 14.5


def test_the_limit_that_is_reported_is_that_of_the_present_reason() -> None:
    clock = Clock()
    reports: list[tuple[str, float, float]] = []
    monitor = WaitMonitor(lambda *parts: reports.append(parts), clock=clock, pause=clock.pause)
    with monitor.during("a write") as wait:
        while wait.again("409", 8.0):
            pass
        monitor.report()
    assert [(what, limit) for what, _, limit in reports] == [("409", 8.0)]
    monitor.close()


def test_one_try_that_took_longer_than_the_limit_is_repeated_once() -> None:
    clock = Clock()
    with WaitMonitor(clock=clock, pause=clock.pause).during("a broker") as wait:
        clock.now += 2 * FAIL_OVER_S
        assert wait.again("no answer in time")
        clock.now += 2 * FAIL_OVER_S
        assert not wait.again("no answer in time")


def test_who_does_not_wait_tries_once() -> None:
    clock = Clock()
    with WaitMonitor(clock=clock, pause=clock.pause).during("a broker", 0.0) as wait:
        assert not wait.again("503")
    assert clock.pauses == []


def test_the_longest_wait_is_reported_once_in_some_seconds_by_what_its_thread_does_now() -> None:
    clock = Clock()
    reports: list[tuple[str, float, float]] = []
    monitor = WaitMonitor(lambda *parts: reports.append(parts), clock=clock, pause=clock.pause)
    with monitor.during("a write", 60.0):
        clock.now += REPORT_AFTER_S - 0.1
        monitor.report()
        assert reports == []
        with monitor.during("a look after the write", 30.0) as look:
            clock.now += 0.2
            look.what = "a look after the write: 503"
            monitor.report()
            monitor.report()
            assert reports == [("a look after the write: 503", pytest.approx(5.1), 60.0)]
        clock.now += REPORT_EVERY_S
        monitor.report()
    assert reports[1:] == [("a write", pytest.approx(5.1 + REPORT_EVERY_S), 60.0)]
    clock.now += REPORT_EVERY_S
    monitor.report()
    assert len(reports) == 2
    monitor.close()


def test_a_call_that_blocks_is_reported_while_it_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodoctl.pulsar.connection.wait_monitor.REPORT_AFTER_S", 0.1)
    heard = threading.Event()
    monitor = WaitMonitor(lambda *_: heard.set())
    with monitor.during("a send"):
        assert heard.wait(60)
    monitor.close()
