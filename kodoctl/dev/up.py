"""`dev up`: starts an instance and waits until it is ready."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from kodoctl.dev import instance as record
from kodoctl.dev import logs, ports, readiness, service, tokens
from kodoctl.dev.broker_engine import PATIENCE, BrokerEngine, Launch
from kodoctl.dev.dev_errors import disk_errors, failure
from kodoctl.dev.instance import Auth, EngineName, Folder, Homes, Instance
from kodoctl.dev.java_engine import log_file
from kodoctl.dev.ports import AskedPorts
from kodoctl.dev.progress import ProgressStep, Tell, quiet
from kodoctl.dev.resolve import MachineFacts, UpFlags, check_running, settle
from kodoctl.dev.typed_command import dev_command
from kodoctl.errors import KodoctlError

_ATTEMPTS: Final = 3
_LOOK_BACK: Final = 2_000
"""Number of log lines that are searched for the reason of a death."""
_LAST_WORDS: Final = 100
_SHORT_PATIENCE: Final = 3.0
"""Seconds until force ends a broker that failed to start: it often hangs, and has no data to save."""


@dataclass(frozen=True, slots=True)
class Up:
    """Result of `dev up`: the instance, which is ready. `already`: it ran before; `seconds`: from its start until it
    was ready, 0 if it ran before.
    """

    instance: Instance
    folder: Folder
    already: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class _Job:
    """One run of `up`, with its flags."""

    homes: Homes
    environ: Mapping[str, str]
    asked: UpFlags
    tell: Tell
    limit: float

    @property
    def folder(self) -> Folder:
        return self.homes.folder(self.asked.name)


class _DiedError(KodoctlError):
    """The broker ended before it was ready. `port_taken`: another program took one of its ports first, and another
    attempt may succeed.
    """

    port_taken = False


def up(
    homes: Homes, environ: Mapping[str, str], asked: UpFlags, tell: Tell = quiet, *, limit: float = readiness.DEADLINE
) -> Up:
    """Starts an instance and waits until it is ready; up to three times if a broker ends because another program took
    its port meanwhile. Blocks while another command works on the instance. If the instance runs already, missing or
    paused nodes of its cluster are started; its settings must be those in `asked`. `limit`: seconds until the brokers
    must be ready; downloads, ZooKeeper and bookies have times of their own before.

    Raises KodoctlError with the remedy, K601 to K624. An instance that this call started has then been stopped again;
    one that ran before still runs. Data is kept, except that of an instance that was never ready, which the next start
    deletes.
    """
    job = _Job(homes, environ, asked, tell, limit)
    with disk_errors(homes.data), record.lock(homes, asked.name, tell):
        there = record.read_instance(job.folder)
        if there is not None:
            engine = service.engine_of(there, homes, environ)
            if engine.alive(there):
                return _already(job, there, engine)
            if engine.died(there) and there.ready_once:
                tell(
                    ProgressStep(
                        f"The broker of `{there.name}` was killed or crashed; starting it again on the same data"
                    )
                )
        return _start_with_patience(job, there)


def _already(job: _Job, there: Instance, engine: BrokerEngine) -> Up:
    check_running(job.asked, there)
    engine.revive(there, job.tell)
    ask = partial(readiness.not_ready, service.targets(job.homes, engine, there))
    problem = readiness.wait(ask, alive=lambda: engine.intact(there), limit=job.limit, tell=job.tell)
    if problem:
        again = f"{dev_command('down', there.name)}, then {dev_command('up', there.name)}"
        state = "it runs, but is not ready" if engine.intact(there) else "it, or a node of it, ended meanwhile"
        detail = f"{state}: {problem}\nsee {dev_command('logs', there.name)}; to start it again: {again}"
        raise failure("K609", "broker not ready", detail, _log(there, job.folder))
    if not there.ready_once:
        there = record.write(job.folder, replace(there, ready_once=True))
    return Up(there, job.folder, already=True, seconds=0.0)


def _start_with_patience(job: _Job, there: Instance | None) -> Up:
    """Starts the instance, up to three times if another program takes a port between kodoctl's check and the broker's
    start. A new instance without named ports gets other ports then; any other needs the same ports, which may be free
    again.
    """
    may_choose = (there is None or not there.ready_once) and job.asked.ports == AskedPorts()
    for _ in range(_ATTEMPTS - 1):
        try:
            return _start(job, there)
        except _DiedError as death:
            if not death.port_taken:
                raise
            job.tell(
                ProgressStep(
                    "A port was taken in the meantime; " + ("choosing others" if may_choose else "trying again")
                )
            )
            there = record.read_instance(job.folder)  # ours by now; its data, if it is new, is nobody's
    return _start(job, there)


def _start(job: _Job, there: Instance | None) -> Up:
    with record.lock(job.homes, ".ports", quiet):  # two new instances at once must not choose the same
        claims = service.claims(job.homes, job.asked.name)
        around = MachineFacts(claims, ports.is_free, lambda: service.best_engine(job.environ))
        instance = settle(job.asked, there, around)
        engine = service.engine_of(instance, job.homes, job.environ)
        if there is None or type(engine) is not type(service.engine_of(there, job.homes, job.environ)):
            _check_vacant(engine, instance)  # before the record is written: after a kill it would make the data ours
        record.write(job.folder, instance)
    try:
        launch = engine.prepare(instance, job.tell)
        if not instance.ready_once:
            engine.wipe(instance)
    except BaseException:
        if there is None:  # nothing ran yet: leave no trace
            record.forget(job.folder)
        raise
    job.tell(ProgressStep(f"Starting Pulsar {instance.version}"))
    return _launch(job, launch, engine, instance)


def _check_vacant(engine: BrokerEngine, instance: Instance) -> None:
    if (left := engine.leftover(instance)) is not None:
        detail = f"{left} is there, and nothing says what of\nremove it if you do not need it, or choose another --name"
        raise failure("K623", "data of an unknown instance", detail)


def _launch(job: _Job, launch: Launch, engine: BrokerEngine, instance: Instance) -> Up:
    if instance.auth is Auth.TOKEN:
        tokens.write_tokens(job.folder)
    start = time.monotonic()
    try:  # an interrupt may come as soon as the record is written, and Docker leaves a container that it cannot start
        instance = replace(instance, process=launch())
        record.write(job.folder, instance)
        problem = readiness.wait(
            partial(readiness.not_ready, service.targets(job.homes, engine, instance)),
            alive=lambda: engine.intact(instance) and not logs.gave_up(engine.last_lines(instance, _LAST_WORDS)),
            limit=job.limit,
            tell=job.tell,
        )
    except BaseException:
        engine.stop(instance)
        record.forget_process(job.folder, instance)
        raise
    if problem is None:
        instance = record.write(job.folder, replace(instance, ready_once=True))
        return Up(instance, job.folder, already=False, seconds=time.monotonic() - start)
    raise _not_up(job, engine, instance, problem)


def _not_up(job: _Job, engine: BrokerEngine, instance: Instance, problem: str) -> KodoctlError:
    lines = engine.last_lines(instance, _LOOK_BACK)
    gave_up = logs.gave_up(lines)
    failed = gave_up or not engine.intact(instance)
    engine.stop(instance, patience=_SHORT_PATIENCE if gave_up else PATIENCE)
    record.forget_process(job.folder, instance)
    advice = logs.hint(lines, instance.name)
    if failed:
        what = advice or "why is in its log"
    else:
        what = f"after {job.limit:.0f} s: {problem}; it was stopped, data is kept\n"
        what += advice or "on a busy machine give it longer with --timeout SECONDS"
    log_lines = "".join(f"\n| {line}" for line in logs.reasons(lines)) or "\n(its log is empty)"
    where = _log(instance, job.folder)
    if not failed:
        return failure("K609", "broker not ready", what + log_lines, where)
    error = _DiedError(*failure("K608", "broker died before it was ready", what + log_lines, where).diagnostics)
    error.port_taken = logs.port_taken(lines)
    return error


def _log(instance: Instance, folder: Folder) -> Path | None:
    if instance.cluster is not None:
        return folder.path / "nodes"
    return log_file(folder) if instance.engine is EngineName.JAVA else None
