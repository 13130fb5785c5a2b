"""Executor of async handlers: one event loop on a thread of its own, and at most one task for each slot."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.runtime.handler_errors import ExceptionReporter
from kodo_consumer.runtime.lifespans import LEAVING, log_slow_end
from kodo_consumer.runtime.thread_executor import BREATH, JOIN, hanging
from kodo_consumer.runtime.threads import begin, log_end

if TYPE_CHECKING:
    from kodo_consumer.core.values.error_text import ErrorTextReader
    from kodo_consumer.core.values.handler_executor import WorkSource
    from kodo_consumer.core.values.outcomes import Outcome
    from kodo_consumer.message import Message
    from kodo_consumer.runtime.handler_errors import Forecast
    from kodo_consumer.runtime.lifespans import Lifespans

log = logging.getLogger("kodo.consumer")
_TURNS_IN_A_ROW: Final = 128  # of a coroutine that never waits, before others on the loop get a turn
_BLOCKED: Final = 10.0  # seconds the event loop may owe an answer


class AsyncExecutor:
    """Implementation of HandlerExecutor whose slots are tasks on one event loop. A handler that takes too long
    (`time_out`) is cancelled, and its slot replaced. A slot is also replaced if its handler leaves context variables
    behind, such as a request's id, or a cancellation: the next message must not get them.
    """

    def __init__(
        self,
        handler: Callable[[Message], Coroutine[Any, Any, None]],
        slots: int,
        texts: ErrorTextReader | None = None,
        forecast: Forecast | None = None,
    ) -> None:
        self._handler, self._slots = handler, slots
        self._complaints = ExceptionReporter(texts, forecast=forecast)
        self._source: WorkSource | None = None
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._complaints.stray)
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[Message, asyncio.Task[None]] = {}
        self._parked: deque[asyncio.Future[None]] = deque()
        self._wake_is_on_its_way = False
        self._stopping = False
        self._doubt: threading.Thread | None = None
        self._leave: asyncio.Event | None = None
        self._holder: asyncio.Task[None] | None = None  # of the lifespans

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Event loop of the handlers."""
        return self._loop

    def enter(self, lifespans: Lifespans) -> None:
        """Starts the thread of the event loop, enters the lifespans on the loop, and waits until they are entered,
        however long that takes; `stop` leaves them. To be called before `start`. Raises KodoctlError if a lifespan
        fails; the caller then has to call `stop`.
        """
        self._begin_loop()
        asyncio.run_coroutine_threadsafe(self._enter(lifespans), self._loop).result()

    def start(self, source: WorkSource) -> None:
        """Starts the thread of the event loop, unless `enter` has; after `wake` its slots take messages from `source`."""
        self._source = source
        if self._thread is None:
            self._begin_loop()

    def _begin_loop(self) -> None:
        self._thread = begin(self._loop.run_forever, "kodo-handlers", self._fail, over=lambda: self._stopping)

    def _fail(self, problem: BaseException) -> None:
        if self._source is not None:
            self._source.fail(problem)

    def wake(self) -> None:
        """Wakes a slot that sleeps, or adds one if there are fewer than `slots`, because there may be a message to
        take. Thread-safe; returns at once.
        """
        if not self._wake_is_on_its_way and not self._stopping:
            self._wake_is_on_its_way = True
            with suppress(RuntimeError):  # closed between the question and the call
                self._loop.call_soon_threadsafe(self._wake_one)

    def time_out(self, message: Message) -> None:
        """Has the event loop cancel the handler of a message and replace its slot, unless the handler has ended by
        then; returns at once. If the loop does not answer within 10 s, the worker fails.
        """
        answered = threading.Event()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._give_up, message)
            self._loop.call_soon_threadsafe(answered.set)
            if self._doubt is None or not self._doubt.is_alive():
                self._doubt = begin(partial(self._await, answered), "kodo-doubt", log_end)

    def stop(self) -> None:
        """Cancels the handlers, leaves the lifespans that `enter` entered, cancels all other tasks, and ends the event
        loop. Waits 4 s at most, and 10 s more if there are lifespans to leave; a loop that a handler blocks is left
        behind.
        """
        self._stopping = True
        if self._thread is not None and self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._finish(), self._loop)
            self._thread.join(2 * JOIN + (LEAVING if self._holder is not None else 0))
        if not self._loop.is_running():
            self._loop.close()

    def _await(self, answered: threading.Event) -> None:
        """Fails the worker if the loop does not answer within 10 s: a handler that blocks the loop cannot be cancelled."""
        if not answered.wait(_BLOCKED) and not self._stopping and self._source is not None:
            self._source.fail(
                hanging(f"the event loop does not answer for {_BLOCKED:.0f} s: an async handler blocks it")
            )

    # ---- on the loop

    def _wake_one(self) -> None:
        self._wake_is_on_its_way = False
        while self._parked:
            sleeper = self._parked.popleft()
            if not sleeper.done():
                sleeper.set_result(None)
                return
        if len(self._tasks) < self._slots and not self._stopping:
            self._add_slot()

    def _add_slot(self, finished: Message | None = None, outcome: Outcome | None = None) -> None:
        task = self._loop.create_task(self._slot(finished, outcome), context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _give_up(self, message: Message) -> None:
        task = self._running.get(message)
        if task is not None and task in self._tasks:
            log.error("a handler hangs: it is cancelled and its slot replaced")
            self._tasks.discard(task)
            task.cancel()
            self._add_slot()

    async def _enter(self, lifespans: Lifespans) -> None:
        entered, self._leave = self._loop.create_future(), asyncio.Event()
        self._holder = self._loop.create_task(lifespans.hold(entered, self._leave))
        self._holder.add_done_callback(self._on_end_of_lifespans)
        await entered

    def _on_end_of_lifespans(self, holder: asyncio.Task[None]) -> None:
        if not holder.cancelled() and (problem := holder.exception()) is not None and not self._stopping:
            self._fail(problem)

    async def _finish(self) -> None:
        """Ends the handlers, then the lifespans, then tasks that either has left behind."""
        await _cancel({*self._tasks, *self._running.values()})
        if self._leave is not None and self._holder is not None:
            self._leave.set()
            _, late = await asyncio.wait({self._holder}, timeout=LEAVING)
            if late:
                log_slow_end()
        await _cancel({task for task in asyncio.all_tasks(self._loop) if task is not asyncio.current_task()})
        self._loop.stop()

    async def _slot(self, finished: Message | None, outcome: Outcome | None) -> None:
        me, source = asyncio.current_task(), self._source
        assert source is not None
        assert me is not None
        try:
            await self._turns(me, source, finished, outcome)
        except Exception as problem:  # noqa: BLE001  # ours, not the handler's: the worker must not go on with a slot less
            source.fail(problem)

    async def _turns(
        self, me: asyncio.Task[None], source: WorkSource, finished: Message | None, outcome: Outcome | None
    ) -> None:
        """Takes and handles messages until the end, on the task `me`. `finished`: a message to hand back first, with
        its outcome.
        """
        turns = 0
        while not self._stopping:
            seen = source.version
            finished = source.next(finished, outcome)
            turns += 1
            if finished is None:
                if source.version == seen:
                    await self._park()
                else:
                    await asyncio.sleep(BREATH)
                continue
            if (self._parked or len(self._tasks) < self._slots) and not self._wake_is_on_its_way:
                self._wake_is_on_its_way = True
                self._loop.call_soon(self._wake_one)
            self._running[finished] = me
            try:
                await self._handler(finished)
                outcome = self._complaints.outcome_of_return(source, finished)
            except BaseException as problem:  # noqa: BLE001  # a cancelled handler's outcome is not needed, others' is
                outcome = self._complaints.outcome(problem, finished)
            del self._running[finished]
            finished = finished if outcome is not None else None  # deferred
            if me not in self._tasks:
                return
            if copy_context() or me.cancelling():  # not as it was when it began
                self._tasks.discard(me)
                self._add_slot(finished, outcome)
                return
            if turns % _TURNS_IN_A_ROW == 0:
                await asyncio.sleep(0)

    async def _park(self) -> None:
        sleeper: asyncio.Future[None] = self._loop.create_future()
        self._parked.append(sleeper)
        await sleeper


async def _cancel(tasks: set[asyncio.Task[None]]) -> None:
    """Cancels tasks and waits for their end, 2 s at most."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=JOIN)
