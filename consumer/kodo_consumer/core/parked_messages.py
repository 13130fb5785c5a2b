"""Messages that every target refuses, the dead letters too: nobody will handle them, and they stay unacknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kodo_consumer.core.engine_context import EngineContext
    from kodo_consumer.core.in_flight import InFlight, LookaheadBudget


class Parking:
    """Parks messages. The broker has their payloads, so nothing is kept that others could use; the next of a key goes
    on, as after a dead letter. Only their number is limited, as the broker limits what is unacknowledged: beyond it
    their lane is no longer read.
    """

    def __init__(self, context: EngineContext, lookahead: LookaheadBudget) -> None:
        self._context, self._lookahead = context, lookahead

    def park(self, held: InFlight, reason: str) -> None:
        """Parks a message that has nowhere to go, for this reason, and raises an alarm."""
        lane, lookahead = held.lane, self._lookahead
        lookahead.park(held)
        self._context.counts.parked += 1
        lane.blocked = lane.blocked or lookahead.overgrown
        text = (
            f"{lane.lane.topic}: message {held.delivery.position} has nowhere to go: {reason}; it stays unacknowledged"
        )
        more = f". {lookahead.parked} are parked: the topic is no longer read" if lane.blocked else ""
        self._context.effects.alarm("parked", text + more)
