"""Tenants as others see them: windows of served and waiting messages judged for fairness, and few labels for many
tenants.

Reads the engine's structures without its lock: everything is copied in one step of the interpreter, and a figure may
be a message behind. Called ten times a second at most, by one thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.scheduling.fairness_index import (
    EVEN,
    FairnessIndex,
    TenantWindow,
    evenness,
    noisy,
    says_nothing,
)
from kodo_consumer.core.state.in_flight import OTHER, LaneState

if TYPE_CHECKING:
    from kodo_consumer.core.state.worker_metrics import Meter
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.policy import Policy

MAX_LABEL: Final = 100  # characters of a tenant in a label
_IDLE: Final = 600.0  # seconds without a message after which a tenant's label may go to another
_SHARE: Final = 0.01  # of a window's messages that earns a label
_LONGEST: Final = 60.0  # seconds after which a window that says nothing is begun anew
_COST: Final = 100  # a pass that took a second is not repeated for so many
STEP: Final = 2_000  # tenants a look sees at most: some milliseconds
_Kind = tuple[int, int, bool, int]  # the figures of a Tally


@dataclass(frozen=True, slots=True)
class Fairness:
    """Figures of the last window. Ages in seconds; tenants without any complaint: shares of 1, age of 0."""

    noisy: int = 0
    oldest_quiet: float = 0.0
    even: FairnessIndex = EVEN


class Labels:
    """Labels of tenants: at most `most` tenants have their own label, the busiest first; all others are counted as one.

    No count decreases: messages of a tenant from before it had a label stay with the others. A label that was given
    away ends, and starts at 0 if it returns.
    """

    def __init__(self, most: int) -> None:
        self.totals: dict[str, int] = {}  # messages served by label
        self.other = 0
        self._most, self._seen = most, dict[str, float]()

    def count(self, served: Counter[str], now: float) -> None:
        """Adds the messages of one window, by tenant; `now` in seconds of the same clock at each call."""
        total = served.total()
        least = max(1.0, _SHARE * total)
        busiest = [(number, tenant) for tenant, number in served.items() if number >= least]  # a hundred at most
        busiest += [(served[tenant], tenant) for tenant in self.totals if 0 < served[tenant] < least]
        for number, tenant in sorted(busiest, key=lambda one: -one[0]):
            if tenant in self.totals or (number >= least and self._room(now)):
                self.totals[tenant] = self.totals.get(tenant, 0) + number
                self._seen[tenant] = now
                total -= number
        self.other += total

    def _room(self, now: float) -> bool:
        if len(self.totals) < self._most:
            return True
        idle = min(self._seen, key=lambda tenant: self._seen[tenant], default=None)
        if idle is None or now - self._seen[idle] < _IDLE:
            return False
        del self.totals[idle], self._seen[idle]
        return True


@dataclass(slots=True)
class _LanePass:
    """Result of a pass for one lane: waiting messages by tenant, and the number of tenants that had some at its start as well."""

    waiting: dict[str, int]
    backlogged: int = 0


class TenantWatch:
    """Looks at one worker's tenants. `waiting`: messages in the queues by tenant, as of the last pass.

    A pass over all tenants ends a window. It is made in steps of so many tenants, one a look, so that 100,000 of them
    keep the interpreter from nobody.
    """

    def __init__(
        self, policy: Policy, lanes: Sequence[LaneState], meter: Meter, clock: Clock, most_labels: int
    ) -> None:
        self.fairness = Fairness()
        self.labels = Labels(most_labels)
        self.waiting: Counter[str] = Counter()
        self._policy, self._lanes, self._meter, self._clock = policy, lanes, meter, clock
        self._began = clock.now()
        self._before: list[dict[str, int]] = [{} for _ in lanes]
        self._served: list[Counter[str]] = [Counter() for _ in lanes]
        self._next = float("-inf")
        self._pass: Iterator[None] | None = None
        self._spent = 0.0

    @property
    def under_way(self) -> bool:
        """True while a pass has begun and not ended: look again soon."""
        return self._pass is not None

    def step(self, running: Counter[str]) -> None:
        """Takes the next step, if it is time to. `running`: handlers at work by tenant."""
        now = self._clock.now()
        if self._policy.fair_by is None:
            return
        if self._pass is None:
            if now < self._next:
                return
            self._pass, self._spent = self._steps(running), 0.0
        goes_on = any(True for _ in islice(self._pass, 1))
        self._spent += self._clock.now() - now
        if not goes_on:
            self._pass = None
            self._next = now + max(0.9, _COST * self._spent)

    def _steps(self, running: Counter[str]) -> Iterator[None]:
        """A pass; pauses after every step."""
        now = self._clock.now()
        self._count_served(now)
        busy = self._meter.take_busy()
        steps = count(1)
        waiting: Counter[str] = Counter()
        firsts: list[tuple[int, str]] = []
        seen: list[_LanePass] = []
        for lane, before in zip(self._lanes, self._before, strict=True):
            seen.append(found := _LanePass({}))
            for tenant, queued, first in lane.ring.queues():
                found.waiting[tenant] = queued
                found.backlogged += tenant in before
                waiting[tenant] += queued
                firsts.append((max(first.delivery.publish_time, first.headers.due or 0), tenant))
                if not next(steps) % STEP:
                    yield
        judged = yield from self._judge(seen, now, steps)
        holding = waiting.copy()
        holding.update(running)
        loud = noisy(holding, busy)
        self.waiting = waiting
        oldest = min((since for since, tenant in firsts if tenant not in loud), default=None)
        age = 0.0 if oldest is None else max(0.0, (self._clock.wall() - oldest) / 1000)
        self.fairness = Fairness(len(loud), age, judged)

    def _count_served(self, now: float) -> None:
        total: Counter[str] = Counter()
        for index, window in enumerate(self._meter.served):
            self._meter.served[index] = {}
            served = dict(window)
            self._served[index].update(served)
            total.update(served)
        self.labels.count(total, now)

    def _judge(self, seen: list[_LanePass], now: float, steps: Iterator[int]) -> Generator[None, None, FairnessIndex]:
        """The least even lane's figures; those of the window before, as long as this one does not say anything."""
        found: list[FairnessIndex] = []
        for before, served, lane in zip(self._before, self._served, seen, strict=True):
            if not lane.backlogged:
                found.append(EVEN)
                continue
            if says_nothing(served.total(), lane.backlogged):
                continue
            alike = yield from self._alike(before, served, lane.waiting, steps)
            if (even := evenness(alike)) is not None:
                found.append(even)
        if len(found) < len(seen) and now - self._began < _LONGEST:
            return self.fairness.even
        self._began = now
        self._before = [lane.waiting for lane in seen]
        self._served = [Counter() for _ in seen]
        if not found:
            return self.fairness.even
        return FairnessIndex(min(even.jain for even in found), min(even.worst for even in found))

    def _alike(
        self, before: Mapping[str, int], served: Mapping[str, int], waiting: Mapping[str, int], steps: Iterator[int]
    ) -> Generator[None, None, dict[_Kind, TenantWindow]]:
        """Windows of tenants, one for all tenants with the same figures: of 100,000 most have a message or two."""
        weights = self._policy.tenant_weights
        kinds: Counter[_Kind] = Counter()
        for tenant in served.keys() | waiting.keys():
            kinds[served.get(tenant, 0), waiting.get(tenant, 0), tenant in before, weights.get(tenant, 1)] += 1
            if not next(steps) % STEP:
                yield
        return {kind: TenantWindow(*kind, tenants=tenants) for kind, tenants in kinds.items()}


def label(tenant: str) -> str:
    """A tenant as a label's value: not endless."""
    return tenant if len(tenant) <= MAX_LABEL else f"{tenant[: MAX_LABEL - 1]}…"


__all__ = ["OTHER", "Fairness", "Labels", "TenantWatch", "label"]
