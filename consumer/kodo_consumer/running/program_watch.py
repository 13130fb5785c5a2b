"""Watch over the files of a program in development, which starts its workers anew when one of them changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from watchfiles import PythonFilter, watch

from kodo_consumer.runtime.threads import begin, log_end
from kodo_consumer.runtime.topology_reload import quieten_watcher

log = logging.getLogger("kodo.consumer")
_BESIDES_PYTHON: Final = (".yaml", ".yml", ".toml")
_SETTLED: Final = 200  # ms without a further change: editors write in several steps
_SHOWN: Final = 3  # changed files that an entry names


@contextmanager
def restarting_on_change(folder: Path, restart: Callable[[], object]) -> Iterator[None]:
    """Context in which `restart` is called, on a thread of its own, after each change of a Python, YAML or TOML file in
    `folder` or below it. Virtual environments, caches and folders of version control are left out.
    """
    quieten_watcher()
    over = threading.Event()

    def follow() -> None:
        changes = watch(
            folder,
            watch_filter=PythonFilter(extra_extensions=_BESIDES_PYTHON),
            stop_event=over,
            debounce=_SETTLED,
            raise_interrupt=False,
        )
        for changed in changes:
            names = sorted({_within(folder, path) for _, path in changed})
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
