"""One throw-away broker for the processes of a test run: the first that asks starts it, the run's owner ends it.

A run is a folder named after its owning process. Runs whose owner was killed are cleared away by the next one.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kodoctl.dev import process, service
from kodoctl.dev.instance import Homes, all_instances, take_lock
from kodoctl.dev.process import Process
from kodoctl.dev.progress import Tell, quiet
from kodoctl.dev.up import up
from kodoctl.errors import Diagnostic, KodoctlError, Severity
from kodoctl.host.private_files import make_private

if TYPE_CHECKING:
    from kodoctl.dev.resolve import UpFlags

_OWNER: Final = "owner.json"
_OUTCOME: Final = "outcome.json"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses of the shared broker, or each broker of a shared cluster; `cluster`: its name."""

    admin_urls: tuple[str, ...]
    broker_urls: tuple[str, ...]
    cluster: str


def open_run(base: Path, environ: Mapping[str, str]) -> Path:
    """The folder of a new run owned by this process; clears away what runs of killed owners left below `base`."""
    make_private(base)
    for folder in base.iterdir():
        if not _owner_lives(folder):
            close_run(folder, environ)
    run = base / f"{os.getpid()}-{random.randrange(16**6):06x}"
    make_private(run)
    owner = process.identify(os.getpid())
    (run / _OWNER).write_text(json.dumps(asdict(owner) if owner else None), encoding="utf-8")
    return run


def _owner_lives(folder: Path) -> bool:
    try:
        return process.alive(Process(**json.loads((folder / _OWNER).read_text(encoding="utf-8"))))
    except (OSError, ValueError, TypeError):
        return False


def join(run: Path, jars: Path, environ: Mapping[str, str], asked: UpFlags, tell: Tell = quiet) -> Addresses:
    """The broker of this run, started by whoever asks first. A start that failed fails for all, with the same error."""
    outcome = run / _OUTCOME
    with (run / ".lock").open("a") as file:
        take_lock(file, "another process starts the broker", tell)
        if not outcome.exists():
            outcome.write_text(json.dumps(_start(run, jars, environ, asked, tell)), encoding="utf-8")
        content = json.loads(outcome.read_text(encoding="utf-8"))
    if "error" in content:
        raise KodoctlError(*(Diagnostic(Severity.ERROR, *fields) for fields in content["error"]))
    return Addresses(tuple(content["admin_urls"]), tuple(content["broker_urls"]), content["cluster"])


def _start(run: Path, jars: Path, environ: Mapping[str, str], asked: UpFlags, tell: Tell) -> dict[str, object]:
    try:
        started = up(Homes(run / "instances", jars), environ, asked, tell)
    except KodoctlError as problem:
        return {"error": [(one.code, one.summary, one.detail) for one in problem.diagnostics]}
    instance = started.instance
    return asdict(Addresses(instance.admin_urls, instance.broker_urls, instance.cluster_name))


def close_run(run: Path, environ: Mapping[str, str]) -> None:
    """Ends the run's broker and removes everything of the run."""
    homes = Homes(run / "instances", run)
    for instance in all_instances(homes):
        with suppress(KodoctlError):
            service.down(homes, environ, instance.name)
    shutil.rmtree(run, ignore_errors=True)
