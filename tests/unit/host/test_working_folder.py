"""Nothing is run because it lies in the working folder: one law for every process that kodoctl or a worker starts."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kodo_pipeline.simulate import job

from kodoctl.cli.common.git import Revision
from kodoctl.cli.topology.graphviz import draw
from kodoctl.dev import docker, java
from kodoctl.errors import KodoctlError, UsageError
from kodoctl.host import programs
from tests.source_roots import PACKAGES, PATHS, ROOT, SOURCES

MODULES = ("select", "socket", "typer", *PACKAGES, "multiprocessing", "pyspark", "site", "json")
"""Names that a Python finds first in a folder that is in its path."""
PROGRAMS = ("git", "dot", "docker", "java", "mvn", "python3")
MARK = "import os\nopen(os.path.join(os.path.dirname(__file__), 'RAN'), 'a').write(__name__)\n"
STARTS = {
    *(f"subprocess.{name}" for name in ("run", "Popen", "call", "check_call", "check_output")),
    *(f"os.{name}" for name in ("system", "popen", "fork", "execv", "execve", "execvp", "posix_spawn", "spawnv")),
    *(f"{place}.{name}" for place in ("multiprocessing", "CONTEXT", "_CONTEXT") for name in ("Process", "Pool")),
    "SparkContext", "ProcessPoolExecutor", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell",
}  # fmt: skip
"""Calls that start a process."""
HOMES = {
    "kodoctl/dev/cluster_engine.py": "a java that was found, in a folder of the user's",
    "kodoctl/dev/docker.py": "find_program",
    "kodoctl/dev/java.py": "find_program",
    "kodoctl/dev/jars.py": "find_program, in a folder of the user's",
    "kodoctl/dev/process.py": "a java that was found, in a folder of the user's",
    "kodoctl/cli/common/git.py": "find_program",
    "kodoctl/cli/topology/graphviz.py": "find_program",
    "pipeline/kodo_pipeline/simulate/job.py": "python_command",
    "consumer/kodo_consumer/cli/limit_release.py": "python_command",
    "consumer/kodo_consumer/running/worker_group.py": "imports_nothing_here",
    "consumer/kodo_consumer/runtime/process_pool/channel.py": "imports_nothing_here",
    "pipeline/kodo_pipeline/spark/spark_session.py": "runs_nothing_here",
}
"""Modules that start processes, and how each keeps the law: whoever adds one says how, and tests it below."""


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with modules and programs that leave a mark when they are run, and is found by a PATH that leads there."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in MODULES:
        (folder / f"{name}.py").write_text(MARK)
    for name in PROGRAMS:
        (folder / name).write_text("#!/bin/sh\necho $0 >> RAN\n")
        (folder / name).chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", PATHS)
    monkeypatch.delenv(programs.SAFE_PATH, raising=False)
    return folder


def test_the_folder_of_this_test_would_be_run_by_a_python_without_care(clone: Path) -> None:
    subprocess.run([sys.executable, "-c", "import select"], check=False, capture_output=True)
    assert (clone / "RAN").exists()


def test_whoever_starts_processes_keeps_the_law() -> None:
    found = {str(file.relative_to(ROOT)) for file in SOURCES if _starts(file.read_text(encoding="utf-8"))}
    assert found == HOMES.keys()
    for name in found:
        text = (ROOT / name).read_text(encoding="utf-8")
        how = HOMES[name].partition(",")[0]
        assert how.startswith("a java") or how in text, name
        assert "shutil.which" not in text, f"{name}: kodoctl.host.programs.find_program"
    spelled = [str(one.relative_to(ROOT)) for one in SOURCES if "sys.executable" in one.read_text(encoding="utf-8")]
    assert spelled == ["kodoctl/host/programs.py", "pipeline/kodo_pipeline/spark/spark_session.py"]


def _starts(text: str) -> bool:
    """True if a module starts a process: by subprocess, multiprocessing or os, or the Java process of Spark."""
    if not any(name in text for name in STARTS):
        return False
    return any(isinstance(node, ast.Call) and ast.unparse(node.func) in STARTS for node in ast.walk(ast.parse(text)))


def test_programs_come_from_absolute_folders_of_the_path_only(clone: Path) -> None:
    assert programs.find_program("mvn", {"PATH": f".::{clone.name}:../{clone.name}"}) is None
    assert programs.find_program("mvn", {}) is None
    assert programs.find_program("mvn", {"PATH": str(clone)}) == str(clone / "mvn")
    only_here = {"PATH": ".:"}
    assert not docker.answers(only_here)
    with pytest.raises(KodoctlError, match="K601"):
        java.find(only_here, 17)
    assert not (clone / "RAN").exists()


@pytest.mark.parametrize("path", [None, "", ".:bin"])
def test_a_program_that_is_started_without_absolute_folders_runs_nothing_of_the_working_folder(
    clone: Path, monkeypatch: pytest.MonkeyPatch, path: str | None
) -> None:
    """A shell takes an empty PATH for the working folder."""
    monkeypatch.delenv("PATH") if path is None else monkeypatch.setenv("PATH", path)
    with programs.runs_nothing_here({}):
        subprocess.run(["/bin/sh", "-c", "git --version; java -version"], cwd=clone, capture_output=True, check=False)
    assert not (clone / "RAN").exists()


def test_git_and_graphviz_of_the_working_folder_are_not_run(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (clone / ".git").mkdir()
    monkeypatch.setenv("PATH", ".:")
    with pytest.raises(UsageError, match="K025"):
        Revision("HEAD", clone)
    with pytest.raises(UsageError, match="K027"):
        draw("digraph {}", "svg")
    assert not (clone / "RAN").exists()


@pytest.mark.parametrize(
    "command",
    [programs.python_command("kodoctl", "waiting", "release", "--help"), [*job._COMMAND, "--help"]],
    ids=["limit --release", "pipeline simulate"],
)
def test_a_python_of_ours_imports_nothing_of_the_working_folder(clone: Path, command: list[str]) -> None:
    done = subprocess.run(command, input="", capture_output=True, text=True, check=False, timeout=60)
    assert "RAN" not in _names(clone), done.stderr


def _names(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()]


PARENT = """
import os, sys
from tests.unit.host.test_working_folder import {function}
if __name__ == "__main__":
    {function}()
"""


ENDED = 7
"""Exit code of a worker that never was ready: that of its group."""


def member(given: Any) -> None:
    """The work of a member of a group: says whether what it starts would import as before."""
    Path("MEMBER").write_text(os.environ.get(programs.SAFE_PATH, "as before"))
    sys.exit(ENDED)


def group() -> None:
    """Runs one worker process of `kodo-consumer run --workers`."""
    from kodo_consumer.running.worker_group import WorkerGroup

    sys.exit(WorkerGroup(1, member).run() != ENDED)


def handler(message: Any) -> None:
    """A handler of a pool."""


def pool() -> None:
    """Runs a process of a pool of handlers."""
    from kodo_consumer.runtime.process_pool.pool import ProcessRunner
    from kodo_consumer.runtime.process_pool.worker_process import ProcessTask

    from tests.unit.consumer.engine_bench import policy

    runner = ProcessRunner(ProcessTask("tests.unit.host.test_working_folder", "handler", policy().lanes, None), 1, 60.0)
    runner.launch()
    runner.stop()


@pytest.mark.parametrize("function", ["group", "pool"])
def test_processes_of_workers_start_without_the_working_folder(clone: Path, tmp_path: Path, function: str) -> None:
    """A process that multiprocessing spawns begins with the working folder in its path, and so does its tracker."""
    program = tmp_path / "program.py"
    program.write_text(PARENT.format(function=function))
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, "RAN" in _names(clone)) == (0, False), done.stderr
    if function == "group":
        assert (clone / "MEMBER").read_text() == "as before"


def test_the_variable_of_the_user_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(programs.SAFE_PATH, "mine")
    with programs.imports_nothing_here():
        assert os.environ[programs.SAFE_PATH] == "mine"
    programs.imports_as_before()
    assert os.environ[programs.SAFE_PATH] == "mine"
    monkeypatch.delenv(programs.SAFE_PATH)
    with programs.imports_nothing_here():
        assert os.environ[programs.SAFE_PATH]
    assert programs.SAFE_PATH not in os.environ
