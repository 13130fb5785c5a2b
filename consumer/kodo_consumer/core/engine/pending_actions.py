"""Pending actions: effects and acknowledgements that the engine of a worker wants carried out outside its lock. They
are gathered for a moment while handlers keep fetching messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kodo_consumer.core.engine.engine import Engine
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.effects import Effects

_BUNDLE: Final = 64  # acknowledgements and messages to publish that are gathered while work goes on
_NO_TICKETS: Final[Mapping[int, Sequence[int]]] = {}
_GATHER: Final = 0.005  # seconds they are gathered at most


@dataclass(slots=True)
class Actions:
    """Effects, and acknowledgements as pairs (index of the lane, tokens), that a thread fetched and carries out.
    `tickets`: those of the tokens, in the same order, by index of the lane, if the engine `confirms`; else empty.
    """

    effects: Effects
    acks: list[tuple[int, list[object]]]
    tickets: Mapping[int, Sequence[int]]


class PendingActions:
    """Actions of one engine, and the time of the next tick. All but `ring_with`, `end_commit` and `due_in` need the
    worker's lock.

    `collect` rings the timekeeper (the thread that calls `tick`) if a tick is due earlier than planned.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._ring: Callable[[], object] = lambda: None
        self._engine, self._clock = engine, clock
        self._next_tick = float("inf")
        self._batching = False
        self._uncommitted: deque[None] = deque()  # one for each lot that was collected and is not carried out yet

    def ring_with(self, ring: Callable[[], object]) -> None:
        """Sets the function that wakes the timekeeper."""
        self._ring = ring

    def collect(self, *, flush: bool) -> Actions | None:
        """Returns all actions so far, which the caller carries out outside the lock, and then reports by `end_commit`;
        None if none are due yet. Acknowledgements and messages to publish are due with `flush`, or once there are 64 of
        them; else the timekeeper is to tick, and so to fetch them, within 5 ms. Other effects are due at once, and the
        rest with them.
        """
        engine = self._engine
        if engine.timers.first < self._next_tick:
            self._come_at(engine.timers.first)
        effects = engine.context.effects
        gathered = engine.context.unsent + len(effects.publish)
        if (flush or gathered >= _BUNDLE) and engine.lookahead.lanes_without_capacity:
            engine.resume_lanes()
        flush = gathered > 0 and (flush or gathered >= _BUNDLE)
        if flush or effects.urgent:
            self._batching = False
            confirmations = engine.context.confirmations
            tickets = _NO_TICKETS if confirmations is None else confirmations.take_tickets()
            actions = Actions(engine.context.take_effects(), engine.acknowledgements(), tickets)
            self._uncommitted.append(None)
            return actions
        if gathered and not self._batching:  # who began may be long at work: the timekeeper sees to the rest
            self._batching = True
            latest = self._clock.now() + _GATHER
            if (
                latest < self._next_tick
            ):  # else it comes in time anyway: to wake it for each bundle costs as much as a bundle
                self._come_at(latest)
        return None

    def end_commit(self) -> None:
        """Reports that the actions of one `collect` were carried out, or failed: once for each that returned some."""
        self._uncommitted.pop()

    @property
    def has_uncommitted(self) -> bool:
        """True if actions were collected and are not reported by `end_commit` yet."""
        return bool(self._uncommitted)

    # ---- time

    def tick_in(self, seconds: float) -> None:
        """Plans the next tick in so many seconds."""
        self._next_tick = self._clock.now() + seconds

    @property
    def due_in(self) -> float:
        """Seconds from now until the next tick is due; negative if it is late, infinite if none is planned."""
        return self._next_tick - self._clock.now()

    def _come_at(self, moment: float) -> None:
        self._next_tick = moment
        self._ring()
