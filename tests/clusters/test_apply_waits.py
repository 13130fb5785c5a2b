"""An apply whose journal or lease the cluster cannot serve for a while: it says what it waits for, goes on when that is over, and
ends with what is known where it is not.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable

import pytest

from tests.brokers.cluster import Cluster
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

pytestmark = pytest.mark.full
SMALL = "{subscriptions: {s: {states: [], dead_letter: false}}}"


class Apply:
    """An apply at work, its lines as they come."""

    def __init__(self, workspace: Workspace, *arguments: str) -> None:
        self.lines: list[str] = []
        self.out: list[str] = []
        self.process = workspace.process("apply", "--auto-approve", *arguments)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._readers = [
            threading.Thread(target=list.extend, args=(self.lines, self.process.stderr), daemon=True),
            threading.Thread(target=list.extend, args=(self.out, self.process.stdout), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def created(self, number: int) -> None:
        """Returns when so many changes are done."""
        eventually(lambda: self._done() >= number or self.process.poll() is not None, within=60)
        assert self.process.poll() is None, self.text

    def waits(self) -> bool:
        """Whether it said what it waits for."""
        return any("Waiting for the cluster" in line for line in list(self.lines))

    def end(self, within: float) -> int:
        """Its exit code."""
        code = self.process.wait(within)
        for reader in self._readers:
            reader.join(10)
        return code

    @property
    def text(self) -> str:
        """All that it said, on one line."""
        return " ".join("".join([*self.lines, *self.out]).split())

    def _done(self) -> int:
        lines = [*self.lines, *self.out]
        return sum("created " in line or '"status": "done"' in line for line in lines)


def _topology(workspace: Workspace, topics: int) -> None:
    workspace.topology("\n".join(f"t{number:02}: {SMALL}" for number in range(topics)))


def _everywhere(cluster: Cluster, workspace: Workspace, number: int = 1) -> None:
    """The workspace's commands enter by one broker, and know all."""
    workspace.options = ["--admin-url", cluster.admin_urls[number - 1], "--broker-url", cluster.broker_url]


def _during(do: Callable[[str], None], *nodes: str) -> None:
    for node in nodes:
        do(node)


def test_bookies_that_hang_for_a_while_are_waited_for(cluster: Cluster, workspace: Workspace) -> None:
    _topology(workspace, 60)
    _everywhere(cluster, workspace)
    apply = Apply(workspace)
    apply.created(5)
    _during(cluster.pause, "bookie-2", "bookie-3")
    time.sleep(12)
    assert apply.waits(), apply.text
    _during(cluster.resume, "bookie-2", "bookie-3")
    assert apply.end(60) == 0, apply.text
    assert "at most 90 s: the journal of" in apply.text or "at most 60 s" in apply.text
    workspace.assert_settled()


def test_an_interruption_ends_the_wait_and_what_was_printed_is_a_document(
    cluster: Cluster, workspace: Workspace
) -> None:
    _topology(workspace, 60)
    _everywhere(cluster, workspace)
    apply = Apply(workspace, "--format", "json")
    apply.created(5)
    _during(cluster.pause, "bookie-2", "bookie-3")
    eventually(apply.waits, within=30)
    began = time.monotonic()
    apply.process.send_signal(signal.SIGINT)
    code = apply.end(30)
    took = time.monotonic() - began
    _during(cluster.resume, "bookie-2", "bookie-3")
    assert code == 130, apply.text
    assert took < 40, "the wait itself may take 60 s"
    *changes, report = [json.loads(line) for line in apply.out]
    assert {change["type"] for change in changes} == {"change"}
    assert (report["type"], report["interrupted"], report["complete"]) == ("report", True, False)
    cluster.heal()
    workspace.apply()
    workspace.assert_settled()


def test_a_bookie_that_stays_away_ends_the_apply_with_what_is_known_and_the_next_one_completes(
    cluster: Cluster, workspace: Workspace
) -> None:
    _topology(workspace, 100)
    _everywhere(cluster, workspace)
    apply = Apply(workspace)
    apply.created(5)
    cluster.kill("bookie-3")
    assert apply.end(300) == 1, apply.text
    assert "the lease could not be confirmed [K541]" in apply.text
    assert "nobody is known to have taken the lease" in apply.text
    assert f"`kodoctl history {workspace.namespace} --id" in apply.text
    assert "Running the same command again continues with what is left" in apply.text
    cluster.heal()
    workspace.apply()
    workspace.assert_settled()


@pytest.mark.parametrize("hangs", [False, True])
def test_the_death_of_the_broker_that_serves_the_lease_does_not_end_the_apply(
    cluster: Cluster, workspace: Workspace, hangs: bool
) -> None:
    _everywhere(cluster, workspace)
    workspace.apply(str(workspace.topology(f"first: {SMALL}", name="first")))
    owner = cluster.broker_of(f"persistent://{workspace.tenant}/kodoctl/journal-ns")
    _everywhere(cluster, workspace, 1 if owner != "broker-1" else 2)
    _topology(workspace, 40)
    apply = Apply(workspace, "topologies/trade.yaml")
    apply.created(5)
    (cluster.pause if hangs else cluster.kill)(owner)
    if hangs:
        time.sleep(40)
        cluster.resume(owner)
    assert apply.end(150) == 0, apply.text
    assert "the journal of" in apply.text
    workspace.assert_settled("topologies/trade.yaml")


def test_an_apply_whose_lease_another_took_during_the_fail_over_writes_nothing_more(
    cluster: Cluster, workspace: Workspace
) -> None:
    _everywhere(cluster, workspace)
    other = workspace.topology(f"first: {SMALL}", name="first")
    workspace.apply(str(other))
    owner = cluster.broker_of(f"persistent://{workspace.tenant}/kodoctl/journal-ns")
    _everywhere(cluster, workspace, 1 if owner != "broker-1" else 2)
    _topology(workspace, 40)
    apply = Apply(workspace, "topologies/trade.yaml")
    apply.created(5)
    cluster.kill(owner)
    workspace.topology(f"first: {SMALL}\nsecond: {SMALL}", name="first")
    taken = workspace.apply(str(other), "--lock-timeout", "60s")  # connects before the one that waits
    assert "Applied: 2 done" in taken.out
    partitioned = f"persistent/{workspace.namespace}/partitioned"
    topics = cluster.admin("GET", partitioned).json()
    assert apply.end(150) == 1, apply.text
    assert "the lease was lost [K541]" in apply.text
    assert "another apply, or `kodoctl unlock`, took it over" in apply.text
    assert cluster.admin("GET", partitioned).json() == topics
    workspace.apply("topologies/trade.yaml")
    workspace.assert_settled("topologies/trade.yaml")


@pytest.mark.parametrize("command", [("history",), ("plan",), ("status", "--exact")])
def test_commands_that_read_end_in_time_without_a_quorum(
    cluster: Cluster, workspace: Workspace, command: tuple[str, ...]
) -> None:
    _topology(workspace, 3)
    _everywhere(cluster, workspace)
    workspace.apply()
    _during(cluster.pause, "bookie-2", "bookie-3")
    arguments = (*command, workspace.namespace) if command[0] == "history" else command
    process = workspace.process(*arguments)
    try:
        out, err = process.communicate(timeout=150)
    except subprocess.TimeoutExpired:
        pytest.fail(f"{command} does not end")
    _during(cluster.resume, "bookie-2", "bookie-3")
    assert process.returncode in (0, 1), out + err
    assert process.returncode == 0 or "Error:" in err
