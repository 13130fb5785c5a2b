# pure: every branch is tested
"""Backoff of outbox rows: the delay before the next try of a row, and pauses of topics. No clock, no database, no
broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

DEFAULT: Final = "default"
_S: Final = 1_000
DELAYS: Final[Mapping[str, Sequence[int]]] = {DEFAULT: (1 * _S, 5 * _S, 30 * _S, 120 * _S, 600 * _S)}
_MOST_REST: Final = 30.0  # seconds
_MOST_DOUBLED: Final = 16


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays in ms by business code, of which the last one repeats; a code that is missing, or has none, has those of
    `default`, and if that has none, those of DELAYS. `attempts`: number of sends of a row without a receipt from which
    on each of them is reported.
    """

    delays: Mapping[str, Sequence[int]] = field(default_factory=lambda: DELAYS)
    attempts: int = 10

    def delay(self, biz_code: str, tries: int, rng: Random) -> int:
        """Milliseconds until the next try of a row after `tries` (from 1 on) sends without a receipt, up to a quarter
        longer than declared, so that rows spread out.
        """
        delays = self.delays.get(biz_code) or self.delays.get(DEFAULT) or DELAYS[DEFAULT]
        return round(delays[min(tries, len(delays)) - 1] * rng.uniform(1.0, 1.25))

    def is_late(self, tries: int) -> bool:
        """True if `tries` sends without a receipt are so many that a row is reported to a person; it is still tried."""
        return tries >= self.attempts


class TopicCooldown:
    """Pauses of topics without receipts, of up to half a minute, after which one row is to be sent as a trial. So an
    unreachable broker neither costs every row an attempt nor delays other topics. The caller observes the pauses.
    """

    def __init__(self) -> None:
        self._resting: dict[str, tuple[float, int]] = {}  # topic -> (until when, how often in a row)

    def on_failure(self, topic: str, now: float) -> bool:
        """Records that a send to the topic had no receipt, and begins a pause: 1 s, doubled each time until `works` is
        called for the topic, 30 s at most. `now`: seconds of a monotonic clock. Returns False, and changes nothing, if
        a pause is under way.
        """
        if self.rests(topic, now):
            return False
        _, times = self._resting.get(topic, (0.0, 0))
        self._resting[topic] = (now + min(_MOST_REST, 2.0 ** min(times, _MOST_DOUBLED)), times + 1)
        return True

    def works(self, topic: str) -> bool:
        """Records that a send to the topic had its receipt. Returns True if that takes the topic out of `topics`."""
        return self._resting.pop(topic, None) is not None

    def rests(self, topic: str, now: float) -> bool:
        """True while a pause of the topic is under way. `now`: seconds, as in `on_failure`."""
        return self._resting.get(topic, (0.0, 0))[0] > now

    @property
    def topics(self) -> frozenset[str]:
        """Names of the topics whose pause is under way, or is over without a receipt since: nothing but trials is to be
        claimed for these.
        """
        return frozenset(self._resting)

    def to_probe(self, now: float) -> list[str]:
        """Topics whose pause is over without a receipt since: one row of each is to be sent as a trial. `now`: seconds,
        as in `on_failure`.
        """
        return [topic for topic, (until, _) in self._resting.items() if until <= now]
