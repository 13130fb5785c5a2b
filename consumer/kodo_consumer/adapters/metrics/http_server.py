"""Metrics and health over HTTP: one server for all consumers and relays of a process that name the same address."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import REGISTRY, make_wsgi_app

from kodo_consumer.adapters.metrics.collector import COLLECTOR
from kodo_consumer.adapters.metrics.outbox_metrics import RELAYS, RelaySight
from kodo_consumer.adapters.metrics.worker_view import WorkerView
from kodo_consumer.runtime.threads import begin, log_end
from kodoctl.errors import UsageError, error

_PATHS: Final = "/metrics, /healthz, /readyz"
Start = Callable[[str, list[tuple[str, str]]], Any]
_metrics: Final[Callable[[dict[str, Any], Start], Iterable[bytes]]] = make_wsgi_app(REGISTRY)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    timeout = 10  # seconds for a request to be read: one who says nothing holds a thread

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """A probe every second is no news."""


@dataclass(slots=True)
class _Shared:
    server: _Server
    thread: threading.Thread
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
                shared = _servers[self._asked] = _listen(host, port)
            shared.users += 1
            self.address = f"{host}:{shared.server.server_port}"
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
        shared.server.shutdown()
        shared.server.server_close()
        shared.thread.join()


def _listen(host: str, port: int) -> _Shared:
    try:
        server = make_server(host, port, _answer, server_class=_Server, handler_class=_Quiet)
    except (OSError, OverflowError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        detail = f"{host}:{port}: {reason}; choose another with --port, or 0 for any that is free"
        raise UsageError(error("K760", "cannot listen for metrics", detail)) from None
    return _Shared(server, begin(server.serve_forever, "kodo-http", log_end))


def _answer(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
    if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
        return _text(start, "405 Method Not Allowed", "GET only\n")
    match environ["PATH_INFO"]:
        case "/metrics":
            return _metrics(environ, start)
        case "/healthz":
            return _health(start, WorkerView.unhealthy, RelaySight.unhealthy)
        case "/readyz":
            return _health(start, WorkerView.not_ready, RelaySight.not_ready)
        case _:
            return _text(start, "404 Not Found", f"there is {_PATHS}\n")


def _health(
    start: Start, ask: Callable[[WorkerView], list[str]], ask_relay: Callable[[RelaySight], list[str]]
) -> Iterable[bytes]:
    """200 when all workers and relays are well, else 503; either way who is how."""
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
        }
        for labels, sight in COLLECTOR.sights.items()
    ]
    relays = RELAYS.health(ask_relay)
    well = not any(one["problems"] for one in [*found, *relays])
    told = {"ok": well, "workers": found, **({"relays": relays} if relays else {})}
    body = json.dumps(told, indent=2) + "\n"
    return _text(start, "200 OK" if well else "503 Service Unavailable", body, "application/json")


def _text(start: Start, status: str, body: str, kind: str = "text/plain; charset=utf-8") -> Iterable[bytes]:
    data = body.encode()
    start(status, [("Content-Type", kind), ("Content-Length", str(len(data))), ("Cache-Control", "no-store")])
    return [data]
