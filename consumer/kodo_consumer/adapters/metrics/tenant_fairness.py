"""Fairness figures and labels of the tenants of one worker: windows of handled and waiting messages, and a few labels
for many tenants.

The functions read the engine's structures without its lock: each is copied in one step of the interpreter, and a figure
may lag behind by one message. One thread calls them, ten times a second at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
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
    """Fairness figures as of the last pass of a TenantWatch. `noisy`: number of noisy tenants, which have a large part
    of the messages in memory or of the handlers' time. `oldest_quiet`: the longest time, in seconds, for which the
    first message in a queue of another tenant has been due; 0 without one. `even`: by the last window with enough
    messages to judge, the least of each figure among the lanes.
    """

    noisy: int = 0
    oldest_quiet: float = 0.0
    even: FairnessIndex = EVEN


class Labels:
    """Labels of tenants (or causes): at most `most` have their own label; `other` counts all others together. A tenant
    gets one with a hundredth of a window's messages, the busiest first, while there is room.

    `totals`: messages by tenant with a label. No count decreases while it exists: messages that a tenant had before it
    got a label stay in `other`. A label without messages for ten minutes may go to another tenant, and its count then
    ends; if its tenant gets a label again, the new count starts at 0.
    """

    def __init__(self, most: int) -> None:
        self.totals: dict[str, int] = {}  # messages served by label
        self.other = 0
        self._most, self._seen = most, dict[str, float]()

    def count(self, served: Counter[str], now: float) -> None:
        """Adds the messages of one window, by tenant, and decides who gets a label. `now`: seconds of a clock that is
        the same for all calls.
        """
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
    """Result of a pass for one lane. `waiting`: waiting messages by tenant. `backlogged`: number of those tenants that
    also had messages when the window began.
    """

    waiting: dict[str, int]
    backlogged: int = 0


class TenantWatch:
    """Measures fairness among the tenants of one worker. `policy`: returns the policy that is in force, with live
    orders; its weights of tenants may change. `waiting`: queued messages by tenant, as of the last pass;
    `fairness`: figures of the last pass; `labels`: ends of handlers, failed ones too, of all passes.

    A pass over all tenants ends a window. The window of `even` goes on, for 60 s at most, while it has too few messages
    to judge. A pass takes several calls of `step`, each for about 2,000 tenants, so that 100,000 tenants do not keep
    the interpreter from other threads.
    """

    def __init__(
        self, policy: Callable[[], Policy], lanes: Sequence[LaneState], meter: Meter, clock: Clock, most_labels: int
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
        """True while a pass has begun and has not ended: the caller should call `step` soon."""
        return self._pass is not None

    def step(self, running: Counter[str]) -> None:
        """Does the next step of a pass, or the first one of a new pass if the last pass ended long enough ago: 0.9 s,
        or a hundred times as long as its steps took, if that is more. Does nothing without `fair_by`. `running`:
        running handlers by tenant; only the call that begins a pass uses it.
        """
        now = self._clock.now()
        if self._policy().fair_by is None:
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
        """Generator of one pass: it yields after every 2,000 tenants, and sets `waiting` and `fairness` at its end."""
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
        """Generator whose result is the least evenness over all lanes. It is the last window's while this window has
        too few messages, for at most 60 s; then a new window begins.
        """
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
        """Generator whose result has one window for all tenants with the same figures, because most of 100,000 tenants
        have a message or two.
        """
        weights = self._policy().tenant_weights
        kinds: Counter[_Kind] = Counter()
        for tenant in served.keys() | waiting.keys():
            kinds[served.get(tenant, 0), waiting.get(tenant, 0), tenant in before, weights.get(tenant, 1)] += 1
            if not next(steps) % STEP:
                yield
        return {kind: TenantWindow(*kind, tenants=tenants) for kind, tenants in kinds.items()}


def label(tenant: str) -> str:
    """Value of a label for a tenant or cause: its name; of more than MAX_LABEL (100) characters the first 99, and `…`,
    so that long names may have the same value.
    """
    return tenant if len(tenant) <= MAX_LABEL else f"{tenant[: MAX_LABEL - 1]}…"


__all__ = ["OTHER", "Fairness", "Labels", "TenantWatch", "label"]
