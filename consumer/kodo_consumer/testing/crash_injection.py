"""Crash injection: kills a user's handler at every step, starts it again, and lets the test check the effects."""

from __future__ import annotations

import gc
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from traceback import clear_frames
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.runtime.batch_executor import Batch
from kodo_consumer.testing.harness import Harness
from kodo_consumer.testing.manual_clock import ManualClock
from kodo_consumer.testing.memory_broker import MemoryBroker, StoredMessage

if TYPE_CHECKING:
    from kodo_consumer.consumer import Consumer
    from kodo_consumer.message import Message

_MOST_LEAPS: Final = 10_000  # of virtual time: a run that takes more never ends


class _Killed(BaseException):
    """Ends the handler as a crash of its process would: `except Exception` does not catch it."""


@dataclass(frozen=True)
class Kill:
    """One run of all messages in which the process was killed once, started again, and went on to the end.

    `step`: the place of the kill, "" for a run without one. `runs`: number of handler starts, by payload.
    `dead_letters`: messages that died.
    """

    step: str
    runs: Counter[bytes] = field(default_factory=Counter)
    dead_letters: tuple[StoredMessage, ...] = ()

    def __str__(self) -> str:
        return f"killed {self.step}" if self.step else "not killed"


def kills(
    consumer: Consumer, *payloads: Any, key: str = "", properties: Mapping[str, str] | None = None
) -> Iterator[Kill]:
    """Sends the payloads as `Harness.send` does, handles them, and kills the process: once at every line
    of the handler's own file that a run reaches, and at every step around the handler. Each time a new process takes
    over, with the same broker, until all messages have ended. Then the test checks the effects of the handler, and
    removes them:

        for kill in kills(consumer, {"id": 1, "amount": 10}):
            assert ledger.total() == 10, kill
            ledger.clear()

    The first run is without a kill, and counts the steps: its effects are checked and removed as those of the others,
    whose messages have the same identities. Raises AssertionError if a message never ends, UsageError if the consumer
    has no handler. An exception kills the handler. It is raised again at the next call from that file and at its next
    lines, so that `except` and `finally` there do nothing more than assignments before a call; `with` closes objects
    of C, such as files. Async lifespans of a killed process are cancelled where they wait. Objects that the handler
    opened are gone with it. Objects of the module survive, unlike in a real crash: a connection of the module may still
    have its transaction open. Debuggers, profilers and coverage see nothing of the handler meanwhile.
    """
    whole = _Life(consumer, payloads, key, properties, fatal=None).play()
    yield whole.kill
    for fatal in range(1, whole.steps + 1):
        yield _Life(consumer, payloads, key, properties, fatal=fatal).play().kill


class _Life:
    """One run from the first message to the last, with a kill at step number `fatal`, or (None) without."""

    def __init__(
        self,
        consumer: Consumer,
        payloads: tuple[Any, ...],
        key: str,
        properties: Mapping[str, str] | None,
        *,
        fatal: int | None,
    ) -> None:
        self.runs: Counter[bytes] = Counter()
        self.died_at = ""
        self.steps = 0
        self._fatal, self._dying = fatal, False
        self._consumer = consumer
        self._file = _file_of(consumer.handling.function)
        self._clock = ManualClock()
        self._broker = MemoryBroker(self._clock)
        self._harness = self._start()
        for payload in payloads:
            self._harness.send(payload, key=key, properties=properties)

    def _start(self) -> Harness:
        return Harness(self._consumer, broker=self._broker, clock=self._clock, around=self._watch)

    def play(self) -> _Life:
        """Runs until all messages have ended, and returns itself. Raises AssertionError if they never do."""
        for _ in range(_MOST_LEAPS):
            try:
                self._go_on()
            except _Killed as death:
                clear_frames(death.__traceback__)
                gc.collect()  # what the handler had opened is gone: a connection of SQLite is part of a circle
                self._dying = False
                self._harness.crash()
                self._harness = self._start()
                continue
            if not (left := self._backlog()):
                self._harness.close()
                return self
            self._harness.leap()
        self._harness.close()
        raise AssertionError(f"killed {self.died_at or 'nowhere'}, and it never comes to an end: {left}")

    def _go_on(self) -> None:
        """Does everything that can happen without a change of the clock."""
        harness = self._harness
        while True:
            harness.worker.tick()
            if heard := self._broker.step():
                self._step("when the broker had been heard: messages, receipts")
            if handled := harness.step():
                self._step("between two messages: what came of the last one is told, not yet heard by the broker")
            if not (heard or handled):
                return

    def _watch(self, unit: Message | Batch, handle: Callable[[], Any]) -> Any:
        """Calls the handler so that every line of its file is a step."""
        for message in unit.messages if isinstance(unit, Batch) else [unit]:
            self.runs[message.data] += 1
        self._step("before the handler")
        with _trace_calls(self._line):
            answer = handle()
        self._step("after the handler, before its outcome is told")
        return answer

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != self._file:
            return None
        if event == "line":
            try:
                self._step(f"at {self._file.rpartition('/')[2]}:{frame.f_lineno}, in {frame.f_code.co_name}")
            except _Killed:
                sys.setprofile(self._revive)  # Python ends the trace, because this raises
                raise
        return self._line

    def _step(self, where: str) -> None:
        if self._dying:
            raise _Killed
        self.steps += 1
        if self.steps == self._fatal:
            self.died_at, self._dying = where, True
            raise _Killed

    def _revive(self, frame: FrameType, event: str, _: Any) -> None:
        """Profile function of a handler that dies: traces its file anew, and lets no call from the file go on."""
        caller = frame if event == "c_call" else frame.f_back
        for one in (frame, caller):
            if one is not None and one.f_code.co_filename == self._file:
                one.f_trace = self._line
        sys.settrace(self._line)
        if event in ("call", "c_call") and caller is not None and caller.f_code.co_filename == self._file:
            raise _Killed

    def _backlog(self) -> dict[str, int]:
        policy = self._harness.policy
        counts = {lane.topic: self._broker.left(lane.topic, policy.subscription) for lane in policy.every_lane}
        return {topic: left for topic, left in counts.items() if left}

    @property
    def kill(self) -> Kill:
        """This run, as tests get it."""
        return Kill(self.died_at, self.runs, tuple(self._harness.dead_letters))


def _file_of(handler: Any) -> str:
    """File of the code of a handler: a function, a method, a `partial` or an object that can be called."""
    while isinstance(handler := inspect.unwrap(handler), partial):
        handler = handler.func
    code = handler if hasattr(handler, "__code__") else inspect.unwrap(type(handler).__call__)
    return str(code.__code__.co_filename)


@contextmanager
def _trace_calls(trace: Any) -> Iterator[None]:
    before, profile = sys.gettrace(), sys.getprofile()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.setprofile(profile)
        sys.settrace(before)


__all__ = ["Kill", "kills"]
