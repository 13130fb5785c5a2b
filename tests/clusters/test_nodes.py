"""`kodoctl dev` with a cluster: its nodes, what a drill does to them, and who reaches them."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pulsar
import pytest

from kodoctl.dev import process
from tests.brokers.cluster import Cluster
from tests.brokers.dev_user import listening

pytestmark = pytest.mark.full


class _User:
    """Somebody who types `kodoctl dev` commands where this cluster's folder is."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        own = {"KODOCTL_DEV_HOME": str(cluster.homes.data), "KODOCTL_CONFIG": str(folder / "kodoctl.toml")}
        self._name, self._environ = cluster.name, {**os.environ, **own}

    def types(self, *arguments: str, code: int = 0) -> str:
        """Both streams of a command."""
        command = [sys.executable, "-m", "kodoctl", "dev", *arguments, "--name", self._name]
        ended = subprocess.run(command, env=self._environ, capture_output=True, text=True, check=False)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    def nodes(self, code: int = 0) -> dict[str, dict[str, object]]:
        """As `status --format json` tells them."""
        [instance] = json.loads(self.types("status", "--format", "json", code=code))["instances"]
        return {node["name"]: node for node in instance["nodes"]}


def _send(cluster: Cluster, topic: str, payload: bytes) -> None:
    client = pulsar.Client(cluster.broker_url)
    try:
        client.create_producer(topic).send(payload)
    finally:
        client.close()


@pytest.fixture
def user(cluster: Cluster, tmp_path: Path) -> _User:
    return _User(cluster, tmp_path)


def test_each_node_can_be_killed_paused_stopped_and_started_again(
    cluster: Cluster, user: _User, namespace: str
) -> None:
    found = user.nodes()
    assert list(found) == ["zookeeper", *(f"bookie-{n}" for n in (1, 2, 3)), *(f"broker-{n}" for n in (1, 2, 3))]
    assert {node["state"] for node in found.values()} == {"running"}
    topic = f"persistent://{namespace}/kept"
    assert cluster.admin("PUT", topic.replace("://", "/")).ok
    _send(cluster, topic, b"before")

    assert "broker-2 of `three` is killed" in user.types("kill", "broker-2")
    user.types("pause", "bookie-1")
    found = user.nodes(code=1)
    assert (found["broker-2"]["state"], found["broker-2"]["pid"]) == ("killed", None)
    assert found["bookie-1"]["state"] == "paused"
    told = user.types("status", code=1)
    assert "runs without bookie-1 (paused), broker-2 (killed)" in told
    assert "K626" in user.types("kill", "broker-2", code=1)
    assert "K626" in user.types("start", "bookie-1", code=1)
    user.types("resume", "bookie-1")
    user.types("start", "broker-2")
    user.types("stop", "bookie-3")
    assert user.nodes(code=1)["bookie-3"]["state"] == "stopped"
    assert cluster.instance.cluster is not None
    with socket.create_server(
        ("127.0.0.1", cluster.instance.cluster.bookies[2])
    ):  # as another data folder's cluster may
        for command in (("start", "bookie-3"), ("up",)):
            told = user.types(*command, code=1)
            assert "K604" in told
            assert "bookie-3 port" in told
    assert "runs already" in user.types("up")  # which starts what does not run
    assert {node["state"] for node in user.nodes().values()} == {"running"}

    client = pulsar.Client(cluster.through(2).broker_url)
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        assert reader.read_next(30_000).data() == b"before"
    finally:
        client.close()


def test_bookies_that_were_paused_for_longer_than_their_session_serve_again_when_they_go_on(
    cluster: Cluster, user: _User, namespace: str
) -> None:
    """BookKeeper ends such a bookie a second after it goes on: nobody noticed, and a quorum was missing."""
    for node in ("bookie-2", "bookie-3"):
        user.types("pause", node)
    time.sleep(45)
    told = "".join(user.types("resume", node) for node in ("bookie-2", "bookie-3"))
    for node in ("bookie-2", "bookie-3"):
        assert f"{node} ended itself: its ZooKeeper session ended during the pause of" in told
    time.sleep(5)
    assert {node["state"] for node in user.nodes().values()} == {"running"}
    topic = f"persistent://{namespace}/stored"
    assert cluster.admin("PUT", topic.replace("://", "/")).ok
    _send(cluster, topic, b"x")


def test_a_node_that_is_not_there_is_told_with_those_that_are(user: _User) -> None:
    told = user.types("kill", "broker-4", code=64)
    assert "K625" in told
    assert "broker-3" in told


def test_logs_of_each_node(user: _User) -> None:
    for node, word in (
        ("zookeeper", "zookeeper"),
        ("bookie-2", "bookkeeper|Bookie|Journal"),
        ("broker-3", "pulsar|Pulsar"),
    ):
        told = user.types("logs", node, "-n", "2000")
        assert re.search(word, told), node


def test_a_cluster_that_runs_is_not_taken_for_one_of_another_size(user: _User) -> None:
    told = user.types("up", "--brokers", "2", code=1)
    assert "K614" in told
    assert "brokers 3, asked 2" in told


def test_nobody_on_another_machine_reaches_any_port_of_any_node(cluster: Cluster, user: _User) -> None:
    assert cluster.instance.cluster is not None
    ports = set()
    for name, node in user.nodes().items():
        assert isinstance(node["pid"], int)
        for port, address in listening(node["pid"]).items():
            assert address.is_loopback, f"{name} listens on {address}:{port}"
            ports.add(port)
    assert {*cluster.instance.cluster.all()} <= ports


def test_a_paused_process_is_told_apart() -> None:
    me = process.identify(os.getpid())
    assert me is not None
    assert not process.is_paused(me)
