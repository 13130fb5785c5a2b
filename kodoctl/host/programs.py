"""Programs that kodoctl starts: their location, and the modules that a started Python may import.

Nothing is run because it lies in the working folder, which may be a clone of a stranger's repository: a program
comes from an absolute folder of PATH, and a Python that is started imports nothing of the folder that it is
started in.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SAFE_PATH: Final = "PYTHONSAFEPATH"
"""Variable that keeps the working folder out of the paths of a Python, whatever starts that Python."""
_OURS: Final = "kodoctl"  # any text has the effect
_changes: Final = threading.Lock()


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """Path of a program of PATH; None: there is none. Relative entries of PATH, which lead into the working folder, count
    for nothing.
    """
    return shutil.which(name, path=absolute_path(environ))


def absolute_path(environ: Mapping[str, str]) -> str:
    """PATH without its relative entries, for programs that look for others."""
    return os.pathsep.join(folder for folder in environ.get("PATH", "").split(os.pathsep) if Path(folder).is_absolute())


def python_command(module: str, *arguments: str) -> list[str]:
    """Command that runs a module of ours in a new process of this Python."""
    return [sys.executable, "-P", "-m", module, *arguments]


@contextmanager
def _with_variables(variables: Mapping[str, str]) -> Iterator[None]:
    with _changes:
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
    """A Python that is started within the block, by whatever means, imports nothing of the working folder until it has the
    paths that it is given. It calls `imports_as_before` then.
    """
    with _with_variables({} if os.environ.get(SAFE_PATH) else {SAFE_PATH: _OURS}):
        yield


@contextmanager
def runs_nothing_here(unless_set: Mapping[str, str]) -> Iterator[None]:
    """A program that is started within the block runs no program of the working folder, and its Pythons import nothing from
    there, as long as it lives. `unless_set`: variables that it has where the user's environment does not say otherwise.
    """
    more = {name: text for name, text in unless_set.items() if not os.environ.get(name)}
    with _with_variables({SAFE_PATH: _OURS, "PATH": absolute_path(os.environ), **more}):
        yield


def imports_as_before() -> None:
    """Programs that this process starts import as if `imports_nothing_here` had not been there: they are the user's."""
    if os.environ.get(SAFE_PATH) == _OURS:
        del os.environ[SAFE_PATH]
