"""Load of quick handlers, the slots it needs by Erlang's formula, and backlogs. No I/O, the clock is passed in."""

from __future__ import annotations

from math import exp
from typing import Final

_WINDOW: Final = 1.0  # seconds over which the load is measured
_RISE: Final = 0.5  # part of the difference to the load measured that counts at once when it grows,
_FALL: Final = 0.1  # and when it falls
_WAIT: Final = 0.05  # seconds that a quick message may wait for a slot
_LATE: Final = 0.01  # part of the messages that may wait for longer
_BACKLOG: Final = 0.1  # seconds without a break in which quick messages wait, and with them more than the head-room
_MOST_OWED: Final = 1_000  # milliseconds of slot time
_LASTING: Final = 1.0  # the same, and those who wait need more than the head-room for certain


class QuickLoad:
    """Slots that are busy with quick handlers, as a mean, and how long one takes. Times in seconds."""

    __slots__ = ("_begin", "_count", "_duration", "_load", "_time")

    def __init__(self) -> None:
        self._load = self._duration = self._time = 0.0
        self._count = 0
        self._begin: float | None = None  # of the window

    def on_end(self, lasted: float) -> None:
        """A quick handler ended."""
        self._time += lasted
        self._count += 1

    def forget(self, spent: float, since: float, now: float) -> None:
        """So many seconds of slot time since then were of a tenant that is quick no more."""
        begin = now if self._begin is None else self._begin
        load = spent / max(now - since, 0.001)
        self._time = max(0.0, self._time - load * (now - max(since, begin)))
        counted = 1 - (1 - _RISE) ** (max(0.0, begin - since) / _WINDOW)  # of what it brought, in the mean
        self._load = max(0.0, self._load - load * counted)

    def measure(self, now: float) -> bool:
        """True if a window is over, and with it the load is another one."""
        if self._begin is None:
            self._begin = now
        if now - self._begin < _WINDOW:
            return False
        load = self._time / (now - self._begin)
        self._load += (load - self._load) * (_RISE if load > self._load else _FALL)
        if self._count:
            self._duration = self._time / self._count
        self._time, self._count, self._begin = 0.0, 0, now
        return True

    def slots_needed(self, total: int) -> int:
        """Slots that the load needs, of so many."""
        return slots_needed(self._load, self._duration, total)


class QuickBacklog:
    """Quick messages that wait without a break. Times in seconds.

    The fair share of slow tenants is the least there was since it began: when most of those who waited are through, the
    few that are left are not all who need slots, and slow ones would keep what they took from them for a whole handler.
    """

    __slots__ = ("_least_share", "_owed", "_part", "_since", "slow_first")

    def __init__(self) -> None:
        self._part = 0.0  # of the slot time that is the slow tenants' fair share, while both wait
        self._owed = 0.0
        self.slow_first = True  # slow tenants have had no more than their part since both wait
        self.end()

    def charge(self, milliseconds: int, *, slow: bool) -> None:
        """So much slot time was used while both wait."""
        owed = self._owed + milliseconds * (1 - self._part if slow else -self._part)
        self._owed = max(-_MOST_OWED, min(_MOST_OWED, owed))
        self.slow_first = self._owed <= 0

    def divide(self, part: float) -> None:
        """The slow tenants' fair share of the slot time is this part, while both wait."""
        self._part = part

    def settle(self) -> None:
        """One of both has no messages that wait: nobody owes anything."""
        self._owed, self.slow_first = 0.0, True

    def end(self) -> None:
        """No quick message waits, or not for a slot."""
        self._since = self._least_share = float("inf")

    def goes_on(self, now: float) -> None:
        """Some wait."""
        self._since = min(self._since, now)

    def counts(self, now: float) -> bool:
        """True if it is long enough to say that slots are short."""
        return now - self._since > _BACKLOG

    def most_for_slow(self, share: float, headroom: int, total: int, now: float) -> float:
        """Slots that slow tenants may use meanwhile, whose fair share of `total` is `share` at the moment."""
        self._least_share = min(self._least_share, share)
        return min(self._least_share, total - (1 if now - self._since > _LASTING else headroom))


def slots_needed(load: float, duration: float, total: int) -> int:
    """Slots with which at most one message in a hundred waits for longer than 50 ms: `load` in slots, `duration` of a
    handler in seconds. At least one, less than `total`.
    """
    blocked = 1.0  # Erlang's B, slot by slot
    for slots in range(1, total):
        blocked = load * blocked / (slots + load * blocked)
        if slots > load:
            waits = blocked / (1 - load / slots * (1 - blocked))  # Erlang's C
            if waits * exp(-(slots - load) * _WAIT / max(duration, 1e-6)) <= _LATE:
                return slots
    return max(1, total - 1)
