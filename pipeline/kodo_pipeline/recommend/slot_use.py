"""Slot use of a subscription in windows of time: tenants and lanes that had the slots, and those that waited for one.
Pure types and figures.

A window is *full* if handlers ran in four fifths of the slots of its workers, or in all but one of each worker. Others
need as many slots as their offered load, the slot time of arrived messages, and its square root besides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kodo_pipeline.recommend.noisy_neighbours import JUDGED, LATE, RECENT

FULL: Final = 0.8  # share of the slots from which on a window is full
Lane = tuple[str, str]  # level, state
Chosen = Callable[[Lane], bool]


@dataclass(frozen=True, slots=True)
class LaneUse:
    """One lane in one window. `slot_ms`: time that its handlers ran in the window; `offered_ms`: slot time of the
    messages that arrived in it. `started`: messages on their first hop whose run began in the window, or that were late
    in it; `late`: how many of them waited longer than the goal.
    """

    slot_ms: int = 0
    offered_ms: int = 0
    started: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class TenantUse:
    """One tenant in one window, summed over all lanes, as LaneUse has it. `levels`: levels in which handlers ran for
    it.
    """

    slot_ms: int = 0
    offered_ms: int = 0
    started: int = 0
    late: int = 0
    levels: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SlotWindow:
    """One window, `at` ms since the epoch. `workers`: number of workers in it. `tenants`: those with most slot time,
    candidates for a promotion, and those that a route has promoted.
    """

    at: int
    workers: int
    lanes: Mapping[Lane, LaneUse]
    tenants: Mapping[str, TenantUse]

    def busy(self, width: int, chosen: Chosen = lambda _: True) -> float:
        """Number of one worker's slots in which handlers of the chosen lanes ran, on average. `width`: ms."""
        taken = sum(one.slot_ms for lane, one in self.lanes.items() if chosen(lane))
        return taken / width / max(1, self.workers)

    def offered(self, width: int, chosen: Chosen = lambda _: True) -> float:
        """Returns the average number of one worker's slots that the arrivals in the chosen lanes need. `width`: ms."""
        return sum(one.offered_ms for lane, one in self.lanes.items() if chosen(lane)) / width / max(1, self.workers)

    def waits(self, chosen: Chosen = lambda _: True) -> tuple[int, int]:
        """(started, late) summed over the chosen lanes."""
        some = [one for lane, one in self.lanes.items() if chosen(lane)]
        return sum(one.started for one in some), sum(one.late for one in some)


@dataclass(frozen=True, slots=True)
class SubscriptionSlots:
    """Slot use of one subscription. `total`: slots of one worker; `width` of a window in ms; `slices`: windows in any
    order.
    """

    topic: str
    subscription: str
    total: int
    width: int
    slices: Sequence[SlotWindow]

    def recent(self) -> list[SlotWindow]:
        """Windows that begin within the newest RECENT widths, oldest first."""
        if not self.slices:
            return []
        since = max(one.at for one in self.slices) - (RECENT - 1) * self.width
        return sorted((one for one in self.slices if one.at >= since), key=lambda one: one.at)

    def is_full(self, one: SlotWindow) -> bool:
        """True if handlers took at least the share FULL of the slots, or all but one of each worker."""
        return one.workers > 0 and one.busy(self.width) >= min(FULL * self.total, self.total - 1)

    def late(self, windows: Iterable[SlotWindow], chosen: Chosen) -> float | None:
        """Share of the runs of the chosen lanes that began later than the goal; None if none began."""
        counts = [one.waits(chosen) for one in windows]
        started = sum(count for count, _ in counts)
        return sum(late for _, late in counts) / started if started else None


def is_harmed(one: SlotWindow, chosen: Chosen) -> bool:
    """True if of the runs of the chosen lanes, at least JUDGED, more than the share LATE waited longer than the goal."""
    started, late = one.waits(chosen)
    return started >= JUDGED and late > LATE * started


def slots_for(offered: float) -> int:
    """Slots for an offered load: its mean and the square root of it, at least one."""
    return max(1, math.ceil(offered + math.sqrt(offered)))


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting of one subscription that the figures suggest. `action`: bulkhead, limit or concurrency; `path`: keys
    below the subscription in the file; `before`: None if the file has no value. `who`: the lanes or the tenant that
    took the slots: `busy` of the `total` slots of one worker, on average over `windows` (their beginnings); `needed`:
    slots that the others need. `late`, `late_else`: shares of the others' runs that began later than the goal, in these
    windows and in all others. `by`: the property of a limit.
    """

    topic: str
    subscription: str
    action: str
    path: tuple[str | int, ...]
    before: int | None
    after: int
    who: str
    windows: tuple[int, ...]
    busy: float
    total: int
    needed: int
    late: float | None
    late_else: float | None
    by: str = ""
