"""Process pool with middleware: the user's hooks run in the worker, the handlers run in processes.

Each message has a thread of the worker, which runs the hooks. If a hook calls the handler, the thread waits for a
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
    """One call of the handler, for which a thread waits. `carrier`: properties with the context of its span."""

    __slots__ = ("answered", "carrier", "outcome")

    def __init__(self, carrier: dict[str, str]) -> None:
        self.carrier = carrier
        self.outcome: Outcome = _WORKER_LEFT
        self.answered = threading.Event()


class HandlerCalls:
    """Handler as the hooks' threads call it, the work source from which the process pool takes these calls, and the
    pool's Spans. Each call waits for a process.
    """

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
        """Lets a process handle the message, and blocks until it has, without limit. Raises the request of the handler
        (such as Retry); Unavailable for a fault of its infrastructure, unless that is merely busy; Dead for a message
        that ended processes again and again; HandlerFailedError for any other exception, a time-out, or if no process
        is left; TypeError for anything but a message, RuntimeError for a message that is being handled already.
        """
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
        """Connects the calls to a pool: `ring` is called for each new call, on the thread of the call, and `on_broken`
        with the exception that ends the pool.
        """
        self._ring, self._on_broken = ring, on_broken

    def release(self) -> None:
        """Ends all calls that wait, as failed, and all later ones at once, because no process is left."""
        with self._lock:
            self.over = True
            for call in self._open.values():
                call.answered.set()

    # ---- WorkSource, of the pool

    def next_batch(self, ended: Sequence[tuple[Message, Outcome]], most: int) -> list[Message]:
        """Ends the calls of the messages in `ended` with their outcomes, and returns at most `most` messages to handle.
        See WorkSource.
        """
        with self._lock:
            for message, outcome in ended:
                call = self._open.pop(message)
                call.outcome = outcome
                call.answered.set()
            return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def next(self, finished: Message | None, outcome: Outcome | None) -> Message | None:
        """Ends the call of the message `finished` with its outcome, and returns the next message to handle; None: none
        waits. See WorkSource.
        """
        ended = [(finished, outcome)] if finished is not None and outcome is not None else []
        return next(iter(self.next_batch(ended, 1)), None)

    def fail(self, problem: BaseException) -> None:
        """Calls `on_broken` of `start` with the exception that ended the pool."""
        self._on_broken(problem)

    # ---- Spans, of the pool: the thread has one around it all

    def began(self, message: Message) -> dict[str, str]:
        """Returns the properties with the context of the call's span, which the thread has begun."""
        return self._open[message].carrier

    def on_outcome(self, message: Message, outcome: Outcome) -> None:
        """Does nothing: the thread ends its span by itself."""

    def vain(self, message: Message, why: str) -> None:
        """Does nothing: the thread still waits for the result, within the same span."""


class MiddlewareExecutor:
    """Implementation of kodo_consumer.core.values.handler_executor.HandlerExecutor by threads of the worker, which
    start when needed and run the user's hooks, and processes, which run the handler; there are at most as many threads
    as processes, not counting those that hang.

    The pool enforces the time-outs of handlers. The worker gives up a message whose hooks hang, by the longer
    `handler_timeout` of HandlerSpec.policy_for_worker.
    """

    def __init__(self, pool: ProcessRunner, calls: HandlerCalls, threads: ThreadExecutor) -> None:
        self._pool, self._calls, self._threads = pool, calls, threads

    def start(self, source: WorkSource) -> None:
        """Starts the pool's thread, and lets the threads for hooks, which start when needed, take messages from
        `source`.
        """
        self._calls.start(self._pool.wake, source.fail)
        self._pool.start(self._calls)
        self._threads.start(_UntilOver(source, self._calls))

    def wake(self) -> None:
        """Wakes or starts a thread because there may be a message to take: see `ThreadExecutor.wake`."""
        self._threads.wake()

    def time_out(self, message: Message) -> None:
        """Replaces the thread of a message whose hooks took too long, as `ThreadExecutor.time_out` does, which also
        fails the worker if too many threads hang.
        """
        self._threads.time_out(message)

    def stop(self) -> None:
        """Stops the pool and the threads, and waits as `ProcessRunner.stop` and `ThreadExecutor.stop` do. The worker
        gets no more results from the call on, as with a pool without hooks.
        """
        self._calls.over = True
        self._pool.stop()
        self._calls.release()
        self._threads.stop()


class _UntilOver:
    """The worker's source until the pool is stopped; then it has no messages and drops results."""

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
    """Starts the processes, waits until the first one is ready, 60 s at most, and returns an executor for them and the
    hooks. Raises KodoctlError as `ProcessRunner.launch` does; nothing is left running then.

    Args:
        job: handler of the processes, and all that they need to run it.
        size: number of processes, and most threads for hooks.
        timeout: seconds that the handler may take for a message.
        around: returns a function with hooks and spans around the one that it gets.
        carry: returns properties with the context of the current span; None: no traces.
        texts: reader of the error texts of hooks and handler; None: error texts are not kept.
        forecast: returns the next step of a failed message as text for the log.
    """
    calls = HandlerCalls(carry or dict)
    pool = ProcessRunner(job, size, timeout, None if carry is None else calls, forecast)
    pool.launch()
    return MiddlewareExecutor(pool, calls, ThreadExecutor(around(calls), size, texts, forecast))
