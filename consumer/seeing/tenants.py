"""Tenants as others see them: windows of served and waiting messages judged for fairness, and few labels for many tenants.

Reads the engine's structures without its lock: everything is copied in one step of the interpreter, and a figure may be a
message behind. Called about once a second, by one thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from consumer.clock import Clock
from consumer.engine.meter import Meter
from consumer.policy import Policy
from consumer.scheduling.held import OTHER, Held, LaneState
from consumer.seeing.evenness import EVEN, Evenness, Tally, evenness, noisy

MAX_LABEL: Final = 100  # characters of a tenant in a label
_IDLE: Final = 600.0  # seconds without a message after which a tenant's label may go to another
_SHARE: Final = 0.01  # of a window's messages that earns a label
_LONGEST: Final = 60.0  # seconds after which a window that says nothing is begun anew
_COST: Final = 100  # a look that took a second is not repeated for so many


@dataclass(frozen=True, slots=True)
class Fairness:
    """Figures of the last window. Ages in seconds; tenants without any complaint: shares of 1, age of 0."""

    noisy: int = 0
    oldest_quiet: float = 0.0
    even: Evenness = EVEN


class Labels:
    """At most `most` tenants have a label of their own, the busiest as they come; all others are counted as one.

    No count goes back: a tenant's messages before it had its label stay with the others'; a label that was given away is
    gone, and begins at 0 if it returns.
    """

    def __init__(self, most: int) -> None:
        self.totals: dict[str, int] = {}  # messages served by label
        self.other = 0
        self._most, self._seen = most, dict[str, float]()

    def count(self, served: Counter[str], now: float) -> None:
        """A window's messages."""
        least = max(1.0, _SHARE * sum(served.values()))
        for tenant, count in served.most_common():
            if tenant in self.totals or (count >= least and self._room(now)):
                self.totals[tenant] = self.totals.get(tenant, 0) + count
                self._seen[tenant] = now
            else:
                self.other += count

    def _room(self, now: float) -> bool:
        if len(self.totals) < self._most:
            return True
        idle = min(self._seen, key=lambda tenant: self._seen[tenant], default=None)
        if idle is None or now - self._seen[idle] < _IDLE:
            return False
        del self.totals[idle], self._seen[idle]
        return True


class TenantWatch:
    """Looks at one worker's tenants. `waiting`: messages in the queues by tenant, of the last look."""

    def __init__(
        self, policy: Policy, lanes: Sequence[LaneState], meter: Meter, clock: Clock, most_labels: int
    ) -> None:
        self.fairness = Fairness()
        self.labels = Labels(most_labels)
        self.waiting: Counter[str] = Counter()
        self._policy, self._lanes, self._meter, self._clock = policy, lanes, meter, clock
        self._began = clock.now()
        self._before: list[set[str]] = [set() for _ in lanes]
        self._served: list[Counter[str]] = [Counter() for _ in lanes]
        self._next = float("-inf")

    def look(self, running: Counter[str]) -> None:
        """Ends the window, if it is time to. `running`: handlers at work by tenant."""
        now = self._clock.now()
        if now < self._next or self._policy.fair_by is None:
            return
        queues = [self._queues(lane) for lane in self._lanes]
        waiting: Counter[str] = Counter()
        for lane in queues:
            for tenant, (count, _) in lane.items():
                waiting[tenant] += count
        self._count_served(now)
        busy, self._meter.busy = self._meter.busy, {}
        loud = noisy(waiting + running, dict(busy))
        even = self._judge(queues, now)
        self.waiting = waiting
        self.fairness = Fairness(len(loud), self._oldest_quiet(queues, loud), even)
        self._next = now + max(0.9, _COST * (self._clock.now() - now))

    def _queues(self, lane: LaneState) -> dict[str, tuple[int, Held]]:
        """Messages waiting and the first of them, by tenant."""
        return {tenant: (count, first) for tenant, count, first in lane.ring.queues()}

    def _count_served(self, now: float) -> None:
        total: Counter[str] = Counter()
        for index, window in enumerate(self._meter.served):
            self._meter.served[index] = {}
            served = dict(window)
            self._served[index].update(served)
            total.update(served)
        self.labels.count(total, now)

    def _judge(self, queues: list[dict[str, tuple[int, Held]]], now: float) -> Evenness:
        """The least even lane's figures; those of the window before, as long as this one does not say anything."""
        weights = self._policy.tenant_weights
        found: list[Evenness] = []
        for before, served, lane in zip(self._before, self._served, queues, strict=True):
            tallies = {
                tenant: Tally(served[tenant], lane[tenant][0] if tenant in lane else 0, tenant in before,
                              weights.get(tenant, 1))
                for tenant in served.keys() | lane.keys()
            }  # fmt: skip
            if (even := evenness(tallies)) is not None:
                found.append(even)
        if len(found) < len(queues) and now - self._began < _LONGEST:
            return self.fairness.even
        self._began = now
        self._before = [set(lane) for lane in queues]
        self._served = [Counter() for _ in queues]
        if not found:
            return self.fairness.even
        return Evenness(min(even.jain for even in found), min(even.worst for even in found))

    def _oldest_quiet(self, queues: list[dict[str, tuple[int, Held]]], loud: set[str]) -> float:
        since = [
            max(first.delivery.publish_time, first.control.due or 0)
            for lane in queues
            for tenant, (_, first) in lane.items()
            if tenant not in loud
        ]
        return max(0.0, (self._clock.wall() - min(since)) / 1000) if since else 0.0


def label(tenant: str) -> str:
    """A tenant as a label's value: not endless."""
    return tenant if len(tenant) <= MAX_LABEL else f"{tenant[: MAX_LABEL - 1]}…"


__all__ = ["OTHER", "Fairness", "Labels", "TenantWatch", "label"]
