"""Watch over the files of a program in development, which starts its workers anew when one of them changes."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from watchfiles import Change, PythonFilter, watch

from kodo_consumer.runtime.threads import begin, log_end
from kodo_consumer.runtime.topology_reload import quieten_watcher

log = logging.getLogger("kodo.consumer")
_BESIDES_PYTHON: Final = (".yaml", ".yml", ".toml")
_SETTLED: Final = 300  # ms without a further change: editors write in several steps
_LONGEST: Final = 3_000  # ms until a restart, although changes go on
_SHOWN: Final = 3  # changed files that an entry names


class _ProgramFilter(PythonFilter):
    """Filter of changed files by their path within `folder`: folders above it have any name."""

    ignore_dirs = (*PythonFilter.ignore_dirs, "venv", "env", "build", "dist")

    def __init__(self, folder: Path) -> None:
        super().__init__(extra_extensions=_BESIDES_PYTHON)
        self._folder = folder

    def __call__(self, change: Change, path: str) -> bool:
        return super().__call__(change, _within(self._folder, path))


@contextmanager
def restarting_on_change(folder: Path, restart: Callable[[], object]) -> Iterator[None]:
    """Context in which `restart` is called, on a thread for all calls, after the contents of a Python, YAML or TOML
    file in `folder` or below it have changed, or a file came or went; the first change of a file that is noticed counts
    even with the same contents. Left out are files with a folder of one of these kinds in their path within `folder`:
    virtual environments (`venv`, `.venv`, `env`), `build`, `dist`, caches, folders of tools and version control.

    Changes that follow one another within 0.3 s are one call, but a call comes after 3 s at most. An exception of
    `restart`, or of the watch, is logged and ends the calls.
    """
    quieten_watcher()
    over = threading.Event()

    def follow() -> None:
        changes = watch(
            folder,
            watch_filter=_ProgramFilter(folder),
            stop_event=over,
            debounce=_LONGEST,
            step=_SETTLED,
            raise_interrupt=False,
        )
        seen: dict[str, bytes | None] = {}
        for changed in changes:
            names = sorted(_within(folder, path) for path in {path for _, path in changed} if _has_changed(path, seen))
            if not names:
                continue
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            log.info("%s%s changed: the workers start anew", ", ".join(names[:_SHOWN]), more)
            restart()

    thread = begin(follow, "kodo-program", log_end)
    try:
        yield
    finally:
        over.set()
        thread.join()


def _within(folder: Path, path: str) -> str:
    return str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path


def _has_changed(path: str, seen: dict[str, bytes | None]) -> bool:
    """True if the contents of a file are others than when it was last seen: a program may write files as it starts."""
    file = Path(path)
    try:
        digest = hashlib.sha256(file.read_bytes()).digest()
    except OSError:
        digest = None
    before, seen[path] = seen.get(path, b""), digest
    return before != digest
