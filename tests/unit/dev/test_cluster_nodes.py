"""Nodes of a cluster: their configuration, and real processes that are paused, killed and stopped."""

from __future__ import annotations

import errno
import signal
import sys
import time

import pytest

from kodoctl.dev import cluster_nodes, node_config, process
from kodoctl.dev.cluster_nodes import NodeState
from kodoctl.dev.instance import Folder
from kodoctl.dev.node_config import TokenPlaces
from kodoctl.dev.ports import ClusterPorts
from kodoctl.errors import KodoctlError
from tests.unit.dev.test_node_config import settings

PORTS = ClusterPorts(3184, (3181, 3182, 3183), ((8080, 6650), (8081, 6651)))


@pytest.fixture
def folder(tmp_path):
    """The folder of a node whose process runs."""
    found = Folder(tmp_path / "node")
    found.path.mkdir()
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    started = process.start_detached(command, folder=tmp_path, output=tmp_path / "out", environ={"PATH": "/usr/bin"})
    assert started is not None
    cluster_nodes.write_process(found, started)
    yield found
    process.stop(started, patience=5)


def test_names_in_the_order_of_a_start():
    names = [node.name for node in cluster_nodes.of(PORTS)]
    assert names == ["zookeeper", "bookie-1", "bookie-2", "bookie-3", "broker-1", "broker-2"]
    assert cluster_nodes.find_node(PORTS, "broker-2").port == 8081
    with pytest.raises(KodoctlError, match="K625"):
        cluster_nodes.find_node(PORTS, "broker-3")


def test_a_node_that_never_started_is_stopped(tmp_path):
    folder = Folder(tmp_path / "node")
    assert cluster_nodes.state(folder) is NodeState.STOPPED
    assert cluster_nodes.stop(folder, patience=1)
    assert not cluster_nodes.kill(folder)
    assert not cluster_nodes.pause(folder)
    assert cluster_nodes.resume(folder) is None


def test_paused_and_resumed(folder):
    assert cluster_nodes.state(folder) is NodeState.RUNNING
    assert cluster_nodes.pause(folder)
    assert cluster_nodes.state(folder) is NodeState.PAUSED
    time.sleep(0.2)
    assert cluster_nodes.pause(folder), "again: the first pause counts"
    assert 0.2 <= (cluster_nodes.resume(folder) or 0) < 60
    assert cluster_nodes.resume(folder) == 0.0
    assert cluster_nodes.state(folder) is NodeState.RUNNING


def test_killed_is_told_from_died(folder):
    assert cluster_nodes.kill(folder)
    assert cluster_nodes.state(folder) is NodeState.KILLED
    assert cluster_nodes.stop(folder, patience=1)
    assert cluster_nodes.state(folder) is NodeState.STOPPED, "as one that died: it ended with the whole cluster"


def test_a_pause_ends_with_its_process(folder, tmp_path):
    assert cluster_nodes.pause(folder)
    assert cluster_nodes.kill(folder)
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    next_one = process.start_detached(command, folder=tmp_path, output=tmp_path / "out", environ={"PATH": "/usr/bin"})
    cluster_nodes.write_process(folder, next_one)
    assert cluster_nodes.resume(folder) == 0.0
    assert cluster_nodes.kill(folder)


def test_died(folder):
    known = cluster_nodes.process_of(folder)
    assert known is not None
    process.send(known, signal.SIGKILL)
    process.wait_gone(known, 10)
    assert cluster_nodes.state(folder) is NodeState.DIED


def test_a_paused_node_stops_in_order(folder):
    cluster_nodes.pause(folder)
    assert cluster_nodes.stop(folder, patience=5)
    assert cluster_nodes.state(folder) is NodeState.STOPPED
    assert cluster_nodes.process_of(folder) is None


def test_a_full_disk_keeps_no_node_running(folder, monkeypatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert cluster_nodes.stop(folder, patience=5)
    assert cluster_nodes.state(folder) is NodeState.DIED


def test_the_length_of_a_pause_does_not_depend_on_the_clock(folder, monkeypatch):
    assert cluster_nodes.pause(folder)
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert 0 <= (cluster_nodes.resume(folder) or 0) < 60


def test_a_damaged_record_is_told(folder):
    (folder.path / "process.json").write_text("{}")
    with pytest.raises(KodoctlError, match="K621"):
        cluster_nodes.state(folder)


def test_brokers_share_a_cluster_and_keep_three_copies():
    found = settings(node_config.broker("three", PORTS, 2, "/x", TokenPlaces("secret.key", "file:///t")))
    assert (found["webServicePort"], found["brokerServicePort"]) == ("8081", "6651")
    assert found["clusterName"] == "three"
    assert found["metadataStoreUrl"] == found["configurationMetadataStoreUrl"] == "zk:127.0.0.1:3184"
    sizes = [found[f"managedLedgerDefault{what}"] for what in ("EnsembleSize", "WriteQuorum", "AckQuorum")]
    assert sizes == ["3", "3", "2"]
    assert found["bindAddress"] == "127.0.0.1"
    assert found["allowAutoTopicCreation"] == "false"
    assert found["loadBalancerEnabled"] == "true"
    assert found["authenticationEnabled"] == "true"


def test_a_single_bookie_keeps_one_copy():
    found = settings(node_config.broker("one", ClusterPorts(1, (2,), ((3, 4),)), 1, "/x"))
    assert found["managedLedgerDefaultAckQuorum"] == "1"


def test_storage_and_metadata_listen_on_loopback():
    bookie, zookeeper = settings(node_config.bookie(PORTS, 3)), settings(node_config.zookeeper(PORTS))
    assert bookie["bookiePort"] == "3183"
    assert bookie["listeningInterface"] in ("lo", "lo0")
    assert bookie["metadataServiceUri"] == "metadata-store:zk:127.0.0.1:3184"
    assert bookie["journalSyncData"] == "true"
    assert (zookeeper["clientPort"], zookeeper["clientPortAddress"]) == ("3184", "127.0.0.1")
