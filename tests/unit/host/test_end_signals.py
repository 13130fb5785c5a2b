"""Signals that end a program: none is lost, whichever thread gets it and whatever the main thread waits for."""

from __future__ import annotations

import os
import signal
import threading
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from kodoctl.cli.common.terminal import interruptible
from kodoctl.host import end_signals
from kodoctl.host.end_signals import ending_on_signals, signals_to
from tests.services.polling import eventually

AGES = 60.0  # seconds: as good as without a limit


def _to_another_thread(number: int) -> None:
    """Sends a signal to a thread that is not the main one, as the system does for a process now and then."""
    thread = threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), number))
    thread.start()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_another_thread_gets_ends_a_wait_without_limit(number: signal.Signals) -> None:
    """The console waited on for ever: Python runs handlers in the main thread alone, which nothing had woken."""
    with ending_on_signals() as asked:
        _to_another_thread(number)
        assert asked.wait(AGES)


def test_a_request_is_seen_before_the_thread_that_answers_signals_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that Java broke off because of the same signal was reported as a failure."""
    monkeypatch.setattr(end_signals, "_watch", lambda *_: None)  # a thread that is slow
    with ending_on_signals() as asked:
        assert not asked.is_set()
        signal.raise_signal(signal.SIGTERM)
        assert asked.is_set()


def test_a_command_that_waits_for_a_lock_is_interrupted(capsys: pytest.CaptureFixture[str]) -> None:
    with interruptible("finishing the running calls", "The next plan shows what is left.") as stop:
        _to_another_thread(signal.SIGINT)
        assert stop.wait(AGES)
    assert capsys.readouterr().err == (
        "Interrupted: finishing the running calls, then stopping. Again to stop at once.\n"
    )


def test_a_signal_to_the_process_and_its_group_is_one_request_and_a_later_one_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`timeout` sends its signal twice: now and then a worker died in the midst of its drain."""
    read: SimpleQueue[None] = SimpleQueue()
    now, ended = [100.0], list[int]()

    def read_clock() -> float:
        read.put(None)
        return now[0]

    monkeypatch.setattr(end_signals, "time", SimpleNamespace(monotonic=read_clock))
    monkeypatch.setattr("kodoctl.host.end_signals.os._exit", ended.append)
    with ending_on_signals() as asked:
        for late in (0.0, 0.1, 0.4, 0.6):
            now[0] = 100.0 + late
            assert (not late or asked.wait(AGES), ended) == (True, [])
            signal.raise_signal(signal.SIGTERM)
            read.get(timeout=AGES)
    assert ended == [130]


def test_a_handler_that_raises_answers_the_next_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread would have ended, and the program with it have no end but SIGKILL."""
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(args.exc_type))
    calls: list[int] = []

    def fail_at_first() -> None:
        calls.append(len(calls))
        if len(calls) == 1:
            raise ValueError

    with signals_to(fail_at_first, (signal.SIGTERM,)):
        signal.raise_signal(signal.SIGTERM)
        eventually(lambda: len(calls) == 1)
        signal.raise_signal(signal.SIGTERM)
        eventually(lambda: len(calls) == 2)
    assert raised == [ValueError]


def test_ctrl_c_stops_a_command_whose_terminal_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(_: str) -> None:
        raise ValueError("I/O operation on closed file")

    monkeypatch.setattr("kodoctl.cli.common.terminal.tell", tell)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with interruptible("finishing the running calls", "The next plan shows what is left.") as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.wait(AGES)


@pytest.mark.parametrize("on_a_thread", [False, True])
def test_a_signal_to_a_child_by_fork_is_none_to_its_parent(*, on_a_thread: bool) -> None:
    """A handler that ended its own child process made the worker drain: both had the same socket."""

    def end_a_child() -> None:
        child = os.fork()
        if not child:
            signal.raise_signal(signal.SIGTERM)
            os._exit(0)
        os.waitpid(child, 0)

    seen: list[str] = []
    with signals_to(lambda: seen.append("asked"), (signal.SIGTERM,)):
        if on_a_thread:
            thread = threading.Thread(target=end_a_child)
            thread.start()
            thread.join()
        else:
            end_a_child()
        assert seen == []
        signal.raise_signal(signal.SIGTERM)
        eventually(lambda: seen == ["asked"])


def test_a_signal_that_comes_while_the_context_begins_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    set_handler = signal.signal

    def set_and_get(number: int, handler: Any) -> Any:
        before = set_handler(number, handler)
        if callable(handler) and handler.__module__ == end_signals.__name__:
            signal.raise_signal(number)
        return before

    monkeypatch.setattr(signal, "signal", set_and_get)
    with ending_on_signals() as asked:
        assert asked.wait(AGES)


def test_signals_are_as_before_when_the_context_ends() -> None:
    seen: list[str] = []
    old = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with signals_to(lambda: seen.append("outer"), (signal.SIGINT,)):
        with signals_to(lambda: seen.append("inner"), (signal.SIGINT, signal.SIGTERM)):
            signal.raise_signal(signal.SIGINT)
            eventually(lambda: seen == ["inner"])
        signal.raise_signal(signal.SIGINT)
        eventually(lambda: seen == ["inner", "outer"])
    assert {number: signal.getsignal(number) for number in old} == old
    assert signal.set_wakeup_fd(-1) == -1
