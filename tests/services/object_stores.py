"""A real object store for tests, which speaks S3 on this machine: moto's server, in a process of its own."""

from __future__ import annotations

import http.client
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import requests
from pyarrow import fs

from tests.services.polling import eventually
from tests.services.ports import unusual_ports

BUCKET = "kodo"


@dataclass(frozen=True)
class ObjectStore:
    """One with an empty bucket."""

    url: str

    @property
    def environment(self) -> dict[str, str]:
        """How anybody finds it and gets in."""
        return {
            "AWS_ACCESS_KEY_ID": "kodo", "AWS_SECRET_ACCESS_KEY": "kodo-secret", "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
        }  # fmt: skip

    def opened(self) -> Any:
        """As somebody without kodoctl sees it."""
        return fs.S3FileSystem(
            access_key="kodo", secret_key="kodo-secret", region="us-east-1", allow_bucket_creation=True,
            endpoint_override=self.url.removeprefix("http://"), scheme="http",
        )  # fmt: skip

    def names(self, folder: str = "") -> list[str]:
        """Every object below a folder of the bucket."""
        base = f"{BUCKET}/{folder}".rstrip("/")
        found = self.opened().get_file_info(fs.FileSelector(base, allow_not_found=True, recursive=True))
        return sorted(one.path.removeprefix(f"{BUCKET}/") for one in found if one.type == fs.FileType.File)


@contextmanager
def object_store(log: Path) -> Iterator[ObjectStore]:
    """Started, and ended with everything in it."""
    port = unusual_ports().broker
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said, env={**os.environ}) as process:
        try:
            store = ObjectStore(f"http://127.0.0.1:{port}")
            eventually(lambda: _answers(store.url), within=60, every=0.2)
            store.opened().create_dir(BUCKET)
            yield store
        finally:
            process.kill()


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/moto-api/", timeout=2).ok
    except requests.RequestException:
        return False


@dataclass
class Refusals:
    """What a store refused: requests that it did not do, and those that it did before it said so."""

    undone: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)


def _body(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return request.rfile.read(int(request.headers.get("Content-Length") or 0))
    parts = []
    while size := int(request.rfile.readline().split(b";")[0], 16):
        parts.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(parts)


def _forwarded(
    request: BaseHTTPRequestHandler, store: ObjectStore, body: bytes
) -> tuple[int, list[tuple[str, str]], bytes]:
    """Status, headers and body of the store's own answer."""
    connection = http.client.HTTPConnection(store.url.removeprefix("http://"), timeout=60)
    try:
        connection.putrequest(request.command, request.path, skip_host=True, skip_accept_encoding=True)
        for name, value in request.headers.items():
            if name.lower() not in ("transfer-encoding", "expect", "content-length", "connection"):
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()


@contextmanager
def refusing_store(store: ObjectStore, often: float = 0.05, seed: int = 1) -> Iterator[tuple[ObjectStore, Refusals]]:
    """The same store behind a server that answers 503 to one request in twenty; half of these are done all the same."""
    refusals, chance, lock = Refusals(), random.Random(seed), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            with lock:
                refused, after = chance.random() < often, chance.random() < 0.5
            body = _body(self)
            status, headers, data = _forwarded(self, store, body) if after or not refused else (0, [], b"")
            if refused:
                (refusals.done if after else refusals.undone).append(f"{self.command} {self.path}")
                status, headers = 503, [("Content-Type", "application/xml")]
                data = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate</Message></Error>"
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            length = next((value for name, value in headers if name.lower() == "content-length"), str(len(data)))
            self.send_header("Content-Length", length if self.command == "HEAD" and not refused else str(len(data)))
            with suppress(ConnectionError):  # who asked for less than the text of the refusal takes none of it
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield ObjectStore(f"http://127.0.0.1:{server.server_port}"), refusals
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
