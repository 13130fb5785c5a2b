"""Observer of decisions: notified before a decision is carried out; cannot change it."""

from __future__ import annotations

from typing import Protocol

from kodo_consumer.core.in_flight import InFlight
from kodo_consumer.core.outcomes import Outcome
from kodo_consumer.core.state_machine import Decision


class Watcher(Protocol):
    """Is shown decisions before they are carried out. Called with the worker's lock held: quick, and never raises."""

    def decided(self, held: InFlight, outcome: Outcome, decision: Decision) -> None:
        """Of every message but those that were just done, and several times of one that waits."""
