"""Concurrency control: the circuit breaker of all handlers, those of slow tenants, and a limit that adapts itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.scheduling.circuit_breaker import Breaker, BreakerState
from kodo_consumer.core.values.outcomes import Outcome, is_systemic

if TYPE_CHECKING:
    from kodo_consumer.core.scheduling.slot_reservation import SlotReservation
    from kodo_consumer.core.scheduling.slow_breakers import SlowBreakers
    from kodo_consumer.core.state.engine_context import EngineContext
    from kodo_consumer.core.state.in_flight import InFlight


_FIRST: Final = 8
_LEAST: Final = 1
_ROUND: Final = 0.25  # seconds, at least
_ENDS: Final = 20  # and so many ends
_SLOWER: Final = 2.0  # times the best
_NOISE: Final = 0.002  # seconds that do not count as slower
_FAILURES: Final = 0.1
_SHRINK: Final = 0.7
_FORGET: Final = 1.001  # the best seen fades by this much a round, doubled in three minutes: it may not come back


class Adaptive:
    """Concurrency limit that adapts itself. `limit`: handlers that may run at once, 8 at first, 1 at least, at most
    `most`. Times in seconds.

    Additive increase, multiplicative decrease: after each round (as many ends as there may be handlers at once, at
    least 20, and a quarter of a second) the limit grows by one if it was used. It shrinks by three tenths when the mean
    handler time is above twice the best that was seen lately, or when more than one handler in ten failed.
    """

    __slots__ = ("_bad", "_began", "_best", "_ends", "_most", "_peak", "_total", "limit")

    def __init__(self, most: int) -> None:
        self._most = most
        self.limit = min(_FIRST, most)
        self._best = float("inf")
        self._ends = self._bad = self._peak = 0
        self._total = 0.0
        self._began = float("inf")

    def may_start(self, running: int) -> bool:
        """True if one more handler may start while `running` handlers run."""
        return running < self.limit

    def on_end(self, took: float, running: int, now: float, *, bad: bool) -> bool:
        """Counts the end of a handler after `took` seconds; `running`: handlers at work, itself included; `bad`: it
        failed. Returns True if the limit has changed.
        """
        self._began = min(self._began, now)
        self._ends += 1
        self._total += took
        self._bad += bad
        self._peak = max(self._peak, running)
        if self._ends < max(self.limit, _ENDS) or now - self._began < _ROUND:
            return False
        before = self.limit
        self._judge()
        self._begin(now)
        return self.limit != before

    def _judge(self) -> None:
        mean = self._total / self._ends
        slower = mean > _SLOWER * self._best + _NOISE
        self._best = min(self._best * _FORGET, mean)
        if slower or self._bad > _FAILURES * self._ends:
            self.limit = max(_LEAST, int(self.limit * _SHRINK))
        elif self._peak >= self.limit:
            self.limit = min(self._most, self.limit + 1)

    def _begin(self, now: float) -> None:
        self._began = now
        self._ends = self._bad = self._peak = 0
        self._total = 0.0


_CLOSED: Final = BreakerState.CLOSED


class ConcurrencyControl:
    """Breakers and adaptive limit of one worker. `must_ask`: callers need `may_start` before every start.
    `wants_all_outcomes`: callers report every end by `on_end`, else failures alone. `version` grows when more may
    start.
    """

    __slots__ = ("_context", "_set_timer", "_slots", "adaptive", "breaker", "must_ask", "version", "wants_all_outcomes")

    def __init__(
        self,
        context: EngineContext,
        slots: SlotReservation | None,
        set_timer: Callable[[float, Callable[[float], None]], int],
    ) -> None:
        self._context, self._slots, self._set_timer = context, slots, set_timer
        self.version = 0  # grows whenever more may start
        self.breaker = Breaker(context.policy.concurrency)
        self.adaptive = Adaptive(context.policy.concurrency) if context.policy.adaptive else None
        self._settle()

    def may_start(self, running: int, now: float) -> bool:
        """True if the adaptive limit, if there is one, and the breaker let one more handler start at `now` (monotonic
        seconds) while `running` handlers run.
        """
        if self.adaptive is not None and not self.adaptive.may_start(running):
            return False
        return self.breaker.may_start(running, now)

    def on_start(self) -> None:
        """Counts the start of a handler for the breaker."""
        self.breaker.on_start()

    def on_end(
        self, in_flight: InFlight, outcome: Outcome, started: float, running: int, now: float, *, slow: bool
    ) -> None:
        """Takes the outcome of a handler that started at `started`; `running`: handlers at work, itself included.
        `slow`: its tenant or its run was slow, so of the breakers only that of the lane's slow tenants counts it, and
        that of all handlers if it is not closed. The adaptive limit counts every end while the breaker of all handlers
        is closed. Raises alarms when a breaker opens or closes.
        """
        before, more = self.breaker.state, False
        if before is _CLOSED and not slow and self.adaptive is None and not is_systemic(outcome):
            self.breaker.on_success(in_flight.tenant, now)  # most ends, all of which are reported while something fails
            if not self.breaker.wants_all_outcomes:
                self._set_wants()
            return
        if slow and self._slots is not None:
            more = self._on_slow_end(self._slots.breakers, in_flight, outcome, started, now)
        if not slow or before is not BreakerState.CLOSED:
            opened = self.breaker.opened
            more = self.breaker.on_end(in_flight.tenant, outcome, started, now) or more
            self._say(self.breaker, before, opened, now, "", "handler")
            self._context.counts.paused += self.breaker.opened - opened
        if self.adaptive is not None and before is BreakerState.CLOSED:
            bad = is_systemic(outcome)
            if self._slots is not None and self._slots.slow_wait:
                running = self.adaptive.limit  # the slots that are kept free are needed as well
            if self.adaptive.on_end(now - started, running, now, bad=bad):
                more = True
        self._set_wants()
        if more:
            self.wake(now)

    def check_slow_tenants(self, now: float, wall: int) -> None:
        """Sends the alarm about slow tenants, and its end. Must be called each second. `now`: monotonic seconds;
        `wall`: ms since the epoch.
        """
        found = self._slots.check_slow_tenants(now, wall) if self._slots is not None else None
        if found is not None:
            self._context.effects.alarm("outage", found[0], severe=False, good=found[1])

    def _on_slow_end(
        self, breakers: SlowBreakers, in_flight: InFlight, outcome: Outcome, started: float, now: float
    ) -> bool:
        breaker = breakers.lanes[in_flight.lane.lane.index].breaker
        before, opened = breaker.state, breaker.opened
        more = breakers.on_end(in_flight, outcome, started, now)
        self._say(breaker, before, opened, now, f"{in_flight.lane.lane.name}: ", "handler of a slow tenant")
        return more

    def _say(self, breaker: Breaker, before: BreakerState, opened: int, now: float, where: str, which: str) -> None:
        if breaker.opened != opened:
            text = f"{where}{breaker.cause}: no {which} starts for {breaker.until - now:g} s"
            self._context.effects.alarm("breaker", text)
            self._set_timer(breaker.until, self.wake)
        elif breaker.state is BreakerState.CLOSED is not before:
            text = f"{where}handlers work again, after this: {breaker.cause}"
            self._context.effects.alarm("resumed", text, good=True)

    def wake(self, _now: float) -> None:
        """Increases `version`, because more handlers may start. Also brings `must_ask` and `wants_all_outcomes` up to
        date.
        """
        self._settle()
        self.version += 1

    def _settle(self) -> None:
        self.must_ask = self.adaptive is not None or self.breaker.state is not BreakerState.CLOSED
        self._set_wants()
        if self.adaptive is not None and self._slots is not None:
            self._slots.resize(self.adaptive.limit)

    def _set_wants(self) -> None:
        slow = self._slots is not None and self._slots.breakers.wants_all_outcomes
        self.wants_all_outcomes = self.adaptive is not None or self.breaker.wants_all_outcomes or slow
