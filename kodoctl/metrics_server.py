"""HTTP server of metrics and probes: one thread for each request, GET only. It answers what a WSGI application does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from kodoctl.errors import UsageError, error

PATHS: Final = "/metrics, /healthz, /readyz"
Start = Callable[[str, list[tuple[str, str]]], Any]
Application = Callable[[dict[str, Any], Start], Iterable[bytes]]
Health = Callable[[], tuple[bool, object]]
"""Whether all is well, and a document for the body."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    timeout = 10  # seconds for a request to be read: one who says nothing holds a thread

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """A probe every second is no news."""


def _thread(serve: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=serve, name="kodo-http", daemon=True)
    thread.start()
    return thread


class MetricsServer:
    """Listens from its construction to `close`. `begin` starts the thread that serves. Raises UsageError: the address is
    taken or is none.
    """

    def __init__(
        self,
        host: str,
        port: int,
        application: Application,
        begin: Callable[[Callable[[], object]], threading.Thread] = _thread,
    ) -> None:
        try:
            self._server = make_server(host, port, application, server_class=_Server, handler_class=_Quiet)
        except (OSError, OverflowError) as problem:
            reason = getattr(problem, "strerror", None) or str(problem)
            detail = f"{host}:{port}: {reason}; choose another with --port, or 0 for any that is free"
            raise UsageError(error("K760", "cannot listen for metrics", detail)) from None
        self.address = f"{host}:{self._server.server_port}"  # the real port, when 0 was asked for
        self._thread = begin(self._server.serve_forever)

    def close(self) -> None:
        """Ends the thread; nobody is answered any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def probes(metrics: Application, health: Health, readiness: Health) -> Application:
    """The application of a process: its metrics, whether it should be restarted, and whether it does its work."""

    def answer(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "HEAD":
            return _headers(answer, environ, start)
        if environ["REQUEST_METHOD"] != "GET":
            return _text(start, "405 Method Not Allowed", "GET only\n")
        match environ["PATH_INFO"]:
            case "/metrics":
                return metrics(environ, start)
            case "/healthz":
                return _health(start, health)
            case "/readyz":
                return _health(start, readiness)
            case _:
                return _text(start, "404 Not Found", f"there is {PATHS}\n")

    return answer


def _headers(application: Application, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
    """What GET is answered, with the length of its body and without it."""
    starts: list[tuple[str, list[tuple[str, str]]]] = []
    body = b"".join(application({**environ, "REQUEST_METHOD": "GET"}, lambda *given: starts.append(given)))
    status, fields = starts[0]
    kept = [one for one in fields if one[0].lower() != "content-length"]
    start(status, [*kept, ("Content-Length", str(len(body)))])
    return []


def _health(start: Start, ask: Health) -> Iterable[bytes]:
    well, document = ask()
    body = json.dumps(document, indent=2) + "\n"
    return _text(start, "200 OK" if well else "503 Service Unavailable", body, "application/json")


def _text(start: Start, status: str, body: str, kind: str = "text/plain; charset=utf-8") -> Iterable[bytes]:
    data = body.encode()
    start(status, [("Content-Type", kind), ("Content-Length", str(len(data))), ("Cache-Control", "no-store")])
    return [data]
