"""One limiter for each limit and value of its property: may a message start now, and if not, when. No I/O, no clock:
times in seconds are passed in.

Two books are kept. *Starts* are what the law is about: in any window w at most burst + rate·w pass. *Slots* are
promises: a refused message gets a moment that no other message has, so that refused messages come back spread
out.
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
"""A queue of which most limiters never need one of their own: there may be as many limiters as senders choose values."""


def enqueue(queue: deque[T], one: T) -> deque[T]:
    """The queue with one more, which is another where it was empty."""
    queue = queue or deque()
    queue.append(one)
    return queue


class Limiter:
    """Base of the three kinds. `waiters`: messages that the scheduler made wait here; the limiter itself never touches them.
    `forgotten`: its holder should ask for the limiter in its place.
    """

    __slots__ = ("forgotten", "timer_set", "waiters")
    kind = ""  # what it limits, for counters

    def __init__(self) -> None:
        self.waiters: deque[Any] = EMPTY
        self.timer_set = self.forgotten = False

    def free_at(self, now: float) -> float:
        """The earliest moment a message may start; infinite when only a finish can tell."""
        raise NotImplementedError

    def free(self, now: float) -> bool:
        """True if a message may start now."""
        return self.free_at(now) <= now + _EPSILON

    def start(self, now: float) -> None:
        """A message starts."""
        raise NotImplementedError

    def finish(self) -> None:
        """A message that started has ended, however."""

    def give_back(self) -> None:
        """A message does not start for which a slot was set aside."""

    def room(self, now: float) -> int:  # noqa: ARG002
        """Number of waiters that may try again when the limiter is free."""
        return 1

    def wait(self, now: float) -> float:
        """Seconds until one more waiter would start."""
        return self.free_at(now) - now

    def on_wait(self, now: float) -> None:
        """A message waits."""

    def idle(self, now: float) -> bool:
        """True if nothing changes when this limiter is dropped."""
        raise NotImplementedError


class RateLimiter(Limiter):
    """A token bucket in GCRA form: one token each `interval` seconds, at most `burst` saved."""

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
        """See Limiter."""
        return max(now, self._next_start - self._burst_time())

    def start(self, now: float) -> None:
        """See Limiter."""
        self._next_start = max(self._next_start, now) + self.interval

    def wait(self, now: float) -> float:
        """See Limiter: earlier waiters go first."""
        return self.free_at(now) - now + len(self.waiters) * self.interval

    def idle(self, now: float) -> bool:
        """See Limiter."""
        books = max(self._next_start, self._next_slot)
        return not self.waiters and books <= now and (not self._promised or self._promised[-1][1] <= now)

    def ready_at(self, now: float) -> float:
        """The first moment that is worth asking for, where the message could as well go elsewhere."""
        return now

    def next_slot(self, earliest: float) -> float:
        """The first moment from `earliest` on that is promised to nobody."""
        slot = max(earliest, self._gap(max(self._next_slot, earliest)) - self._burst_time())
        return next((end for begin, end in self._promised if begin <= slot < end), slot)

    def reserve(self, slot: float) -> None:
        """Sets a near slot aside."""
        self._next_slot = self._gap(max(self._next_slot, slot)) + self.interval

    def next_deferred_slot(self, earliest: float) -> float:
        """The first moment from `earliest` on that comes after every promise."""
        last = self._promised[-1][1] if self._promised else earliest
        return max(earliest, last, self._next_slot)

    def reserve_deferred(self, slot: float) -> None:
        """Sets a far slot aside."""
        if self._promised and slot - self._promised[-1][1] < _EPSILON:
            begin, end = self._promised.pop()
            self._promised.append((begin, end + self.interval))
        else:
            self._promised = enqueue(self._promised, (slot, slot + self.interval))

    def reset(self, now: float) -> None:
        """The pace is another: nobody waits for more than it asks for, and no promise of the old one binds it."""
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
    """Limiter of a quota: at most `amount` starts in any window of `period` seconds."""

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
        """See Limiter."""
        self._expire(now)
        over = self._total - self.amount + 1
        return now if over <= 0 else self._expiry_of(over)

    def start(self, now: float) -> None:
        """See Limiter. A start uses up the oldest promise."""
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
        """See Limiter."""
        self._expire(now)
        return not self.waiters and not self._total and not self._promised

    def slot(self, now: float) -> float:
        """Time when the window has room for one more than are promised already."""
        self._expire(now)
        rounds, rest = divmod(len(self._promised), self.amount)
        over = rest + 1 + self._total - self.amount
        return (now if over <= 0 else self._expiry_of(over)) + rounds * self.period

    def reserve(self, slot: float) -> None:
        """Sets a slot aside."""
        self._promised = enqueue(self._promised, slot)

    def give_back(self) -> None:
        """See Limiter: the oldest promise, as if its message had started."""
        if self._promised:
            self._promised.popleft()

    def reshape(self, period: float) -> None:
        """Another window: starts are counted in its parts, promises of the old one bind nobody."""
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
        self._promised = EMPTY

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
        """So many at once from now on; those that run go on."""
        self.limit = limit

    def free_at(self, now: float) -> float:
        """See Limiter."""
        return now if self.running < self.limit else float("inf")

    def start(self, now: float) -> None:  # noqa: ARG002  # a cap knows no time
        """See Limiter."""
        self.running += 1

    def finish(self) -> None:
        """See Limiter."""
        self.running -= 1

    def idle(self, now: float) -> bool:  # noqa: ARG002
        """See Limiter."""
        return not self.running and not self.waiters
