"""The broker's jars: downloaded once for all instances by the user's own Maven with the user's own settings.

A folder of jars is complete or does not exist: Maven fills a temporary folder, which is then renamed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kodoctl.dev import versions
from kodoctl.dev.dev_errors import MAKE_ROOM, failure, too_little_room
from kodoctl.dev.instance import take_lock
from kodoctl.dev.maven_output import FULL, downloaded_megabytes, explain
from kodoctl.dev.node_config import packaged_text
from kodoctl.dev.progress import Download, ProgressStep, Tell
from kodoctl.host.programs import find_program

if TYPE_CHECKING:
    from kodoctl.errors import KodoctlError

_MANIFEST: Final = "manifest.json"
_ROOM: Final = 300_000_000
"""Bytes that must be free for the jars. Maven's own copies may be on the same disk; Maven reports if they do not fit.
"""
_LOOK_EVERY: Final = 0.2


def ensure(home: Path, version: str, environ: Mapping[str, str], tell: Tell) -> list[Path]:
    """Jars of a release, in the order of the class path. Downloads them if they are missing. Blocks while another
    process downloads the same release.

    Raises KodoctlError: K603 (no Maven), K606 (Maven failed), K607 (disk full); OSError if `home` cannot be written.
    """
    folder = home / f"pulsar-{version}"
    if (jars := complete(folder)) is not None:
        return jars
    home.mkdir(parents=True, exist_ok=True)
    with (home / f".{folder.name}.lock").open("a") as file:
        take_lock(file, f"another kodoctl is fetching Pulsar {version}; waiting for it", tell)
        if (jars := complete(folder)) is None:
            _fetch(folder, version, environ, tell)
            jars = complete(folder)
    assert jars is not None
    return jars


def complete(folder: Path) -> list[Path] | None:
    """Jars in the folder, if each has the size with which it was downloaded; None if one is missing or has another
    size, or the list of sizes is missing.

    Programs that clean caches delete files by age, and so perhaps some of the jars; a broker would fail later.
    """
    try:
        sizes: dict[str, int] = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        if all((folder / name).stat().st_size == size for name, size in sizes.items()):
            return [folder / name for name in sorted(sizes)]
    except (OSError, ValueError):
        pass
    return None


def _fetch(folder: Path, version: str, environ: Mapping[str, str], tell: Tell) -> None:
    maven = find_program("mvn", environ)
    if maven is None:
        detail = (
            "Maven fetches Pulsar the first time, and there is no `mvn` on the PATH\n"
            "install it (Debian, Ubuntu: apt install maven; macOS: brew install maven), or use --engine docker"
        )
        raise failure("K603", "no Maven found", detail)
    if problem := too_little_room(folder.parent, shutil.disk_usage(folder.parent).free, _ROOM, "the jars of Pulsar"):
        raise problem
    for stale in folder.parent.glob(f".{folder.name}.*.partial"):  # of a run that was killed
        shutil.rmtree(stale, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent))
    try:
        run_maven(maven, work, version, environ, tell)
        _write_manifest(work / "lib", version)
        shutil.rmtree(folder, ignore_errors=True)
        (work / "lib").rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def run_maven(maven: str, work: Path, version: str, environ: Mapping[str, str], tell: Tell) -> None:
    """Runs Maven, which copies the jars to `work/lib`, and blocks until it ends. Its output goes to a log file next to
    `work`, not to the terminal. Raises KodoctlError: K606, K607.
    """
    (work / "pom.xml").write_text(packaged_text("pom.xml"), encoding="utf-8")
    log = work.parent / f"pulsar-{version}-maven.log"
    log.unlink(missing_ok=True)  # the Maven of a run that was killed may still write into it
    command = [
        *(maven, "--batch-mode", "--strict-checksums", "-f", str(work / "pom.xml")),
        f"-Dpulsar.version={version}",
        *("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={work / 'lib'}"),
    ]
    tell(ProgressStep(_announcement(version)))
    if _run(command, log, environ, versions.download_size(version), tell) != 0:
        raise _fetch_error(log.read_text(encoding="utf-8", errors="replace").splitlines(), log, work.parent)


def _announcement(version: str) -> str:
    size = versions.download_size(version)
    return f"Fetching Pulsar {version} with Maven, once: {f'about {size} MB' if size else 'some 270 MB'}"


def _run(command: Sequence[str], log: Path, environ: Mapping[str, str], total: int, tell: Tell) -> int:
    """Runs Maven with output to the log, reads the log meanwhile, and tells the progress 5 times a second. Returns the
    exit code.
    """
    with log.open("wb") as sink, log.open(encoding="utf-8", errors="replace") as source:
        maven = subprocess.Popen(  # noqa: S603 - the user's own Maven
            command, cwd=log.parent, env=dict(environ), stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        )
        sizes, rest = list[float](), ""
        try:
            while _running(maven):
                *lines, rest = (rest + source.read()).split("\n")
                sizes += filter(None, map(downloaded_megabytes, lines))
                tell(Download(sum(sizes), len(sizes), total))
        except BaseException:
            maven.terminate()
            maven.wait()
            raise
    return maven.returncode


def _running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_LOOK_EVERY)
    except subprocess.TimeoutExpired:
        return True
    return False


def _fetch_error(lines: Sequence[str], log: Path, home: Path) -> KodoctlError:
    cause, line = explain(lines)
    quoted = f"Maven says: {line}\n" if line else ""
    if cause is FULL:
        detail = f"{quoted}either below {home}, or where Maven keeps its own copies (~/.m2)\nfull log: {log}\n"
        return failure("K607", "disk full", detail + MAKE_ROOM)
    detail = f"{cause.why}\n{quoted}{cause.what_to_do}\nfull log: {log}"
    return failure("K606", "cannot fetch Pulsar", detail)


def _write_manifest(lib: Path, version: str) -> None:
    jars = sorted(lib.glob("*.jar"))
    if lib / f"pulsar-broker-{version}.jar" not in jars:
        raise failure(
            "K606", "cannot fetch Pulsar", f"Maven ended well, but there is no broker {version} in what it fetched"
        )
    damaged = [jar.name for jar in jars if not zipfile.is_zipfile(jar)]
    if damaged:  # a download that was cut short long ago: Maven trusts its own folder
        detail = f"damaged in Maven's own folder (~/.m2): {', '.join(damaged)}\nremove them there, then try again"
        raise failure("K606", "cannot fetch Pulsar", detail)
    sizes = {jar.name: jar.stat().st_size for jar in jars}
    (lib / _MANIFEST).write_text(json.dumps(sizes), encoding="utf-8")
