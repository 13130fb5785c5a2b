"""Idempotent executor: an executor whose messages pass the idempotency guard, with the threads of the guard."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.store import Store, StoreDownError
from kodo_consumer.runtime.idempotency_guard import IdempotencyGuard
from kodo_consumer.runtime.threads import begin
from kodoctl.errors import KodoctlError, error

if TYPE_CHECKING:
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.handler_executor import HandlerExecutor, WorkSource
    from kodo_consumer.core.values.policy import Policy
    from kodo_consumer.message import Message
    from kodo_consumer.runtime.settings import Settings

log = logging.getLogger("kodo.consumer")
_BEAT: Final = 1.0  # seconds
_PRUNE_EVERY: Final = 60.0
_HANGS: Final = 8.0  # seconds after which a call is ended from outside: longer than any time-out of a store's own
_JOIN: Final = 10.0


class IdempotentExecutor:
    """Implementation of HandlerExecutor around `inner`, with three threads: one calls the store, one sends signs of
    life, and one ends calls that hang for more than 8 s, and again each 8 s while they go on.
    """

    def __init__(self, inner: HandlerExecutor, guard: IdempotencyGuard, store: Store) -> None:
        self._inner, self.guard, self.store = inner, guard, store
        self._bell, self._over, self._left = threading.Event(), threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._calls: dict[str, float] = {}

    def start(self, source: WorkSource) -> None:
        """Opens the store and starts `inner` and the threads. Raises KodoctlError: K741 if the store is down, unless
        handlers may run without it, or the error with which `inner` does not start.
        """
        try:
            self.guard.start(source, self._bell.set, self._inner.wake)
        except StoreDownError as problem:
            raise KodoctlError(error("K741", "store cannot be asked", str(problem))) from problem
        self._inner.start(self.guard)
        for target, name in ((self._ask, "ask"), (self._maintain, "house"), (self._watch, "watch")):
            self._threads.append(begin(target, f"kodo-store-{name}", self.guard.fail, over=self._over.is_set))

    def wake(self) -> None:
        """Wakes the guard because there may be a message to take. Thread-safe; returns at once."""
        self._bell.set()

    def time_out(self, message: Message) -> None:
        """Gives up the handler of a message: its result is ignored from now on, and `inner` frees its slot."""
        self.guard.time_out(message)
        self._inner.time_out(message)

    def stop(self) -> None:
        """Stops `inner` and the threads (waits up to 10 s for each), sends the last results to the store, and closes
        the store. If the store does not answer, which it may do for 8 s, logs that and raises nothing. A second call
        only stops `inner` and closes the store.
        """
        self._inner.stop()
        self._over.set()
        self._bell.set()
        threads, self._threads = self._threads, []
        for thread in threads[:-1]:  # the last one ends calls that hang, as the following may
            thread.join(_JOIN)
        if threads:
            with self._or_broken("leave"):
                try:
                    self.guard.leave()
                except StoreDownError as problem:
                    log.warning("the store did not take the last messages: %s", problem)
            self._left.set()
            threads[-1].join(_JOIN)
        self.store.close()

    def _ask(self) -> None:
        while not self._over.is_set():
            self._bell.wait()
            self._bell.clear()
            with self._or_broken("ask"):
                while self.guard.step() and not self._over.is_set():
                    self._calls["ask"] = time.monotonic()

    def _maintain(self) -> None:
        pruned = time.monotonic()
        while not self._over.wait(_BEAT):
            due = time.monotonic() - pruned >= _PRUNE_EVERY
            if due:
                pruned = time.monotonic()
            with self._or_broken("house"):
                self.guard.session.maintain(prune=due)
            self._bell.set()

    def _watch(self) -> None:
        cut = float("-inf")
        while not self._left.wait(_BEAT):
            now = time.monotonic()
            if any(now - max(since, cut) > _HANGS for since in list(self._calls.values())):
                log.error("the store does not answer: its connections are cut")
                self.store.interrupt()
                cut = now

    @contextmanager
    def _or_broken(self, call: str) -> Iterator[None]:
        """Context manager around a call: an exception, which is a fault of ours, fails the worker instead of one thread
        silently.
        """
        self._calls[call] = time.monotonic()
        try:
            yield
        except Exception as problem:  # noqa: BLE001  # a thread that ends in silence would stop the signs of life
            self.guard.fail(problem)
            self._over.set()
        finally:
            self._calls.pop(call, None)


def guard_executor(inner: HandlerExecutor, policy: Policy, settings: Settings, clock: Clock) -> HandlerExecutor:
    """Returns an executor with a guard around `inner`; `inner` itself if the settings name neither a store nor a folder
    for crash marks. If they name both, the folder is not used. Does not connect yet: `start` finds a store that is
    down. Raises KodoctlError (K740) if the store's driver is not installed, or the folder cannot be written.
    """
    store = _open(policy, settings)
    if store is None:
        return inner
    go_on, keep = settings.on_store_down == "go_on", settings.store_keep / 1000
    return IdempotentExecutor(inner, IdempotencyGuard(store, policy, clock, go_on=go_on, keep=keep), store)


def _open(policy: Policy, settings: Settings) -> Store | None:
    subscription = policy.lanes[0].subscription
    if settings.store is not None:
        return settings.store.open(subscription)
    if settings.crash_marks is not None:
        from kodo_consumer.adapters.stores.mmap_marks import open_file_store

        names = f" {','.join(lane.name for lane in policy.lanes)}" if policy.unread else ""
        return open_file_store(settings.crash_marks, subscription + names)  # adopted by workers of the same lanes only
    return None
