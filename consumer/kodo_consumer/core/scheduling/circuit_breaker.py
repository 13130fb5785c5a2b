"""Circuit breaker of a worker: pause, probe, resume, when so much fails that further tries do harm. No I/O, the clock
is passed in.

Slow tenants have breakers of their own (kodo_consumer.core.scheduling.slow_breakers), so that others are not stopped.
Tenants are counted, not messages, and each once: one bad tenant never stops a lane. Counting begins with a failure, so
that it costs nothing while all is well. The breaker opens, at the earliest half a second later, if handlers of ten
tenants or more have ended since then and most of these tenants mostly failed; or if most mostly failed because a
dependency is unavailable, and these are two or more (without tenants, three such messages). Then nothing starts for a
second, twice as long each time up to half a minute. After that three messages are tried; when one of them does not
fail, a few may start at once, one more for each that ends well, until all slots are used again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from kodo_consumer.core.values.limit_policy import NOBODY
from kodo_consumer.core.values.outcomes import DependencyUnavailable, Outcome, is_systemic

_EVIDENCE: Final = 0.5  # seconds of counting before the breaker may open
_WINDOW: Final = 1.0  # seconds after which counting begins anew, if by then
_ENOUGH: Final = 40  # so many handlers ended
_LONGEST_WINDOW: Final = 60.0
_FAILING_TENANTS: Final = 10
_DOWN_TENANTS: Final = 2
_DOWN_MESSAGES: Final = 3
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
PROBES: Final = 3
_FIRST_STARTS: Final = 2  # at once, after a probe that ended well


class BreakerState(StrEnum):
    """State of a breaker: the starts that it allows. After a pause (OPEN) it tries three messages (PROBING), then lets
    more and more start (RESUMING), until CLOSED. Metrics show the values.
    """

    CLOSED = "closed"  # everything
    OPEN = "open"  # nothing
    PROBING = "probing"  # a few, to see
    RESUMING = "resuming"  # more with each that ends well


class _Tally:
    """Counts of handler ends of one tenant."""

    __slots__ = ("all", "down", "failed")

    def __init__(self) -> None:
        self.all = self.failed = self.down = 0


class Breaker:
    """Breaker of all handlers of a worker, or of those of slow tenants in a lane. `until`: when probing begins;
    `starts`: handlers that may run at once while it resumes; `cause`: why it last opened, for people. Times in seconds.
    """

    __slots__ = (
        "_began", "_ended", "_pause", "_probes", "_since", "_slots", "_tallies", "_well", "cause", "opened", "starts",
        "state", "until", "wants_all_outcomes",
    )  # fmt: skip

    def __init__(self, slots: int) -> None:
        self.state = BreakerState.CLOSED
        self.wants_all_outcomes = False  # every end of a handler is to be reported, not failures alone
        self.opened = 0  # times
        self.cause = ""  # why it opened last, for people
        self.until = float("inf")  # when probing begins
        self.starts = slots  # handlers that may be at work at a time, while it is not closed
        self._slots = slots
        self._pause = _FIRST_PAUSE
        self._since = float("inf")  # starts from then on are probes
        self._probes = self._well = 0
        self._clear()

    def may_start(self, running: int, now: float) -> bool:
        """True if a handler may start beside `running` ones. After the pause it turns from OPEN to PROBING."""
        if self.state is BreakerState.OPEN and now >= self.until:
            self.state, self.until = BreakerState.PROBING, float("inf")
            self._since, self._probes, self._ended = now, 0, 0
        match self.state:
            case BreakerState.PROBING:
                return self._probes < PROBES
            case BreakerState.RESUMING:
                return running < self.starts
            case _:
                return self.state is BreakerState.CLOSED

    def on_start(self) -> None:
        """Counts the start of a handler, which is a probe while PROBING."""
        self._probes += self.state is BreakerState.PROBING

    def on_end(self, tenant: str, outcome: Outcome, started: float, now: float) -> bool:
        """Takes the outcome of a handler that started at `started`. Returns True if the breaker just opened, closed or
        resumes, and after every end while it resumes: callers check again what may start. While it is open no end
        counts; while it probes or resumes, only those of handlers that started since probing began.
        """
        down = isinstance(outcome, DependencyUnavailable)
        bad = is_systemic(outcome)
        match self.state:
            case BreakerState.CLOSED:
                return self._count(tenant, outcome, now, bad=bad, down=down)
            case BreakerState.OPEN:
                return False
            case BreakerState.PROBING:
                return started >= self._since and self._on_probe_end(now, bad=bad)
            case _:
                return started >= self._since and self._on_resumed_end(now, bad=bad)

    # ---- closed

    def on_success(self, tenant: str, now: float) -> None:
        """Counts a handler that ended without a failure, once a failure has begun the counting. Only for a closed
        breaker.
        """
        if self.wants_all_outcomes:
            self._tally(tenant)
            self._end_window(now)

    def _count(self, tenant: str, outcome: Outcome, now: float, *, bad: bool, down: bool) -> bool:
        if not bad:
            self.on_success(tenant, now)
            return False
        if not self.wants_all_outcomes:
            self.wants_all_outcomes, self._began = True, now
        tally = self._tally(tenant)
        tally.failed += 1
        tally.down += down
        if now - self._began >= _EVIDENCE and (cause := self._verdict(outcome)):
            self.cause, self._pause = cause, _FIRST_PAUSE
            self._open(now)
            return True
        self._end_window(now)
        return False

    def _tally(self, tenant: str) -> _Tally:
        """The tenant's counts, with one more that ended."""
        tally = self._tallies.get(tenant)
        if tally is None:
            tally = self._tallies[tenant] = _Tally()
        tally.all += 1
        self._ended += 1
        return tally

    def _end_window(self, now: float) -> None:
        age = now - self._began
        if age >= _LONGEST_WINDOW or (age >= _WINDOW and self._ended >= _ENOUGH):
            self._clear()

    def _verdict(self, outcome: Outcome) -> str:
        """Cause, in words, for which the breaker should open after this outcome; empty: it should not."""
        tallies = self._tallies
        of = len(tallies)
        down = sum(1 for tally in tallies.values() if 2 * tally.down > tally.all)
        alone = tallies.get(NOBODY) if of == 1 else None
        enough = alone.down >= _DOWN_MESSAGES if alone is not None else down >= _DOWN_TENANTS
        if isinstance(outcome, DependencyUnavailable) and enough and 2 * down > of:
            return f"{outcome.dependency} is unavailable"
        failing = sum(1 for tally in tallies.values() if 2 * tally.failed > tally.all)
        if of >= _FAILING_TENANTS and 2 * failing > of:
            return f"handlers of {failing} of {of} tenants fail"
        return ""

    def _clear(self) -> None:
        self._tallies: dict[str, _Tally] = {}
        self._ended = 0
        self._began = float("inf")
        self.wants_all_outcomes = self.state is not BreakerState.CLOSED

    # ---- not closed

    def _open(self, now: float) -> None:
        self.state = BreakerState.OPEN
        self.opened += 1
        self.until = now + self._pause
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause)
        self._clear()

    def _on_probe_end(self, now: float, *, bad: bool) -> bool:
        self._ended += 1
        if not bad:
            self.state, self.starts, self._well = BreakerState.RESUMING, _FIRST_STARTS, 0
            return True
        if self._ended == PROBES:
            self._open(now)
            return True
        return False

    def _on_resumed_end(self, now: float, *, bad: bool) -> bool:
        self._well += -1 if bad else 1
        if self._well < -PROBES:
            self._open(now)
        elif not bad:
            self.starts += 1
            if self.starts >= self._slots:
                self.state = BreakerState.CLOSED
                self._clear()
        return True
