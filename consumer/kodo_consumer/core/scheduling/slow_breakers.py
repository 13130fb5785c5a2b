"""Circuit breakers of slow tenants, one a lane: they report slow tenants, and stop them where their handlers fail. No
I/O.

The breaker of all handlers leaves slow tenants out, because others must not be stopped for them. So each lane has a
breaker of its own for its slow tenants.
- It *notices* them when for 10 s handlers of some tenants were mostly slow and more of their messages waited. It stops
  nobody for that: handlers that take long and end well have a right to their fair share of the slots, and a pause of
  seconds would take nearly all of it from them (benchmarks/consumer/outage.py).
- It *opens* when handlers of most of the slow tenants fail, such as by `handler_timeout`, by the rules of Breaker: slow
  tenants of that lane then start as its probes allow. Quick tenants, and other lanes, are not affected.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.scheduling.circuit_breaker import Breaker, BreakerState
from kodo_consumer.core.values.limit_policy import NOBODY
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import many, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kodo_consumer.core.state.in_flight import InFlight, LaneState
    from kodo_consumer.core.values.outcomes import Outcome


_WINDOW: Final = 10.0  # seconds; what ended in the last one or two of them counts
_MOSTLY: Final = 2  # times the slow handlers of a tenant are more than all its handlers


class SlowCallRate:
    """Counts of ended handlers, all and slow ones, of the last 10 to 20 s, by tenant that was slow once."""

    __slots__ = ("_all", "_all_before", "_begin", "_slow", "_slow_before")

    def __init__(self) -> None:
        self._all, self._all_before = Counter[str](), Counter[str]()
        self._slow, self._slow_before = Counter[str](), Counter[str]()
        self._begin = float("-inf")

    def on_end(self, tenant: str, *, slow: bool) -> None:
        """Counts an ended handler; `slow`: it ran for too long."""
        self._all[tenant] += 1
        if slow:
            self._slow[tenant] += 1

    def slow_tenants(self, running: Mapping[str, int], now: float) -> list[str]:
        """Tenants most of whose handlers are slow, those with the most slow ones first. `running`: number of handlers
        that run for too long, by tenant: they are slow before they end. Each call after 10 s drops the counts of the
        window before.
        """
        if now - self._begin >= _WINDOW:
            self._all, self._all_before = Counter(), self._all
            self._slow, self._slow_before = Counter(), self._slow
            self._begin = now
        slow = self._slow + self._slow_before
        slow.update(running)
        found = {
            tenant: count
            for tenant, count in slow.items()
            if _MOSTLY * count > self._all[tenant] + self._all_before[tenant] + running.get(tenant, 0)
        }
        return sorted(found, key=lambda tenant: (-found[tenant], tenant))


_PERSISTS: Final = 10.0  # seconds until it is noticed, and until it is over
_AGAIN: Final = 60.0  # seconds between two times that it is said
_NAMED: Final = 3  # tenants in a text
_MAX_SHOWN: Final = 60  # characters of each
PHASES: Final = (
    BreakerState.CLOSED.value,
    "noticed",
    *(state.value for state in BreakerState if state is not BreakerState.CLOSED),
)
"""Phases of a lane's breaker: `noticed` means closed, with slow tenants."""


@dataclass(frozen=True, slots=True)
class SlowTenants:
    """Slow tenants that the breaker of a lane noticed. `tenants`: their names, most slow handlers first; `since`: ms
    since the epoch; `running`: handlers of the lane that run too long; `waiting`: number of slow tenants and newcomers
    with waiting messages, of quick ones if there are none.
    """

    tenants: tuple[str, ...]
    since: int
    running: int
    waiting: int


class LaneBreaker:
    """Breaker of the slow tenants of one lane. `noticed`: the slow tenants that it reports now, None if it reports no
    tenants. `notices`: how often it began to report some. `rate`: counts of ended handlers. Times in seconds, `wall` in
    ms since the epoch.
    """

    __slots__ = ("_calm_since", "_since", "breaker", "lane", "noticed", "notices", "rate")

    def __init__(self, lane: LaneState, slots: int) -> None:
        self.lane = lane
        self.breaker = Breaker(slots)
        self.rate = SlowCallRate()
        self.noticed: SlowTenants | None = None
        self.notices = 0
        self._since: tuple[float, int] | None = None  # by both clocks
        self._calm_since: float | None = None

    def check(self, overdue: Counter[str], now: float, wall: int) -> None:
        """Sets `noticed` after 10 s in which the lane had slow tenants and waiting messages, keeps it up to date
        meanwhile, and clears it after 10 s in which it never had both. `overdue`: handlers that run too long, by
        tenant.
        """
        tenants = self.rate.slow_tenants(overdue, now)
        ring = self.lane.ring
        waiting = (
            ring.count(slow=True) or ring.quick.count
        )  # nobody is sorted where all slots hang or a bulkhead is full
        if not (tenants and waiting):
            self._since = None
            if self.noticed is not None:
                self._calm_since = now if self._calm_since is None else self._calm_since
                if now - self._calm_since >= _PERSISTS:
                    self.noticed = self._calm_since = None
            return
        self._calm_since = None
        self._since = (now, wall) if self._since is None else self._since
        if self.noticed is not None or now - self._since[0] >= _PERSISTS:
            self.notices += self.noticed is None
            since = self._since[1] if self.noticed is None else self.noticed.since
            self.noticed = SlowTenants(tuple(tenants), since, overdue.total(), waiting)

    @property
    def phase(self) -> str:
        """One of PHASES: the breaker's state, or `noticed`."""
        state = self.breaker.state
        return "noticed" if state is BreakerState.CLOSED and self.noticed is not None else state.value

    def text(self) -> str:
        """Text for people about the slow tenants in `noticed`, which must not be None; their names are escaped and cut,
        because senders choose them.
        """
        found = self.noticed
        assert found is not None
        names = ", ".join(one_line(tenant, _MAX_SHOWN) for tenant in found.tenants[:_NAMED])
        if len(found.tenants) > _NAMED:
            names += f" and {len(found.tenants) - _NAMED:,} more"
        who = "" if found.tenants == (NOBODY,) else f"{many(len(found.tenants), 'tenant')}: {names}; "
        state = "" if self.breaker.state is BreakerState.CLOSED else f", {self.breaker.state}: {self.breaker.cause}"
        return (
            f"{self.lane.lane.name} since {time_text(found.since, seconds=True)} ({who}"
            f"{many(found.running, 'handler')} at work{state})"
        )


class SlowBreakers:
    """Breakers of the slow tenants of all lanes. `not_closed`: lanes (indices) whose breaker restrains starts.
    `wants_all_outcomes`: callers report every end of a slow tenant's handler by `on_end`, else failures alone.
    """

    __slots__ = ("_last_report", "lanes", "not_closed", "wants_all_outcomes")

    def __init__(self, lanes: Sequence[LaneState], slots: int) -> None:
        self.lanes = [LaneBreaker(lane, slots) for lane in lanes]
        self.not_closed: set[int] = set()
        self.wants_all_outcomes = False
        self._last_report: float | None = None

    def stops_beside(self, running: Collection[InFlight]) -> Callable[[int, float], bool]:
        """Returns `stops` with `running` bound: a function of a lane's index and the time (seconds)."""
        return lambda index, now: self.stops(index, running, now)

    def stops(self, index: int, running: Collection[InFlight], now: float) -> bool:
        """True if the lane's breaker lets no further handler of a slow tenant start. `running`: messages of slow
        tenants, in any lane, whose handlers run.
        """
        if index not in self.not_closed:
            return False
        lane = self.lanes[index]
        return not lane.breaker.may_start(sum(in_flight.lane is lane.lane for in_flight in running), now)

    def on_start(self, index: int) -> None:
        """Counts the start of a slow tenant's handler in the lane with this index."""
        if index in self.not_closed:
            self.lanes[index].breaker.on_start()

    def on_end(self, in_flight: InFlight, outcome: Outcome, started: float, now: float) -> bool:
        """Takes the outcome of a slow tenant's handler that started at `started` (seconds). Returns True if callers are
        to check again what may start: see Breaker.on_end.
        """
        index = in_flight.lane.lane.index
        breaker = self.lanes[index].breaker
        more = breaker.on_end(in_flight.tenant, outcome, started, now)
        if breaker.state is BreakerState.CLOSED:
            self.not_closed.discard(index)
        else:
            self.not_closed.add(index)
        self.wants_all_outcomes = any(one.breaker.wants_all_outcomes for one in self.lanes)
        return more

    def check(self, overdue: Collection[InFlight], kept: str, now: float, wall: int) -> tuple[str, bool] | None:
        """Returns an alarm text and False when a lane has noticed slow tenants, and again after each 60 s, or a text
        and True when no lane reports any more; None if there is no news. Must be called each second. `overdue`:
        messages whose handlers run for too long; `kept`: the slots that others have for certain, in words.
        """
        new = False
        for lane in self.lanes:
            before = lane.noticed
            lane.check(Counter(in_flight.tenant for in_flight in overdue if in_flight.lane is lane.lane), now, wall)
            new = new or (before is None and lane.noticed is not None)
        noticed = [lane for lane in self.lanes if lane.noticed is not None]
        if not noticed:
            over, self._last_report = self._last_report is not None, None
            return ("the tenants whose handlers were slow are so no more, or have no messages", True) if over else None
        if not new and self._last_report is not None and now - self._last_report < _AGAIN:
            return None
        self._last_report = now
        what = ", ".join(lane.text() for lane in noticed)
        return f"the breaker noticed slow handlers in {what}. Others go on, {kept}; it stops only what fails", False
