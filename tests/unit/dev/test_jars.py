"""Fetching jars once: with a stand-in for Maven that writes small ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from kodoctl.dev import jars
from kodoctl.dev.progress import Download, ProgressStep, quiet
from kodoctl.errors import KodoctlError

MAVEN = """#!{python}
import os, sys, time, zipfile
count = open({counter!r}, "a"); count.write("x"); count.close()
folder = next(a.split("=", 1)[1] for a in sys.argv if a.startswith("-DoutputDirectory="))
version = next(a.split("=", 1)[1] for a in sys.argv if a.startswith("-Dpulsar.version="))
os.makedirs(folder)
print("[INFO] Downloaded from corp: https://repo.example.org/a.jar (100 MB at 1 MB/s)", flush=True)
{extra}
for name in ("a.jar", "pulsar-broker-" + version + ".jar"):
    with zipfile.ZipFile(os.path.join(folder, name), "w") as jar:
        jar.writestr("x", "x")
{end}
"""


class Maven:
    """A stand-in `mvn` first on the PATH; counts how often it ran."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.counter = folder, folder / "runs"
        folder.mkdir()
        self.environ = {"PATH": f"{folder}:/usr/bin:/bin"}
        self.does()

    def does(self, extra: str = "", end: str = "") -> None:
        program = self.folder / "mvn"
        program.write_text(MAVEN.format(python=sys.executable, counter=str(self.counter), extra=extra, end=end))
        program.chmod(0o755)

    @property
    def runs(self) -> int:
        return len(self.counter.read_text()) if self.counter.exists() else 0


@pytest.fixture
def maven(tmp_path):
    return Maven(tmp_path / "bin")


@pytest.fixture
def home(tmp_path):
    return tmp_path / "cache"


def names(paths):
    return [path.name for path in paths]


def left(home):
    return sorted(path.name for path in home.iterdir() if not path.name.endswith(".lock"))


def test_fetched_once_and_found_from_then_on(home, maven):
    first = jars.ensure(home, "4.2.4", maven.environ, quiet)
    assert names(first) == ["a.jar", "pulsar-broker-4.2.4.jar"]
    assert all(path.is_file() for path in first)
    assert jars.ensure(home, "4.2.4", {"PATH": ""}, quiet) == first  # without Maven
    assert maven.runs == 1
    assert left(home) == ["pulsar-4.2.4", "pulsar-4.2.4-maven.log"]


def test_versions_are_kept_apart(home, maven):
    jars.ensure(home, "4.2.4", maven.environ, quiet)
    assert names(jars.ensure(home, "4.0.7", maven.environ, quiet)) == ["a.jar", "pulsar-broker-4.0.7.jar"]


def test_a_jar_lost_from_the_cache_is_noticed_and_all_are_fetched_again(home, maven):
    jars.ensure(home, "4.2.4", maven.environ, quiet)
    (home / "pulsar-4.2.4" / "a.jar").unlink()
    assert names(jars.ensure(home, "4.2.4", maven.environ, quiet)) == ["a.jar", "pulsar-broker-4.2.4.jar"]
    assert maven.runs == 2


def test_a_jar_cut_short_in_the_cache_is_noticed(home, maven):
    jars.ensure(home, "4.2.4", maven.environ, quiet)
    (home / "pulsar-4.2.4" / "a.jar").write_bytes(b"PK")
    jars.ensure(home, "4.2.4", maven.environ, quiet)
    assert maven.runs == 2


def test_two_at_once_fetch_once_and_the_second_says_that_it_waits(home, maven):
    maven.does(extra="time.sleep(1)")
    told = []
    threads = [threading.Thread(target=jars.ensure, args=(home, "4.2.4", maven.environ, told.append)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert maven.runs == 1
    assert ProgressStep("another kodoctl is fetching Pulsar 4.2.4; waiting for it") in told
    assert jars.complete(home / "pulsar-4.2.4")


def test_progress_counts_what_maven_fetched_and_repeats_no_line_of_it(home, maven):
    maven.does(extra="time.sleep(1)")
    told = []
    jars.ensure(home, "4.2.4", maven.environ, told.append)
    assert told[0] == ProgressStep("Fetching Pulsar 4.2.4 with Maven, once: about 270 MB")
    assert Download(100.0, 1, 270) in told
    assert "example.org" not in repr(told)


def test_a_failure_says_why_leaves_nothing_half_done_and_names_the_log(home, maven):
    maven.does(
        extra="print('[ERROR] Could not transfer artifact a:b:jar:1 from/to corp (https://repo.example.org/x): "
        "repo.example.org: Name or service not known'); sys.exit(1)"
    )
    with pytest.raises(KodoctlError) as caught:
        jars.ensure(home, "4.2.4", maven.environ, quiet)
    text = str(caught.value)
    assert "K606" in text
    assert "cannot be reached: no network, or a proxy" in text
    assert "example.org" not in text
    log = home / "pulsar-4.2.4-maven.log"
    assert str(log) in text
    assert "repo.example.org" in log.read_text()  # the full story stays with the user
    assert left(home) == ["pulsar-4.2.4-maven.log"]
    maven.does()
    assert jars.ensure(home, "4.2.4", maven.environ, quiet)


def test_a_full_disk_is_called_one(home, maven):
    maven.does(extra="print('[ERROR] java.io.IOException: No space left on device'); sys.exit(1)")
    with pytest.raises(KodoctlError, match=r"(?s)K607.*disk full.*~/\.m2.*make room there"):
        jars.ensure(home, "4.2.4", maven.environ, quiet)


def test_too_little_room_is_said_before_anything_is_fetched(home, maven, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=5_000_000))
    with pytest.raises(KodoctlError, match=r"K607.*about 300 MB, and 5 MB are free"):
        jars.ensure(home, "4.2.4", maven.environ, quiet)
    assert maven.runs == 0


def test_no_maven_says_how_to_get_it(home):
    with pytest.raises(KodoctlError, match=r"(?s)K603.*no `mvn` on the PATH.*apt install maven"):
        jars.ensure(home, "4.2.4", {"PATH": "/nowhere"}, quiet)


def test_success_without_a_broker_is_no_success(home, maven):
    maven.does(end="os.remove(os.path.join(folder, 'pulsar-broker-4.2.4.jar'))")
    with pytest.raises(KodoctlError, match=r"K606.*no broker 4.2.4"):
        jars.ensure(home, "4.2.4", maven.environ, quiet)
    assert jars.complete(home / "pulsar-4.2.4") is None


def test_a_jar_damaged_in_mavens_own_folder_is_named(home, maven):
    maven.does(end="open(os.path.join(folder, 'a.jar'), 'wb').write(b'half')")
    with pytest.raises(KodoctlError, match=r"K606.*~/\.m2.*a\.jar"):
        jars.ensure(home, "4.2.4", maven.environ, quiet)


FETCH = """
import sys
from pathlib import Path
from kodoctl.dev import jars
jars.ensure(Path(sys.argv[1]), "4.2.4", {"PATH": sys.argv[2]}, lambda event: None)
"""


@contextmanager
def fetching(home, maven):
    """A process at it. Gone at the end, also that of a test that failed: whoever runs later would be blamed for it."""
    command = [sys.executable, "-c", FETCH, str(home), maven.environ["PATH"]]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 30
            while not maven.runs:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield process
        finally:
            process.kill()


def test_a_fetch_that_was_killed_counts_for_nothing_and_is_cleared_away(home, maven):
    maven.does(end="time.sleep(3)")
    with fetching(home, maven):
        pass
    assert jars.complete(home / "pulsar-4.2.4") is None
    maven.does()
    assert jars.ensure(home, "4.2.4", maven.environ, quiet)
    assert left(home) == ["pulsar-4.2.4", "pulsar-4.2.4-maven.log"]


def test_an_interrupted_fetch_ends_maven_and_leaves_nothing(home, maven):
    maven.does(extra=f"open({str(maven.folder / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)")
    with fetching(home, maven) as process:
        deadline = time.monotonic() + 30
        while not (maven.folder / "pid").exists() or not (maven.folder / "pid").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
    with pytest.raises(ProcessLookupError):
        os.kill(int((maven.folder / "pid").read_text()), 0)
    assert left(home) == ["pulsar-4.2.4-maven.log"]


def test_the_log_is_not_that_of_a_maven_whose_kodoctl_was_killed(home, maven):
    home.mkdir()
    with (home / "pulsar-4.2.4-maven.log").open("w") as orphan:
        orphan.write("x" * 10_000)
        orphan.flush()
        maven.does(extra="print('[ERROR] could not find artifact', flush=True); time.sleep(0.5); sys.exit(1)")
        with pytest.raises(KodoctlError, match="does not have this version"):
            jars.ensure(
                home, "4.2.4", maven.environ, lambda _: print("[ERROR] disk quota exceeded", file=orphan, flush=True)
            )
    assert "quota" not in (home / "pulsar-4.2.4-maven.log").read_text()
