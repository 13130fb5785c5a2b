"""One limiter for each limit and value of its property: may a message start now, and if not, when. No I/O, no clock:
times in seconds are passed in.

Two books are kept. *Starts* are subject to the law: in any window w at most burst + rate·w pass. *Slots* are promises:
a refused message gets a moment that no other message has, so that refused messages come back spread out.
"""

from __future__ import annotations

from collections import deque
from itertools import accumulate
from typing import Any, Final, TypeVar

_EPSILON: Final = 1e-9
_PARTS: Final = 60  # a quota's window slides in steps of 1/60: never above the limit, at most 1/60 below it
_GRACE: Final = 5.0  # seconds a promised quota slot is kept for its message
T = TypeVar("T")
EMPTY: Final[Any] = ()
"""A queue for limiters that need none of their own, as most: senders may choose values for many limiters."""


def enqueue(queue: deque[T], one: T) -> deque[T]:
    """Appends to the queue and returns it. An empty queue is replaced by a new one, so the caller has to keep the
    result.
    """
    queue = queue or deque()
    queue.append(one)
    return queue


class Limiter:
    """Base of the three kinds of limiters: rate, quota, concurrency. Times are monotonic seconds. `waiters`: messages
    that were made to wait here, of which some may have been released since; the limiter itself never changes them.
    `timer_set`: the scheduler has set a timer for them. `forgotten`: dropped; a message that refers to it must fetch
    its limiters again.
    """

    __slots__ = ("forgotten", "timer_set", "waiters")
    kind = ""  # what it limits, for counters

    def __init__(self) -> None:
        self.waiters: deque[Any] = EMPTY
        self.timer_set = self.forgotten = False

    def free_at(self, now: float) -> float:
        """Earliest time (monotonic seconds) at which a message may start, `now` if it may start at once; infinite if
        only the end of a handler or an answer of a store can tell. Waiters and promises are not considered. Counts no
        start.
        """
        raise NotImplementedError

    def free(self, now: float) -> bool:
        """True if a message may start now."""
        return self.free_at(now) <= now + _EPSILON

    def start(self, now: float) -> None:
        """Counts the start of a message, without checking `free`: the caller has."""
        raise NotImplementedError

    def finish(self) -> None:
        """Counts the end of a message that started, whatever its outcome. Only concurrency limits do; here it does
        nothing.
        """

    def give_back(self) -> None:
        """Takes back the moment (slot) that was promised to a message, because the message does not start: another one
        may have it. Only quotas do; here it does nothing.
        """

    def room(self, now: float) -> int:  # noqa: ARG002
        """Number of waiters that may try again together, whether the limiter is free or not; here 1."""
        return 1

    def wait(self, now: float) -> float:
        """Seconds until a message may start, by `free_at`, so it may be infinite. Only rates add time for waiters."""
        return self.free_at(now) - now

    def on_wait(self, now: float) -> None:
        """Reacts to a message that has begun to wait here; only leased limiters do."""

    def idle(self, now: float) -> bool:
        """True if a new limiter would act as this one, so that it may be dropped."""
        raise NotImplementedError


class RateLimiter(Limiter):
    """A token bucket in GCRA form, full at first: one token each `interval` seconds, at most `burst` saved."""

    __slots__ = ("_next_slot", "_next_start", "_promised", "burst", "interval")
    kind = "rate"

    def __init__(self, interval: float, burst: int) -> None:
        super().__init__()
        self.interval, self.burst = interval, burst
        self._next_start = self._next_slot = float("-inf")
        self._promised: deque[tuple[float, float]] = EMPTY  # far slots: full-rate stretches of time, in order

    def _burst_time(self) -> float:
        return (self.burst - 1) * self.interval

    def free_at(self, now: float) -> float:
        """Earliest time (monotonic seconds) at which the bucket has a token; `now` if it has one."""
        return max(now, self._next_start - self._burst_time())

    def start(self, now: float) -> None:
        """Takes a token for a start at `now`."""
        self._next_start = max(self._next_start, now) + self.interval

    def wait(self, now: float) -> float:
        """Estimated seconds until a message would start that begins to wait now: until the bucket has a token, and an
        interval for each message that waits already.
        """
        return self.free_at(now) - now + len(self.waiters) * self.interval

    def idle(self, now: float) -> bool:
        """True if the bucket is full, no message waits, and no promise is open."""
        books = max(self._next_start, self._next_slot)
        return not self.waiters and books <= now and (not self._promised or self._promised[-1][1] <= now)

    def ready_at(self, now: float) -> float:
        """Time (monotonic seconds) before which a message that could also wait in another topic is promised no slot:
        here `now`. A leased rate may return a later time.
        """
        return now

    def next_slot(self, earliest: float) -> float:
        """First time (monotonic seconds), not before `earliest`, that may be promised to one more message: up to
        `burst` of them may have the same time. Only promises count, not starts. Promises nothing: see `reserve`.
        """
        slot = max(earliest, self._gap(max(self._next_slot, earliest)) - self._burst_time())
        return next((end for begin, end in self._promised if begin <= slot < end), slot)

    def reserve(self, slot: float) -> None:
        """Promises the time `slot`, which `next_slot` returned, to one more message: up to `burst` messages may get the
        same time. The promise cannot be taken back.
        """
        self._next_slot = self._gap(max(self._next_slot, slot)) + self.interval

    def next_deferred_slot(self, earliest: float) -> float:
        """First time (monotonic seconds), not before `earliest`, that comes after every promise. Promises nothing: see
        `reserve_deferred`.
        """
        last = self._promised[-1][1] if self._promised else earliest
        return max(earliest, last, self._next_slot)

    def reserve_deferred(self, slot: float) -> None:
        """Promises the time `slot`, which `next_deferred_slot` returned, to a message that leaves its lane until that
        time.
        """
        if self._promised and slot - self._promised[-1][1] < _EPSILON:
            begin, end = self._promised.pop()
            self._promised.append((begin, end + self.interval))
        else:
            self._promised = enqueue(self._promised, (slot, slot + self.interval))

    def reset(self, now: float) -> None:
        """Adapts to a new `interval` and `burst`, which the caller has set: the next start and the next free slot are
        at most one interval after `now` (seconds), and all promises of `reserve_deferred` are void.
        """
        most = now + self.burst * self.interval
        self._next_start, self._next_slot = min(self._next_start, most), min(self._next_slot, most)
        self._promised = EMPTY

    def forget_before(self, now: float) -> None:
        """Drops promises that are over."""
        while self._promised and self._promised[0][1] <= now:
            self._promised.popleft()

    def _gap(self, moment: float) -> float:
        """The first moment from `moment` on with a whole interval free of far promises."""
        for begin, end in self._promised:
            if moment + self.interval <= begin + _EPSILON:
                break
            moment = max(moment, end)
        return moment


class QuotaLimiter(Limiter):
    """Limiter of a quota: at most `amount` starts in any window of `period` seconds. A start counts for `period`
    seconds, and up to a 60th of that longer.
    """

    __slots__ = ("_counts", "_promised", "_total", "_width", "amount", "period")
    kind = "quota"

    def __init__(self, amount: int, period: float) -> None:
        super().__init__()
        self.amount, self.period = amount, period
        self._width = period / _PARTS
        self._counts: tuple[list[int], ...] = ()  # [part, starts], oldest first
        self._total = 0
        self._promised: deque[float] = EMPTY

    def free_at(self, now: float) -> float:
        """Earliest time (monotonic seconds) at which the window has room for a start; `now` if it has room. Promises
        are not considered: see `slot`.
        """
        self._expire(now)
        over = self._total - self.amount + 1
        return now if over <= 0 else self._expiry_of(over)

    def start(self, now: float) -> None:
        """Counts a start at `now`, and ends the oldest promise, if there is one, whichever message has it."""
        self._expire(now)
        part = int(now // self._width)
        if self._counts and self._counts[-1][0] >= part:
            self._counts[-1][1] += 1
        else:
            self._counts = (*self._counts, [part, 1])
        self._total += 1
        if self._promised:
            self._promised.popleft()

    def idle(self, now: float) -> bool:
        """True if the window has no starts, no message waits, and no promise is open."""
        self._expire(now)
        return not self.waiters and not self._total and not self._promised

    def slot(self, now: float) -> float:
        """Time (monotonic seconds) at which the window has room for all promised messages and one more, `now` if it has
        it; an estimate if `amount` or more are promised.
        """
        self._expire(now)
        rounds, rest = divmod(len(self._promised), self.amount)
        over = rest + 1 + self._total - self.amount
        return (now if over <= 0 else self._expiry_of(over)) + rounds * self.period

    def reserve(self, slot: float) -> None:
        """Promises the time `slot` to one message. The oldest promise ends with the next start or `give_back`, or 5 s
        after its time.
        """
        self._promised = enqueue(self._promised, slot)

    def give_back(self) -> None:
        """Takes back the oldest promise, if there is one, because a message that has one does not start; counts no
        start.
        """
        if self._promised:
            self._promised.popleft()

    def reshape(self, period: float) -> None:
        """Changes the window to `period` seconds: counted starts stay, promises are void."""
        self._promised = EMPTY
        if period == self.period:
            return
        width, self.period = self._width, period
        self._width = period / _PARTS
        counts: list[list[int]] = []
        for part, starts in self._counts:
            at = int((part + 1) * width // self._width)  # as late as it may have been
            if counts and counts[-1][0] == at:
                counts[-1][1] += starts
            else:
                counts.append([at, starts])
        self._counts = tuple(counts)

    def _expiry_of(self, count: int) -> float:
        """Time when the `count` oldest starts have left the window."""
        leaving = accumulate(starts for _, starts in self._counts)
        parts = [part for (part, _), total in zip(self._counts, leaving, strict=True) if total >= count]
        return (parts[0] + _PARTS + 1) * self._width

    def _expire(self, now: float) -> None:
        while self._counts and (self._counts[0][0] + _PARTS + 1) * self._width <= now + _EPSILON:
            self._total -= self._counts[0][1]
            self._counts = self._counts[1:]
        while self._promised and self._promised[0] + _GRACE < now:
            self._promised.popleft()


class ConcurrencyLimiter(Limiter):
    """Limiter of concurrency: at most `limit` handlers at once."""

    __slots__ = ("limit", "running")
    kind = "concurrency"

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.running = 0

    def resize(self, limit: int) -> None:
        """Changes `limit`; running handlers are not affected."""
        self.limit = limit

    def free_at(self, now: float) -> float:
        """`now` if one more handler may run; otherwise infinite, because no time alone makes room: the end of a handler
        does, or a higher `limit`.
        """
        return now if self.running < self.limit else float("inf")

    def start(self, now: float) -> None:  # noqa: ARG002  # a cap knows no time
        """Counts a running handler."""
        self.running += 1

    def finish(self) -> None:
        """Counts the end of a running handler."""
        self.running -= 1

    def idle(self, now: float) -> bool:  # noqa: ARG002
        """True if no handler runs and no message waits."""
        return not self.running and not self.waiters
