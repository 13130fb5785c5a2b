"""Process pool with middleware: the hooks of the user stay in the worker, the handlers run in processes.

Each message has a thread of the worker, in which the hooks run. Where a hook calls the handler, the thread waits for a
process.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.core.values.exceptions import error_behind, exception_for
from kodo_consumer.core.values.outcomes import DONE, Failed, Outcome
from kodo_consumer.message import Message
from kodo_consumer.runtime.process_pool.pool import ProcessRunner
from kodo_consumer.runtime.thread_executor import ThreadExecutor

if TYPE_CHECKING:
    from kodo_consumer.core.values.error_text import ErrorTextReader
    from kodo_consumer.core.values.handler_executor import WorkSource
    from kodo_consumer.runtime.handler_errors import Forecast
    from kodo_consumer.runtime.process_pool.worker_process import ProcessTask

Around = Callable[[Callable[[Message], None]], Callable[[Any], Any]]
_WORKER_LEFT: Final = Failed("the worker has left")


class _Call:
    """One call of the handler, waited for by the thread that made it. `carrier`: the context of its span."""

    __slots__ = ("answered", "carrier", "outcome")

    def __init__(self, carrier: dict[str, str]) -> None:
        self.carrier = carrier
        self.outcome: Outcome = _WORKER_LEFT
        self.answered = threading.Event()


class HandlerCalls:
    """Handler of the threads, and work source of the pool: messages are taken from it and handed back."""

    def __init__(self, carry: Callable[[], dict[str, str]]) -> None:
        self.version = 0
        self.over = False
        self._ring: Callable[[], object] = lambda: None
        self._on_broken: Callable[[BaseException], object] = lambda _: None
        self._carry = carry
        self._lock = threading.Lock()
        self._waiting: deque[Message] = deque()
        self._open: dict[Message, _Call] = {}

    def __call__(self, message: Message) -> None:
        """The handler, run by a process. Raises what it asked for, or HandlerFailedError."""
        if not isinstance(message, Message):
            raise TypeError(f"a handler is called with its message, not with {message!r}")
        call = _Call(self._carry())
        with self._lock:
            if message in self._open:
                raise RuntimeError(f"{message!r} is being handled already")
            if not self.over:
                self._open[message] = call
                self._waiting.append(message)
                self.version += 1
            else:
                call.answered.set()
        self._ring()
        call.answered.wait()
        if call.outcome is not DONE:
            raise exception_for(call.outcome) from error_behind(call.outcome)

    def start(self, ring: Callable[[], object], on_broken: Callable[[BaseException], object]) -> None:
        """Calls go to a pool: `ring` says that there is one, `on_broken` is called with what ends the pool."""
        self._ring, self._on_broken = ring, on_broken

    def release(self) -> None:
        """Wakes all threads that wait for a handler, because no process is left."""
        with self._lock:
            self.over = True
            for call in self._open.values():
                call.answered.set()

    # ---- WorkSource, of the pool

    def next_batch(self, ended: Sequence[tuple[Message, Outcome]], most: int) -> list[Message]:
        """See WorkSource."""
        with self._lock:
            for message, outcome in ended:
                call = self._open.pop(message)
                call.outcome = outcome
                call.answered.set()
            return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def next(self, finished: Message | None, outcome: Outcome | None) -> Message | None:
        """See WorkSource."""
        ended = [(finished, outcome)] if finished is not None and outcome is not None else []
        return next(iter(self.next_batch(ended, 1)), None)

    def fail(self, problem: BaseException) -> None:
        """See WorkSource."""
        self._on_broken(problem)

    # ---- Spans, of the pool: the thread has one around it all

    def began(self, message: Message) -> dict[str, str]:
        """See Spans."""
        return self._open[message].carrier

    def on_outcome(self, message: Message, outcome: Outcome) -> None:
        """See Spans."""

    def vain(self, message: Message, why: str) -> None:
        """See Spans. The thread still waits: the span goes on."""


class MiddlewareExecutor:
    """kodo_consumer.core.values.handler_executor.HandlerExecutor: as many threads as there are processes.

    Time-outs of handlers are kept by the pool. Hooks that hang are given up by the worker, as threads are.
    """

    def __init__(self, pool: ProcessRunner, calls: HandlerCalls, threads: ThreadExecutor) -> None:
        self._pool, self._calls, self._threads = pool, calls, threads

    def start(self, source: WorkSource) -> None:
        """See HandlerExecutor."""
        self._calls.start(self._pool.wake, source.fail)
        self._pool.start(self._calls)
        self._threads.start(_UntilOver(source, self._calls))

    def wake(self) -> None:
        """See HandlerExecutor."""
        self._threads.wake()

    def time_out(self, message: Message) -> None:
        """See HandlerExecutor."""
        self._threads.time_out(message)

    def stop(self) -> None:
        """See HandlerExecutor. As of a pool without hooks, the worker takes no results from here on."""
        self._calls.over = True
        self._pool.stop()
        self._calls.release()
        self._threads.stop()


class _UntilOver:
    """Work source of the worker, which takes no more results of messages that were released."""

    def __init__(self, source: WorkSource, calls: HandlerCalls) -> None:
        self._source, self._calls = source, calls

    @property
    def version(self) -> int:
        return self._source.version

    def next(self, finished: Message | None, outcome: Outcome | None) -> Message | None:
        return None if self._calls.over else self._source.next(finished, outcome)

    def next_batch(self, ended: Sequence[tuple[Message, Outcome]], most: int) -> list[Message]:
        return [] if self._calls.over else self._source.next_batch(ended, most)

    def fail(self, problem: BaseException) -> None:
        self._source.fail(problem)


def make_middleware_pool(
    job: ProcessTask,
    size: int,
    timeout: float,
    around: Around,
    carry: Callable[[], dict[str, str]] | None,
    texts: ErrorTextReader | None = None,
    forecast: Forecast | None = None,
) -> MiddlewareExecutor:
    """A pool with `around` around its handler, ready to start. `carry`: answers what carries the caller's span, where there
    are traces. `texts` reads what processes bring of errors. Raises KodoctlError when processes cannot import the
    handler.
    """
    calls = HandlerCalls(carry or dict)
    pool = ProcessRunner(job, size, timeout, None if carry is None else calls, forecast)
    pool.launch()
    return MiddlewareExecutor(pool, calls, ThreadExecutor(around(calls), size, texts, forecast))
