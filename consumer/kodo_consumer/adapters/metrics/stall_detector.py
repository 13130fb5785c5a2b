# pure: every branch is tested
"""Late turns of threads and of the event loop, and their cause: handlers that hold the interpreter's lock (the GIL), or
a busy machine.

A thread that wakes late has waited for a core, or for the interpreter's lock. A thread that holds this lock for long
computes meanwhile, so this process used most of a core. If the process used less, the thread with the lock had to wait
for a core itself, because other processes used them all.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kodo_consumer.core.values.effects import Alarm

TOO_LATE: Final = 0.05  # seconds
_MANY: Final = 3  # of them
_SOON: Final = 5.0  # within so many seconds are no accident
_SUSTAINED: Final = 30.0  # seconds, with never more than _GAP between two
_GAP: Final = 10.0
_MOST_OF_A_CORE: Final = 0.8
_SOME: Final = 0.1  # of a core: on a machine that is not busy this is enough to be the cause
_WORST_OF: Final = 60.0  # seconds


class StallCause(StrEnum):
    """Cause of a late turn. The values are public: metrics show them."""

    HANDLERS = "handlers"
    MACHINE = "machine"


@dataclass(frozen=True, slots=True)
class Late:
    """Measurements of one turn of a thread. `seconds`: delay of the turn. `wall`: length of the measured interval in
    seconds, which includes the delay. In the interval: `cpu`: seconds of CPU time of this process; `queued`: seconds
    for which the thread waited for a core, 0 if unknown; `own`: seconds of CPU time of the thread itself, 0 if unknown,
    None if the thread runs no handlers. `load`: load average of the machine for each core; 0 if it is unknown or the
    turn was not late. `hang`: delay since the open question to the event loop, with the parts measured before; 0 for
    threads.
    """

    seconds: float
    wall: float
    cpu: float
    queued: float = 0.0
    own: float | None = None
    load: float = 0.0
    hang: float = 0.0

    @property
    def share(self) -> float:
        """Cores that this process used on average in the interval: 1.0 is one whole core. 0 if `wall` is 0."""
        return self.cpu / self.wall if self.wall > 0 else 0.0

    @property
    def cause(self) -> StallCause:
        """The most likely cause, by the measurements of this turn; it means nothing for a turn that was not late."""
        waited = self.seconds - self.queued  # for the interpreter, or within a handler
        if waited <= TOO_LATE:
            return StallCause.MACHINE
        if self.own is not None and 2 * self.own >= waited:
            return StallCause.HANDLERS
        surely = self.cpu - (self.wall - self.seconds)  # used while it was late, at the least
        if self.share >= _MOST_OF_A_CORE or 2 * surely >= waited:
            return StallCause.HANDLERS
        is_calm = self.load <= 1.0 and 10 * self.queued <= self.seconds
        blocks = self.own is not None  # an event loop that neither computes nor gets on waits in a handler's call
        return StallCause.HANDLERS if is_calm and (blocks or self.share >= _SOME) else StallCause.MACHINE


class Stalls:
    """Late turns of one loop. `loop`: `threads` (measured on one thread, which waits as all threads of the process do)
    or `handlers` (the event loop of async handlers). One thread calls `add`. `count`: turns that were more than 50 ms
    late, by cause, since the start.
    """

    def __init__(self, loop: str) -> None:
        self.loop = loop
        self.count = dict.fromkeys(StallCause, 0)
        self._late: deque[tuple[float, Late]] = deque()  # a minute's
        self._rows = {cause: _Row() for cause in StallCause}

    def add(self, late: Late, now: float) -> Alarm | None:
        """Counts a turn if it was more than 50 ms late. Only each third late turn of one cause within 5 s can give an
        alarm; counting to three then begins anew. A series of late turns of one cause lasts as long as no gap between
        two exceeds 10 s. Returns an alarm if handlers are the cause, severe once their series has lasted for 30 s, or
        if a busy machine is the cause and its series has lasted for 30 s (never severe); else None. `now`: seconds of
        a monotonic clock.
        """
        while self._late and self._late[0][0] < now - _WORST_OF:
            self._late.popleft()
        if late.seconds <= TOO_LATE:
            return None
        cause = late.cause
        self.count[cause] += 1
        self._late.append((now, late))
        row = self._rows[cause]
        if not row.add(now):
            return None
        sustained = now - row.since >= _SUSTAINED
        worst = f"up to {1000 * self.worst(now):.0f} ms"
        if cause is StallCause.MACHINE:
            return Alarm("busy", self._of_machine(worst, late), severe=False) if sustained else None
        return Alarm("stall", self._of_handlers(worst, late), severe=sustained)

    def _of_machine(self, worst: str, late: Late) -> str:
        who = "the event loop waits" if self.loop == "handlers" else "threads wait"
        queued = f", {1000 * late.queued:.0f} ms of it for a core" if late.queued else ""
        return (
            f"the machine is busy, or a quota of CPU used up: {who} for {worst}{queued}; "
            f"this process had {late.share:.0%} of a core, the load is {late.load:.1f} a core"
        )

    def _of_handlers(self, worst: str, late: Late) -> str:
        computed = f"this process used {late.share:.0%} of a core"
        if self.loop == "handlers":
            return (
                f"async handlers hold up their event loop for {worst} ({computed}): await what takes time, "
                "or use process=True"
            )
        return (
            f"handlers keep the interpreter, threads wait for {worst} ({computed}): CPU-bound work belongs "
            "into process=True"
        )

    def worst(self, now: float) -> float:
        """The longest delay of a turn in the last minute, in seconds; 0 if no turn was more than 50 ms late. Any thread
        may call it.
        """
        found = tuple(self._late)  # in one step: another thread may add to it
        return max((max(late.seconds, late.hang) for at, late in found if at >= now - _WORST_OF), default=0.0)


class _Row:
    """Late turns of one cause. `since`: time of the first one of a series without a gap of more than 10 s."""

    def __init__(self) -> None:
        self.since = self._last = float("-inf")
        self._some: deque[float] = deque(maxlen=_MANY)

    def add(self, now: float) -> bool:
        """Adds a late turn. Returns true if it is the third one within 5 s; counting to three then begins anew."""
        if now - self._last > _GAP:
            self.since = now
        self._last = now
        self._some.append(now)
        if len(self._some) < _MANY or now - self._some[0] > _SOON:
            return False
        self._some.clear()
        return True
