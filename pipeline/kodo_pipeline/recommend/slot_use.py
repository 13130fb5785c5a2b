"""Slot use of a subscription in windows of time: tenants and lanes that used the slots, and those that waited for one.
Pure.

A window is *full* if handlers ran in four fifths of the slots of its workers, or in all but one of each worker. A load
needs as many slots as it occupies on average (the slot time of arrived messages), plus the square root of that number.
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
    """Slot use of one lane in one window. `slot_ms`: time that its handlers ran in the window; `offered_ms`: time that
    handlers ran, in any window, for the messages that arrived in the window (or whose run began in it, if they were not
    in a ready lane since they were stored).

    `started`: number of messages, in a ready lane since they were stored, whose run began in the window, or that waited
    in it beyond their goal, so that a late message counts in several windows; `late`: number of these that waited
    longer than their goal, until their run began. See kodo_pipeline.recommend.slot_query.
    """

    slot_ms: int = 0
    offered_ms: int = 0
    started: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class TenantUse:
    """Slot use of one tenant in one window, summed over all lanes; fields as in LaneUse. `levels`: levels in which
    handlers ran for the tenant, or that have messages of `started`.
    """

    slot_ms: int = 0
    offered_ms: int = 0
    started: int = 0
    late: int = 0
    levels: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SlotWindow:
    """One window of a subscription. `at`: its start, ms since the epoch; `workers`: number of workers in it; `tenants`:
    only those with most slot time, candidates for a promotion, and those that a route has promoted.
    """

    at: int
    workers: int
    lanes: Mapping[Lane, LaneUse]
    tenants: Mapping[str, TenantUse]

    def busy(self, width: int, chosen: Chosen = lambda _: True) -> float:
        """Average number of slots of one worker in which handlers of the chosen lanes ran. `width`: width of the window
        in ms.
        """
        taken = sum(one.slot_ms for lane, one in self.lanes.items() if chosen(lane))
        return taken / width / max(1, self.workers)

    def offered(self, width: int, chosen: Chosen = lambda _: True) -> float:
        """Average number of slots of one worker that the arrivals in the chosen lanes need. `width`: width of the
        window in ms.
        """
        return sum(one.offered_ms for lane, one in self.lanes.items() if chosen(lane)) / width / max(1, self.workers)

    def waits(self, chosen: Chosen = lambda _: True) -> tuple[int, int]:
        """Returns (`started`, `late`) as in LaneUse, summed over the chosen lanes."""
        some = [one for lane, one in self.lanes.items() if chosen(lane)]
        return sum(one.started for one in some), sum(one.late for one in some)


@dataclass(frozen=True, slots=True)
class SubscriptionSlots:
    """Slot use of one subscription. `total`: slots of one worker; `width`: width of a window in ms; `slices`: windows
    in any order.
    """

    topic: str
    subscription: str
    total: int
    width: int
    slices: Sequence[SlotWindow]

    def recent(self) -> list[SlotWindow]:
        """The newest windows, oldest first: those that begin within RECENT (12) widths up to and including the newest
        one.
        """
        if not self.slices:
            return []
        since = max(one.at for one in self.slices) - (RECENT - 1) * self.width
        return sorted((one for one in self.slices if one.at >= since), key=lambda one: one.at)

    def is_full(self, one: SlotWindow) -> bool:
        """True if handlers used at least four fifths of the slots (FULL), or all but one of each worker, so for a worker
        with one slot in every window; False without workers.
        """
        return one.workers > 0 and one.busy(self.width) >= min(FULL * self.total, self.total - 1)

    def late(self, windows: Iterable[SlotWindow], chosen: Chosen) -> float | None:
        """Share of `late` in `started` (see LaneUse) of the chosen lanes, summed over `windows`, 0 to 1: a late message
        counts in each window in which it waited beyond its goal. None if nothing counts as `started`.
        """
        counts = [one.waits(chosen) for one in windows]
        started = sum(count for count, _ in counts)
        return sum(late for _, late in counts) / started if started else None


def is_harmed(one: SlotWindow, chosen: Chosen) -> bool:
    """True if too many messages of the chosen lanes were late in this window: more than 5 % (LATE) of `started` (see
    LaneUse) waited longer than their goal. False if `started` is less than 20 (JUDGED).
    """
    started, late = one.waits(chosen)
    return started >= JUDGED and late > LATE * started


def slots_for(offered: float) -> int:
    """Number of slots for an offered load (average number of busy slots): the load plus its square root, rounded up, at
    least one.
    """
    return max(1, math.ceil(offered + math.sqrt(offered)))


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A recommended setting of one subscription. `action`: bulkhead, limit or concurrency; `path`: keys below the
    subscription in the file; `before`, `after`: present and new value, `before` None if the file has none.

    `who`: the lanes or the tenant that used the slots; `busy`: how many of the `total` slots of one worker they used,
    on average over `windows` (starts of windows in ms); `needed`: slots that the others need. `late`, `late_else`:
    shares of the others' runs that began later than the goal, in these windows and in all others, None: none began.
    All lanes count as the others for concurrency, and in these shares for a limit. `by`: property of a limit, "" for
    other actions.
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
