"""`kodoctl status --watch` as people and pipes see it: blocks, documents, a terminal left as it was found, and Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

from kodoctl.protocol.overrides import Override, OverrideKind, overrides_text
from tests.brokers.workspace import Workspace

pytestmark = pytest.mark.broker


def _prepared(workspace: Workspace) -> None:
    workspace.topology("orders: {subscriptions: {billing: {states: [retrying]}}}")
    workspace.apply()
    now = int(time.time() * 1000)
    orders = overrides_text([Override(OverrideKind.PAUSE, now, now + 3_600_000, "ann@desk", lane="L1/ready")])
    workspace.admin("PUT", f"{workspace.path('orders')}/subscription/billing/properties", {"kodo-steer": orders})


def test_in_a_pipe_a_block_each_look_without_control_codes_and_ctrl_c_ends_it_well(workspace: Workspace) -> None:
    _prepared(workspace)
    process = workspace.process("status", "--watch", "--every", "0.5")
    assert process.stdout is not None
    assert process.stderr is not None
    seen: list[str] = []
    while sum("every 0.5 s" in line for line in seen) < 3:
        seen.append(process.stdout.readline())
        assert seen[-1], process.stderr.read()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    text = "".join(seen) + out
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "in/s" in text
    assert "L1 ready: steered until 20" in text


def test_json_is_a_document_a_line_and_once_is_what_it_was(workspace: Workspace) -> None:
    _prepared(workspace)
    process = workspace.process("status", "--watch", "--every", "0.5", "--format", "json")
    assert process.stdout is not None
    documents = [json.loads(process.stdout.readline()) for _ in range(2)]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 0
    assert documents[0]["now"] < documents[1]["now"]
    lane = documents[0]["topologies"][0]["lanes"][0]
    assert lane["steered"]
    assert {"rate_in", "rate_out", "blocked", "unacknowledged"} <= lane.keys()
    assert workspace.run("status", "--once", "--format", "json").json()["topologies"][0]["lanes"][0]["steered"]


def test_on_a_terminal_it_is_redrawn_in_place_and_the_screen_is_given_back(workspace: Workspace) -> None:
    _prepared(workspace)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kodoctl", "status", "--watch", "--every", "0.5", *workspace.connection()]
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(
        command, cwd=workspace.folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environ
    ) as process:
        try:
            os.close(theirs)
            seen = b""
            deadline = time.monotonic() + 30
            while seen.count(b"every 0.5 s") < 3:
                assert time.monotonic() < deadline, seen[-500:]
                if select.select([ours], [], [], 1)[0]:
                    seen += os.read(ours, 65536)
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(OSError):  # how the end of a terminal's other side shows
                while select.select([ours], [], [], 20)[0] and (more := os.read(ours, 65536)):
                    seen += more
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()
    os.close(ours)
    assert b"\x1b[?1049h" in seen
    assert b"\x1b[?1049l" in seen
    assert b"Traceback" not in seen
