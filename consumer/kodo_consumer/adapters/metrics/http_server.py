"""Metrics and health over HTTP: one server for all consumers and relays of a process that name the same address."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from prometheus_client import REGISTRY, make_wsgi_app

from kodo_consumer.adapters.metrics.collector import COLLECTOR
from kodo_consumer.adapters.metrics.outbox_metrics import RELAYS, RelaySight
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
    """One worker's, or one relay's, part in the server. `address`: what it listens on, the real port when 0 was asked for."""

    def __init__(self, shown: WorkerView | RelaySight, host: str, port: int) -> None:
        """Listens. Raises UsageError: the address is taken or is none."""
        self._shown, self._asked = shown, (host, port)
        with _lock:
            shared = _servers.get(self._asked)
            if shared is None:
                server = MetricsServer(host, port, _APPLICATION, lambda serve: begin(serve, "kodo-http", log_end))
                shared = _servers[self._asked] = _Shared(server)
            shared.users += 1
            self.address = shared.server.address
        if isinstance(shown, WorkerView):
            COLLECTOR.add(shown)
        else:
            RELAYS.add(shown)

    def close(self) -> None:
        """The last one closes the server."""
        if isinstance(self._shown, WorkerView):
            COLLECTOR.remove(self._shown)
        else:
            RELAYS.remove(self._shown)
        with _lock:
            shared = _servers[self._asked]
            shared.users -= 1
            if shared.users:
                return
            del _servers[self._asked]
        shared.server.close()


def _health(
    ask: Callable[[WorkerView], list[str]], ask_relay: Callable[[RelaySight], list[str]]
) -> tuple[bool, object]:
    """Well when all workers and relays are; either way who is how."""
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
        }
        for labels, sight in COLLECTOR.sights.items()
    ]
    relays = RELAYS.health(ask_relay)
    well = not any(one["problems"] for one in [*found, *relays])
    return well, {"ok": well, "workers": found, **({"relays": relays} if relays else {})}


_APPLICATION: Final[Application] = probes(
    make_wsgi_app(REGISTRY),
    partial(_health, WorkerView.unhealthy, RelaySight.unhealthy),
    partial(_health, WorkerView.not_ready, RelaySight.not_ready),
)
