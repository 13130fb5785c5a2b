"""Backpressure: how senders wait for room while too many messages have no receipt, and the report of their waits."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from kodo_consumer.sending.pending_messages import PendingMessages
from kodoctl.errors import ClusterError, error
from kodoctl.text.formatting import many

log = logging.getLogger("kodo.producer")
_STEP: Final = 1.0  # seconds of waiting after which it is reported
_REPORT_EVERY: Final = 10.0  # seconds


class Backpressure(NamedTuple):
    """How a producer waits for receipts. `pending`: number of messages without a receipt now; `waiting`: number of
    messages that wait for room now; `waited`: number of messages that had to wait since the start, including those that
    wait now; `seconds`: sum of the waits that have ended.
    """

    pending: int = 0
    waiting: int = 0
    waited: int = 0
    seconds: float = 0.0

    def plus(self, other: Backpressure) -> Backpressure:
        """Returns the sum of both."""
        return Backpressure(
            self.pending + other.pending,
            self.waiting + other.waiting,
            self.waited + other.waited,
            self.seconds + other.seconds,
        )


class SendRoom:
    """Room for more messages of one publisher, by partition; `out`: its messages without receipt. `lock`: the lock of
    the publisher; `is_over`: the publisher is closed, and then nobody waits.

    Threads block. Coroutines wait without a thread, and get room in the order in which they came; of each event loop
    and partition one coroutine waits for receipts, the others wait for that coroutine.
    """

    def __init__(self, lock: threading.Condition, is_over: Callable[[], bool]) -> None:
        self.out, self.partitions = PendingMessages(), 1
        self._lock, self._is_over = lock, is_over
        self._waiting = self._waited = 0
        self._seconds = 0.0
        self._reported = float("-inf")
        self._calls: list[Callable[[], None]] = []  # at the next receipts
        self._queues: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Queue]] = WeakKeyDictionary()

    def has(self, to: str) -> bool:
        """True if one more message may be sent to this partition, or if the publisher is closed. The caller holds the
        lock.
        """
        return self.out.has_room(to, self.partitions) or self._is_over()

    def wait(self, to: str, most: float) -> None:
        """Blocks until a partition has room for a message, or the publisher is closed. The message counts as one that
        waited (see Backpressure). The caller must hold the lock, which is released during the wait. Raises ClusterError
        after `most` seconds.
        """
        with self._counted() as began:
            while not self._lock.wait_for(lambda: self.has(to), min(_STEP, most)):
                if time.monotonic() - began >= most:
                    raise self._no_room(to)
                self._report(to, began)

    async def wait_async(self, to: str, most: float) -> None:
        """Waits until a partition has room for a message, which the caller then publishes at once, or the publisher is
        closed. The caller does not hold the lock. Raises ClusterError after `most` seconds.
        """
        queue = self._queues.setdefault(asyncio.get_running_loop(), {}).setdefault(to, _Queue())
        with self._lock:
            if not queue.length and self.has(to):
                return
        queue.length += 1
        try:
            with self._counted() as began:
                async with asyncio.timeout(most), queue.turn:
                    while not await self._has_at_receipts(to, began):
                        pass
        except TimeoutError:
            raise self._no_room(to) from None
        finally:
            queue.length -= 1

    def tell(self) -> None:
        """Wakes all threads and coroutines that wait for room, or for receipts."""
        with self._lock:
            self._lock.notify_all()
            calls, self._calls = self._calls, []
        for call in calls:
            call()

    @property
    def backpressure(self) -> Backpressure:
        """The present counts."""
        with self._lock:
            return Backpressure(len(self.out), self._waiting, self._waited, self._seconds)

    async def _has_at_receipts(self, to: str, began: float) -> bool:
        """Returns True if a partition has room; else waits for the next receipts, at most a second, and returns False."""
        loop = asyncio.get_running_loop()
        some = loop.create_future()

        def on_receipts() -> None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(_resolve, some)

        with self._lock:
            if self.has(to):
                return True
            self._calls.append(on_receipts)
        with suppress(TimeoutError):
            async with asyncio.timeout(_STEP):
                await some
            return False
        with self._lock:
            self._report(to, began)
        return False

    @contextmanager
    def _counted(self) -> Iterator[float]:
        """Counts a message as waiting. Yields the time at which its wait begins, in monotonic seconds."""
        began = time.monotonic()
        with self._lock:
            self._waiting += 1
            self._waited += 1
        try:
            yield began
        finally:
            with self._lock:
                self._waiting -= 1
                self._seconds += time.monotonic() - began

    def _report(self, to: str, began: float) -> None:
        """Logs that messages wait for room in a partition, at most once in 10 s."""
        now = time.monotonic()
        if now - self._reported >= _REPORT_EVERY:
            self._reported = now
            log.warning(
                "%s: no room for %.0f s: %s without receipt, %s waiting to be sent",
                to, now - began, many(self.out.of(to), "message"), many(self._waiting, "message"),
            )  # fmt: skip

    def _no_room(self, to: str) -> ClusterError:
        detail = f"{to}: {self.out.of(to)} are out already; it was not sent"
        return ClusterError(error("K715", "message without receipt", detail))


class _Queue:
    """Coroutines of one loop that wait for room in one partition. `turn`: held by the one that waits for receipts."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.length = 0


def _resolve(some: asyncio.Future[None]) -> None:
    if not some.done():  # cancelled, or nobody waits any more
        some.set_result(None)
