"""Handlers that keep the interpreter: which delays are told, of which loop, and which are the machine's fault."""

from __future__ import annotations

import asyncio
import threading
import time
from random import Random
from typing import cast

import pytest
from kodo_consumer.adapters.metrics.stall_detector import Late, StallCause, Stalls
from kodo_consumer.adapters.metrics.stall_probe import ThreadClock, _Moment, load
from kodo_consumer.adapters.metrics.worker_view import WorkerView
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.message import Message
from kodo_consumer.runtime.async_executor import AsyncExecutor
from kodo_consumer.runtime.supervisor import WorkerSupervisor
from kodo_consumer.runtime.worker import Worker
from kodo_consumer.testing import MemoryBroker

from tests.services.polling import eventually
from tests.unit.consumer.engine_bench import policy


def computing(seconds: float, load: float = 0.5) -> Late:
    """A handler kept the interpreter all the time."""
    return Late(seconds, 0.1 + seconds, 0.1 + seconds, 0.001, load=load)


def standing_in_line(seconds: float) -> Late:
    """Others had the cores."""
    return Late(seconds, 0.1 + seconds, 0.4 * (0.1 + seconds), seconds / 2, load=4.0)


def test_one_late_turn_is_counted_and_three_in_a_row_are_told_first_as_a_warning() -> None:
    stalls = Stalls("threads")
    assert stalls.add(computing(0.04), 1.0) is None
    assert stalls.count == {StallCause.HANDLERS: 0, StallCause.MACHINE: 0}
    assert stalls.add(computing(0.2), 1.1) is None
    assert stalls.add(computing(0.1), 1.2) is None
    alarm = stalls.add(computing(0.1), 1.3)
    assert alarm is not None
    assert (alarm.kind, alarm.severe) == ("stall", False)
    assert "200 ms (this process used 100% of a core)" in alarm.text
    assert "process=True" in alarm.text
    assert stalls.count == {StallCause.HANDLERS: 3, StallCause.MACHINE: 0}
    assert stalls.worst(2.0) == 0.2
    assert stalls.worst(62.0) == 0.0


def test_what_does_not_end_is_severe_and_what_comes_again_after_a_while_is_not() -> None:
    stalls = Stalls("threads")
    alarms = [(now, alarm) for now in range(60) if (alarm := stalls.add(computing(0.1), float(now)))]
    assert [alarm.severe for now, alarm in alarms] == [now >= 30 for now, _ in alarms]
    again = [stalls.add(computing(0.1), 100.0 + now) for now in range(3)]
    assert again[2] is not None
    assert not again[2].severe


def test_late_turns_far_apart_are_no_news() -> None:
    stalls = Stalls("handlers")
    assert [stalls.add(computing(0.1), now * 6.0) for now in range(5)] == [None] * 5
    assert stalls.count[StallCause.HANDLERS] == 5


@pytest.mark.parametrize("loop", ["threads", "handlers"])
def test_a_busy_machine_is_told_as_such_when_it_lasts_and_never_as_the_handlers_fault(loop: str) -> None:
    stalls = Stalls(loop)
    alarms = [alarm for now in range(60) if (alarm := stalls.add(standing_in_line(0.096), float(now)))]
    assert stalls.count == {StallCause.HANDLERS: 0, StallCause.MACHINE: 60}
    assert {(alarm.kind, alarm.severe) for alarm in alarms} == {("busy", False)}
    assert "up to 96 ms, 48 ms of it for a core" in alarms[0].text
    assert "had 40% of a core, the load is 4.0 a core" in alarms[0].text
    assert len(alarms) < 12, "not in the first half minute"


@pytest.mark.parametrize(
    ("late", "cause"),
    [
        (Late(0.2, 0.3, 0.3), StallCause.HANDLERS),  # computed throughout
        (Late(0.2, 0.3, 0.21), StallCause.HANDLERS),  # idle before, then computed
        (Late(0.2, 0.3, 0.29, 0.16, load=3.0), StallCause.MACHINE),  # ours computed, but a core was what was waited for
        (Late(0.2, 0.3, 0.12, 0.1, load=3.0), StallCause.MACHINE),  # whoever had the interpreter was kept waiting
        (Late(0.096, 0.196, 0.08, 0.02, load=2.5), StallCause.MACHINE),
        (Late(0.096, 0.196, 0.08, 0.002, load=0.6), StallCause.HANDLERS),  # who else, on a machine at rest?
        (Late(0.2, 0.3, 0.01, 0.0, load=0.6), StallCause.MACHINE),  # this process did nothing: frozen
        (Late(0.2, 0.2, 0.01, 0.0, own=0.0, load=0.6), StallCause.HANDLERS),  # an async handler that sleeps
        (Late(0.2, 0.2, 0.12, 0.02, own=0.1, load=4.0), StallCause.HANDLERS),  # an async handler that computes
        (Late(0.2, 0.2, 0.05, 0.01, own=0.02, load=4.0), StallCause.MACHINE),
    ],
)
def test_whose_fault_it_is_shows_in_what_was_computed_and_in_standing_in_line(late: Late, cause: StallCause) -> None:
    assert late.cause is cause
    assert Late(0.0, 0.0, 0.0).share == 0.0


def test_threads_that_are_kept_waiting_by_other_processes_know_it() -> None:
    clock = ThreadClock()
    mine = clock.times(threading.get_native_id())
    assert mine is not None
    assert mine.computed > 0
    assert clock.times(2**31 - 1) is None
    assert load() >= 0


def test_a_thread_that_has_ended_has_no_times_and_no_open_file() -> None:
    clock, ids = ThreadClock(), []
    over = threading.Event()

    def run() -> None:
        ids.append(threading.get_native_id())
        over.wait()

    thread = threading.Thread(target=run)
    thread.start()
    eventually(lambda: ids)
    assert clock.times(ids[0]) is not None
    over.set()
    thread.join()
    eventually(lambda: clock.times(ids[0]) is None)
    assert not clock._files
    clock.times(threading.get_native_id())
    clock.close()
    assert not clock._files


def test_a_system_that_counts_no_load_is_taken_to_be_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> None:
        raise OSError

    monkeypatch.setattr("os.getloadavg", unknown)
    assert load() == 0.0


def test_a_worker_with_nothing_to_do_is_looked_at_once_a_second() -> None:
    runner = AsyncExecutor(_ignore, 1)
    worker = Worker(policy(), MemoryBroker(SystemClock()), runner, SystemClock(), Random(0))
    runner.start(worker)
    runner.stop()
    service = WorkerSupervisor(worker, None, consumer_name="w", drain_timeout=1.0)
    probe, counts = WorkerView(worker, service, measured=False).pulse, worker.engine.counts
    assert [probe._beat() for _ in range(3)] == [0.1, 1.0, 1.0]
    counts.received += 1
    assert [probe._beat() for _ in range(2)] == [0.1, 1.0]
    worker.engine.runs.running[cast("Message", object())] = 0.0
    assert [probe._beat() for _ in range(2)] == [0.1, 0.1]


def test_a_loop_that_does_not_answer_is_judged_by_its_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[Late] = []
    monkeypatch.setattr(Stalls, "add", lambda _, late, now: judged.append(late))
    runner = AsyncExecutor(_ignore, 1)
    worker = Worker(policy(), MemoryBroker(SystemClock()), runner, SystemClock(), Random(0))
    runner.start(worker)
    runner.stop()
    service = WorkerSupervisor(worker, None, consumer_name="w", drain_timeout=1.0)
    probe = WorkerView(worker, service, runner.loop, measured=False).pulse
    probe._ask_loop(0.0)
    assert probe._asked is not None
    probe._ask_loop(probe._asked.at + 0.9)
    assert not judged
    probe._ask_loop(probe._asked.at + 1.5)
    [late] = judged
    assert late.seconds == pytest.approx(1.5)
    assert late.own == 0.0, "the thread that is judged is the one that runs handlers"


async def _ignore(_message: Message) -> None:
    """A handler that is never called."""


def test_a_loop_that_hangs_for_long_is_as_late_as_it_has_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = AsyncExecutor(_ignore, 1)
    worker = Worker(policy(), MemoryBroker(SystemClock()), runner, SystemClock(), Random(0))
    runner.start(worker)
    runner.stop()
    service = WorkerSupervisor(worker, None, consumer_name="w", drain_timeout=1.0)
    probe = WorkerView(worker, service, runner.loop, measured=False).pulse
    now = 0.0
    monkeypatch.setattr(probe, "_moment", lambda thread: _Moment(now, 0.0, thread, None))
    probe._ask_loop(now)
    while now < 30.0:
        now += 1.5
        probe._ask_loop(now)
    assert probe.handlers.worst(now) == 30.0
    assert sum(probe.handlers.count.values()) == 20
    probe._answer()
    for _ in range(2):
        now += 60.5
        probe._ask_loop(now)
    assert probe.handlers.worst(now) == 60.5, "the next question begins anew"


def test_a_look_at_the_worst_delay_removes_nothing_that_the_probe_adds() -> None:
    stalls = Stalls("threads")
    stalls.add(computing(0.2), 1.0)
    assert stalls.worst(62.0) == 0.0
    assert stalls.worst(2.0) == 0.2
    stalls.add(computing(0.01), 62.0)
    assert not stalls._late


def test_async_handlers_that_never_await_are_told_what_to_do(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.metrics.stall_detector._SOON", 600.0)  # a busy machine takes its time
    over = threading.Event()

    async def busy(_message: Message) -> None:
        """Never called: the loop is held up by hand."""

    runner = AsyncExecutor(busy, 1)
    worker = Worker(policy(), MemoryBroker(SystemClock()), runner, SystemClock(), Random(0))
    service = WorkerSupervisor(worker, None, consumer_name="w", drain_timeout=1.0)
    sight = WorkerView(worker, service, runner.loop, measured=False)
    runner.start(worker)
    pulse = threading.Thread(target=sight.pulse.run, args=(over,))
    pulse.start()

    def hold_up() -> None:
        until = time.thread_time() + 0.15  # computed by this thread: waiting for a core is not counted
        while time.thread_time() < until and not over.is_set():
            pass
        if not over.is_set():
            asyncio.get_running_loop().call_later(0.01, hold_up)

    runner.loop.call_soon_threadsafe(hold_up)
    try:
        eventually(lambda: worker.alarms.counts["stall"], within=120.0)
    finally:
        over.set()
        pulse.join()
        runner.stop()
    assert sight.pulse.handlers.count[StallCause.HANDLERS] >= 3
    assert "hold up their event loop" in caplog.text
    assert "process=True" in caplog.text
