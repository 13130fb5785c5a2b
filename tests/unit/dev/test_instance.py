"""What is on disk."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from kodoctl.dev.instance import (
    Auth,
    EngineName,
    Folder,
    Homes,
    Instance,
    all_instances,
    forget_process,
    lock,
    read_instance,
    write,
)
from kodoctl.dev.ports import ClusterPorts, Ports
from kodoctl.dev.process import Process
from kodoctl.dev.progress import ProgressStep, quiet
from kodoctl.errors import KodoctlError, UsageError

INSTANCE = Instance(
    "dev", "4.2.4", EngineName.JAVA, Auth.TOKEN, Ports(1, 2, 3), ready_once=True, process=Process(42, "boot/7")
)


@pytest.fixture
def homes(tmp_path):
    return Homes(tmp_path / "data", tmp_path / "jars")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_what_is_written_is_read_again(homes):
    folder = homes.folder("dev")
    write(folder, INSTANCE)
    assert read_instance(folder) == INSTANCE
    assert forget_process(folder, INSTANCE) == read_instance(folder) == replace(INSTANCE, process=None)


def test_nobody_else_can_look(homes):
    folder = homes.folder("dev")
    write(folder, INSTANCE)
    assert mode(folder.path) == 0o700
    assert mode(folder.record) == 0o600


def test_no_folder_is_no_instance(homes):
    assert read_instance(homes.folder("dev")) is None
    assert all_instances(homes) == []


def test_all_by_name_and_nothing_else(homes):
    for name in ("two", "dev"):
        write(homes.folder(name), replace(INSTANCE, name=name))
    (homes.data / ".locks").mkdir()
    (homes.data / "empty").mkdir()
    (homes.data / "file").write_text("")
    assert [one.name for one in all_instances(homes)] == ["dev", "two"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '{"format_version": 1}',
        json.dumps({"format_version": 2, "name": "dev"}),
        json.dumps({"format_version": 1, **asdict(INSTANCE), "ports": {"admin": "1@x", "broker": 2, "bookie": 3}}),
    ],
)
def test_a_damaged_record_names_the_file_and_what_to_do(homes, content):
    folder = homes.folder("dev")
    folder.path.mkdir(parents=True)
    folder.record.write_text(content)
    with pytest.raises(KodoctlError, match=r"(?s)K621.*by hand if it runs, then remove the folder") as caught:
        read_instance(folder)
    assert str(folder.record) in str(caught.value)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "Dev", "-x", "a b", "x" * 32, "a\n", "ä"])
def test_names_that_cannot_be_folders_containers_and_contexts(homes, name):
    with pytest.raises(UsageError, match=r"K612"):
        homes.folder(name)


def test_one_at_a_time_and_the_second_says_that_it_waits(homes):
    told, order = [], []
    waiting = threading.Event()

    def tell(event):
        told.append(event)
        waiting.set()

    def second():
        with lock(homes, "dev", tell):
            order.append("second")

    with lock(homes, "dev", quiet):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
    assert told == [ProgressStep("another kodoctl works on `dev`; waiting for it")]


def test_a_holder_that_is_killed_lets_go(homes):
    program = (
        "import os, sys; from pathlib import Path; from kodoctl.dev.instance import Homes, lock\n"
        "with lock(Homes(Path(sys.argv[1]), Path('/x')), 'dev', print): os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, homes.data], check=False)
    with lock(homes, "dev", lambda step: pytest.fail(str(step))):
        pass


def test_a_cluster_is_remembered_with_the_ports_of_its_nodes(tmp_path):
    folder = Folder(tmp_path / "three")
    ports = ClusterPorts(3184, (3181, 3182, 3183), ((8080, 6650), (8081, 6651)))
    there = Instance("three", "4.2.4", EngineName.JAVA, Auth.NONE, Ports(), cluster=ports)
    assert read_instance(folder) is None
    write(folder, there)
    assert read_instance(folder) == there


def test_a_copy_of_a_folder_is_no_instance(homes):
    write(homes.folder("dev"), INSTANCE)
    shutil.copytree(homes.folder("dev").path, homes.folder("backup").path)
    assert read_instance(homes.folder("backup")) is None
    assert all_instances(homes) == [INSTANCE]
