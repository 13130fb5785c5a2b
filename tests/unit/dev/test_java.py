"""Java: found, old enough, and told what to do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kodoctl.dev import java
from kodoctl.errors import KodoctlError

SEVENTEEN = """openjdk version "17.0.15" 2025-04-15
OpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)
"""


@pytest.mark.parametrize(
    ("told", "feature"),
    [
        (SEVENTEEN, 17),
        ('java version "1.8.0_392"\nJava(TM) SE Runtime Environment', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "23-ea" 2024-09-17', 23),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.8" 2025-07-15', 21),
        ("The operation couldn’t be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_the_version_in_the_answer(told, feature):
    assert java.parse_version(told) == feature


def stand_in(folder: Path, told: str, code: int = 0) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "java"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{told}\nEND\nexit {code}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_java_of_the_path(tmp_path):
    environ = stand_in(tmp_path, 'openjdk version "21.0.8"')
    assert java.find(environ, 17) == java.Java(tmp_path / "java", 21)


def test_java_home_comes_before_the_path(tmp_path):
    environ = stand_in(tmp_path / "path", 'openjdk version "21"')
    stand_in(tmp_path / "home" / "bin", 'openjdk version "25"')
    assert java.find({**environ, "JAVA_HOME": str(tmp_path / "home")}, 17).feature == 25


def test_a_relative_java_home_begins_in_the_working_folder(tmp_path, monkeypatch):
    stand_in(tmp_path / "home" / "bin", 'openjdk version "25"')
    monkeypatch.chdir(tmp_path)
    assert java.find({"JAVA_HOME": "home"}, 17).program == tmp_path / "home" / "bin" / "java"


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"PATH": "/nowhere"}, "there is no `java` on the PATH"),
        ({}, "there is no `java` on the PATH"),
        ({"JAVA_HOME": "/nowhere", "PATH": "/usr/bin"}, "JAVA_HOME is /nowhere, and there is no bin/java in it"),
    ],
)
def test_no_java_says_where_was_looked_and_how_to_get_it(environ, told):
    with pytest.raises(KodoctlError) as caught:
        java.find(environ, 17)
    text = str(caught.value)
    assert "K601" in text
    assert told in text
    assert "apt install openjdk-17-jre-headless" in text
    assert "--engine docker" in text


def test_too_old_names_what_was_found_and_what_is_needed(tmp_path):
    environ = stand_in(tmp_path, 'openjdk version "11.0.22" 2024-01-16')
    with pytest.raises(KodoctlError) as caught:
        java.find(environ, 17)
    assert "K602" in str(caught.value)
    assert f"{tmp_path}/java is Java 11; Pulsar needs 17 or newer" in str(caught.value)


def test_the_java_of_macos_that_only_says_there_is_none(tmp_path):
    environ = stand_in(tmp_path, "Unable to locate a Java Runtime.", code=1)
    with pytest.raises(KodoctlError, match=r"K601.*does not tell its version"):
        java.find(environ, 17)


def test_a_java_that_cannot_run_at_all(tmp_path):
    environ = stand_in(tmp_path, "")
    (tmp_path / "java").write_bytes(b"\x7fELF, but not really")
    with pytest.raises(KodoctlError, match=r"K601.*does not run"):
        java.find(environ, 17)


@pytest.mark.parametrize(("feature", "told"), [(17, False), (22, False), (23, True), (25, True)])
def test_unsafe_memory_is_spoken_of_only_to_a_java_that_knows_it(feature, told):
    assert ("--sun-misc-unsafe-memory-access=allow" in java.options(feature, Path("/x"))) is told


def test_what_the_broker_is_started_with():
    parts = java.arguments(17, [Path("/jars/a.jar"), Path("/jars/b.jar")], scratch=Path("/i/tmp"), bookie_port=3181)
    after = parts.index("-cp")
    assert {"-Xmx1536m", "-XX:MaxDirectMemorySize=1024m", "-XX:+UseSerialGC", "-Djava.io.tmpdir=/i/tmp"} <= set(
        parts[:after]
    )
    assert parts[after:] == [
        "-cp",
        "conf:/jars/a.jar:/jars/b.jar",
        "org.apache.pulsar.PulsarStandaloneStarter",
        "--config",
        "conf/standalone.conf",
        "--no-functions-worker",
        "--no-stream-storage",
        "--metadata-url",
        "rocksdb:data/metadata",
        "--bookkeeper-dir",
        "data/bookkeeper",
        "--bookkeeper-port",
        "3181",
    ]


def test_an_argument_file_is_read_back_by_java_itself(tmp_path):
    program = shutil.which("java")
    assert program, "these tests need Java 17 or newer"
    value = 'a folder/with "quotes" and back\\slash'
    (tmp_path / "args").write_text(
        java.argument_file([f"-Dkodoctl.value={value}", "-XshowSettings:properties", "-version"])
    )
    told = subprocess.run([program, f"@{tmp_path}/args"], capture_output=True, text=True, check=True)
    assert f"kodoctl.value = {value}" in told.stderr
