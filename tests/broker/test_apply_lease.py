"""One apply at a time on the real broker: who else is told what, and what happens when the one at work dies or is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial

import pulsar
import pytest

from kodoctl.cli.common import command_target
from kodoctl.pulsar.binary.client import BrokerClient
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.control.lease import HEARTBEAT_S
from tests.brokers.broker import Broker
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually
from tests.services.servers import Proxy, Request

SMALL = "{subscriptions: {s: {states: [], dead_letter: false}}}"
TOPICS = 12


class Gate:
    """A proxy that holds up every creation of a topic after the first few until it is opened: an apply amid its work."""

    def __init__(self, workspace: Workspace, passes: int) -> None:
        self._passes, self._lock, self._opened = passes, threading.Lock(), threading.Event()
        self.waiting = 0
        self._proxy = Proxy(workspace.broker.admin_url, self._hold)
        self.flags = ["--admin-url", self._proxy.url, "--broker-url", workspace.broker.broker_url]

    def _hold(self, request: Request) -> None:
        if request.method != "PUT" or "/ns/" not in request.path or not request.path.endswith("/partitions"):
            return
        with self._lock:
            self._passes -= 1
            held = self._passes < 0
            self.waiting += held
        if held:
            self._opened.wait(60)

    def open(self) -> None:
        """Lets everything through."""
        self._opened.set()

    def close(self) -> None:
        self.open()
        self._proxy.close()


@pytest.fixture
def gate(workspace: Workspace) -> Iterator[Gate]:
    workspace.topology("\n".join(f"t{number:02}: {SMALL}" for number in range(TOPICS)))
    found = Gate(workspace, passes=4)
    yield found
    found.close()


@pytest.fixture
def at_work(workspace: Workspace, gate: Gate) -> Iterator[subprocess.Popen[str]]:
    """An apply that has made some topics and is in the middle of making others."""
    workspace.options = gate.flags
    process = workspace.process("apply", "--auto-approve")
    workspace.options = []
    eventually(lambda: gate.waiting or process.poll() is not None)
    eventually(lambda: len(workspace.topics()) == 4)
    assert process.poll() is None, process.communicate()
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_a_second_apply_is_refused_at_once_and_told_who_is_at_work(
    workspace: Workspace, at_work: subprocess.Popen[str], gate: Gate
) -> None:
    refused = workspace.apply(code=7)
    assert "another apply is running [K540]" in refused.err
    said = " ".join(refused.err.split())
    assert f"pid {at_work.pid}" in said
    assert "since 2" in said
    assert "--lock-timeout 10m" in said
    assert len(workspace.topics()) == 4
    gate.open()
    out, err = at_work.communicate(timeout=60)
    assert at_work.returncode == 0, err
    assert "Applied:" in out
    workspace.assert_settled()


def test_a_plan_needs_no_lease(workspace: Workspace, at_work: subprocess.Popen[str]) -> None:
    assert f"Plan: {2 * TOPICS - 4} to create" in workspace.plan().summary
    assert at_work.poll() is None


def test_a_second_apply_that_waits_gets_its_turn_and_plans_again_if_it_must(
    workspace: Workspace, at_work: subprocess.Popen[str], gate: Gate
) -> None:
    waiting = workspace.process("apply", "--auto-approve", "--lock-timeout", "60s")
    gate.open()
    at_work.communicate(timeout=60)
    _, err = waiting.communicate(timeout=60)
    assert at_work.returncode == 0
    assert waiting.returncode in (0, 4), err  # 4: what it planned is there by now, and it says so
    assert waiting.returncode == 0 or "the cluster changed since the plan" in err
    workspace.assert_settled()


def test_applies_of_other_namespaces_do_not_wait(workspace: Workspace, at_work: subprocess.Popen[str]) -> None:
    other = workspace.topology(f"J: {SMALL}", name="other", namespace="elsewhere")
    workspace.apply(str(other))
    assert workspace.topics("elsewhere") == {"J": 1}
    assert at_work.poll() is None


def test_after_kill_9_the_next_apply_gets_in_at_once_and_nothing_needs_an_import(
    workspace: Workspace, at_work: subprocess.Popen[str], gate: Gate
) -> None:
    at_work.kill()
    at_work.communicate()
    gate.open()
    [told] = workspace.run("history", workspace.namespace, "--format", "json").json()["applies"]
    assert (told["state"], told["verb"], told["changes"]) == ("cut off", "apply", 2 * TOPICS + 1)
    assert {change["address"] for change in told["done"]} >= {f"namespace.{workspace.namespace}"}
    assert all(one["detail"].startswith("unknown: ") for one in told["broken"])  # on their way when it was killed
    plan = workspace.plan_json()
    assert {change["action"] for change in plan["changes"]} <= {"create", "update", "adopt"}
    eventually(lambda: workspace.run("apply", "--auto-approve", code=None).code == 0, within=10)
    assert len(workspace.topics()) == TOPICS
    workspace.assert_settled()
    workspace.run("destroy", "topologies", "--auto-approve")  # what the dead apply made is ours like everything else
    assert workspace.admin("GET", f"namespaces/{workspace.tenant}") == [f"{workspace.tenant}/kodoctl"]


def test_after_kill_9_the_same_plan_is_continued_without_its_files(
    workspace: Workspace, at_work: subprocess.Popen[str], gate: Gate
) -> None:
    at_work.kill()
    at_work.communicate()
    gate.open()
    eventually(
        lambda: workspace.run("apply", "--resume", workspace.namespace, "--auto-approve", code=None).code == 0,
        within=20,
    )
    assert len(workspace.topics()) == TOPICS
    workspace.assert_settled()
    assert "K425" in workspace.run("apply", "--resume", workspace.namespace, "--auto-approve", code=64).text
    workspace.run("destroy", "topologies", "--auto-approve", "--verbose")
    assert workspace.admin("GET", f"namespaces/{workspace.tenant}") == [f"{workspace.tenant}/kodoctl"]


def test_an_interrupt_finishes_the_running_calls_and_says_what_was_done(
    workspace: Workspace, at_work: subprocess.Popen[str], gate: Gate
) -> None:
    at_work.send_signal(signal.SIGINT)
    assert at_work.stderr is not None
    heard = iter(at_work.stderr.readline, "")
    assert any("finishing the running calls" in line for line in heard)
    gate.open()
    out, _ = at_work.communicate(timeout=60)
    assert at_work.returncode == 130
    assert "Interrupted: " in out
    assert "not started" in out
    assert "Running the same command again continues with what is left." in out
    workspace.apply()
    workspace.assert_settled()


def test_an_interrupted_stream_of_json_ends_with_its_report(workspace: Workspace, gate: Gate) -> None:
    workspace.options = gate.flags
    process = workspace.process("apply", "--auto-approve", "--format", "json")
    eventually(lambda: gate.waiting)
    process.send_signal(signal.SIGINT)
    gate.open()
    out, err = process.communicate(timeout=60)
    last = json.loads(out.splitlines()[-1])
    assert (process.returncode, last["type"], last["interrupted"]) == (130, "report", True), err
    assert last["counts"]["done"] + last["counts"]["not started"] + last["counts"]["skipped"] == len(last["outcomes"])


def test_a_frozen_apply_that_lost_its_lease_writes_nothing_more(
    workspace: Workspace, at_work: subprocess.Popen[str], gate: Gate
) -> None:
    """Somebody unlocks, or the broker after 60 s of silence; the frozen one wakes up and must not go on."""
    os.kill(at_work.pid, signal.SIGSTOP)
    frozen = time.monotonic()
    shown = workspace.run("unlock", workspace.namespace, "--auto-approve").text
    assert f"is being applied by {command_target.who().partition(' pid')[0]} pid {at_work.pid} " in " ".join(
        shown.split()
    )
    assert f"Unlocked {workspace.namespace}." in shown
    gate.open()
    eventually(lambda: time.monotonic() - frozen > HEARTBEAT_S)  # it asks no more often than that
    os.kill(at_work.pid, signal.SIGCONT)
    out, err = at_work.communicate(timeout=60)
    assert at_work.returncode == 1, err
    assert "the lease was lost" in out
    assert all(workspace.subscriptions(local) == [set()] for local in workspace.topics())  # they come after the topics
    workspace.apply()
    workspace.assert_settled()
    states = [
        one["state"] for one in workspace.run("history", workspace.namespace, "--format", "json").json()["applies"]
    ]
    assert states == ["cut off", "complete"]


def test_where_nobody_holds_the_lease_there_is_nothing_to_unlock(workspace: Workspace) -> None:
    assert "namespace not found [K509]" in workspace.run("unlock", workspace.namespace, code=64).err
    workspace.admin("PUT", f"namespaces/{workspace.namespace}")
    assert (
        workspace.run("unlock", workspace.namespace).text.strip() == f"Nobody holds the lease of {workspace.namespace}."
    )


def test_a_topic_that_its_broker_does_not_know_is_asked_for_again_only_where_it_is_new(
    broker: Broker, namespace: str
) -> None:
    """As the topic of the first lease may be, just after another broker created it."""
    create = threading.Timer(1, broker.admin, ("PUT", f"persistent/{namespace}/t"))
    with BrokerClient(Connection(broker.admin_url, broker.broker_url)) as client:
        ask = partial(client.ask, lambda opened: opened.create_producer(f"persistent://{namespace}/t"), "a producer")
        with pytest.raises(pulsar.TopicNotFound):
            ask()
        create.start()
        ask(new_topic=True).close()
    create.join()
