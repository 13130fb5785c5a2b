"""Instances that are looked at and removed, with real processes in the place of brokers."""

from __future__ import annotations

import errno
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kodoctl.dev import cluster_nodes, process, service, tokens
from kodoctl.dev.drills import NodeAction, carry_out
from kodoctl.dev.instance import Auth, EngineName, Homes, Instance, lock, read_instance, write
from kodoctl.dev.java_engine import JavaEngine
from kodoctl.dev.ports import ClusterPorts, Ports
from kodoctl.dev.process import Process
from kodoctl.dev.progress import quiet
from kodoctl.dev.service import InstanceState
from kodoctl.errors import KodoctlError, UsageError

DEV = Instance("dev", "4.2.4", EngineName.JAVA, Auth.NONE, Ports(1, 2, 3), ready_once=True)
NODES = ClusterPorts(4, (3,), ((1, 2),))


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    return Homes(tmp_path / "data", tmp_path / "jars")


@pytest.fixture
def broker(tmp_path):
    """A process in the place of a broker."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    found = process.start_detached(command, folder=tmp_path, output=tmp_path / "out", environ={"PATH": "/usr/bin"})
    assert found is not None
    yield found
    process.stop(found, patience=5)


def full_disk(_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def reset_after(homes: Homes, meanwhile, command=service.reset) -> list[BaseException]:
    """Resets `dev` while another command has the lock, which does `meanwhile` before it ends."""
    errors: list[BaseException] = []
    waits = threading.Event()

    def reset() -> None:
        try:
            command(homes, {}, "dev", lambda _: waits.set())
        except KodoctlError as problem:
            errors.append(problem)

    thread = threading.Thread(target=reset)
    with lock(homes, "dev", quiet):
        thread.start()
        assert waits.wait(10)
        meanwhile()
    thread.join(30)
    return errors


def test_a_reset_stops_the_broker_that_started_while_it_waited(homes, broker):
    folder = homes.folder("dev")
    write(folder, DEV)
    assert reset_after(homes, lambda: write(folder, replace(DEV, process=broker))) == []
    assert not process.alive(broker)
    assert not folder.path.exists()


def test_of_two_resets_the_second_finds_nothing(homes):
    write(homes.folder("dev"), DEV)
    [error] = reset_after(homes, lambda: service.remove(homes, {}, DEV))
    assert isinstance(error, UsageError)
    assert "K615" in str(error)


def test_a_drill_is_on_the_instance_that_is_there_behind_its_wait(homes):
    """It acted on the record from before: on ports and nodes of an instance that was gone."""
    folder = homes.folder("dev")
    write(folder, replace(DEV, cluster=NODES))
    kill = partial(drill, node="broker-1", action=NodeAction.KILL)
    [error] = reset_after(homes, lambda: write(folder, DEV), kill)
    assert "K625" in str(error)


def drill(homes: Homes, environ, name: str, tell, *, node: str, action: NodeAction) -> None:
    carry_out(homes, environ, name, node, action, tell)


@pytest.mark.parametrize("cluster", [None, NODES])
def test_a_reset_makes_room_on_a_full_disk(homes, broker, monkeypatch, cluster):
    folder = homes.folder("dev")
    write(folder, replace(DEV, cluster=cluster, process=None if cluster else broker))
    if cluster:
        cluster_nodes.write_process(folder.node("broker-1"), broker)
    monkeypatch.setattr("os.fsync", full_disk)
    service.reset(homes, {}, "dev")
    assert not process.alive(broker)
    assert not folder.path.exists()


def test_a_reset_that_is_interrupted_leaves_no_data_to_start_on(homes, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    write(homes.folder("dev"), DEV)
    monkeypatch.setattr(JavaEngine, "wipe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        service.reset(homes, {}, "dev")
    assert read_instance(homes.folder("dev")) == replace(DEV, ready_once=False)


def test_a_reset_of_a_copy_does_not_touch_the_instance(homes, broker):
    folder = homes.folder("dev")
    write(folder, replace(DEV, process=broker))
    folder.path.rename(homes.folder("backup").path)
    write(folder, replace(DEV, process=broker))
    with pytest.raises(UsageError, match="K615"):
        service.reset(homes, {}, "backup")
    assert process.alive(broker)
    assert folder.record.exists()


def test_an_instance_with_a_damaged_key_hides_no_other(homes, broker):
    write(homes.folder("dev"), replace(DEV, auth=Auth.TOKEN, process=broker))
    tokens.ensure_key(homes.folder("dev"))
    homes.folder("dev").key.write_bytes(b"short")
    write(homes.folder("two"), replace(DEV, name="two", process=Process(1, "long ago")))
    one, two = service.status(homes, {})
    assert (one.state, two.state) == (InstanceState.NOT_READY, InstanceState.DIED)
    assert "signing key is damaged" in (one.problem or "")
