"""Delay schedule: the next delay of a retry, by its attempt; waits in memory and the jitter of longer ones.

kodo_consumer.policy_builder makes the schedules from a topology: one for each waiting state, and one for backup levels.
kodo_consumer.core.state_machine asks for the next delay; kodo_consumer.core.engine.publishing adds the jitter, and
kodo_consumer.core.upkeep.broker_limits cuts what the broker would refuse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_MEMORY_WAIT: Final = 5_000  # ms: longer waits use the broker's delayed delivery
JITTER: Final = 3_000  # ms: added at random to waits beyond memory, equal delays stall a whole topic


@dataclass(frozen=True, slots=True)
class DelaySchedule:
    """Delays (ms) and attempts of a state; the last delay repeats."""

    delays: tuple[int, ...]
    attempts: int

    def delay(self, attempt: int) -> int:
        """Delay before attempt number `attempt`, from 1."""
        return self.delays[min(attempt, len(self.delays)) - 1]
