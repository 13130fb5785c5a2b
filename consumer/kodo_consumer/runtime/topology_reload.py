"""Reload of the topology file while a worker or producer runs: changes that are possible then are applied, others are
logged and have no effect.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from kodo_consumer.core.values.policy import Lane, Policy
from kodo_consumer.runtime.threads import begin, log_end
from kodoctl.errors import Diagnostic, KodoctlError

T = TypeVar("T")
log = logging.getLogger("kodo.consumer")
_WATCHER: Final = logging.getLogger("watchfiles.main")
LIVE: Final = frozenset(
    {
        "bulkheads", "delays_by_code", "exclusive_levels", "horizon", "in_place", "limits", "routes", "tenant_weights",
        "waits", "signer", "own_targets",
    }
)  # fmt: skip
"""Fields of a policy that may change between two messages. All others are structure: a change of them needs a restart,
unless it is one of weights and shares of lanes. A `horizon` that is longer than at the start needs one too, as do the
first signing keys and the loss of all.
"""
_SETTLED: Final = 200  # ms without a further change: editors write in several steps
_POLL: Final = 1_000  # ms between two polls, to see whether to end
_WORDS: Final = {
    "lanes": "levels or states",
    "unread": "levels or states",
    "targets": "draining or levels",
    "signer": "signing_keys",
}


def structural(old: Policy, new: Policy) -> list[str]:
    """Returns names of the differences between two policies that need a restart of the worker; [] if there are none. A
    name is that of the field of Policy, such as `subscription_type`, or the file's words for it (`_WORDS`). Weights and
    shares of lanes do not count. `Reloader`, not this function, judges a longer `horizon`.
    """
    found = []
    for field in fields(Policy):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if field.name in ("lanes", "unread"):
            before, after = _bare(before), _bare(after)
        if field.name not in LIVE and before != after:
            found.append(_WORDS.get(field.name, field.name))
    if (old.signer is None) != (new.signer is None):
        found.append(_WORDS["signer"])
    return list(dict.fromkeys(found))


def _bare(lanes: tuple[Lane, ...]) -> list[Lane]:
    """Lanes without their weights and shares, to compare their structure."""
    return [replace(lane, weight=0, share=0.0) for lane in lanes]


def quieten_watcher() -> None:
    """Keeps watchfiles from logging every change in a folder, unless the program has set the level of its logger: a log
    that is kept there would feed itself.
    """
    if not _WATCHER.level:
        _WATCHER.setLevel(logging.WARNING)


def contents(file: Path) -> bytes | None:
    """Bytes of the file; None if it cannot be read, as between the steps of an editor: its next change is noticed
    again.
    """
    try:
        return file.read_bytes()
    except OSError as problem:
        log.debug("reload: %s", problem)
        return None


def _restart_for(horizon: int, old: Policy, new: Policy) -> list[str]:
    needs = structural(old, new)
    if new.horizon > horizon:  # a broker that allows less cuts the connection, again and again
        needs.append("a longer wait than any at the start (what the broker allows is asked then)")
    return needs


class FileReloader(Generic[T]):
    """Reader of one file, which it can watch on a thread of its own. `present`: declarations in use. `read` returns the
    declarations of the file, or raises KodoctlError; `restart_for` names differences between the present and the new
    ones that need a restart. If there are none, `adopt` gets the new declarations.

    `text`: contents from which `present` was made, so that a later change is noticed; None: the contents as of now.
    """

    def __init__(
        self,
        file: Path,
        read: Callable[[], T],
        present: T,
        adopt: Callable[[T], None],
        restart_for: Callable[[T, T], list[str]],
        text: bytes | None = None,
    ) -> None:
        self._file, self._read, self._present, self._adopt = file, read, present, adopt
        self._restart_for = restart_for
        self._text = contents(file) if text is None else text
        self._over = threading.Event()
        self._asked = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread that watches the file; it first reads the file, if that changed since `text`. A second call
        does nothing, nor does one after `stop`.
        """
        if self._thread is None and not self._over.is_set():
            self._thread = begin(self._watch, "kodo-reload", log_end)

    def stop(self) -> None:
        """Ends the watching thread, and waits until it has ended, about a second."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Context manager that watches the file within its body."""
        self.start()
        try:
            yield
        finally:
            self.stop()

    def reload(self, *, always: bool = False) -> None:
        """Reads the file if its contents have changed since the last reading (with `always`: in any case). Adopts the
        new declarations, or logs the errors or the reasons for a restart and keeps the present ones. Does nothing if
        the file cannot be read. Other exceptions than KodoctlError of `read`, and those of `adopt`, pass. Thread-safe.
        """
        with self._asked:
            text = contents(self._file)
            if text is None or (text == self._text and not always):
                return
            self._text = text
            findings: tuple[Diagnostic, ...] = ()
            try:
                found = self._read()
            except KodoctlError as problem:
                findings = problem.diagnostics
            for finding in findings:
                log.error("reload: %s", finding)
            if findings:
                log.error("reload: %s is refused, everything stays as it was", self._file)
                return
            if needs := self._restart_for(self._present, found):
                log.warning("reload: restart for %s; until then nothing of the new file counts", ", ".join(needs))
                return
            self._present = found
            self._adopt(found)
            log.info("reload: %s is followed", self._file)

    def _watch(self) -> None:
        """Watches the folder of the file until `stop`, because editors and orchestrators replace the file, or a link,
        by another. Also compares the contents once a second: the file that a link names may be in another folder.
        """
        from watchfiles import watch

        quieten_watcher()
        options: dict[str, Any] = {"debounce": 1_000, "step": _SETTLED, "rust_timeout": _POLL, "yield_on_timeout": True}
        try:
            self.reload()
            for _ in watch(self._file.parent, stop_event=self._over, recursive=False, raise_interrupt=False, **options):
                self.reload()
        except Exception as problem:  # noqa: BLE001  # the worker goes on: it only learns of nothing more
            log.warning("reload: %s is no longer watched (%s); SIGHUP reads it", self._file, problem)


class Reloader(FileReloader[Policy]):
    """FileReloader of a worker's policy. Longer waits than at the start need a restart, because the broker's limits are
    read only then.
    """

    def __init__(
        self,
        file: Path,
        read: Callable[[], Policy],
        present: Policy,
        adopt: Callable[[Policy], None],
        text: bytes | None = None,
    ) -> None:
        super().__init__(file, read, present, adopt, partial(_restart_for, present.horizon), text)
