"""An apply that dies at a step of its protocol, in a process of its own.

Steps have names, the same in every run of the same file: each request that changes something, before it is sent and when it
is done and nobody has heard of it; each entry of the journal, before it is sent and when it has its receipt; the lease. The
process writes down every step that it reaches, and kills itself (-9) at the one that it was told.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kodoctl.apply.run
import kodoctl.cli.common.terminal
import kodoctl.render.plan_text  # noqa: F401  # what an apply loads late: children are forked with all of it
from kodoctl.cli.main import main
from kodoctl.pulsar.admin import admin_http
from kodoctl.pulsar.binary.exclusive_producer import ExclusiveProducer
from kodoctl.pulsar.control import lease
from tests.brokers.workspace import Workspace

BEFORE, DONE = "about to be sent", "done, and nobody knows"
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([__name__])


@dataclass(frozen=True)
class Life:
    """How an apply ended (its exit code, or minus the signal), the steps that it reached, and what it printed."""

    code: int
    steps: list[str]
    said: str


def live(workspace: Workspace, fatal: str = "") -> Life:
    """`kodoctl apply --auto-approve` in a process that dies at the step `fatal`, or lives."""
    place = workspace.folder / "life"
    place.mkdir(exist_ok=True)
    for name in ("steps", "said"):
        (place / name).unlink(missing_ok=True)
    arguments = ["apply", "--auto-approve", "--lock-timeout", "20s", *workspace.connection()]
    process = _forks.Process(target=_live, args=(arguments, workspace.folder, workspace.tenant, fatal))
    process.start()
    process.join(120)
    assert process.exitcode is not None, "it hangs"
    return Life(process.exitcode, (place / "steps").read_text().splitlines(), (place / "said").read_text())


def _live(arguments: Sequence[str], folder: Path, tenant: str, fatal: str) -> None:
    os.chdir(folder)
    for name in [name for name in os.environ if name.startswith("KODOCTL_")]:
        del os.environ[name]
    os.environ["KODOCTL_CONFIG"] = str(folder / "kodoctl-user.toml")
    said = os.open(folder / "life/said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.argv = ["kodoctl", *arguments]
    _watch(_Steps(tenant, fatal, os.open(folder / "life/steps", os.O_WRONLY | os.O_CREAT | os.O_APPEND)))
    main()


@dataclass
class _Steps:
    tenant: str
    fatal: str
    file: int
    reached: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def at(self, what: str) -> None:
        with self.lock:
            what = what.replace(self.tenant, "T")
            self.reached[what] += 1
            step = f"{what} (time {self.reached[what]})" if self.reached[what] > 1 else what
            os.write(self.file, f"{step}\n".encode())
            if step == self.fatal:
                os.kill(os.getpid(), signal.SIGKILL)


def _watch(steps: _Steps) -> None:
    """Names the steps: every write of the admin API, every entry of a journal, every lease."""

    def request(given: tuple[Any, ...]) -> str:
        _, request, query, *_ = given
        method, path = request.method, request.path
        return "" if request.reads else f"{method} {path}{f' {sorted(query)}' if query else ''}"

    _around(admin_http.HttpAdmin, "_send", request, steps)
    _around_entries(steps)
    _around(lease._Taking, "_exclusive", lambda given: f"lease {given[1]}", steps)


def _around_entries(steps: _Steps) -> None:
    """Entries of a journal are done when their receipt comes, whether somebody waits for it or not."""
    sent, heard = ExclusiveProducer._send, ExclusiveProducer._heard

    def named(producer: ExclusiveProducer, entry: Any) -> str:
        told = json.loads(entry.data)
        parts = ("entry", str(producer._namespace), told["kind"], told.get("address"), told.get("part"))
        return " ".join(filter(None, parts))

    def send(producer: ExclusiveProducer, entry: Any) -> None:
        steps.at(f"{named(producer, entry)}: {BEFORE}")
        sent(producer, entry)

    def hear(producer: ExclusiveProducer, number: int, result: Any, position: Any) -> None:
        entry = producer._open[number]
        heard(producer, number, result, position)
        if entry.stored:
            steps.at(f"{named(producer, entry)}: {DONE}")

    patched: Any = ExclusiveProducer
    patched._send, patched._heard = send, hear


def _around(owner: Any, name: str, named: Callable[[tuple[Any, ...]], str], steps: _Steps) -> None:
    right = getattr(owner, name)

    def watched(*given: Any, **more: Any) -> Any:
        what = named(given)
        if what:
            steps.at(f"{what}: {BEFORE}")
        answer = right(*given, **more)
        if what:
            steps.at(f"{what}: {DONE}")
        return answer

    setattr(owner, name, watched)
