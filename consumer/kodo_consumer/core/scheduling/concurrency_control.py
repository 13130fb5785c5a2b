"""Concurrency control of all handlers, whichever is next: the circuit breaker, and a limit that adapts itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kodo_consumer.core.outcomes import Outcome, is_systemic
from kodo_consumer.core.scheduling.adaptive_concurrency import Adaptive
from kodo_consumer.core.scheduling.circuit_breaker import Breaker, BreakerState

if TYPE_CHECKING:
    from kodo_consumer.core.engine_context import EngineContext
    from kodo_consumer.core.scheduling.slot_reservation import SlotReservation


class ConcurrencyControl:
    """`must_ask`: ask before every start. `wants_all_outcomes`: report every end, not failures alone."""

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
        """True if one more handler may run beside those that do."""
        if self.adaptive is not None and not self.adaptive.may_start(running):
            return False
        return self.breaker.may_start(running, now)

    def started(self) -> None:
        """A handler starts."""
        self.breaker.started()

    def ended(self, tenant: str, outcome: Outcome, started: float, running: int, now: float) -> None:
        """A handler ended; `running` were at work with it."""
        breaker = self.breaker
        before, opened = breaker.state, breaker.opened
        more = breaker.ended(tenant, outcome, started, now)
        if breaker.opened != opened:
            self._context.counts.paused += 1
            self._context.effects.alarm("breaker", f"{breaker.cause}: no handler starts for {breaker.until - now:g} s")
            self._set_timer(breaker.until, self.wake)
        elif breaker.state is BreakerState.CLOSED is not before:
            self._context.effects.alarm("resumed", f"handlers work again, after this: {breaker.cause}", good=True)
        if self.adaptive is not None and before is BreakerState.CLOSED:
            bad = is_systemic(outcome)
            if self._slots is not None and self._slots.slow_wait:
                running = self.adaptive.limit  # the slots that are kept free are needed as well
            if self.adaptive.ended(now - started, running, now, bad=bad):
                more = True
        self.wants_all_outcomes = self.adaptive is not None or breaker.wants_all_outcomes
        if more:
            self.wake(now)

    def wake(self, _now: float) -> None:
        """There may be more to start."""
        self._settle()
        self.version += 1

    def _settle(self) -> None:
        self.must_ask = self.adaptive is not None or self.breaker.state is not BreakerState.CLOSED
        self.wants_all_outcomes = self.adaptive is not None or self.breaker.wants_all_outcomes
        if self.adaptive is not None and self._slots is not None:
            self._slots.resize(self.adaptive.limit)
