"""Tests against a copy of the tree with a mutant: the tree of who runs them stays as it is."""

from __future__ import annotations

import compileall
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path, PurePosixPath
from typing import Final

from tests.mutants.mutant_set import ROOT, Mutant

GATE: Final = "not full"
FULL: Final = "full"
PATIENCE_S: Final = 3600
"""The longest run of tests. One test has less (see pytest's timeout), but a mutant may make many of them hang."""
TEST: Final = r"[^\s\[|]+(?:\[[\w./:-]+\])?"
"""A test's id, with its parameters where they are words."""
_FAILED: Final = re.compile(rf"^(?:FAILED|ERROR) ({TEST})", re.MULTILINE)
_NO_IMPORT: Final = re.compile(r"^(?:ERROR tests/|ImportError while loading conftest)", re.MULTILINE)
"""Pytest says that a test is not there, too, if its file cannot be imported."""
_UNIT: Final = {
    "kodoctl": "tests/unit",
    "consumer/kodo_consumer": "tests/unit/consumer",
    "pipeline/kodo_pipeline": "tests/unit/pipeline",
}


class Exit(IntEnum):
    """Exit codes of pytest."""

    PASSED = 0
    FAILED = 1
    INTERRUPTED = 2
    NOT_FOUND = 4
    NONE_COLLECTED = 5


class Trial:
    """A copy of the tree below a temporary folder, for tests to run in."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self._homes = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "DATA", "STATE")}

    def failing(self, tests: Sequence[str], marker: str, *, most: int = 1) -> tuple[str, ...]:
        """Tests that fail: the first `most` of them. A file stands in for tests that are gone, and a folder for a file. Where a file
        of tests cannot be imported, the file is named. A run that hangs has failed, and names what was asked for.
        """
        code, output = self._pytest(tests, marker, most)
        while code == Exit.NOT_FOUND and (nearer := self.nearest(tests)) != list(tests):
            tests = nearer
            code, output = self._pytest(tests, marker, most)
        if code in {Exit.PASSED, Exit.NONE_COLLECTED}:
            return ()
        if code not in {Exit.FAILED, Exit.INTERRUPTED, -signal.SIGKILL}:
            raise RuntimeError(f"pytest ended with {code}\n{output}")
        return tuple(dict.fromkeys(_FAILED.findall(output))) or tuple(tests)

    def nearest(self, tests: Sequence[str]) -> list[str]:
        """For each test itself, with any parameters; its file, where the function is gone; the nearest folder, where the file is."""
        return list(dict.fromkeys(self._nearest(test) for test in tests))

    def _nearest(self, test: str) -> str:
        file, _, name = test.partition("::")
        path = self.tree / file
        if not path.exists():
            return next(one.as_posix() for one in PurePosixPath(file).parents if (self.tree / one).is_dir())
        function = name.partition("[")[0].rpartition("::")[2]
        gone = function and not re.search(rf"def {re.escape(function)}\(", path.read_text(encoding="utf-8"))
        return file if gone else test.partition("[")[0]

    def _pytest(self, tests: Sequence[str], marker: str, most: int) -> tuple[int, str]:
        """The exit code and what was printed. What tests left running in this session is ended with it."""
        pytest = str(Path(sys.executable).with_name("pytest"))
        options = ["-q", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-seed=0", f"--maxfail={most}", "-m", marker]
        environment = os.environ | self._homes | {"KODO_FAST_CORE": "false", "COLUMNS": "80"}
        environment["PYTHONPATH"] = os.pathsep.join(
            (str(self.tree), str(self.tree / "consumer"), str(self.tree / "pipeline"))
        )
        with subprocess.Popen(
            [pytest, *options, *tests], cwd=self.tree, env=environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as running:  # fmt: skip
            try:
                output, _ = running.communicate(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                running.kill()
                output, _ = running.communicate()
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)
        no_import = running.returncode == Exit.NOT_FOUND and _NO_IMPORT.search(output)
        return Exit.INTERRUPTED if no_import else running.returncode, output


class Copies:
    """Copies of the tracked files of this tree, each for one mutant, or for none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clean = folder / "clean"
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file():
                (self._clean / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self._clean / name)
        for top in ("kodoctl", "consumer", "pipeline", "tests"):
            compileall.compile_dir(self._clean / top, quiet=2)

    @contextmanager
    def trial(self, mutant: Mutant | None) -> Iterator[Trial]:
        """A copy with the mutant, removed afterwards."""
        with tempfile.TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as folder:
            trial = Trial(Path(folder))
            shutil.copytree(self._clean, trial.tree, symlinks=True)
            if mutant is not None:
                mutant.apply(trial.tree)
            yield trial


def unit_folder(file: str) -> str:
    """The folder of unit tests that mirrors the package of a file, or the nearest one above it."""
    top, folder = next((top, folder) for top, folder in _UNIT.items() if file.startswith(f"{top}/"))
    mirrored = PurePosixPath(folder) / PurePosixPath(file).relative_to(top).parent
    return next(one.as_posix() for one in (mirrored, *mirrored.parents) if (ROOT / one).is_dir())


def recorded_first(mutant: Mutant, *, wide: bool) -> Iterator[tuple[str, ...]]:
    """Groups of tests, the likeliest and cheapest first."""
    groups: Iterable[tuple[str, ...]] = (mutant.caught_by, (unit_folder(mutant.file),), ("tests/unit",))
    yield from dict.fromkeys(group for group in groups if group)
    if wide:
        yield from (("tests/scenarios", "tests/contract"), ("tests/broker",), ("tests/spark",))
