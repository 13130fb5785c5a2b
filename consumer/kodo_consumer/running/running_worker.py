"""Running worker: a worker with its companions, which start and end with it."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from kodo_consumer.core import COMPILED
from kodo_consumer.core.values.lane_selection import slots_text
from kodo_consumer.core.values.object_use import ObjectUse, misuse_error
from kodo_consumer.runtime.idempotent_executor import IdempotentExecutor
from kodo_consumer.runtime.lease_refresher import lease_refresher_of
from kodo_consumer.runtime.supervisor import WorkerSupervisor
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_consumer.adapters.metrics.http_server import HttpEndpoint
    from kodo_consumer.adapters.metrics.worker_view import WorkerView
    from kodo_consumer.core import CoreStatus
    from kodo_consumer.core.values.broker import BorderStatus, Broker, Cluster
    from kodo_consumer.core.values.counters import Counts
    from kodo_consumer.core.values.handler_executor import HandlerExecutor
    from kodo_consumer.core.values.policy import Policy
    from kodo_consumer.runtime.lifespans import Lifespans
    from kodo_consumer.runtime.settings import Settings
    from kodo_consumer.runtime.topology_reload import Reloader
    from kodo_consumer.runtime.worker import Worker

log = logging.getLogger("kodo.consumer")


@dataclass(frozen=True, slots=True)
class RunningWorker:
    """A worker that runs, or has ended, with everything that ends with it. `window`: endpoint of metrics and health;
    None: no port is named. `reloader`: reader of the topology file; None: there is no file to follow.
    """

    worker: Worker
    service: WorkerSupervisor
    view: WorkerView
    broker: Broker
    cluster: Cluster
    window: HttpEndpoint | None
    reloader: Reloader | None
    lifespans: Lifespans
    use: ObjectUse = field(default_factory=partial(ObjectUse, "consumer"))

    @property
    def counts(self) -> Counts:
        """A copy of the worker's counts, which does not change."""
        counts = self.worker.counts
        return replace(counts, **{name: copy(getattr(counts, name)) for name in ("finished", "waited", "failed")})

    @property
    def in_flight(self) -> dict[str, int]:
        """Number of unacknowledged messages in the worker, by name of the lane (`L1/ready`), for each lane that the
        worker reads. Parked messages do not count: no topic takes them, and they are neither handled nor acknowledged.
        """
        return {state.lane.name: state.in_flight for state in self.worker.engine.lanes}

    def reload(self) -> None:
        """Reads the topology file again now, even if it has not changed, and applies it or logs why not. Does nothing
        if the worker has no file. Raises UsageError in another process than the one that started the worker.
        """
        _check_process(self, "reload")
        if self.reloader is not None:
            self.reloader.reload(always=True)

    def wait(self, seconds: float | None) -> bool:
        """Blocks until the worker broke or was stopped, at most `seconds` (None: without limit). Returns False if the
        time ran out first. Raises UsageError in another process than the one that started the worker.
        """
        _check_process(self, "wait")
        return self.service.wait(seconds)

    def stop(self) -> None:
        """Drains the worker, then ends the worker and its companions. Raises the error that broke the worker, if one
        did. A second call, or one in another process than the one that started the worker, does nothing.
        """
        if not self.use.end():
            return
        try:
            self.service.stop()
        finally:
            self.close()

    def close(self) -> None:
        """Leaves the lifespans that Lifespans.enter entered, and closes the reader of the file, the metrics endpoint,
        broker and admin API. To be called once; the worker must have ended.
        """
        self.lifespans.leave()
        if self.reloader is not None:
            self.reloader.stop()
        if self.window is not None:
            self.window.close()
        self.broker.close()
        self.cluster.close()


def check_idle(running: RunningWorker | None, call: str) -> None:
    """Raises UsageError if a worker runs, because it would not follow a new declaration, or if this process was forked
    after the start of the worker. `call`: name of the call for the error.
    """
    if running is not None:
        _check_process(running, call)
        if not running.use.is_closed:
            raise misuse_error(f"{call}: this consumer runs already; do it before it starts")


def started_worker(running: RunningWorker | None, call: str) -> RunningWorker:
    """Returns `running`, which may have ended. Raises UsageError if it is None: no worker was started. `call`: name of
    the call for the error.
    """
    if running is None:
        raise misuse_error(f"{call}: this consumer was not started")
    return running


def _check_process(running: RunningWorker, call: str) -> None:
    if running.use.is_elsewhere:
        running.use.check(call)


def start_worker(
    worker: Worker,
    runner: HandlerExecutor,
    connections: tuple[Broker, Cluster],
    settings: Settings,
    reloader_of: Callable[[WorkerSupervisor], Reloader | None],
    lifespans: Lifespans,
) -> RunningWorker:
    """Starts a worker, and returns it with its companions, which end with it, `connections` and `lifespans` included.
    Raises KodoctlError; the caller must then close the connections and the runner, and leave the lifespans.
    """
    broker, cluster = connections
    name = f"{worker.policy.subscription}-{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"
    service = WorkerSupervisor(worker, cluster, consumer_name=name, drain_timeout=settings.drain_timeout / 1000)
    lessee = lease_refresher_of(worker, runner)
    if lessee is not None:
        service.background_tasks.append(lessee.run)
    else:
        for limit in worker.engine.scheduler.limits.too_small:
            log.warning("%s is less than one a worker: each worker takes one, together more than declared", limit)
    view, window = _watch_and_serve(worker, service, runner, settings, broker)
    with ExitStack() as started:
        if window is not None:
            started.callback(window.close)
        service.start()
        started.callback(service.stop)
        reloader = reloader_of(service)
        if reloader is not None:
            reloader.start()
        started.pop_all()
    _log_ready(worker.policy, broker.border)
    return RunningWorker(worker, service, view, broker, cluster, window, reloader, lifespans)


def _watch_and_serve(
    worker: Worker, service: WorkerSupervisor, runner: HandlerExecutor, settings: Settings, broker: Broker
) -> tuple[WorkerView, HttpEndpoint | None]:
    """Adds the stall probe to the worker's service and, if the settings name a port, opens the endpoint of metrics and
    health: before the worker connects, so that probes see that it does. Returns the view, and the endpoint. Raises
    UsageError.
    """
    from kodo_consumer.adapters.metrics.worker_view import WorkerView

    tenants, measured = settings.metrics_tenants, settings.port is not None
    loop = getattr(runner, "loop", None)
    session = runner.guard.session if isinstance(runner, IdempotentExecutor) else None
    view = WorkerView(worker, service, loop, border=broker.border, tenants=tenants, measured=measured, session=session)
    view.inbox = getattr(broker, "inbox", None)
    if settings.port is None:
        return view, None
    from kodo_consumer.adapters.metrics.http_server import HttpEndpoint

    window = HttpEndpoint(view, settings.host, settings.port)
    log.info("metrics and health are on http://%s", window.address)
    return view, window


def _log_ready(policy: Policy, border: BorderStatus) -> None:
    """Logs one line when a worker is ready, such as `ready: orders/billing, 9 lanes, 32 slots, kodo-fast on`."""
    lanes = many(len(policy.every_lane), "lane")
    if policy.unread:
        reads, others = (", ".join(lane.name for lane in part) for part in (policy.lanes, policy.unread))
        lanes = f"{len(policy.lanes)} of {lanes} (reads {reads}; other workers have to read {others})"
    slots, fast = slots_text(policy), _fast_text(border, COMPILED)
    log.info("ready: %s/%s, %s, %s, %s", policy.ground, policy.subscription, lanes, slots, fast)


def _fast_text(border: BorderStatus, core: CoreStatus) -> str:
    """Says whether the worker uses both halves of kodo-fast, and why not."""
    unused = {"native border": border.detail} if not border.native else {}
    unused |= {"compiled core": core.detail} if not core.compiled else {}
    if not unused:
        return "kodo-fast on"
    reasons = "; ".join(dict.fromkeys(unused.values())).replace("kodo-fast is not", "not")
    return f"kodo-fast {'off' if len(unused) > 1 else f'without {next(iter(unused))}'} ({reasons})"
