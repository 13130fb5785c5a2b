"""Observers of one worker: notified of deliveries and of decisions; they cannot change them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kodo_consumer.core.values.envelope import Delivery
from kodo_consumer.core.values.policy import Lane, Policy
from kodo_consumer.message import Check

if TYPE_CHECKING:
    from kodo_consumer.core.state.in_flight import InFlight
    from kodo_consumer.core.state_machine import Decision
    from kodo_consumer.core.values.outcomes import Outcome

OnReceived = Callable[[Policy, Lane, Sequence[Delivery], Check | None], object]


class DecisionObserver(Protocol):
    """Is shown decisions before they are carried out. Called with the worker's lock held: quick, and never raises."""

    def on_decision(self, in_flight: InFlight, outcome: Outcome, decision: Decision) -> None:
        """Called for each decision, except the one of a message that is simply done; several times for one that waits."""


@dataclass(frozen=True, slots=True)
class Observers:
    """Observers of one worker; None stands for no observer. `received`: called with the deliveries of a lane, before
    any decision.
    """

    received: OnReceived | None = None
    decisions: DecisionObserver | None = None
