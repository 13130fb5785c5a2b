"""Real HTTP servers for tests: one that answers as told, one that stands before a broker and breaks what it is told to."""

from __future__ import annotations

import http.client
import json
import socket
import socketserver
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Request:
    """What a client sent. `number` counts from 1."""

    method: str
    path: str
    body: bytes
    headers: Mapping[str, str]
    number: int

    @property
    def is_write(self) -> bool:
        return self.method != "GET" and not self.path.endswith("/analyzeBacklog")  # that POST only counts


@dataclass(frozen=True)
class Answer:
    """What a server says. `cut`: the connection ends instead."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


def answer_json(document: Any, status: int = 200, **headers: str) -> Answer:
    """An answer with a JSON body."""
    return Answer(status, json.dumps(document).encode(), {"Content-Type": "application/json", **headers})


def answer_html(text: str, status: int) -> Answer:
    """An answer as Jetty makes it itself."""
    return Answer(status, text.encode(), {"Content-Type": "text/html;charset=iso-8859-1"})


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # of 5, a client that came as one of many waits a second, and longer, to be let in

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._open: set[Any] = set()

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """A server that is gone has no connections: those that clients keep would hold a thread each."""
        super().server_close()
        for connection in list(self._open):
            with suppress(OSError):  # closed meanwhile
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, as those of killed processes do, is nothing to tell."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Server:
    """Answers every request by a function, and remembers them."""

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        self._answer = answer
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else the body, sent behind the headers, waits 40 ms for their receipt

            def log_message(self, *_: object) -> None:
                """Quiet."""

            def handle_any(self) -> None:
                server._handle(self)

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815

        self._server = _Listener(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def counted(self) -> Counter[str]:
        """Requests by method."""
        return Counter(request.method for request in self.requests)

    @property
    def writes(self) -> list[Request]:
        return [request for request in self.requests if request.is_write]

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        with self._lock:
            number = len(self.requests) + 1
            request = Request(handler.command, handler.path, body, dict(handler.headers), number)
            self.requests.append(request)
        answer = self._answer(request)
        if answer.cut:
            handler.close_connection = True
            handler.connection.close()
            return
        send = handler.send_response_only if "Date" in answer.headers else handler.send_response  # which says its own
        send(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(answer.body)))
        handler.end_headers()
        handler.wfile.write(answer.body)


@contextmanager
def serving(answer: Callable[[Request], Answer]) -> Iterator[Server]:
    """A server for the time of a test."""
    server = Server(answer)
    try:
        yield server
    finally:
        server.close()


class Fault(Enum):
    """What a proxy does to a request: `BEFORE` the broker hears of it, or `AFTER` it has done it."""

    ACCEPTED_BEFORE = (200, False)  # a lie: nothing was done
    FORBIDDEN_BEFORE = (403, False)
    CONFLICT_BEFORE = (409, False)
    CONFLICT_AFTER = (409, True)
    PRECONDITION_BEFORE = (412, False)
    BUSY_BEFORE = (429, False)
    ERROR_BEFORE = (500, False)
    ERROR_AFTER = (500, True)
    UNAVAILABLE_AFTER = (503, True)
    CUT_BEFORE = (0, False)
    CUT_AFTER = (0, True)
    HANG_BEFORE = (-1, False)
    HANG_AFTER = (-1, True)

    @property
    def reaches_the_broker(self) -> bool:
        return bool(self.value[1])


class Proxy(Server):
    """Stands before a broker's admin API. `choose` names the fault for a request or answers it, None lets it pass."""

    def __init__(self, admin_url: str, choose: Callable[[Request], Fault | Answer | None] = lambda _: None) -> None:
        self._target = urlsplit(admin_url).netloc
        self.choose = choose
        self.faults: list[tuple[Fault, Request]] = []
        self.redirected: list[Request] = []  # to another broker of a cluster: what is asked there does not pass here
        self.hang = threading.Event()
        super().__init__(self._pass)

    def _pass(self, request: Request) -> Answer:
        fault = self.choose(request)
        if fault is None:
            return self._forward(request)
        if isinstance(fault, Answer):
            return fault
        self.faults.append((fault, request))
        if fault.reaches_the_broker:
            self._forward(request)
        status = fault.value[0]
        if status > 0:
            return answer_json({"reason": "made up by a test"}, status)
        if status < 0:
            self.hang.wait(30)
        return Answer(cut=True)

    def _forward(self, request: Request) -> Answer:
        connection = http.client.HTTPConnection(self._target, timeout=60)
        try:
            headers = {k: v for k, v in request.headers.items() if k.lower() not in ("host", "connection")}
            connection.request(request.method, request.path, request.body or None, headers)
            reply = connection.getresponse()
            if reply.status == 307:
                self.redirected.append(request)
            kept = {
                k: v for k, v in reply.getheaders() if k.lower() in ("content-type", "content-encoding", "location")
            }
            return Answer(reply.status, reply.read(), kept)
        finally:
            connection.close()

    def close(self) -> None:
        self.hang.set()
        super().close()


class LateProxy(Proxy):
    """A broker whose reads lag behind its writes: for `seconds` after a write they show what was there before it, as those of
    another broker of the cluster may.
    """

    def __init__(self, admin_url: str, seconds: float) -> None:
        self.seconds, self.lied = seconds, 0
        self._guard = threading.Lock()
        self._asked: dict[str, Request] = {}  # reads that somebody made, by path
        self._before: dict[str, list[tuple[float, Answer]]] = {}  # their answers right before each write
        super().__init__(admin_url)

    def ask(self, path: str) -> None:
        """From now on reads of this path lag, also those before which nobody read it."""
        self._asked.setdefault(path, Request("GET", path, b"", {}, 0))

    def catch_up(self) -> None:
        """What was written until now shows."""
        with self._guard:
            self._before.clear()

    def _forward(self, request: Request) -> Answer:
        if request.is_write:
            for path, read in list(self._asked.items()):
                if _is_of(path, request.path):
                    answer = super()._forward(read)
                    with self._guard:
                        self._before.setdefault(path, []).append((time.monotonic(), answer))
            return super()._forward(request)
        with self._guard:
            self._asked.setdefault(request.path, request)
            since = time.monotonic() - self.seconds
            late = next((answer for at, answer in self._before.get(request.path, ()) if at > since), None)
            self.lied += late is not None
        return late or super()._forward(request)


def _is_of(read: str, written: str) -> bool:
    """Whether a read may show what a write changes: it is of the same object, or lists the topics of its namespace."""
    kind, *place = _object(written)
    return _object(read) in ([kind, *place], ["persistent", *place[:2]])


def _object(path: str) -> list[str]:
    """Kind, Pulsar tenant, namespace and topic that a path is of, as far as it names them."""
    kind, *place = urlsplit(path).path.removeprefix("/admin/v2/").split("/")
    if place[-1:] == ["partitioned"]:
        place.pop()
    return [kind, *place[: {"persistent": 3, "schemas": 3, "namespaces": 2}.get(kind, 1)]]


@contextmanager
def speaking(answer: bytes | None, *, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """`host:port` of somebody who answers the first bytes of each connection with these and hangs up; None: says nothing, for
    as long as the client stays.
    """

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with (
                suppress(OSError),
                tls.wrap_socket(self.request, server_side=True) if tls else self.request as connection,
            ):
                while connection.recv(1024):
                    if answer is not None:
                        connection.sendall(answer)
                        return

    class Listener(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    server = Listener(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
