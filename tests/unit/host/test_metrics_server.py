"""The server of metrics and probes under connections that say nothing, little, or do not read: none holds up another."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.client import RemoteDisconnected
from typing import Any
from urllib.request import urlopen

import pytest

from kodoctl.errors import UsageError
from kodoctl.host.metrics_server import MAX_CONNECTIONS, Application, MetricsServer, probes
from tests.services.polling import eventually

LARGE = b"x" * 50_000_000  # more than the buffers of both sides hold


def _metrics(_environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    start("200 OK", [])
    return [LARGE]


def _well() -> tuple[bool, object]:
    return True, {"ok": True}


APPLICATION: Application = probes(_metrics, _well, _well)


@contextmanager
def _server(deadline: float, host: str = "127.0.0.1") -> Iterator[MetricsServer]:
    server = MetricsServer(host, 0, APPLICATION, deadline=deadline)
    try:
        yield server
    finally:
        server.close()


def _connected(server: MetricsServer) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def _is_well(server: MetricsServer) -> bool:
    try:
        with urlopen(f"http://{server.address}/healthz", timeout=20) as answer:
            return bool(answer.status == 200)
    except RemoteDisconnected:  # at its own deadline, on a busy machine
        return False


def _ended(line: socket.socket) -> None:
    """Returns once the other side has ended the connection, whatever it sent before."""
    try:
        while line.recv(65_536):
            pass
    except ConnectionResetError:
        pass


def _mute(line: socket.socket) -> None:
    _ended(line)


def _trickling(line: socket.socket) -> None:
    line.settimeout(0.05)
    while True:
        try:
            line.sendall(b"x")
            if not line.recv(1):
                return
        except TimeoutError:
            continue
        except (ConnectionResetError, BrokenPipeError):
            return


def _unread(line: socket.socket) -> None:
    """The answer fills the buffers of both sides, and its thread stands still."""
    line.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert line.recv(1)
    eventually(lambda: not [one for one in threading.enumerate() if "process_request_thread" in one.name])


@pytest.mark.parametrize("behave", [_mute, _trickling, _unread])
def test_a_connection_ends_at_its_deadline_whatever_it_does(
    behave: Callable[[socket.socket], None], capfd: pytest.CaptureFixture[str]
) -> None:
    with _server(0.2) as server, _connected(server) as line:
        behave(line)
        eventually(lambda: _is_well(server))
    assert capfd.readouterr().err == "", "a connection that breaks is no news"


def test_mute_connections_give_way_to_a_probe(capfd: pytest.CaptureFixture[str]) -> None:
    """As many as somebody opens: they have a bounded number of threads, and the oldest are cut off."""
    with _server(600.0) as server:
        before = threading.active_count()
        lines = [_connected(server) for _ in range(3 * MAX_CONNECTIONS)]
        try:
            for line in lines[: 2 * MAX_CONNECTIONS]:
                _ended(line)
            assert threading.active_count() - before <= MAX_CONNECTIONS
            assert _is_well(server)
            _ended(lines[2 * MAX_CONNECTIONS])
            lines[-1].sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert lines[-1].recv(12) == b"HTTP/1.0 200", "a young one is still served"
        finally:
            for line in lines:
                line.close()
    assert capfd.readouterr().err == ""


def test_a_probe_that_resets_its_connection_leaves_no_trace(capfd: pytest.CaptureFixture[str]) -> None:
    with _server(600.0) as server:
        for _ in range(10):
            with _connected(server) as line:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                line.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert _is_well(server)
    assert capfd.readouterr().err == ""


def test_an_error_of_the_server_itself_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with _server(600.0) as server:
        try:
            int("a defect")
        except ValueError:
            server._server.handle_error(None, ("127.0.0.1", 1))
    assert "a defect" in capfd.readouterr().err


def test_it_listens_on_addresses_of_both_kinds() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    with _server(600.0, "::1") as server:
        assert server.address.startswith("[::1]:")
        assert _is_well(server)


@pytest.mark.parametrize("host", ["256.1.1.1", "a" * 70, "no such host", "127.0.0.1\0"])
def test_an_address_that_is_none_is_refused_in_words(host: str) -> None:
    with pytest.raises(UsageError, match="K760"):
        MetricsServer(host, 0, APPLICATION)
