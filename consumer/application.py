"""`Consumer`: what an application holds. Loads a topology, takes a handler, runs until it is told to end."""

from __future__ import annotations

import inspect
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, Final, TypeVar, Unpack, cast

from consumer.broker import Broker, Cluster
from consumer.clock import SystemClock
from consumer.handlers import Handler, LoopRunner, ThreadRunner
from consumer.message import Check, payload_check
from consumer.policy import Policy
from consumer.routes import cautions, policy_of
from consumer.service import Service, summary
from consumer.settings import Settings, read_settings
from consumer.wiring import Place, Surroundings, reach
from consumer.worker import Runner, Worker
from kodoctl.errors import Diagnostic, ExitCode, UsageError, error

log = logging.getLogger("kodo.consumer")
H = TypeVar("H", bound=Handler)
_POLL: Final = 0.5  # seconds: Python runs signal handlers between two waits


@dataclass(frozen=True, slots=True)
class _Running:
    worker: Worker
    service: Service
    broker: Broker
    cluster: Cluster

    def close(self) -> None:
        self.broker.close()
        self.cluster.close()


class Consumer:
    """One subscription of one ground topic, with its handler."""

    def __init__(
        self,
        policy: Policy,
        connect: Callable[[], tuple[Broker, Cluster]],
        *,
        cautions: tuple[Diagnostic, ...] = (),
        settings: Settings | None = None,
    ) -> None:
        self.policy = policy
        self.cautions = cautions
        self.settings = settings or Settings()
        self._connect = connect
        self._handler: Handler | None = None
        self._running: _Running | None = None

    @classmethod
    def load(cls, path: str | Path, *, topic: str, subscription: str, **place: Unpack[Place]) -> Consumer:
        """A consumer as the topology file declares it. Nothing is connected before `start`.

        Raises KodoctlError with every finding: the file is wrong, has no such topic or subscription, or asks for what
        this version cannot do. Environment and connection are found as by kodoctl: `env`, `context`, `admin_url`,
        `broker_url`, `token_file`; KODOCTL_ variables; a context.
        """
        surroundings = Surroundings.of(**place)
        topology = surroundings.topology(path)
        return cls(
            policy_of(topology, topic, subscription),
            lambda: reach(surroundings.connection()),
            cautions=tuple(cautions(topology, topic, subscription)),
            settings=read_settings(surroundings.environ, surroundings.folder),
        )

    def handler(self, function: H) -> H:
        """Takes the function that handles messages: plain (runs on threads) or async (on one event loop)."""
        self._handler = function
        return function

    @property
    def handler_function(self) -> Handler:
        """The handler. Raises UsageError without one."""
        if self._handler is None:
            raise UsageError(
                error("K707", "no handler", "decorate one with @consumer.handler before the consumer starts")
            )
        return self._handler

    @cached_property
    def payload_check(self) -> Check | None:
        """The check of payloads that the topology declares."""
        return payload_check(self.policy.payload_schema)

    def lanes(self) -> list[str]:
        """The topics read, one line each, with their share of the handler starts."""
        width = max(len(lane.topic) for lane in self.policy.lanes)
        return [
            f"{lane.topic:<{width}}  {lane.share:6.1%}{'  draining' if lane.draining else ''}"
            for lane in self.policy.lanes
        ]

    def start(self) -> None:
        """Connects and begins; returns at once. Raises KodoctlError: no cluster, topics or subscriptions missing."""
        handler = self.handler_function
        for caution in self.cautions:
            log.warning("%s", caution)
        broker, cluster = self._connect()
        rng = Random()  # noqa: S311  # spreads waits, no secret
        worker = Worker(self.policy, broker, self._runner(handler), SystemClock(), rng, self.payload_check)
        for limit in worker.engine.limits.too_small:
            log.warning("%s is less than one a worker: each worker takes one, together more than declared", limit)
        name = f"{self.policy.subscription}-{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"
        service = Service(worker, cluster, consumer_name=name, drain_timeout=self.settings.drain_timeout / 1000)
        running = _Running(worker, service, broker, cluster)
        try:
            service.start()
        except BaseException:
            running.close()
            raise
        self._running = running

    def stop(self) -> None:
        """Drains and leaves. Raises what broke the worker, if anything did."""
        assert self._running is not None
        try:
            self._running.service.stop()
        finally:
            self._running.close()

    def summary(self) -> list[str]:
        """What was done since the start, for people."""
        return list(summary(self._running.worker)) if self._running else []

    def run(self, say: Callable[[str], object] = log.info) -> None:
        """Runs until SIGTERM or SIGINT, drains and returns; a second signal ends the process at once. For main threads.

        Lanes and summary go to `say`, everything else to the log `kodo.consumer`; where no logging is set up it is shown
        on standard error.
        """
        if not logging.getLogger().handlers:
            logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
        asked = threading.Event()
        old = {number: signal.signal(number, _ender(asked)) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            self.start()
            for line in self.lanes():
                say(f"lane {line}")
            assert self._running is not None
            while not asked.is_set() and not self._running.service.wait(_POLL):
                pass
            self.stop()
            for line in self.summary():
                say(line)
        finally:
            for number, before in old.items():
                signal.signal(number, before)

    def _runner(self, handler: Handler) -> Runner:
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
            return LoopRunner(cast("Any", handler), self.policy.concurrency)
        return ThreadRunner(cast("Any", handler), self.policy.concurrency)


def _ender(asked: threading.Event) -> Callable[[int, FrameType | None], None]:
    def end(_number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            os._exit(ExitCode.INTERRUPTED)
        asked.set()

    return end
