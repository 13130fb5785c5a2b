"""Load of quick handlers, the slots it needs by Erlang's formula, and backlogs of quick messages. No I/O, no clock."""

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
    """Mean number of slots that handlers of quick tenants use, and mean duration of such a handler. Times in seconds."""

    __slots__ = ("_begin", "_count", "_duration", "_load", "_time")

    def __init__(self) -> None:
        self._load = self._duration = self._time = 0.0
        self._count = 0
        self._begin: float | None = None  # of the window

    def on_end(self, lasted: float) -> None:
        """Adds a quick handler that ran for `lasted` seconds."""
        self._time += lasted
        self._count += 1

    def forget(self, spent: float, since: float, now: float) -> None:
        """Removes a tenant that is no longer quick from the load. `spent`: seconds of slot time that its handlers used
        since `since`; `now`: the present time.
        """
        begin = now if self._begin is None else self._begin
        load = spent / max(now - since, 0.001)
        self._time = max(0.0, self._time - load * (now - max(since, begin)))
        counted = 1 - (1 - _RISE) ** (max(0.0, begin - since) / _WINDOW)  # of what it brought, in the mean
        self._load = max(0.0, self._load - load * counted)

    def measure(self, now: float) -> bool:
        """Updates the load if its window (1 s) is over at `now`, and returns True then. The first call only begins a
        window.
        """
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
        """Number of slots, from 1 to `total` - 1, that the present load of quick handlers needs so that at most one
        message in a hundred waits for longer than 50 ms: see the function `slots_needed`.
        """
        return slots_needed(self._load, self._duration, total)


class QuickBacklog:
    """Backlog of quick messages, which wait without a break, and the slot time that quick and slow tenants owe each
    other while messages of both wait. The two are separate: `end` ends the backlog, `settle` clears the debts.
    `slow_first`: slow tenants have had no more than their part, and start first. `now` is in seconds, slot time in
    milliseconds.

    The fair share of slow tenants is the least one since the backlog began: at its end few quick tenants wait, but
    others need slots soon, and a slow handler would keep its slot for its whole run.
    """

    __slots__ = ("_least_share", "_owed", "_part", "_since", "slow_first")

    def __init__(self) -> None:
        self._part = 0.0  # of the slot time that is the slow tenants' fair share, while both wait
        self._owed = 0.0
        self.slow_first = True  # slow tenants have had no more than their part since both wait
        self.end()

    def charge(self, milliseconds: int, *, slow: bool) -> None:
        """Charges slot time that quick or slow tenants (`slow`) used while messages of both waited. `milliseconds`:
        that slot time.
        """
        owed = self._owed + milliseconds * (1 - self._part if slow else -self._part)
        self._owed = max(-_MOST_OWED, min(_MOST_OWED, owed))
        self.slow_first = self._owed <= 0

    def divide(self, part: float) -> None:
        """Sets the slow tenants' fair part (0 to 1) of the slot time, while messages of both wait."""
        self._part = part

    def settle(self) -> None:
        """Clears all debts, because quick messages and slow messages no longer wait at the same time."""
        self._owed, self.slow_first = 0.0, True

    def end(self) -> None:
        """Ends the backlog: no quick message waits for a slot."""
        self._since = self._least_share = float("inf")

    def goes_on(self, now: float) -> None:
        """Notes that quick messages wait at `now`; the first call begins the backlog."""
        self._since = min(self._since, now)

    def counts(self, now: float) -> bool:
        """True if the backlog has lasted for more than 0.1 s at `now`: slots are short."""
        return now - self._since > _BACKLOG

    def most_for_slow(self, share: float, headroom: int, total: int, now: float) -> float:
        """Number of slots that slow tenants may use during the backlog: their least fair share so far, and at most
        `total` less `headroom`, or all but one once the backlog has lasted for more than 1 s. `share`: their present
        fair share of `total` slots, which may lower the least one.
        """
        self._least_share = min(self._least_share, share)
        return min(self._least_share, total - (1 if now - self._since > _LASTING else headroom))


def slots_needed(load: float, duration: float, total: int) -> int:
    """Least number of slots, from 1 to `total` - 1, with which at most one message in a hundred waits for longer than
    50 ms; `total` - 1 (but at least 1) if no such number is enough. `load`: mean number of busy slots; `duration`: mean
    seconds of a handler.
    """
    blocked = 1.0  # Erlang's B, slot by slot
    for slots in range(1, total):
        blocked = load * blocked / (slots + load * blocked)
        if slots > load:
            waits = blocked / (1 - load / slots * (1 - blocked))  # Erlang's C
            if waits * exp(-(slots - load) * _WAIT / max(duration, 1e-6)) <= _LATE:
                return slots
    return max(1, total - 1)
