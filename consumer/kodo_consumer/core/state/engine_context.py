"""Engine context: state that the parts of one engine share. Written under the lock of its worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kodo_consumer.core.state.cause_counts import CauseCounts
from kodo_consumer.core.values.counters import Counts
from kodo_consumer.core.values.effects import Effects

if TYPE_CHECKING:
    from kodo_consumer.core.state.confirmations import Confirmations
    from kodo_consumer.core.state.observer import DecisionObserver
    from kodo_consumer.core.values.policy import Policy


class EngineContext:
    """State that the parts of one engine share; written under the worker's lock. `policy`: may be replaced by one with
    the same lanes. `effects`: not fetched yet; a fetch replaces the object, so no part may keep it. `unsent`: number of
    acknowledgements not fetched yet. `counts`: since the start. `causes`: stays empty unless the topology keeps error
    texts. `observer`: see DecisionObserver; None: nobody observes. `confirmations`: of acknowledged messages that the
    broker has not confirmed; None: nobody wants to know. Parts keep `observer` and `confirmations`, so these are never
    replaced.
    """

    __slots__ = ("causes", "confirmations", "counts", "effects", "observer", "policy", "unsent")

    def __init__(
        self,
        policy: Policy,
        observer: DecisionObserver | None = None,
        confirmations: Confirmations | None = None,
    ) -> None:
        self.policy, self.observer, self.confirmations = policy, observer, confirmations
        self.counts, self.causes, self.effects = Counts(), CauseCounts(), Effects()
        self.unsent = 0

    def take_effects(self) -> Effects:
        """Returns the effects so far, and begins with empty ones: each is fetched once."""
        found, self.effects = self.effects, Effects()
        return found
