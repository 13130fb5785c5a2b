"""HTTP server of metrics and probes: GET and HEAD only, one thread for each connection.

It serves a WSGI application. A connection ends at its deadline at the latest, so a client that sends nothing, sends
slowly, or does not read the response costs one thread for that time and delays no other client.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from kodoctl.errors import UsageError, error

PATHS: Final = "/metrics, /healthz, /readyz"
Start = Callable[[str, list[tuple[str, str]]], Any]
Application = Callable[[dict[str, Any], Start], Iterable[bytes]]
Health = Callable[[], tuple[bool, object]]
"""Returns (True if all is well, a document that JSON can write for the response body)."""
MAX_CONNECTIONS: Final = 32  # at a time, each with its thread
DEADLINE: Final = 10.0  # seconds for a connection, from its beginning to the last byte of its answer
_ROOM: Final = 1.0  # seconds for a connection that was cut off to leave its place


class _Server(ThreadingMixIn, WSGIServer):
    """Serves at most `MAX_CONNECTIONS` connections at a time. If all are taken, it closes the oldest for a new one, so
    that idle connections of an attacker cannot keep probes out.
    """

    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS  # of a burst that is longer, some connections are only made a second later

    def __init__(self, host: str, port: int, application: Application, deadline: float) -> None:
        self.deadline = deadline
        self._places = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._ends: dict[Any, float] = {}  # by connection, the oldest first
        self._lock = threading.Lock()
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        super().__init__((host, port), _Quiet)
        self.set_app(application)

    def server_bind(self) -> None:
        """Binds without looking up the host's own name, as HTTPServer does: that is slow without a name server."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serves a connection on a new thread. If all places are taken, closes the oldest connection and waits up to a
        second for its place; closes the new connection if none becomes free.
        """
        if not self._places.acquire(blocking=False):
            with self._lock:
                for oldest in [*self._ends][:1]:
                    self._cut_off(oldest)
            if not self._places.acquire(timeout=_ROOM):
                self.shutdown_request(request)
                return
        with self._lock:
            self._ends[request] = time.monotonic() + self.deadline
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread can be started
            self._leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answers one connection, on that connection's thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def _leave(self, request: Any) -> None:
        with self._lock:
            del self._ends[request]
        self._places.release()

    def service_actions(self) -> None:
        """Closes connections past their deadline. The serving loop calls this about twice a second."""
        now = time.monotonic()
        with self._lock:
            for request in [request for request, end in self._ends.items() if end <= now]:
                self._cut_off(request)

    @staticmethod
    def _cut_off(request: Any) -> None:
        """Shuts a connection down while its thread serves it: the thread then reads the end or cannot write any more.
        The caller has the lock, so that the socket cannot belong to another connection meanwhile.
        """
        with suppress(OSError):  # its other side has ended it
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores errors of connections (OSError), which load balancers cause all day with their
        probes; prints others.
        """
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Logs nothing: probes come every second."""


def _thread(serve: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=serve, name="kodo-http", daemon=True)
    thread.start()
    return thread


class MetricsServer:
    """HTTP server of a WSGI application, from its construction until `close`. The attribute `address` is the HOST:PORT
    in use. Raises UsageError (K760) if the address is invalid, taken or forbidden.

    It serves at most 32 connections at a time (MAX_CONNECTIONS). For a further one, the oldest is closed; if that does
    not end within a second, the new one is closed.

    Args:
        port: 0: any free port.
        begin: starts a thread that runs the function it is passed, and returns the thread.
        deadline: seconds after which a connection is closed, within about a second.
    """

    def __init__(
        self,
        host: str,
        port: int,
        application: Application,
        begin: Callable[[Callable[[], object]], threading.Thread] = _thread,
        deadline: float = DEADLINE,
    ) -> None:
        try:
            self._server = _Server(host, port, application, deadline)
        except (OSError, OverflowError, UnicodeError, TypeError) as problem:
            reason = getattr(problem, "strerror", None) or str(problem)
            detail = f"{host}:{port}: {reason}; choose another with --port, or 0 for any that is free"
            raise UsageError(error("K760", "cannot listen for metrics", detail)) from None
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{shown}:{self._server.server_port}"  # the real port, when 0 was asked for
        self._thread = begin(self._server.serve_forever)

    def close(self) -> None:
        """Stops listening and waits until the serving thread has ended, but not for open connections: they go on, and
        have no deadline any more.
        """
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def probes(metrics: Application, health: Health, readiness: Health) -> Application:
    """Makes a WSGI application with the paths `/metrics`, which `metrics` answers, `/healthz` (503: restart the
    process) and `/readyz` (503: the process does not do its work now). Each request to a probe calls `health` or
    `readiness`, and answers 200 or 503 with the returned document as JSON. HEAD does the same as GET, without the body.
    Other paths answer 404, other methods than GET and HEAD 405 for any path.
    """

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
    """Answers HEAD with the status and headers that a GET would have, the length of the body included."""
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
