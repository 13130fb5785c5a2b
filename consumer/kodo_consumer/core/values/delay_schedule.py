"""Delay schedule: the next delay of a retry, by its attempt; waits in memory and the jitter of longer ones.

kodo_consumer.policy_builder makes the schedules from a topology: one for each waiting state, and one for backup levels.
kodo_consumer.core.state_machine takes the next delay from them; kodo_consumer.core.engine.publishing adds the jitter,
and kodo_consumer.core.upkeep.broker_limits cuts delays that the broker would refuse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_MEMORY_WAIT: Final = 5_000  # ms: longer waits use the broker's delayed delivery
JITTER: Final = 3_000  # ms: added at random to waits beyond memory, equal delays stall a whole topic


@dataclass(frozen=True, slots=True)
class DelaySchedule:
    """Delays (ms; at least one) before the attempts in a state, the last of which repeats, and number of attempts."""

    delays: tuple[int, ...]
    attempts: int

    def delay(self, attempt: int) -> int:
        """Delay (ms, without jitter) before attempt number `attempt`, from 1. Beyond the last delay it is the last one:
        the number of attempts is not checked.
        """
        return self.delays[min(attempt, len(self.delays)) - 1]
