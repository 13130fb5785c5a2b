"""Engine context: what the parts of one engine share, written under the lock of its worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kodo_consumer.core.state.cause_counts import CauseCounts
from kodo_consumer.core.values.counters import Counts
from kodo_consumer.core.values.effects import Effects

if TYPE_CHECKING:
    from kodo_consumer.core.state.observer import DecisionObserver
    from kodo_consumer.core.values.policy import Policy


class EngineContext:
    """`policy`: the one in force; a later one has the same lanes. `effects`: what nobody has fetched yet; the object is
    another one after each fetch, so no part keeps it. `unsent`: acknowledgements that nobody has fetched yet.
    `causes`: counted where the topology keeps error texts.
    `observer`: notified of every decision before it is carried out.
    """

    __slots__ = ("causes", "counts", "effects", "observer", "policy", "unsent")

    def __init__(self, policy: Policy, observer: DecisionObserver | None = None) -> None:
        self.policy, self.observer = policy, observer
        self.counts, self.causes, self.effects = Counts(), CauseCounts(), Effects()
        self.unsent = 0

    def take_effects(self) -> Effects:
        """Effects so far; fetched once."""
        found, self.effects = self.effects, Effects()
        return found
