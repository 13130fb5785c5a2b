"""Engine context: what the parts of one engine share, written under the lock of its worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kodo_consumer.core.cause_counts import CauseCounts
from kodo_consumer.core.counters import Counts
from kodo_consumer.core.effects import Effects
from kodo_consumer.core.policy import Policy  # noqa: TC001  # the compiler needs types of fields at run time

if TYPE_CHECKING:
    from kodo_consumer.core.observer import DecisionObserver


@dataclass(slots=True)
class EngineContext:
    """`policy`: the one in force; a later one has the same lanes. `effects`: what nobody has fetched yet; the object is
    another one after each fetch, so no part keeps it. `unsent`: acknowledgements that nobody has fetched yet.
    `causes`: counted where the topology keeps error texts.
    `observer`: notified of every decision before it is carried out.
    """

    policy: Policy
    counts: Counts = field(default_factory=Counts)
    causes: CauseCounts = field(default_factory=CauseCounts)
    effects: Effects = field(default_factory=Effects)
    unsent: int = 0
    observer: DecisionObserver | None = None

    def take_effects(self) -> Effects:
        """Effects so far; fetched once."""
        found, self.effects = self.effects, Effects()
        return found
