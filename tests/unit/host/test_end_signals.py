"""Signals that end a program: none is lost, whichever thread gets it and whatever the main thread waits for."""

from __future__ import annotations

import signal
import threading
from queue import SimpleQueue
from types import SimpleNamespace

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
