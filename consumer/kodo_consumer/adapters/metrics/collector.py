"""Prometheus metrics of workers, in one table (`EXPORTED`), from which they are exported, documented
(docs/reference/metrics.md) and tested.

Every value is read at the moment of the scrape, without the worker's lock: a figure may lag behind by one message.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from kodo_consumer.adapters.metrics.limit_metrics import NUMBERS, RESTRAINTS
from kodo_consumer.adapters.metrics.metric import LANE, Labels, MetricSpec, Read, counter, gauge, of_lane, plain
from kodo_consumer.adapters.metrics.rest_reasons import RestKind
from kodo_consumer.adapters.metrics.tenant_fairness import label
from kodo_consumer.core import COMPILED
from kodo_consumer.core.state.in_flight import OTHER

if TYPE_CHECKING:
    from collections import Counter

    from kodo_consumer.adapters.metrics.cause_labels import CauseLabels
    from kodo_consumer.adapters.metrics.worker_view import WorkerView
    from kodo_consumer.core.state.cause_counts import CauseCounts
    from kodo_consumer.core.state.worker_metrics import Timings
    from kodo_consumer.core.upkeep.backlog_trend import BacklogAdvice
    from kodo_consumer.core.values.broker import LaneStats
    from kodo_consumer.core.values.duration_histogram import Histogram
    from kodo_consumer.core.values.policy import Lane


def _of_stats(read: Callable[[LaneStats], float | None]) -> Read:
    """`Read` of one figure for each lane of the subscription, from the broker's last statistics. A lane has no value if
    one of its partitions did not answer, or if `read` returns None.
    """

    def values(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
        for lane, stats in _stats(sight):
            if (value := read(stats)) is not None:
                yield (lane.level.value, lane.state.value), value

    return values


def _of_trend(read: Callable[[BacklogAdvice], float | None]) -> Read:
    """`Read` of a figure of the backlog's trend; none where the trend is not known, or `read` returns None."""

    def values(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
        if (advice := sight.backlog_advice) is not None and (value := read(advice)) is not None:
            yield (), value

    return values


def _lane_stats(sight: WorkerView) -> list[tuple[Lane, LaneStats]]:
    last = dict(sight.service.stats.last) if sight.service.stats else {}
    return [(lane, last[lane.index]) for lane in sight.policy.every_lane if lane.index in last]


def _stats(sight: WorkerView) -> list[tuple[Lane, LaneStats]]:
    """Statistics of the lanes whose partitions all answered, because a sum over some partitions would look like the sum
    over all.
    """
    return [(lane, stats) for lane, stats in _lane_stats(sight) if stats.whole]


def _lane_counts(what: str) -> Read:
    def values(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
        for lane, lane_state in sight.lanes:
            for (kind, name), count in dict(lane_state.counted).items():
                if kind == what:
                    yield (lane.level.value, lane.state.value, label(name)), count

    return values


def _done_counts(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
    for lane, _ in sight.lanes:
        if sight.meter is not None:
            yield (lane.level.value, lane.state.value), sight.meter.done[lane.index]


def _timing(read: Callable[[Timings], Histogram]) -> Read:
    def values(sight: WorkerView) -> Iterator[tuple[Labels, Histogram]]:
        if sight.meter is not None:
            for state in dict.fromkeys(lane.state for lane, _ in sight.lanes):
                yield (state.value,), read(sight.meter.timings[state])

    return values


def _age(moment: int | None) -> float:
    return max(0.0, time.time() - moment / 1000) if moment else 0.0


def _lag(sight: WorkerView) -> float | None:
    """Number of entries that are due and not acknowledged, in all lanes that this worker reads; None unless the last
    statistics of each of these lanes are complete.
    """
    stats = [one for lane, one in _stats(sight) if lane.index < len(sight.lanes)]
    if len(stats) < len(sight.lanes):
        return None
    return float(sum(max(0, one.backlog - one.delayed) for one in stats))


def _workers(sight: WorkerView) -> float | None:
    """Number of live workers of the subscription, in all lanes together. None while the ground topic's statistics are
    missing.
    """
    ground = next((stats for lane, stats in _lane_stats(sight) if lane is sight.policy.ground_lane), None)
    others = sight.service.lane_workers.elsewhere if sight.service.lane_workers else frozenset()
    return None if ground is None else float(len(ground.workers | others))


def _lane_workers(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
    for lane, stats in _lane_stats(sight):
        if stats.whole or stats.workers:
            yield (lane.level.value, lane.state.value), float(len(stats.workers))


def _lane_ready(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
    ready = float(not sight.not_ready())
    return (((lane.level.value, lane.state.value), ready) for lane, _ in sight.lanes)


def _backlog_causes(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
    advice = sight.backlog_advice
    if advice is not None and advice.growth >= 0:
        yield from (((cause,), float(advice.cause in (cause, "both"))) for cause in ("senders", "handlers"))


def _backlog_tenant(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
    advice = sight.backlog_advice
    if advice is not None and advice.tenant is not None:
        is_shown = sight.tenants is not None and advice.tenant.tenant in sight.tenants.labels.totals
        yield (label(advice.tenant.tenant) if is_shown else OTHER,), advice.tenant.share


def _fairness(read: Callable[[Any], float]) -> Read:
    fair = plain(lambda sight: read(sight.tenants.fairness) if sight.tenants else None)
    return lambda sight: fair(sight) if sight.policy.fair_by else ()


def _tenants_handled(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
    if sight.tenants is not None and sight.policy.fair_by:
        labels = sight.tenants.labels
        yield from (((label(tenant),), count) for tenant, count in dict(labels.totals).items() if tenant != OTHER)
        yield (OTHER,), labels.other + labels.totals.get(OTHER, 0)


def _tenants_waiting(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
    if sight.tenants is not None and sight.policy.fair_by:
        waiting, shown = sight.tenants.waiting, [name for name in dict(sight.tenants.labels.totals) if name != OTHER]
        yield from (((label(tenant),), waiting[tenant]) for tenant in shown)
        yield (OTHER,), waiting.total() - sum(waiting[tenant] for tenant in shown)


def _causes(labels: Callable[[WorkerView], CauseLabels | None], counts: Callable[[CauseCounts], Counter[str]]) -> Read:
    """`Read` of messages by cause. It has no value if the topology keeps no error texts or the view has no `labels`."""

    def values(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
        shown = labels(sight)
        if shown is not None and sight.worker.policy.error_text is not None:
            yield from (((cause,), count) for cause, count in shown.totals(counts(sight.engine.context.causes)))

    return values


def _alarms(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
    return (((kind,), count) for kind, count in dict(sight.worker.alarms.counts).items())


def _rests(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
    longest = dict.fromkeys(RestKind, 0.0)
    for rest, seconds in sight.rest_watch.seconds(time.monotonic()).items():
        longest[rest.reason] = max(longest[rest.reason], seconds)
    return (((reason.value,), seconds) for reason, seconds in longest.items())


def _stall_counts(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
    for stalls in (sight.pulse.threads, sight.pulse.handlers):
        yield from (((stalls.loop, cause.value), float(count)) for cause, count in stalls.count.items())


def _stalls(read: Callable[[Any], float]) -> Read:
    return lambda sight: [((stalls.loop,), read(stalls)) for stalls in (sight.pulse.threads, sight.pulse.handlers)]


def _inbox_rows(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
    if sight.inbox is not None:
        waiting, claimed, _ = sight.inbox.backlog
        yield from ((("waiting",), float(waiting)), (("claimed",), float(claimed)))


def _hook(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
    if (hook := sight.worker.running_hook) is not None:
        yield (hook[0],), hook[1]


def _native(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
    if sight.border is not None:
        yield ("border", sight.border.detail), float(sight.border.native)
    yield ("core", COMPILED.detail), float(COMPILED.compiled)


def _histogram(name: str, text: str, read: Callable[[Timings], Histogram]) -> MetricSpec:
    return MetricSpec(f"kodo_consumer_{name}", "histogram", text, ("state",), _timing(read))


EXPORTED: Final = (
    # what the broker says: read every 5 s for the first lane, every 30 s for the others
    gauge("backlog_entries", "Entries (batches) of a lane that are not acknowledged, by the broker's count.", LANE,
           _of_stats(lambda stats: stats.backlog)),
    gauge("delayed_messages", "Messages of a lane that are not due yet.", LANE, _of_stats(lambda stats: stats.delayed)),
    gauge("unacknowledged_messages", "Messages of a lane that workers hold.", LANE,
           _of_stats(lambda stats: stats.unacknowledged)),
    gauge("oldest_seconds", "Age of the oldest message of a lane that is not acknowledged; 0 without any.", LANE,
           _of_stats(lambda stats: _age(stats.oldest))),
    gauge("published_per_second", "Messages published to a lane's topic, by the broker's last minute.", LANE,
           _of_stats(lambda stats: stats.rate_in)),
    gauge("lag_entries", "For autoscaling: entries that are due and not acknowledged, in all lanes that this worker reads.", (),
           plain(_lag)),
    gauge("workers", "Workers connected to the subscription, whichever lanes they read.", (), plain(_workers)),
    gauge("idle_workers", "With `failover`: workers beyond the partitions of the ground topic, which get nothing of it.", (),
          plain(lambda sight: sight.idle_workers)),
    gauge("lane_workers", "Workers connected to a lane of the subscription, also to one that this worker does not read.", LANE,
           _lane_workers),
    gauge("lane_ready", "Only for lanes that this worker reads: 1 while it is ready, as /readyz says, else 0.", LANE, _lane_ready),
    gauge("held_back", "1 while the broker sends this worker nothing more of a lane: too much is unacknowledged.", LANE,
           lambda sight: [((lane.level.value, lane.state.value), float(lane.topic in sight.held_back))
                          for lane, _ in sight.lanes]),
    gauge("standing_still", "1 while delayed messages of a lane are due and the broker delivers none.", LANE,
           lambda sight: [((lane.level.value, lane.state.value), float(lane in sight.standing_still))
                          for lane in sight.policy.every_lane]),
    gauge("resting_seconds", "Seconds for which a reason has kept handlers from starting, of all messages or of a part; 0 while it "
          "does not.", ("reason",), _rests),
    gauge("clock_ahead_seconds", "Seconds that this worker's clock is certainly ahead of the broker's; negative: behind.", (),
           lambda sight: () if sight.clock_ahead is None else (((), sight.clock_ahead),)),
    # what came and what became of it
    counter("received", "Messages received, repeats among them.", (), plain(lambda sight: sight.worker.counts.received)),
    counter("marks", "Marks of producers received, which are no messages.", (), plain(lambda sight: sight.worker.counts.marks)),
    counter("started", "Handler runs started.", LANE, of_lane(lambda lane_state: lane_state.started)),
    counter("done", "Messages whose handler returned.", LANE, _done_counts),
    counter("failed", "Handler runs that failed, by reason: the exception's class or the verdict; rare ones as `other`.",
             (*LANE, "reason"), _lane_counts("failed")),
    counter("rerouted", "Messages acknowledged by another rule than done: moved to a state, dead, discarded, not for us.",
             (*LANE, "rule"), _lane_counts("finished")),
    counter("failed_causes", "With error_text: messages that failed and went to wait elsewhere, by cause; of many the 20 most frequent, "
            "all others as `other`.", ("cause",), _causes(lambda sight: sight.failed_causes, lambda found: found.failed)),
    counter("dead_causes", "With error_text: messages that went to the dead letters, by cause, as `recall plan` has it.", ("cause",),
            _causes(lambda sight: sight.dead_causes, lambda found: found.dead)),
    counter("waited", "Waits in memory, by rule.", (*LANE, "rule"), _lane_counts("waited")),
    counter("over_limit", "Times a message was turned back by a limit: rate, quota or concurrency.", (*LANE, "limit"),
             _lane_counts("over")),
    counter("routed", "Messages that a route took, by route.", (*LANE, "route"), _lane_counts("routed")),
    counter("routes_unknown", "Times a route could not be evaluated: a value is missing, of another kind or too long.",
             (*LANE, "route"), _lane_counts("route_unknown")),
    counter("routes_stopped", "Times a route was not followed: it leads in a circle, or moves are used up (off an exclusive level: it waits).",
             (*LANE, "why"), _lane_counts("route_stopped")),
    counter("timed_out", "Handlers that took longer than handler_timeout.", (),
             plain(lambda sight: sight.worker.counts.timed_out)),
    counter("repeats_suppressed", "Deliveries dropped because their message was held or just acknowledged.", (),
             plain(lambda sight: sight.worker.counts.redelivered)),
    counter("let_go", "Messages released unstarted: connections lost, and the end.", (),
             plain(lambda sight: sight.worker.counts.released)),
    counter("published_again", "Sends without a receipt that are sent again.", (),
             plain(lambda sight: sight.worker.counts.republished)),
    # what is held
    gauge("held_messages", "Messages of a lane that this worker holds.", LANE, of_lane(lambda lane_state: lane_state.in_flight)),
    gauge("held_bytes", "Payload bytes that this worker holds.", (), plain(lambda sight: sight.held_bytes)),
    gauge("lookahead_messages", "Messages this worker may hold.", (), plain(lambda sight: sight.policy.max_held)),
    gauge("running_handlers", "Handlers at work.", (), plain(lambda sight: len(sight.engine.runs.running))),
    gauge("deferred_messages", "Messages that handlers deferred and that did not end yet.", (),
          plain(lambda sight: len(sight.engine.runs.deferred))),
    gauge("deferred_oldest_seconds", "Seconds for which the oldest deferred message has waited for its end; 0 without any.", (),
          plain(lambda sight: sight.oldest_deferred)),
    gauge("hook_seconds", "Seconds for which the hook around acknowledged has run that runs now; no series while none runs.", ("hook",),
          _hook),
    gauge("inbox_rows", "With an inbox: rows of the subscription that are to do; `waiting`, or `claimed` by a worker. Every worker "
          "counts all of them: take the greatest, not the sum.", ("rows",),
          _inbox_rows),
    gauge("inbox_oldest_seconds", "With an inbox: seconds since the first row that is to do was received; 0 without any.", (),
          plain(lambda sight: None if sight.inbox is None else sight.inbox.backlog[2])),
    gauge("slots", "Handlers that may be at work at once.", (), plain(lambda sight: sight.policy.concurrency)),
    gauge("backlog_growth", "Entries a second by which the subscription's backlog grows, over two minutes; negative while it drains.", (),
           _of_trend(lambda advice: advice.growth)),
    gauge("backlog_drain_seconds", "Seconds until the backlog is empty at its present pace; none while it grows.", (),
           _of_trend(lambda advice: advice.drained_in)),
    gauge("backlog_cause", "While the backlog grows: 1 if senders got faster, or handlers slower, than in the ten minutes before, else 0.",
          ("cause",), _backlog_causes),
    gauge("backlog_tenant_share", "Part of the waiting messages or of the handlers' time that the tenant has who causes a growing "
          "backlog; `other` for a tenant without a label of its own.", ("tenant",), _backlog_tenant),
    gauge("publishing_messages", "Messages that were moved and await their receipt.", (),
           plain(lambda sight: sight.publishing)),
    gauge("parked_messages", "Messages that every target refuses: they wait for a person.", (),
           plain(lambda sight: sight.worker.counts.parked)),
    gauge("lane_paused", "1 while a lane is not read: messages come too early, or too many are parked.", LANE,
           of_lane(lambda lane_state: float(lane_state.blocked or lane_state.paused_until > time.monotonic()))),
    *RESTRAINTS,
    # how long it took
    _histogram("receive_to_done_seconds", "From receipt to done.", lambda timings: timings.done),
    _histogram("origin_to_done_seconds", "From the first publication to done, through all lanes.",
               lambda timings: timings.since_origin),
    _histogram("wait_seconds", "From publication, or from when it was due, to the handler's start.",
               lambda timings: timings.waited),
    _histogram("lateness_seconds", "From when a delayed message was due to its handler's start.",
               lambda timings: timings.late),
    _histogram("handler_seconds", "Handler runs.", lambda timings: timings.handler),
    _histogram("attempts", "Handlings a message needed until it was done.", lambda timings: timings.attempts),
    # fairness: only with fair_by
    gauge("oldest_quiet_seconds", "How long the oldest waiting message of a quiet tenant has been due.", (),
           _fairness(lambda fair: fair.oldest_quiet)),
    gauge("noisy_tenants", "Tenants that hold more than a tenth of the messages (and 30) or of the handlers' time.", (),
           _fairness(lambda fair: fair.noisy)),
    gauge("worst_tenant_share", "Least served of the tenants with a backlog, as a part of its fair share: 1 is fair.", (),
           _fairness(lambda fair: fair.even.worst)),
    gauge("jain_index", "Jain's index over served ÷ fair share of all tenants: 1 is even.", (),
           _fairness(lambda fair: fair.even.jain)),
    counter("tenant_handled", "Handler runs of the busiest tenants; all others as `other`.", ("tenant",), _tenants_handled),
    gauge("tenant_waiting_messages", "Messages waiting in this worker, of the same tenants.", ("tenant",),
           _tenants_waiting),
    # what should not be
    counter("alarms", "Alarms by kind, also those that were not logged for being too many.", ("kind",), _alarms),
    gauge("watchdog_findings", "Contradictions the watchdog saw at its last look: a bug, if any.", (),
           plain(lambda sight: len(sight.worker.contradictions))),
    counter("stalls", "Times a loop got its turn more than 50 ms late: `threads`, or `handlers` (the event loop); whose fault: "
            "`handlers`, or a busy `machine`.", ("loop", "cause"), _stall_counts),
    gauge("stall_seconds", "The latest turn of the last minute, where more than 50 ms late.", ("loop",),
           _stalls(lambda stalls: stalls.worst(time.monotonic()))),
    gauge("native", "1 where native code of kodo-fast is in use, else 0: the `border`, by which messages cross into the client "
          "library in bundles; the compiled `core`. `reason` says why, or what it is.", ("part", "reason"), _native),
    gauge("ready", "1 while connected, not draining and not blocked: what /readyz says.", (),
           plain(lambda sight: float(not sight.not_ready()))),
    *NUMBERS,
)  # fmt: skip


class Collector:
    """Prometheus collector of all workers of this process. It is registered in `registry` while it shows at least one
    worker. Thread-safe.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self._sights: dict[Labels, WorkerView] = {}

    @property
    def sights(self) -> dict[Labels, WorkerView]:
        """Copy of the shown workers by the values of their BASE labels: namespace, topic, subscription and worker
        number.
        """
        with self._lock:
            return dict(self._sights)

    def add(self, sight: WorkerView) -> None:
        """Shows one more worker, under the lowest number that no other worker of its subscription has."""
        with self._lock:
            name = (sight.namespace, sight.policy.ground, sight.policy.subscription)
            taken = {labels[3] for labels in self._sights if labels[:3] == name}
            number = next(number for number in range(len(taken) + 1) if str(number) not in taken)
            if not self._sights:
                self._registry.register(self)
            self._sights[*name, str(number)] = sight

    def remove(self, sight: WorkerView) -> None:
        """Ends showing a worker; does nothing if the worker was not shown."""
        with self._lock:
            kept = {labels: other for labels, other in self._sights.items() if other is not sight}
            if self._sights and not kept:
                self._registry.unregister(self)
            self._sights = kept

    def describe(self) -> Iterator[Metric]:
        """Yields all metrics without values: the Prometheus registry learns the names from them."""
        return (exported.family() for exported in EXPORTED)

    def collect(self) -> Iterator[Metric]:
        """Yields all metrics with the values of this moment, for a scrape by the Prometheus registry. Values of one
        worker with equal labels, such as those of long names, are added up.
        """
        sights = self.sights
        for exported in EXPORTED:
            family = exported.family()
            for base, sight in sights.items():
                sums: dict[Labels, float] = {}
                for labels, value in exported.read(sight):
                    if isinstance(family, HistogramMetricFamily):
                        family.add_metric([*base, *labels], buckets=value.cumulative(), sum_value=value.total)
                    else:
                        sums[labels] = sums.get(labels, 0.0) + float(value)
                if isinstance(family, CounterMetricFamily | GaugeMetricFamily):
                    for labels, total in sums.items():
                        family.add_metric([*base, *labels], total)
            yield family


COLLECTOR: Final = Collector()
"""The collector of this process."""
