"""Programs that kodoctl starts: their location, and protection from modules in the working folder.

The working folder may be a clone of a stranger's repository, so no program or module is taken from it: programs come
from absolute folders of PATH, and a started Python does not import from the folder that it is started in.
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
    """Path of the program `name`, a word without a slash, in the absolute folders of PATH; None if there is none.
    Relative entries of PATH are ignored.
    """
    return shutil.which(name, path=absolute_path(environ))


def absolute_path(environ: Mapping[str, str]) -> str:
    """Value of PATH in `environ` without its relative entries; "" if none is left, which a shell takes for the working
    folder.
    """
    folders = [folder for folder in environ.get("PATH", "").split(os.pathsep) if Path(folder).is_absolute()]
    return os.pathsep.join(folders)


def python_command(module: str, *arguments: str) -> list[str]:
    """Command line that runs one of our modules in a new process of this Python, without imports from the working
    folder (except by PYTHONPATH); the processes that it starts are not protected.
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
    """Context in which PYTHONSAFEPATH is set in this process, so that a Python process that is started in it imports
    nothing from the working folder (except by PYTHONPATH). That process calls `imports_as_before` once its import paths
    are set. A value that the variable has already stays. While one thread is in this context or in `runs_nothing_here`,
    other threads wait to enter one; the same thread must not enter a second one.
    """
    with _with_variables(lambda: {} if os.environ.get(SAFE_PATH) else {SAFE_PATH: _OURS}):
        yield


@contextmanager
def runs_nothing_here(unless_set: Mapping[str, str]) -> Iterator[None]:
    """Context in which PYTHONSAFEPATH is set and PATH has only absolute folders (those of the system's default if none
    is left): programs started in it, and their children, do not find programs or modules in the working folder (except
    by PYTHONPATH). `unless_set`: variables to set if they are unset or empty. The end of the context restores all
    values. While one thread is in this context or in `imports_nothing_here`, other threads wait to enter one; the same
    thread must not enter a second one.
    """

    def variables() -> dict[str, str]:
        more = {name: text for name, text in unless_set.items() if not os.environ.get(name)}
        return {SAFE_PATH: _OURS, "PATH": absolute_path(os.environ) or os.defpath, **more}

    with _with_variables(variables):
        yield


def imports_as_before() -> None:
    """Removes PYTHONSAFEPATH from this process's environment if kodoctl set it in a process above
    (`imports_nothing_here`, `runs_nothing_here`), so that programs of the user, which this process starts, import as
    usual. A value that the user set stays.
    """
    if os.environ.get(SAFE_PATH) == _OURS:
        del os.environ[SAFE_PATH]
