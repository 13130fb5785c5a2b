"""Programs that kodoctl starts: their location, and the modules that a started Python may import.

The working folder may be a clone of a stranger's repository, so nothing in it is run because of its place: programs
come from absolute folders of PATH, and a started Python imports nothing from the folder that it is started in.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SAFE_PATH: Final = "PYTHONSAFEPATH"
"""Environment variable that makes every Python leave the working folder out of its import paths."""
_OURS: Final = "kodoctl"  # any text has the effect
_changes: Final = threading.Lock()


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """Path of the program in the absolute folders of PATH; None if there is none. Relative entries of PATH are ignored."""
    return shutil.which(name, path=absolute_path(environ))


def absolute_path(environ: Mapping[str, str]) -> str:
    """PATH of `environ` without its relative entries; "" if none is left, which a shell takes for the working folder."""
    folders = [folder for folder in environ.get("PATH", "").split(os.pathsep) if Path(folder).is_absolute()]
    return os.pathsep.join(folders)


def python_command(module: str, *arguments: str) -> list[str]:
    """Command line for one of our modules in a new process of this Python, which imports nothing from the working
    folder.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


@contextmanager
def _with_variables(chosen: Callable[[], Mapping[str, str]]) -> Iterator[None]:
    with _changes:
        variables = chosen()  # within the lock: a block of another thread may have set one
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


@contextmanager
def imports_nothing_here() -> Iterator[None]:
    """Sets PYTHONSAFEPATH in this process within the block: a Python started there imports nothing from the working
    folder. That Python calls `imports_as_before` once it has its paths. Blocks of other threads wait; do not nest.
    """
    with _with_variables(lambda: {} if os.environ.get(SAFE_PATH) else {SAFE_PATH: _OURS}):
        yield


@contextmanager
def runs_nothing_here(unless_set: Mapping[str, str]) -> Iterator[None]:
    """Sets PYTHONSAFEPATH and a PATH of absolute folders within the block: programs that are started there, and their
    children, run and import nothing of the working folder unless PYTHONPATH names it. `unless_set`: variables to set if
    unset or empty. Blocks of other threads wait; do not nest.
    """

    def variables() -> dict[str, str]:
        more = {name: text for name, text in unless_set.items() if not os.environ.get(name)}
        return {SAFE_PATH: _OURS, "PATH": absolute_path(os.environ) or os.defpath, **more}

    with _with_variables(variables):
        yield


def imports_as_before() -> None:
    """Removes the variable that `imports_nothing_here` of the parent process set, so that programs of the user, which
    this process starts, import as usual.
    """
    if os.environ.get(SAFE_PATH) == _OURS:
        del os.environ[SAFE_PATH]
