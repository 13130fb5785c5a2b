"""What a machine may lack for `kodoctl dev`. Nothing starts here, but Maven once."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.brokers.dev_user import User

pytestmark = pytest.mark.broker


def only(folder: Path, *programs: str) -> str:
    folder.mkdir()
    for program in programs:
        found = shutil.which(program)
        assert found
        (folder / program).symlink_to(found)
    return str(folder)


@pytest.fixture
def somebody(tmp_path):
    return User(tmp_path)


def test_no_java(somebody, tmp_path):
    told = somebody.types("up", PATH=only(tmp_path / "bin"), JAVA_HOME="")
    assert told.code == 1
    assert "K601" in told.err
    assert "Traceback" not in told.err


def test_java_too_old(somebody, tmp_path):
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.22\" 2024-01-16' >&2\n")
    old.chmod(0o755)
    told = somebody.types("up", PATH=f"{tmp_path}:/usr/bin:/bin", JAVA_HOME="")
    assert told.code == 1
    assert "is Java 11; Pulsar needs 17 or newer" in told.err


def test_no_maven(somebody, tmp_path):
    told = somebody.types("up", PATH=only(tmp_path / "bin", "java"), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert told.code == 1
    assert "K603" in told.err


def test_no_network(somebody, tmp_path):
    """The user's real Maven with an empty repository of its own, and a mirror that nobody serves."""
    settings = tmp_path / ".m2" / "settings.xml"
    settings.parent.mkdir()
    settings.write_text(
        "<settings><mirrors><mirror><id>corp</id><mirrorOf>*</mirrorOf>"
        "<url>http://127.0.0.1:9/private-mirror</url></mirror></mirrors></settings>"
    )
    told = somebody.types(
        "up", "--engine", "java", XDG_CACHE_HOME=str(tmp_path / "cache"), MAVEN_OPTS=f"-Duser.home={tmp_path}"
    )
    assert told.code == 1
    assert "K606" in told.err
    assert "the Maven repository cannot be reached" in told.err
    assert "private-mirror" not in told.err
    assert "corp" not in told.err
    log = re.search(r"full log: (.*)", told.err)
    assert log
    assert "private-mirror" in Path(log[1]).read_text()
    assert "No instances" in somebody.types("status").out


@pytest.fixture
def tiny_disk(tmp_path):
    place = tmp_path / "tiny"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", place], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", place], check=True)


def test_disk_full(somebody, tiny_disk):
    told = somebody.types("up", "--engine", "java", KODOCTL_DEV_HOME=str(tiny_disk))
    assert told.code == 1
    assert "K607" in told.err
    assert "20 MB are free" in told.err
    (tiny_disk / "fill").write_bytes(b"x" * (20 * 2**20 - 64 * 1024))
    with pytest.raises(OSError, match="No space left"):
        (tiny_disk / "more").write_bytes(b"x" * 2**20)
    told = somebody.types("up", "--engine", "java", KODOCTL_DEV_HOME=str(tiny_disk))
    assert told.code == 1
    assert "K607" in told.err
    assert "Traceback" not in told.err
