"""Several consumers in one process: one start, one drain, one end."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from kodo_consumer.running.multi_run import run_all

from kodoctl.errors import ClusterError, UsageError, error


class Stub:
    """A consumer as far as running it goes; it notes what happened to it in a list that all share."""

    def __init__(self, name: str, log: list[str], fails: str = "") -> None:
        self.name, self.log, self.fails = name, log, fails
        self.over = threading.Event()
        self.others: list[Stub] = []

    def start(self) -> None:
        if self.fails == "start":
            raise ClusterError(error("K713", "cannot subscribe", self.name))
        self.log.append(f"{self.name} starts")
        if self.fails == "run":
            self.over.set()

    def stop(self) -> None:
        self.log.append(f"{self.name} stops")
        if self.fails == "run":
            raise RuntimeError(self.name)

    def wait(self, seconds: float | None = None) -> bool:
        if self.fails == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        if self.fails == "hangup" and not self.over.is_set():
            os.kill(os.getpid(), signal.SIGHUP)
        return self.over.wait(min(seconds or 0.01, 0.01))

    def lanes(self) -> list[str]:
        return [self.name]

    def reload(self) -> None:
        self.log.append(f"{self.name} reloads")
        self.over.set()

    def summary(self) -> list[str]:
        return [f"{self.name} did"]


def test_a_hangup_reads_all_files_again_and_ends_nothing() -> None:
    log: list[str] = []
    before = signal.getsignal(signal.SIGHUP)
    run_all(Stub("a", log, "hangup"), Stub("b", log), say=lambda _: None)
    assert {"a reloads", "b reloads"} <= {*log}
    assert signal.getsignal(signal.SIGHUP) == before


def test_a_signal_drains_all_and_tells_what_each_did() -> None:
    log: list[str] = []
    said: list[str] = []
    before = signal.getsignal(signal.SIGTERM)
    run_all(Stub("a", log), Stub("b", log, "signal"), say=said.append)
    assert log[:2] == ["a starts", "b starts"]
    assert sorted(log[2:]) == ["a stops", "b stops"]
    assert said == ["lane a", "lane b", "a did", "b did"]
    assert signal.getsignal(signal.SIGTERM) == before


def test_without_a_consumer_there_is_nothing_to_run() -> None:
    """It took one core, and no message, until somebody ended it."""
    with pytest.raises(UsageError, match=r"K731.*run_all: no consumer is given"):
        run_all()


def test_one_that_cannot_start_stops_those_before_it() -> None:
    log: list[str] = []
    with pytest.raises(ClusterError, match="K713"):
        run_all(Stub("a", log), Stub("b", log, "start"), Stub("c", log))
    assert log == ["a starts", "a stops"]


def test_one_that_breaks_ends_all_with_its_error() -> None:
    log: list[str] = []
    with pytest.raises(RuntimeError, match="b"):
        run_all(Stub("a", log), Stub("b", log, "run"))
    assert sorted(log[2:]) == ["a stops", "b stops"]
