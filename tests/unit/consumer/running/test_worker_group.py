"""Worker group: processes that start, drain and end together, and start anew when they end by themselves."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from kodo_consumer.running import worker_group
from kodo_consumer.running.worker_group import WorkerGroup, pause_before

from tests.services.polling import eventually
from tests.unit.consumer.group_work import Play, SlowDrain


def _run(play: Play, size: int, then: Callable[[], object], group: WorkerGroup | None = None) -> int:
    """The group's exit code; `then` runs beside it, once all its workers are ready."""
    group = group or WorkerGroup(size, play)
    failures: list[BaseException] = []

    def act() -> None:
        try:
            eventually(lambda: len({number for number, _ in play.lines("started")}) == size, within=60)
            then()
        except BaseException as problem:  # noqa: BLE001
            failures.append(problem)
            os.kill(os.getpid(), signal.SIGTERM)

    beside = threading.Thread(target=act)
    beside.start()
    code = group.run()
    beside.join()
    if failures:
        raise failures[0]
    return code


def _asks(*signals: signal.Signals, pause: float = 0.0) -> Callable[[], None]:
    def ask() -> None:
        for number in signals:
            os.kill(os.getpid(), number)
            time.sleep(pause)

    return ask


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path / "lines")


def test_all_drain_at_one_signal_and_a_hangup_reaches_each(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kodo.consumer")

    def ask() -> None:
        time.sleep(0.3)  # the parent has read that they are ready
        os.kill(os.getpid(), signal.SIGHUP)
        eventually(lambda: len(play.lines("hangup")) == 3)
        _asks(signal.SIGINT, signal.SIGTERM)()  # as a terminal and `timeout` do: one request

    assert _run(play, 3, ask) == 0
    assert sorted(number for number, _ in play.lines("drained")) == [0, 1, 2]
    assert len(play.lines("started")) == 3
    numbers = [number for number, _ in play.lines("started")]
    assert numbers[0] == 0, "the first one starts alone"
    assert sum("ended with exit code 0" in text for text in caplog.messages) == 3


def test_a_worker_that_is_killed_starts_again_and_the_others_go_on(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    def kill() -> None:
        _, process = play.lines("started")[1]
        os.kill(process, signal.SIGKILL)
        eventually(lambda: len(play.lines("started")) == 3, within=30)
        assert not play.lines("drained")
        _asks(signal.SIGTERM)()

    assert _run(play, 2, kill) == 0
    killed, again = play.lines("started")[1:]
    assert killed[0] == again[0]
    assert killed[1] != again[1]
    assert len(play.lines("drained")) == 2
    assert any("was ended by SIGKILL" in text for text in caplog.messages)
    assert f"worker {killed[0] + 1} starts again in 1 s" in caplog.messages


def test_a_worker_is_missed_also_where_ends_of_processes_are_ignored(play: Play) -> None:
    """As some programs start others."""

    def kill() -> None:
        os.kill(play.lines("started")[1][1], signal.SIGKILL)
        eventually(lambda: len(play.lines("started")) == 3, within=30)
        _asks(signal.SIGTERM)()

    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert _run(play, 2, kill) == 0
        assert signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_group_ends_at_once_while_all_its_workers_wait_to_be_started_again(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_group, "_FIRST_PAUSE", 20.0)
    asked: list[float] = []

    def ask() -> None:
        time.sleep(2)
        asked.append(time.monotonic())
        _asks(signal.SIGTERM)()

    assert _run(replace(play, lives=0.2), 2, ask) == 0
    assert time.monotonic() - asked[0] < 15
    assert len(play.lines("started")) == 2


@pytest.mark.parametrize("refuses", [0, 1])
def test_a_worker_that_cannot_start_ends_all_with_its_exit_code(play: Play, refuses: int) -> None:
    play = Play(play.file, refuses=refuses)
    assert WorkerGroup(2, play).run() == 3
    assert [number for number, _ in play.lines("drained")] == ([] if refuses == 0 else [0])


def test_the_exit_code_is_that_of_a_worker_that_failed_to_drain(play: Play) -> None:
    assert _run(Play(play.file, drains_with=1), 2, _asks(signal.SIGTERM)) == 1


def test_a_second_signal_ends_all_at_once(play: Play) -> None:
    deaf = _Deaf(play.file)
    assert _run(deaf, 2, _asks(signal.SIGTERM, signal.SIGTERM, pause=0.7)) == 130
    assert not deaf.lines("drained")


class _Deaf(Play):
    """Does not end when it is asked to."""

    def write(self, member: object, what: str) -> None:
        super().write(member, what)  # type: ignore[arg-type]
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def test_workers_drain_when_their_parent_is_gone(play: Play) -> None:
    parent = multiprocessing.get_context("spawn").Process(target=_parent, args=(play,))
    parent.start()
    eventually(lambda: len(play.lines("started")) == 2, within=60)
    parent.kill()
    eventually(lambda: len(play.lines("drained")) == 2, within=30)
    parent.join()


def test_workers_drain_to_the_end_also_when_their_parent_goes_meanwhile(play: Play) -> None:
    """Each had its signal, and then another, of its own, because the parent is gone: it ended in the midst of its drain."""
    slow = SlowDrain(play.file)
    parent = multiprocessing.get_context("spawn").Process(target=_parent, args=(slow,))
    parent.start()
    eventually(lambda: len(slow.lines("started")) == 2, within=60)
    time.sleep(0.5)
    parent.terminate()
    eventually(lambda: len(slow.lines("asked")) == 2, within=30)
    time.sleep(0.8)
    parent.kill()
    parent.join()
    eventually(lambda: len(slow.lines("drained")) == 2, within=30)


def _parent(play: Play) -> None:
    WorkerGroup(2, play).run()


def test_pauses_grow_to_half_a_minute() -> None:
    assert [pause_before(number) for number in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]
    assert pause_before(1_025) == 30, "after a night"


def test_a_restart_drains_every_worker_and_starts_another(play: Play) -> None:
    group = WorkerGroup(2, play, reloads=True)

    def change() -> None:
        time.sleep(0.3)  # the parent has read that they are ready
        group.restart()
        eventually(lambda: len(play.lines("started")) == 4, within=60)
        assert len(play.lines("drained")) == 2
        _asks(signal.SIGTERM)()

    assert _run(play, 2, change, group) == 0
    assert len({process for _, process in play.lines("started")}) == 4


def test_a_worker_that_cannot_start_waits_for_a_change_of_its_program(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    broken = replace(play, refuses=0)
    group = WorkerGroup(1, broken, reloads=True)
    refusal = "worker 1 could not start: it waits for a change of the program"

    def change() -> None:
        for times in (1, 2):
            eventually(lambda times=times: caplog.messages.count(refusal) == times, within=60)  # type: ignore[misc]
            group.restart()
        eventually(lambda: caplog.messages.count(refusal) == 3, within=60)
        _asks(signal.SIGTERM)()

    assert _run(broken, 0, change, group) == 0
    assert play.lines("started") == []
