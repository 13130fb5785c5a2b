"""Metrics and health over HTTP: one server for all consumers, relays and sources of a process that name the same address."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from prometheus_client import REGISTRY, make_wsgi_app

from kodo_consumer.adapters.metrics.collector import COLLECTOR
from kodo_consumer.adapters.metrics.outbox_metrics import RELAYS, RelaySight
from kodo_consumer.adapters.metrics.source_metrics import SOURCES, SourceView
from kodo_consumer.adapters.metrics.worker_view import WorkerView
from kodo_consumer.runtime.threads import begin, log_end
from kodoctl.host.metrics_server import Application, MetricsServer, probes


@dataclass(slots=True)
class _Shared:
    server: MetricsServer
    users: int = 0


_lock: Final = threading.Lock()
_servers: Final[dict[tuple[str, int], _Shared]] = {}  # by the address asked for


class HttpEndpoint:
    """Share of one worker, relay or source in the server of an address. `address`: HOST:PORT on which the server
    listens, with the real port if `port` is 0.
    """

    def __init__(self, shown: WorkerView | RelaySight | SourceView, host: str, port: int) -> None:
        """Starts the server in a thread, or joins the one of this process with the same host and port, and adds `shown`
        to the metrics and health of this process, which each of its servers shows as a whole. Raises UsageError if the
        address is in use or not valid.
        """
        self._shown, self._asked = shown, (host, port)
        with _lock:
            shared = _servers.get(self._asked)
            if shared is None:
                server = MetricsServer(host, port, _APPLICATION, lambda serve: begin(serve, "kodo-http", log_end))
                shared = _servers[self._asked] = _Shared(server)
            shared.users += 1
            self.address = shared.server.address
        try:
            if isinstance(shown, WorkerView):
                COLLECTOR.add(shown)
            elif isinstance(shown, SourceView):
                SOURCES.add(shown)
            else:
                RELAYS.add(shown)
        except BaseException:
            self._leave()
            raise

    def close(self) -> None:
        """Ends showing the worker, relay or source on all addresses; the last endpoint of an address also ends the
        server. To be called once.
        """
        if isinstance(self._shown, WorkerView):
            COLLECTOR.remove(self._shown)
        elif isinstance(self._shown, SourceView):
            SOURCES.remove(self._shown)
        else:
            RELAYS.remove(self._shown)
        self._leave()

    def _leave(self) -> None:
        with _lock:
            shared = _servers[self._asked]
            shared.users -= 1
            if shared.users:
                return
            del _servers[self._asked]
        shared.server.close()


@contextmanager
def serving(view: RelaySight | SourceView, host: str, port: int | None, log: logging.Logger) -> Iterator[None]:
    """Context in which an HttpEndpoint serves metrics and health of `view`; `log` gets its address. `port`: 0: any free
    one; None: nothing is served. Raises UsageError as HttpEndpoint does.
    """
    if port is None:
        yield
        return
    with closing(HttpEndpoint(view, host, port)) as endpoint:
        log.info("metrics and health are on http://%s", endpoint.address)
        yield


def _health(
    ask: Callable[[WorkerView], list[str]],
    ask_relay: Callable[[RelaySight], list[str]],
    ask_source: Callable[[SourceView], list[str]],
) -> tuple[bool, object]:
    """(ok, JSON document) of a probe. `ok`: no `ask` lists a problem for any worker, relay or source. The document has
    `ok`, `workers` and, if this process has any, `relays` and `sources`, each with its problems.
    """
    found = [
        {
            "namespace": labels[0],
            "topic": labels[1],
            "subscription": labels[2],
            "worker": labels[3],
            "lanes": [lane.name for lane, _ in sight.lanes],
            "problems": ask(sight),
            "parked": sight.worker.counts.parked,
            "slow": sight.slow_lanes,
            "rests": sight.rests,
            "backlog": sight.backlog_advice.text if sight.backlog_advice is not None else "",
            "idle_workers": sight.idle_workers,
        }
        for labels, sight in COLLECTOR.sights.items()
    ]
    relays, sources = RELAYS.health(ask_relay), SOURCES.health(ask_source)
    well = not any(one["problems"] for one in [*found, *relays, *sources])
    others = {name: some for name, some in (("relays", relays), ("sources", sources)) if some}
    return well, {"ok": well, "workers": found, **others}


_APPLICATION: Final[Application] = probes(
    make_wsgi_app(REGISTRY),
    partial(_health, WorkerView.unhealthy, RelaySight.unhealthy, SourceView.unhealthy),
    partial(_health, WorkerView.not_ready, RelaySight.not_ready, SourceView.not_ready),
)
