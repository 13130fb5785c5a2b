"""Runners: slots, verdicts, hanging handlers, the end. A desk of the test's own hands out the work."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest
from kodo_consumer.core.values.envelope import FRESH
from kodo_consumer.core.values.exceptions import Dead, HandlerSignal
from kodo_consumer.core.values.handler_executor import HandlerExecutor
from kodo_consumer.core.values.outcomes import DONE, DeadLettered, Failed, Outcome
from kodo_consumer.message import Message
from kodo_consumer.runtime.async_executor import AsyncExecutor
from kodo_consumer.runtime.thread_executor import ThreadExecutor

from tests.services.polling import eventually
from tests.unit.consumer.engine_bench import delivery, policy


class TestDesk:
    """Work in a list; what comes back in another."""

    __test__ = False

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.version = 0
        self.work: list[Message] = []
        self.ended: list[tuple[str, Outcome]] = []
        self.problems: list[BaseException] = []
        self.most = 0
        self.out = 0
        self.broken = False

    def put(self, count: int) -> list[Message]:
        lane = policy().lanes[0]
        messages = [Message(delivery(number), lane, FRESH, "u") for number in range(count)]
        with self.lock:
            self.work += messages
            self.version += 1
        return messages

    def next(self, finished: Message | None, outcome: Outcome | None) -> Message | None:
        with self.lock:
            if self.broken:
                raise RuntimeError("desk")
            if finished is not None:
                assert outcome is not None
                self.ended.append((finished.id, outcome))
                self.out -= 1
            if not self.work:
                return None
            self.out += 1
            self.most = max(self.most, self.out)
            return self.work.pop(0)

    def next_batch(self, ended: Sequence[tuple[Message, Outcome]], most: int) -> list[Message]:
        for message, outcome in ended:
            with self.lock:
                self.ended.append((message.id, outcome))
                self.out -= 1
        found: list[Message] = []
        while len(found) < most and (taken := self.next(None, None)) is not None:
            found.append(taken)
        return found

    def fail(self, problem: BaseException) -> None:
        self.problems.append(problem)


Make = Callable[[Callable[[Message], None], int], HandlerExecutor]


def _threads(handler: Callable[[Message], None], slots: int) -> HandlerExecutor:
    return ThreadExecutor(handler, slots)


def _loop(handler: Callable[[Message], None], slots: int) -> HandlerExecutor:
    async def handle(message: Message) -> None:
        await asyncio.sleep(0)
        result: Any = handler(message)
        if result is not None:
            await result

    return AsyncExecutor(handle, slots)


both = pytest.mark.parametrize("make", [_threads, _loop], ids=["threads", "loop"])


def _started(make: Make, handler: Callable[[Message], None], slots: int = 4) -> tuple[HandlerExecutor, TestDesk]:
    desk = TestDesk()
    runner = make(handler, slots)
    runner.start(desk)
    return runner, desk


def _behind(gate: threading.Event, *names: str) -> Callable[[Message], None]:
    """A handler whose messages wait, those of these names or all."""

    def handle(message: Message) -> None:
        if not names or message.id in names:
            gate.wait()

    return handle


@both
def test_everything_is_handled_and_handed_back(make: Make) -> None:
    runner, desk = _started(make, lambda message: None)
    desk.put(500)
    runner.wake()
    eventually(lambda: len(desk.ended) == 500)
    assert {outcome for _, outcome in desk.ended} == {DONE}
    desk.put(1)
    runner.wake()
    eventually(lambda: len(desk.ended) == 501)
    runner.stop()
    desk.put(1)
    runner.wake()
    assert len(desk.ended) == 501


def test_all_slots_are_used_and_no_more_threads() -> None:
    gate = threading.Event()
    runner, desk = _started(_threads, _behind(gate))
    desk.put(10)
    runner.wake()
    eventually(lambda: desk.out == 4)
    gate.set()
    eventually(lambda: len(desk.ended) == 10)
    assert desk.most == 4
    runner.stop()


def test_threads_that_would_only_wait_for_the_worker_step_back_and_are_woken_when_they_are_of_use() -> None:
    class Slow(TestDesk):
        """A worker that is the bottleneck, as it is where handlers take microseconds."""

        def next(self, finished: Message | None, outcome: Outcome | None) -> Message | None:
            with turns:
                time.sleep(0.0002)
                return super().next(finished, outcome)

    def wait(_message: Message) -> None:
        assert hold.wait(30)

    turns, desk, hold = threading.Lock(), Slow(), threading.Event()
    runner = ThreadExecutor(wait, 8)
    runner.start(desk)
    try:
        for held in (False, True):
            hold.clear()
            desk.put(100_000 if not held else 0)
            runner.wake()
            eventually(lambda: desk.out == 8)
            hold.set()
            eventually(lambda: runner._parked.count >= 6)
            assert desk.work, "there was work for all of them"
        desk.work.clear()
        eventually(lambda: runner._parked.count == 8)
        assert desk.out == 0
    finally:
        hold.set()
        runner.stop()


def test_what_a_thread_that_steps_back_lets_start_is_started_although_all_others_sleep() -> None:
    class Ordered(TestDesk):
        """A worker that has the next message of a key when the one before it is handed back."""

        def next_batch(self, ended: Sequence[tuple[Message, Outcome]], most: int) -> list[Message]:
            gates[1].set()
            eventually(lambda: runner._parked.count == 2 and not runner._scaling)
            found = super().next_batch(ended, most)
            self.put(1)
            return found

    def wait(message: Message) -> None:
        assert gates[int(message.id.split(":")[1])].wait(30)

    desk, gates = Ordered(), [threading.Event(), threading.Event()]
    runner = ThreadExecutor(wait, 2)
    runner.start(desk)
    try:
        desk.put(2)
        runner.wake()
        eventually(lambda: desk.out == 2)
        runner._surplus = 1  # as if there had been more threads than work just before
        gates[0].set()
        eventually(lambda: len(desk.ended) == 3)
    finally:
        gates[1].set()
        runner.stop()


def test_all_slots_are_used_and_no_more_tasks() -> None:
    gate = asyncio.Event()

    async def handle(message: Message) -> None:
        await gate.wait()

    desk, runner = TestDesk(), AsyncExecutor(handle, 4)
    runner.start(desk)
    desk.put(10)
    runner.wake()
    eventually(lambda: desk.out == 4)
    runner._loop.call_soon_threadsafe(gate.set)
    eventually(lambda: len(desk.ended) == 10)
    assert desk.most == 4
    runner.stop()


@both
def test_what_a_handler_raises_is_its_outcome(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    class OwnVerdict(HandlerSignal):
        pass

    raised: list[BaseException] = [Dead("bad"), ValueError("secret"), ValueError("again"), SystemExit(3), OwnVerdict()]

    def fail(message: Message) -> None:
        raise raised.pop(0)

    runner, desk = _started(make, fail, slots=1)
    desk.put(5)
    runner.wake()
    eventually(lambda: len(desk.ended) == 5)
    runner.stop()
    assert [outcome for _, outcome in desk.ended] == [
        DeadLettered("bad"), Failed("ValueError"), Failed("ValueError"), Failed("SystemExit"), Failed("NotImplementedError"),
    ]  # fmt: skip
    said = "handler failed with ValueError (p/n/t:s, lane L2/ready, tenant u, message 7:{}:0:-1, attempt 1)"
    records = [record for record in caplog.records if "ValueError" in record.message]
    assert [record.message for record in records] == [said.format(1), said.format(2)]
    assert [bool(record.exc_info) for record in records] == [True, False], "one traceback of each kind"


def test_a_hanging_thread_is_replaced_and_ends_when_it_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()
    runner, desk = _started(_threads, _behind(gate, "7:0:0:-1"), slots=1)
    hanging, *_ = desk.put(1)
    runner.wake()
    eventually(lambda: desk.out == 1)
    runner.time_out(hanging)
    runner.time_out(hanging)
    desk.put(3)
    runner.wake()
    eventually(lambda: (len(desk.ended) == 0 and desk.out == 2) or len(desk.ended) >= 1)
    gate.set()
    eventually(lambda: len(desk.ended) == 3)
    eventually(lambda: sum(thread.name.startswith("kodo-handler") for thread in threading.enumerate()) == 1)
    assert "hangs" in caplog.text
    runner.stop()


def test_threads_that_come_back_after_they_were_replaced_are_counted_no_more() -> None:
    desk, hold = TestDesk(), threading.Event()

    def wait(_message: Message) -> None:
        assert hold.wait(30)

    runner = ThreadExecutor(wait, 3)
    runner.start(desk)
    held = desk.put(3)
    runner.wake()
    eventually(lambda: desk.out == 3)
    for message in held:
        runner.time_out(message)
    runner._surplus = 3  # as if there had been more threads than work just before
    hold.set()
    eventually(lambda: not runner.hanging)
    eventually(lambda: runner._parked.count == 3)
    runner._surplus = 0
    desk.put(50)
    runner.wake()
    eventually(lambda: len(desk.ended) == 50)  # what was given up is not handed back
    eventually(lambda: runner._parked.count == 3)
    runner.stop()


def test_a_hanging_coroutine_is_cancelled() -> None:
    async def handle(message: Message) -> None:
        if message.id == "7:0:0:-1":
            await asyncio.Event().wait()

    desk, runner = TestDesk(), AsyncExecutor(handle, 1)
    runner.start(desk)
    hanging, *_ = desk.put(2)
    runner.wake()
    eventually(lambda: desk.out == 1)
    runner.time_out(hanging)
    runner.time_out(Message(delivery(99), policy().lanes[0], FRESH, "u"))
    runner.wake()
    eventually(lambda: [name for name, _ in desk.ended] == ["7:1:0:-1"])
    runner.stop()


@both
def test_a_worker_that_breaks_is_told(make: Make) -> None:
    runner, desk = _started(make, lambda message: None)
    desk.broken = True
    desk.version += 1
    runner.wake()
    eventually(lambda: desk.problems)
    runner.stop()


def test_stopping_does_not_wait_for_a_thread_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.runtime.thread_executor.JOIN", 60.0)
    gate, entered = threading.Event(), threading.Event()

    def hang(message: Message) -> None:
        entered.set()
        gate.wait()

    runner, desk = _started(_threads, hang)
    desk.put(1)
    runner.wake()
    assert entered.wait(10)
    began = time.monotonic()
    runner.stop()
    assert time.monotonic() - began < 45
    gate.set()


def test_stopping_before_anything_began_is_fine() -> None:
    ThreadExecutor(lambda message: None, 1).stop()

    async def handle(message: Message) -> None:
        pass

    AsyncExecutor(handle, 1).stop()


def test_a_coroutine_that_never_waits_leaves_room_for_others_on_the_loop() -> None:
    seen: list[int] = []
    runs = count()

    async def handle(message: Message) -> None:
        if next(runs) == 0:
            asyncio.get_running_loop().call_soon(lambda: seen.append(len(desk.ended)))

    desk, runner = TestDesk(), AsyncExecutor(handle, 1)
    runner.start(desk)
    desk.put(5_000)
    runner.wake()
    eventually(lambda: len(desk.ended) == 5_000)
    assert seen
    assert seen[0] < 5_000
    runner.stop()


@both
def test_a_slot_that_was_told_that_there_may_be_more_comes_back_by_itself(make: Make) -> None:
    class Hesitant(TestDesk):
        """Turns slots away five times, as a worker does that sends a flood elsewhere."""

        turned_away = 0

        def next(self, finished: Message | None, outcome: Outcome | None) -> Message | None:
            if self.turned_away < 5:
                self.turned_away += 1
                self.version += 1
                return None
            return super().next(finished, outcome)

    desk = Hesitant()
    runner = make(lambda message: None, 1)
    runner.start(desk)
    desk.put(1)
    runner.wake()
    eventually(lambda: len(desk.ended) == 1)
    runner.stop()


def test_a_worker_full_of_threads_that_hang_ends_to_be_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.runtime.thread_executor._MOST_HANGING", 2)
    gate = threading.Event()
    runner, desk = _started(_threads, _behind(gate), slots=1)
    assert isinstance(runner, ThreadExecutor)
    for number in range(1, 4):
        (hanging,) = desk.put(1)
        runner.wake()
        eventually(lambda: desk.out == number)  # noqa: B023  # asked for at once
        runner.time_out(hanging)
        assert runner.hanging == number
        assert len(desk.problems) == (number > 2)
    assert "K758" in str(desk.problems[0])
    gate.set()
    eventually(lambda: runner.hanging == 0)
    runner.stop()


def test_a_handler_that_blocks_the_event_loop_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.runtime.async_executor._BLOCKED", 0.05)
    gate = threading.Event()

    async def block(message: Message) -> None:
        gate.wait()

    desk, runner = TestDesk(), AsyncExecutor(block, 4)
    runner.start(desk)
    (hanging,) = desk.put(1)
    runner.wake()
    eventually(lambda: desk.out == 1)
    runner.time_out(hanging)
    eventually(lambda: desk.problems)
    assert "the event loop does not answer" in str(desk.problems[0])
    gate.set()
    runner.stop()
