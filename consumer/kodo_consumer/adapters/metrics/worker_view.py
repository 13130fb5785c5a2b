"""View of one running worker for metrics and probes: its figures, and its reasons for being unhealthy or not ready."""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import TYPE_CHECKING, Final

from kodo_consumer.adapters.metrics.cause_labels import CauseLabels
from kodo_consumer.adapters.metrics.rest_reasons import RestWatch, rest_reasons_of
from kodo_consumer.adapters.metrics.stall_probe import StallProbe
from kodo_consumer.adapters.metrics.tenant_fairness import TenantWatch
from kodo_consumer.core.scheduling.circuit_breaker import BreakerState
from kodo_consumer.core.state.worker_metrics import Meter
from kodo_consumer.core.values.clock import SystemClock
from kodoctl.text.formatting import time_text

if TYPE_CHECKING:
    from kodo_consumer.adapters.metrics.rest_reasons import InboxView
    from kodo_consumer.core.state.in_flight import LaneState
    from kodo_consumer.core.upkeep.backlog_trend import BacklogAdvice
    from kodo_consumer.core.values.broker import BorderStatus
    from kodo_consumer.core.values.policy import Lane
    from kodo_consumer.runtime.store_session import StoreSession
    from kodo_consumer.runtime.supervisor import WorkerSupervisor
    from kodo_consumer.runtime.worker import Worker

MOST_CAUSES: Final = 20  # with a label of their own
_MOST_TENANTS: Final = 20  # by name, of a lane
_SILENT: Final = 30.0  # seconds without a sign of the timekeeper, who comes every five


class WorkerView:
    """View of a worker and its supervisor (`service`), to which it adds the stall probe as a background task. Make it
    before the supervisor starts.

    Args:
        worker: the worker that is shown.
        service: its supervisor, which runs the background tasks.
        loop: event loop of async handlers; None without any.
        border: whether messages cross into the client library by native code; None: not shown.
        tenants: most tenants with a label of their own.
        measured: also keep the figures that cost some time for every message; False: the attributes `meter`, `tenants`,
            `failed_causes` and `dead_causes` are None.
        session: session with the store of done messages; None without a store.

    The attribute `inbox` is None until somebody sets the inbox through which the messages come.
    """

    def __init__(
        self,
        worker: Worker,
        service: WorkerSupervisor,
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        border: BorderStatus | None = None,
        tenants: int = 20,
        measured: bool = True,
        session: StoreSession | None = None,
    ) -> None:
        self.worker, self.service, self.border, self.session = worker, service, border, session
        self.inbox: InboxView | None = None
        self.policy, self.engine = worker.policy, worker.engine
        self.namespace = self.policy.lanes[0].topic.removeprefix("persistent://").rpartition("/")[0]
        self.meter: Meter | None = None
        self.tenants: TenantWatch | None = None
        self.failed_causes: CauseLabels | None = None
        self.dead_causes: CauseLabels | None = None
        if measured:
            clock = SystemClock()
            self.meter = Meter(self.policy, clock, Random())  # noqa: S311  # chooses samples
            self.engine.runs.measure(self.meter)
            self.failed_causes, self.dead_causes = (CauseLabels(clock, MOST_CAUSES) for _ in range(2))
            self.tenants = TenantWatch(
                lambda: self.engine.context.policy, self.engine.lanes, self.meter, clock, tenants
            )
        self.rest_watch = RestWatch(self)
        self.pulse = StallProbe(worker, loop, self.tenants, self.rest_watch)
        service.background_tasks.append(self.pulse.run)

    @property
    def lanes(self) -> list[tuple[Lane, LaneState]]:
        """All lanes that the worker reads, each with its state."""
        return [(state.lane, state) for state in self.engine.lanes]

    @property
    def held_bytes(self) -> int:
        """Sum of the payload bytes of the messages that the look-ahead counts: received and not acknowledged yet,
        without parked ones, and without those that are kept aside until their partition is this worker's.
        """
        return self.engine.lookahead.bytes

    @property
    def slow_lanes(self) -> list[dict[str, object]]:
        """Lanes with noticed slow tenants or a breaker that is not closed, one JSON object each: `lane`, `phase`,
        `since` (text), `slow_tenants` (number), `tenants` (20 names at most, those with most slow handlers first),
        `running` (handlers that run too long), `waiting_tenants` (number of slow tenants and newcomers with waiting
        messages; if there are none, of quick tenants with waiting messages), `cause` (of the breaker, "" while it is
        closed). If no slow tenants are noticed, `since` is None, `tenants` is empty and the numbers are 0.
        """
        slots = self.engine.scheduler.slots
        return [
            {
                "lane": one.lane.lane.name,
                "phase": one.phase,
                "since": time_text(found.since, seconds=True) if found else None,
                "slow_tenants": len(found.tenants) if found else 0,
                "tenants": list(found.tenants[:_MOST_TENANTS]) if found else [],
                "running": found.running if found else 0,
                "waiting_tenants": found.waiting if found else 0,
                "cause": one.breaker.cause if one.breaker.state is not BreakerState.CLOSED else "",
            }
            for one in (slots.breakers.lanes if slots is not None else ())
            for found in (one.noticed,)
            if one.phase != BreakerState.CLOSED
        ]

    @property
    def publishing(self) -> int:
        """Number of messages that the worker moves to other topics and that have no receipt yet, without audit
        records.
        """
        return self.engine.flow.publishes.waiting

    @property
    def oldest_deferred(self) -> float:
        """Seconds since the oldest deferred message was deferred; 0 if no message is deferred."""
        return self.worker.call_locked(lambda: self.engine.runs.oldest_deferred(self.worker.clock.now()))

    @property
    def reads_alone(self) -> bool:
        """True if the subscription has one reader, by its type and its expected workers, so that missing messages are
        detected.
        """
        return self.engine.gap_monitor is not None

    def unhealthy(self) -> list[str]:
        """Reasons to restart this process: the worker broke, its timekeeper has begun no tick for more than 30 s, or
        the watchdog found contradictions at its last look. Empty while the worker works, and while it starts.
        """
        problems = self._worker_problems
        beat = self.service.last_tick
        if beat is not None and time.monotonic() - beat > _SILENT:
            problems.append(f"no timer was looked at for {time.monotonic() - beat:.0f} s")
        return problems + [f"watchdog: {finding}" for finding in self.worker.contradictions]

    def not_ready(self) -> list[str]:
        """Reasons why the worker is not ready: it drains or connects (that alone then), it broke, or a rest reason is a
        fault. Empty otherwise, also while it starts nothing for a reason that is no fault. Waits for the worker's lock.
        """
        if self.engine.draining:
            return ["draining"]
        if not self.worker.opened:
            return ["connecting"]
        return self._worker_problems + [rest.text for rest in rest_reasons_of(self) if rest.fault]

    @property
    def rests(self) -> list[dict[str, object]]:
        """Rest reasons as of the last look, which comes about once a second, as JSON objects: `reason` (value of a
        RestKind), `text`, and `seconds` for which it has lasted (see RestWatch.seconds). Empty while the worker
        connects or drains.
        """
        found = self.rest_watch.seconds(time.monotonic())
        return [
            {"reason": rest.reason.value, "text": rest.text, "seconds": round(seconds, 1)}
            for rest, seconds in found.items()
        ]

    @property
    def _worker_problems(self) -> list[str]:
        """The exception that ended the worker or one of its threads (kodo_consumer.runtime.threads), as text; empty
        while it runs.
        """
        return [f"the worker broke: {self.worker.problem!r}"] if self.worker.problem is not None else []

    @property
    def standing_still(self) -> list[Lane]:
        """Lanes of the subscription of which the broker delivers nothing although messages are due, by its statistics.
        Lanes that only other workers read may be among them. Empty until statistics show such lanes.
        """
        still = self.service.still
        return [lane for lane in self.policy.every_lane if still is not None and lane.index in still.lanes]

    @property
    def backlog_advice(self) -> BacklogAdvice | None:
        """Trend of the backlog of all ready lanes of the subscription, by statistics of the last minutes, and a remedy
        while it grows. None: not known, small, or steady (see BacklogTrend.advice).
        """
        stats = self.service.stats
        return None if stats is None else stats.trend.advice

    @property
    def idle_workers(self) -> int | None:
        """Number of workers that read the ground topic of a failover subscription, beyond its declared partitions, each
        of which goes to one worker. None: not known, or the subscription has another type.
        """
        ground, stats = self.policy.ground_lane, self.service.stats
        found = None if stats is None else stats.last.get(ground.index)
        if found is None or self.policy.subscription_type != "failover":
            return None
        return max(0, len(found.workers) - max(1, ground.partitions))

    @property
    def clock_ahead(self) -> float | None:
        """Seconds that this worker's clock is certainly ahead of the broker's, by the last answer with the broker's
        time; negative if behind, 0 if both may agree (kodo_consumer.core.upkeep.clock_skew.ClockSkewDetector). None:
        not known yet.
        """
        return None if self.service.skew is None else self.service.skew.ahead

    @property
    def held_back(self) -> list[str]:
        """Topics of this worker's lanes of which the broker sends this worker nothing more, from one partition at
        least, because too many messages are unacknowledged, by the statistics that were read last. Topics whose last
        reading failed are missing.
        """
        stats = self.service.stats
        last = dict(stats.last) if stats else {}
        return [
            lane.topic for lane, _ in self.lanes if lane.index in last and self.service.name in last[lane.index].blocked
        ]
