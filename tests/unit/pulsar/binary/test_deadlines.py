"""Calls into the client library end in time, whatever the library does."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from kodoctl.pulsar.binary.client import BrokerClient
from kodoctl.pulsar.binary.deadlines import Patience, UnansweredError, any_left_behind
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
from tests.services.polling import eventually


def test_what_a_call_returns_or_raises_comes_through() -> None:
    patience = Patience(WaitMonitor())
    assert patience.call(lambda: 7, "a number", 5.0) == 7
    with pytest.raises(ZeroDivisionError):
        patience.call(lambda: 1 / 0, "a number", 5.0)


def test_a_call_that_does_not_return_is_left_behind_and_what_it_returns_later_is_not_lost() -> None:
    gate, late = threading.Event(), ["nothing"]

    def hang() -> str:
        gate.wait(30)
        return "a producer"

    began = time.monotonic()
    with pytest.raises(UnansweredError, match=r"K518.*the lease of acme/ns: no answer within 0 s"):
        Patience(WaitMonitor()).call(hang, "the lease of acme/ns", 0.2, late.append)
    assert time.monotonic() - began < 25
    assert any_left_behind()
    gate.set()
    eventually(lambda: late == ["nothing", "a producer"])
    eventually(lambda: not any_left_behind())


def test_a_late_result_that_cannot_be_closed_prints_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, printed = threading.Event(), list[object]()
    monkeypatch.setattr(threading, "excepthook", printed.append)

    def close(_: bool) -> None:
        raise ConnectionError("the client is closed")

    with pytest.raises(UnansweredError):
        Patience(WaitMonitor()).call(lambda: gate.wait(30), "the lease of acme/ns", 0.1, close)
    gate.set()
    eventually(lambda: not any_left_behind())
    assert printed == []


class Client:
    """The client library's client; `calls` are its answers to who asks for partitions."""

    def __init__(self, *calls: object) -> None:
        self.calls, self.asked, self.closed = list(calls), 0, threading.Event()

    def get_topic_partitions(self, _: str) -> object:
        self.asked += 1
        found = self.calls.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        self.closed.wait(30)


def _broker_client(client: Client) -> BrokerClient:
    found = BrokerClient(Connection("http://b"), WaitMonitor(pause=lambda _: None))
    found._client = client
    return found


def test_what_a_broker_that_fails_over_answers_is_asked_again_and_what_is_final_is_not() -> None:
    import pulsar

    raw = pulsar._pulsar.Result
    busy = [pulsar.Timeout(raw.Timeout), pulsar.ServiceUnitNotReady(raw.ServiceUnitNotReady)]
    assert _broker_client(client := Client(*busy, ["t"])).partitions("t") == ["t"]
    assert client.asked == 3
    with pytest.raises(pulsar.AuthorizationError):
        _broker_client(Client(pulsar.AuthorizationError(raw.AuthorizationError), ["t"])).partitions("t")
    with pytest.raises(pulsar.Timeout):
        _broker_client(Client(*busy, ["t"])).partitions("t", limit=0)


def test_a_connection_that_cannot_be_closed_is_closed() -> None:
    import pulsar

    class Closed(Client):
        def close(self) -> None:
            raise pulsar.AlreadyClosed(pulsar._pulsar.Result.AlreadyClosed)

    _broker_client(Closed()).close()


def test_a_connection_that_does_not_close_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodoctl.pulsar.binary.client.CLOSE_S", 0.2)
    client = Client()
    began = time.monotonic()
    _broker_client(client).close()
    assert time.monotonic() - began < 25
    assert any_left_behind()
    client.closed.set()
    eventually(lambda: not any_left_behind())


COMMAND = """
import atexit, sys, pulsar, typer
from kodoctl.cli.common.console import command, run_application, say
from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.binary.deadlines import Patience, UnansweredError
from kodoctl.pulsar.connection.wait_monitor import WaitMonitor

def hang():  # as the closing of a producer may
    quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    pulsar.Client(sys.argv[1], operation_timeout_seconds=60, logger=quiet).create_producer("t")

app = typer.Typer()

@app.command()
@command
def run(address: str):
    atexit.register(sys.stdout.write, "ended")
    say('{"a": 1}')
    Patience(WaitMonitor()).call(hang, "a producer", 0.5)

run_application(app)
"""


def test_a_command_that_left_a_call_behind_ends_with_its_own_code_and_whole_output() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"pulsar://127.0.0.1:{silent.getsockname()[1]}"
        ended = subprocess.run(
            [sys.executable, "-c", COMMAND, address], capture_output=True, text=True, timeout=60, check=False
        )
    assert (ended.returncode, ended.stdout) == (1, '{"a": 1}\nended')
    assert "the broker's binary port does not answer [K518]" in ended.stderr
    assert "terminate" not in ended.stderr
