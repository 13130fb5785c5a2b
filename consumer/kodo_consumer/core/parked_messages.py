"""Messages that every target refuses, the dead letters too: nobody will handle them, and they stay unacknowledged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kodo_consumer.core.counters import Counts
from kodo_consumer.core.effects import Effects
from kodo_consumer.core.in_flight import InFlight, LookaheadBudget


class Owner(Protocol):
    """The engine. Its effects are replaced whenever somebody took them."""

    effects: Effects
    counts: Counts


class Parking:
    """Parks messages. The broker has their payloads, so nothing is kept that others could use; the next of a key goes
    on, as after a dead letter. Only their number is limited, as the broker limits what is unacknowledged: beyond it
    their lane is no longer read.
    """

    def __init__(self, owner: Owner, stock: LookaheadBudget, let_next: Callable[[InFlight, float], None]) -> None:
        self._owner, self._stock, self._let_next = owner, stock, let_next

    def park(self, held: InFlight, reason: str, now: float) -> None:
        """It has nowhere to go, for this reason, and somebody is told."""
        lane, stock = held.lane, self._stock
        self._let_next(held, now)  # by its key, which is not kept
        stock.park(held)
        self._owner.counts.parked += 1
        lane.blocked = lane.blocked or stock.overgrown
        text = (
            f"{lane.lane.topic}: message {held.delivery.position} has nowhere to go: {reason}; it stays unacknowledged"
        )
        more = f". {stock.parked} are parked: the topic is no longer read" if lane.blocked else ""
        self._owner.effects.alarm("parked", text + more)
