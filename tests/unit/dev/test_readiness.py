"""Ready or not: asked of a small server that answers like a broker on its way up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kodoctl.dev import readiness
from kodoctl.dev.progress import WaitProgress, quiet
from kodoctl.dev.readiness import ReadinessTarget
from kodoctl.pulsar.connection.secret import Secret

RUNTIME, HEALTH, NAMESPACE = "brokers/configuration/runtime", "brokers/health", "namespaces/public/default"
GOOD = {RUNTIME: (200, json.dumps({"narExtractionDirectory": "/mine"})), HEALTH: (200, "ok"), NAMESPACE: (200, "{}")}


class Served(ThreadingHTTPServer):
    """A broker's admin port: what it answers, and the tokens that came."""

    answers: dict[str, Any]
    tokens: list[str | None]
    target: ReadinessTarget


@pytest.fixture
def server():
    class Handler(BaseHTTPRequestHandler):
        server: Served

        def do_GET(self):
            self.server.tokens.append(self.headers.get("Authorization"))
            code, body = self.server.answers[self.path.removeprefix("/admin/v2/")]
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *args):
            pass

    with Served(("127.0.0.1", 0), Handler) as found:
        found.answers, found.tokens = dict(GOOD), []
        found.target = ReadinessTarget(f"http://127.0.0.1:{found.server_port}", None, "/mine")
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def test_ready_when_all_three_agree(server):
    assert readiness.not_ready([server.target]) is None


@pytest.mark.parametrize(
    ("path", "answer", "told"),
    [
        (HEALTH, (500, ""), "brokers/health: HTTP 500"),
        (HEALTH, (200, "not ok"), "brokers/health: not healthy yet"),
        (NAMESPACE, (404, ""), "namespaces/public/default: HTTP 404"),
        (RUNTIME, (401, ""), "brokers/configuration/runtime: HTTP 401"),
        (RUNTIME, (200, json.dumps({"narExtractionDirectory": "/theirs"})), "another Pulsar answers there"),
        (RUNTIME, (200, "<html>"), "another Pulsar answers there"),
        (RUNTIME, (200, "[]"), "another Pulsar answers there"),
    ],
)
def test_what_is_missing_is_told(server, path, answer, told):
    server.answers[path] = answer
    assert told in (readiness.not_ready([server.target]) or "")


def test_the_token_is_presented(server):
    readiness.not_ready([ReadinessTarget(server.target.admin_url, Secret("a.b.c"), "/mine")])
    assert set(server.tokens) == {"Bearer a.b.c"}


def test_a_proxy_of_the_environment_is_not_asked(server):
    program = "import sys; from kodoctl.dev.readiness import *; print(not_ready([ReadinessTarget(sys.argv[1], None, '/mine')]))"
    environ = {**os.environ, "http_proxy": "http://127.0.0.1:9", "no_proxy": ""}
    command = [sys.executable, "-c", program, server.target.admin_url]
    assert subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout == "None\n"


def test_nobody_there():
    problem = readiness.not_ready([ReadinessTarget("http://127.0.0.1:9", None, "/mine")])
    assert "connection refused" in (problem or "")


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_waits_until_it_is_and_tells_meanwhile():
    clock, told = Clock(), []
    answers = iter(["starting", "starting", None])
    found = readiness.wait(
        lambda seconds: next(answers), alive=lambda: True, limit=120, tell=told.append, clock=clock, sleep=clock.sleep
    )
    assert found is None
    assert [type(event) for event in told] == [WaitProgress, WaitProgress]
    assert told[-1].limit == 120


def test_gives_up_at_the_deadline_with_the_last_thing_missing_and_never_asks_longer_than_is_left():
    clock, asked = Clock(), []

    def ask(seconds):
        asked.append(seconds)
        clock.now += seconds
        return f"missing since {clock.now:.0f}"

    found = readiness.wait(ask, alive=lambda: True, limit=12, tell=quiet, clock=clock, sleep=clock.sleep)
    assert (found or "").startswith("missing since 11")
    assert clock.now - 100 <= 12.2
    assert asked[0] == 5
    assert asked[-1] < 5


def test_does_not_wait_for_the_dead():
    clock = Clock()
    found = readiness.wait(
        lambda _: "no answer", alive=lambda: False, limit=120, tell=quiet, clock=clock, sleep=clock.sleep
    )
    assert found == "no answer"
    assert clock.now == 100
