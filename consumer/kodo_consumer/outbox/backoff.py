# pure: every branch is tested
"""Backoff of outbox rows: the next try of a row, and rests of topics. No clock, no database and no broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

DEFAULT: Final = "default"
_S: Final = 1_000
DELAYS: Final[Mapping[str, Sequence[int]]] = {DEFAULT: (1 * _S, 5 * _S, 30 * _S, 120 * _S, 600 * _S)}
_MOST_REST: Final = 30.0  # seconds


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays in ms by business code, the last one without end; `attempts`: sends of a row before it is reported."""

    delays: Mapping[str, Sequence[int]] = field(default_factory=lambda: DELAYS)
    attempts: int = 10

    def delay(self, biz_code: str, tries: int, rng: Random) -> int:
        """Ms until the next try after `tries` (from 1 on) without a receipt, up to a quarter longer:
        rows spread out.
        """
        delays = self.delays.get(biz_code) or self.delays.get(DEFAULT) or DELAYS[DEFAULT]
        return round(delays[min(tries, len(delays)) - 1] * rng.uniform(1.0, 1.25))

    def is_late(self, tries: int) -> bool:
        """True if a person should know: the row goes on, with the longest delay."""
        return tries >= self.attempts


class TopicCooldown:
    """Topics without receipts rest, up to half a minute, and are then tried with one row. So an unreachable broker
    neither costs every row an attempt nor delays other topics.
    """

    def __init__(self) -> None:
        self._resting: dict[str, tuple[float, int]] = {}  # topic -> (until when, how often in a row)

    def on_failure(self, topic: str, now: float) -> bool:
        """Records that a send to the topic had no receipt (`now` in seconds), and lets the topic rest. Returns False if
        the topic rests already.
        """
        until, times = self._resting.get(topic, (0.0, 0))
        if until > now:
            return False
        self._resting[topic] = (now + min(_MOST_REST, 2.0**times), times + 1)
        return True

    def works(self, topic: str) -> bool:
        """Records that a send to the topic had its receipt. Returns True if the topic rested until now."""
        return self._resting.pop(topic, None) is not None

    @property
    def topics(self) -> frozenset[str]:
        """Topics that rest, or that have not been shown to work again."""
        return frozenset(self._resting)

    def to_probe(self, now: float) -> list[str]:
        """Topics that have rested long enough."""
        return [topic for topic, (until, _) in self._resting.items() if until <= now]
