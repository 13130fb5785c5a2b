"""Active consumer poller: asks the cluster for the active consumer of each partition, twice a second. See
kodo_consumer.core.state.failover_partitions.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.state.failover_partitions import ASK_EVERY
from kodo_consumer.core.values.envelope import State
from kodo_consumer.core.values.policy import Lane, Policy

if TYPE_CHECKING:
    from kodo_consumer.core.values.broker import Cluster
    from kodo_consumer.core.values.clock import Clock

log = logging.getLogger("kodo.consumer")
_LEAST: Final = 0.1  # seconds between two questions, also where answers are slow
Answered = Callable[[Lane, Mapping[str, str] | None, float], object]
"""Called with a lane, its active consumers by partition (None: unknown), and the time before the request, in seconds of
the worker's clock.
"""


def lanes_with_active_consumers(policy: Policy) -> list[Lane]:
    """Lists the ready lanes that the worker of a failover subscription reads; [] for one of another subscription type.
    The broker sends each partition of such a lane to one consumer, the active one, and may name another at any time.
    """
    return [lane for lane in policy.lanes if policy.subscription_type == "failover" and lane.state is State.READY]


class ActiveConsumers:
    """Poller of one lane: asks the cluster for the active consumer of each partition, and calls `answered` (see
    Answered) with each answer, on the thread that calls `run` or `ask`.
    """

    def __init__(self, lane: Lane, subscription: str, cluster: Cluster, clock: Clock, answered: Answered) -> None:
        self._lane, self._subscription, self._cluster = lane, subscription, cluster
        self._clock, self._answered = clock, answered

    def ask(self) -> float:
        """Asks the cluster once, calls `answered` with the lane, the answer and the time before the request, and
        returns the seconds until the next question. If the request fails, the answer is None, and nothing is raised.
        """
        asked = self._clock.now()
        try:
            named = self._cluster.active(self._lane.topic, self._subscription)
        except Exception as problem:  # noqa: BLE001  # whatever it is: who is active is not known
            log.debug("active consumers of %s cannot be read: %s", self._lane.topic, problem)
            named = None
        self._answered(self._lane, named, asked)
        return max(_LEAST, asked + ASK_EVERY - self._clock.now())

    def run(self, over: threading.Event) -> None:
        """Asks for the active consumers until `over` is set: twice a second, or less often if answers take longer."""
        pause = 0.0
        while not over.wait(pause):
            pause = self.ask()
