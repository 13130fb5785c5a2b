"""Supervisor of a worker: its timekeeper, its reader of statistics, and its orderly end. A worker has no threads of its
own for these.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.state.failover_partitions import ActivePartitions
from kodo_consumer.core.state_machine import Rule
from kodo_consumer.core.upkeep.backlog_trend import BacklogTrend
from kodo_consumer.core.upkeep.broker_limits import BrokerLimits, clamp_policy, limit_findings, read_broker_limits
from kodo_consumer.core.upkeep.broker_window import UNLIMITED, lookahead_findings, unacked_limits
from kodo_consumer.core.upkeep.chunk_notice import ChunkNotice
from kodo_consumer.core.upkeep.clock_skew import ClockSkewDetector
from kodo_consumer.core.upkeep.lane_workers import LaneWorkers
from kodo_consumer.core.upkeep.override_state import OverrideListener
from kodo_consumer.core.upkeep.stalled_delivery import StalledDeliveryDetector
from kodo_consumer.core.values.broker import Cluster, LaneStats
from kodo_consumer.core.values.effects import Alarm
from kodo_consumer.core.values.policy import Lane, Policy
from kodo_consumer.runtime.active_consumer_poller import ActiveConsumers, lanes_with_active_consumers
from kodo_consumer.runtime.drain import drain, join
from kodo_consumer.runtime.start_checks import fold_findings, missing_resources
from kodo_consumer.runtime.threads import begin
from kodoctl.errors import Diagnostic, KodoctlError
from kodoctl.text.formatting import many
from kodoctl.topology.names import partition_name

if TYPE_CHECKING:
    from kodo_consumer.core.values.broker import Cluster
    from kodo_consumer.core.values.policy import Policy
    from kodo_consumer.runtime.worker import Worker

log = logging.getLogger("kodo.consumer")
_WATCH_EVERY: Final = 30.0
_LONGEST_NAP: Final = 5.0
_SETTLED: Final = 5.0  # seconds that a connection lasts before the broker's word on it counts
POLL_EVERY: Final = 5.0  # seconds
_TALLY_EVERY: Final = 10.0  # seconds between two entries about failures by cause
_DEFERRED_EVERY: Final = 60.0  # seconds between two entries about deferred messages
_CAUSES: Final = 10  # causes that such an entry names
ROUND: Final = 6  # polls in which every lane is read once: each is at most half a minute old

Listener = Callable[[Lane, LaneStats | None], None]


class WorkerSupervisor:
    """Starts a worker, runs its timers and ends it. Thread-safe; `start` and `stop` are each called once.
    `drain_timeout`: seconds. `cluster`: None: no statistics, live orders and checks, so `stats`, `lane_workers`,
    `still` and `skew` are None. `last_tick`: start of the last tick (time.monotonic()), None before the first.
    `background_tasks`: functions that `start` calls, each on a thread, with an event that is set by `stop` or when the
    worker breaks; one that returns before that breaks the worker.
    """

    def __init__(self, worker: Worker, cluster: Cluster | None, *, consumer_name: str, drain_timeout: float) -> None:
        self._worker, self._cluster = worker, cluster
        self.name, self._drain_timeout = consumer_name, drain_timeout
        self.last_tick: float | None = None  # of the timekeeper
        # Started and ended with the worker, each a thread.
        self.background_tasks: list[Callable[[threading.Event], None]] = []
        self._allowed = BrokerLimits()
        self._wake_event = threading.Event()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self.lane_workers: LaneWorkers | None = None
        self.stats: StatsReader | None = None
        self.still: StalledDeliveryDetector | None = None
        self.skew: ClockSkewDetector | None = None
        self._orders: OverrideListener | None = None
        if cluster is not None:
            closely: set[int] = set()
            self._orders = OverrideListener(lambda: worker.policy, worker.clock, worker.set_overrides)
            unread = frozenset(lane.index for lane in worker.policy.unread)
            self.still = StalledDeliveryDetector(
                worker.clock, worker.engine.flow.due_times, closely, self._reconnect, worker.alarms.write, unread
            )
            self.lane_workers = LaneWorkers(worker.policy, worker.clock, self._share_limits, worker.alarms.write)
            self.skew = ClockSkewDetector(worker.clock, worker.alarms.write)
            trend = BacklogTrend(
                lambda: worker.policy, worker.clock, worker.handler_load, self._live_workers, worker.alarms.write
            )
            listeners: list[Listener] = [
                self.skew,
                self.lane_workers,
                trend,
                self._notice_unknown,
                self._say_blocked,
                ChunkNotice(worker.alarms.write),
                self._orders,
                self.still,
            ]
            self.stats = StatsReader(worker.policy, cluster, listeners, closely, trend)
        worker.supervise(self._wake_event.set, self._over.set)

    def start(self) -> None:
        """Checks the cluster, connects the worker and starts its threads; returns when all lanes are open, and handlers
        may run before that. Raises KodoctlError: with all missing topics and subscriptions, or as the cluster and
        Worker.open do. Nothing is checked without a cluster.
        """
        if self._cluster is not None:
            findings = missing_resources(self._worker.policy, self._cluster)
            if findings:
                raise KodoctlError(*fold_findings(findings))
            self._allowed = read_broker_limits(self._worker.policy, self._cluster)
            _warn(limit_findings(self._worker.policy, self._allowed))
            self.apply_policy(self._worker.policy)
            self._ask_who_is_active(self._cluster)
            self._read_orders(self._cluster)
        self._worker.open(self.name, self._unacked_limits())
        self._run(self._keep_time, "kodo-time")
        if self.stats is not None:
            self._run(self._read_stats, "kodo-stats")
        for companion in self.background_tasks:
            self._run(partial(companion, self._over), "kodo-companion")

    def _ask_who_is_active(self, cluster: Cluster) -> None:
        """Prepares the lanes of a failover subscription before any message comes: none of their messages starts until
        the broker names this worker as the active consumer.
        """
        worker = self._worker
        for lane in () if worker.has_inbox else lanes_with_active_consumers(worker.policy):
            worker.engine.lanes[lane.index].start_as_named(ActivePartitions(worker.policy, self.name))
            asking = ActiveConsumers(
                lane, worker.policy.subscription, cluster, worker.clock, worker.on_active_consumers
            )
            self.background_tasks.append(asking.run)

    def _read_orders(self, cluster: Cluster) -> None:
        """Reads the live orders before the first message comes. If they cannot be read, waiting lanes are paused, 30 s
        at most, because their messages may be meant for another level.
        """
        lane, subscription = self._worker.policy.ground_lane, self._worker.policy.subscription
        assert self._orders is not None
        stats, why = None, "there are no stats of the subscription"
        try:
            stats = cluster.stats(lane.topic, subscription)
        except Exception as problem:  # noqa: BLE001  # whatever it is: messages of other lanes can be handled without
            why = str(problem)
        if stats is None:
            log.warning("live orders cannot be read yet, so waiting lanes rest, 30 s at most: %s", why)
            self._orders.rest_unread()
        else:
            self._orders(lane, stats)

    def apply_policy(self, policy: Policy) -> None:
        """Applies a policy with the same lanes (not checked here) to the worker, with its longest wait and its message
        sizes cut to those limits of the broker that `start` could read.
        """
        self._worker.apply_policy(clamp_policy(policy, self._allowed))

    def wait(self, seconds: float | None = None) -> bool:
        """Blocks until the worker broke or `stop` has drained it, at most `seconds` (None: without limit). Returns
        false if the time ran out first.
        """
        return self._over.wait(seconds)

    def stop(self) -> None:
        """Ends receiving, waits for running handlers, deferred messages, receipts and confirmations within the drain
        time-out (not if the worker broke), ends the threads and closes the worker. Raises the error that broke the
        worker, if there is one.
        """
        drain(self._worker, self._drain_timeout)
        if self.stats is not None:
            self.stats.end()
        self._over.set()
        self._wake_event.set()
        join(self._threads)
        self._worker.close()
        if self._worker.problem is not None:
            raise self._worker.problem

    def _run(self, target: Callable[[], None], name: str) -> None:
        self._threads.append(begin(target, name, self._worker.fail, over=self._over.is_set))

    def _keep_time(self) -> None:
        watched = time.monotonic()
        nap, tally = longest_nap(self._worker.policy), FailureTally(self._worker)
        deferred = DeferralNotice(self._worker)
        while not self._over.is_set():
            self.last_tick = time.monotonic()
            self._worker.tick()
            tally.tick(self.last_tick)
            deferred.tick(self.last_tick)
            if self._orders is not None:
                self._orders.drop_expired()  # they end in time, also while reading the cluster takes long
            self._sleep(nap)
            if time.monotonic() - watched > _WATCH_EVERY:
                watched = time.monotonic()
                self._worker.watch()

    def _sleep(self, most: float) -> None:
        """Waits until the next tick is due, at most `most` seconds; the worker's wake-up call may bring the tick
        forward.
        """
        end = time.monotonic() + most
        while not self._over.is_set():
            self._wake_event.clear()
            pause = min(self._worker.due_in, end - time.monotonic())
            if pause <= 0:
                return
            self._wake_event.wait(pause)

    def _read_stats(self) -> None:
        """Reads stats until the end, for `stats.listeners`."""
        assert self.stats is not None
        while True:
            self.stats.read_due_lanes()
            if self._over.wait(POLL_EVERY):
                return

    def _unacked_limits(self) -> dict[int, int]:
        """Unacknowledged messages that the broker allows one consumer, by lane index, if known; warns if limits are too
        small.
        """
        if self._cluster is None:
            return {}
        policy = self._worker.policy
        limits = unacked_limits(policy, self._cluster)
        _warn(lookahead_findings(policy, limits))
        return {index: limit.consumer or UNLIMITED for index, limit in limits.items()}

    def _share_limits(self, workers: int) -> None:
        """Divides the limits of the subscription among so many live workers, whichever lanes they read."""
        self._worker.share_limits(workers)

    def _live_workers(self) -> int:
        return self.lane_workers.count if self.lane_workers is not None else 0

    def _reconnect(self, lane: Lane, wait: float, away: float) -> None:
        reader = self._worker.reader(lane.index)
        if reader is not None and not self._worker.engine.lanes[lane.index].in_flight:
            reader.reconnect(wait, away)

    def _notice_unknown(self, lane: Lane, stats: LaneStats | None) -> None:
        """Reconnects partitions whose broker does not list this consumer although it has long been connected: the
        client library notices a silent broker only after 30 to 60 s, when another broker has its partitions.
        """
        reader = self._worker.reader(lane.index)
        if stats is None or reader is None or self._over.is_set():
            return
        connected = reader.long_connected(stats.took + _SETTLED)
        unknown = [number for number, names in stats.readers.items() if number in connected and self.name not in names]
        for partition in unknown:
            part = partition_name(lane.topic, int(partition))
            log.warning("%s: the broker knows of no such consumer: connecting anew", part)
            reader.reconnect(0.0, 0.0, partition)
        if unknown and self.stats is not None:
            self.stats.all_next = True

    def _say_blocked(self, lane: Lane, stats: LaneStats | None) -> None:
        """Opens more consumers for a lane, with an alarm, if the broker sends this worker nothing more because too much
        is unacknowledged: fairness would end with the broker's limit.
        """
        if stats and self.name in stats.blocked:
            if (reader := self._worker.reader(lane.index)) is not None:
                reader.add_consumers()
            text = f"{lane.topic}: the broker sends nothing more, too much is unacknowledged: `kodoctl plan` compares the limits"
            self._worker.alarms.write(Alarm("blocked", text))


def longest_nap(policy: Policy) -> float:
    """Longest pause between two ticks, in seconds: a quarter of the handler time-out, because a handler that hangs
    sends no wake-up call; at most 5.
    """
    return min(_LONGEST_NAP, policy.handler_timeout / 4000)


def _warn(findings: Iterable[Diagnostic]) -> None:
    for finding in findings:
        log.warning("%s [%s]: %s", finding.summary, finding.code, finding.detail)


def subscription_of(policy: Policy) -> str:
    """Full name of the subscription, `kodo/shop/orders:billing`; the bare name if no lane is read."""
    return next((lane.subscription for lane in policy.lanes), "") or policy.subscription


def summary(worker: Worker) -> Sequence[str]:
    """Lines of text for people, with totals since the start; the first one names the subscription."""
    counts = worker.counts
    total = (
        f"{subscription_of(worker.policy)}: received {counts.received}, started {counts.started}, done {counts.done}"
    )
    lines = [f"{total}, redeliveries dropped {counts.redelivered}, released unprocessed {counts.released}"]
    for title, counter in (("moved", counts.finished), ("waited", counts.waited), ("failed", counts.failed)):
        if counter:
            lines.append(f"{title}: " + ", ".join(f"{name} {count}" for name, count in sorted(counter.items())))
    slots = worker.engine.scheduler.slots
    slow = [
        f"{one.lane.lane.name} noticed {one.notices}, opened {one.breaker.opened}"
        for one in (slots.breakers.lanes if slots is not None else ())
        if one.notices or one.breaker.opened
    ]
    return [*lines, f"breaker of slow tenants: {'; '.join(slow)}"] if slow else lines


class DeferralNotice:
    """Log entry with the number of deferred messages and the age of the oldest one, at most once a minute, while the
    oldest has waited for a minute or more.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._last = float("-inf")

    def tick(self, now: float) -> None:
        """Logs the deferred messages if the oldest has waited for a minute and there was no entry in the last minute;
        else does nothing. `now`: seconds by a clock that only advances.
        """
        runs, clock = self._worker.engine.runs, self._worker.clock
        if not runs.deferred or now - self._last < _DEFERRED_EVERY:
            return
        count, oldest = self._worker.call_locked(lambda: (len(runs.deferred), runs.oldest_deferred(clock.now())))
        if oldest >= _DEFERRED_EVERY:
            self._last = now
            name = subscription_of(self._worker.policy)
            log.info("%s: %s deferred, the oldest for %.0f s", name, many(count, "message"), oldest)


class FailureTally:
    """Number of failed handler runs by cause and of dead letters, logged for each period of 10 s in which there were
    two or more failures or a dead letter.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._before: Counter[str] = Counter()
        self._dead_before = 0
        self._since: float | None = None

    def tick(self, now: float) -> None:
        """Ends the present period if it began 10 s ago or more (the first call begins the first one), begins the next,
        and logs a warning about the one that ended: its failures, with the ten most frequent causes (a single failure
        is left out), and the number of messages that became dead letters, for whatever reason. Logs nothing if there
        were none; other calls do nothing. `now`: seconds by a clock that only advances.
        """
        self._since = now if self._since is None else self._since
        if now - self._since < _TALLY_EVERY:
            return
        counts = self._worker.counts
        total, all_dead = self._worker.call_locked(lambda: (counts.failed.copy(), counts.finished[Rule.DEAD]))
        failed, dead, seconds = total - self._before, all_dead - self._dead_before, now - self._since
        self._before, self._dead_before, self._since = total, all_dead, now
        parts = []
        if failed.total() > 1:
            causes = ", ".join(f"{cause} {count}" for cause, count in failed.most_common(_CAUSES))
            rest = f" and {many(len(failed) - _CAUSES, 'other cause')}" if len(failed) > _CAUSES else ""
            parts.append(f"failed in {seconds:.0f} s: {causes}{rest}")
        if dead:
            parts.append(many(dead, "new dead letter") + ("" if parts else f" in {seconds:.0f} s"))
        if parts:
            name = subscription_of(self._worker.policy)
            fields = {"failed": dict(failed), "dead_letters": dead, "subscription": name}
            log.warning("%s: %s", name, "; ".join(parts), extra=fields)


class StatsReader:
    """Reads the broker's statistics of all lanes of a subscription, those that other workers read included, once for
    all who need them.

    Every poll (`read_due_lanes`) reads the ground topic's lane (the topic that producers send to), whose statistics
    also have the facts about the whole subscription: live workers and properties. Other lanes take turns, each at least
    once in six polls (ROUND), because reading all would cost an idle worker a percent of a core. `closely`: indices of
    lanes that every poll reads as well; `all_next`: the next poll reads all lanes.

    `listeners`: each is called on the thread of the poll with every lane that was read and its statistics (None: they
    cannot be read, or there is no such topic or subscription); `trend` has to be one of them. `last`: latest statistics
    by lane index, without lanes that were not read yet or whose last reading had none.
    """

    def __init__(
        self, policy: Policy, cluster: Cluster, listeners: list[Listener], closely: set[int], trend: BacklogTrend
    ) -> None:
        self.listeners, self.closely, self.trend = listeners, closely, trend
        self.last: dict[int, LaneStats] = {}
        self.all_next = False  # the next poll reads every lane
        self._subscription, self._cluster = policy.subscription, cluster
        self._first = policy.ground_lane
        self._others = tuple(lane for lane in policy.every_lane if lane is not self._first)
        self._at = 0
        self._ended = False

    def end(self) -> None:
        """Ends the reading of lanes and the calls of listeners; an answer that comes later is dropped. If listeners are
        being called for a lane now, all of them still are.
        """
        self._ended = True

    def read_due_lanes(self) -> None:
        """Reads the statistics of the lanes whose turn it is, one lane after the other, which blocks, and calls the
        listeners after each. Errors are logged, not raised. Does nothing after `end`.
        """
        count = -(-len(self._others) // ROUND)
        turn = self._others if self.all_next else islice(self._others * 2, self._at, self._at + count)
        self.all_next = False
        closely = (lane for lane in self._others if lane.index in self.closely)
        for lane in dict.fromkeys((self._first, *turn, *closely)):
            if not self._ended:
                self._read_lane(lane)
        self._at = (self._at + count) % max(1, len(self._others))

    def _read_lane(self, lane: Lane) -> None:
        try:
            stats = self._cluster.stats(lane.topic, self._subscription)
        except Exception as problem:  # noqa: BLE001  # whatever it is: limits must not stay as they were for ever
            log.debug("stats of %s cannot be read: %s", lane.topic, problem)
            stats = None
        if self._ended:
            return
        if stats is None:
            self.last.pop(lane.index, None)
        else:
            self.last[lane.index] = stats
        for listener in self.listeners:
            try:
                listener(lane, stats)
            except Exception:  # a failure of ours in one must not keep the others from being called
                log.exception("stats of %s could not be used", lane.topic)
