"""Calls of the hooks for acknowledged messages: on a thread of their own, so that no hook delays messages or
acknowledgements.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.runtime.threads import Broke, begin

if TYPE_CHECKING:
    from kodo_consumer.core.state.observer import Acknowledged
    from kodo_consumer.runtime.middleware import Hooks

Await = Callable[[Coroutine[Any, Any, None]], object]
"""Runs a coroutine on the event loop of the handlers, and blocks until it ends."""
_JOIN: Final = 2.0  # seconds that the end of a worker waits for a hook


def await_on(loop: asyncio.AbstractEventLoop | None) -> Await:
    """Returns a function that runs a coroutine on this loop, blocks until the coroutine ends, and raises its exception;
    the loop must run on another thread than the caller's. `loop` None: the handler and all hooks are plain functions,
    and the returned function may not be called.
    """

    def await_(coroutine: Coroutine[Any, Any, None]) -> None:
        assert loop is not None
        asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    return await_


class InlineAcknowledgedHooks:
    """AcknowledgementObserver whose caller waits until the hooks have ended. Plain hooks run on the calling thread; if
    one is async, all run where `await_` runs them, so the thread of that loop must not call.
    """

    def __init__(self, hooks: Hooks, await_: Await) -> None:
        self._hooks, self._await = hooks, await_

    def on_acknowledged(self, messages: Sequence[Acknowledged], called: Callable[[], object]) -> None:
        """Calls all hooks with each message, one after the other, then `called`. Exceptions of hooks are logged."""
        if self._hooks.awaits_acknowledged:
            self._await(self._hooks.on_acknowledged_later(messages))
        else:
            self._hooks.on_acknowledged(messages)
        called()

    @property
    def running_hook(self) -> tuple[str, float] | None:
        """See AcknowledgementObserver."""
        return self._hooks.running_hook

    def close(self) -> None:
        """Does nothing: no calls are left."""


class AcknowledgedHooks:
    """Implementation of AcknowledgementObserver with a thread of its own, which starts at once. `broke`: called with an
    exception that ends this thread before `close`, such as SystemExit of a hook.
    """

    def __init__(self, hooks: Hooks, await_: Await, broke: Broke) -> None:
        self._calls = InlineAcknowledgedHooks(hooks, await_)
        self._waiting: SimpleQueue[tuple[Sequence[Acknowledged], Callable[[], object]] | None] = SimpleQueue()
        self._over = False
        self._broke = broke
        self._thread = begin(self._run, "kodo-acknowledged", self._fail, over=lambda: self._over)

    def on_acknowledged(self, messages: Sequence[Acknowledged], called: Callable[[], object]) -> None:
        """Queues the messages for the thread, which calls all hooks with each message, then `called`. Does not wait."""
        self._waiting.put((messages, called))

    @property
    def running_hook(self) -> tuple[str, float] | None:
        """See AcknowledgementObserver."""
        return self._calls.running_hook

    def close(self) -> None:
        """Drops the messages that wait, and those that come later; their `called` is never called. Hooks still run for
        the messages for which the thread has begun to call them; this waits for their end, 2 s at most.
        """
        self._over = True
        self._waiting.put(None)
        self._thread.join(_JOIN)

    def _run(self) -> None:
        while (waiting := self._waiting.get()) is not None and not self._over:
            self._calls.on_acknowledged(*waiting)

    def _fail(self, problem: BaseException) -> None:
        if not self._over:  # the event loop cancels hooks when it ends
            self._broke(problem)
