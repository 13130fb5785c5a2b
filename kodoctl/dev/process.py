"""A process that continues after kodoctl ends, identified by its pid and start time.

A pid alone is no identity, because the system uses numbers again. Pid and start time together are one, until the
machine is started again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Process:
    """One process of this machine. `started`: start time as a text that is only compared."""

    pid: int
    started: str


def identify(pid: int) -> Process | None:
    """The process that has this pid now; None if there is none, or only a zombie."""
    try:
        found = psutil.Process(pid)
        return None if found.status() == psutil.STATUS_ZOMBIE else Process(pid, _start_id(found))
    except psutil.Error:
        return None


def alive(process: Process) -> bool:
    """True if this process, and not a later one with the same pid, runs."""
    return identify(process.pid) == process


def is_paused(process: Process) -> bool:
    """True if this process, and not a later one with the same pid, is stopped by SIGSTOP."""
    try:
        return alive(process) and bool(psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


def listens(process: Process, port: int) -> bool:
    """True if this very process listens on the TCP port, at any address. False if only another process listens there,
    if the process has ended, or if its sockets cannot be read.
    """
    try:
        sockets = psutil.Process(process.pid).net_connections(kind="tcp") if alive(process) else []
    except psutil.Error:
        return False
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in sockets)


def send(process: Process, number: signal.Signals) -> bool:
    """Sends a signal to `process`, and never to a later process with the same pid. Returns False if `process` no longer
    runs.
    """
    if not alive(process):
        return False
    with suppress(ProcessLookupError):
        os.kill(process.pid, number)
        return True
    return False


def start_detached(command: Sequence[str], *, folder: Path, output: Path, environ: Mapping[str, str]) -> Process | None:
    """Starts a process in a session of its own, so that it continues after kodoctl ends, and returns at once. The
    process gets no input; standard output and errors are appended to `output`. `folder`: its working directory;
    `environ`: its whole environment. Returns None if the process ended before it could be identified. Raises OSError if
    it cannot be started.
    """
    with output.open("ab") as sink:
        child = subprocess.Popen(  # noqa: S603 - a fixed program with our own arguments
            command,
            cwd=folder,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    process = identify(child.pid)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # leaving it behind is the purpose
        del child
    return process


def stop(process: Process, *, patience: float) -> bool:
    """Asks a process to end (SIGTERM), and after `patience` seconds kills it (SIGKILL). Returns False if it still runs
    10 s later. A paused process is continued first, because it would not react to SIGTERM. A later process with the
    same pid is not touched.
    """
    send(process, signal.SIGCONT)
    for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, 10.0)):
        if not alive(process):
            return True
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
        if wait_gone(process, seconds):
            return True
    return False


def wait_gone(process: Process, seconds: float) -> bool:
    """Blocks until the process has ended, at most `seconds`. Returns False if it still runs."""
    deadline = time.monotonic() + seconds
    while alive(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _start_id(process: psutil.Process) -> str:
    """A text that identifies the start of a process. On Linux it has the ticks since boot and the id of the
    boot: psutil counts from a clock that may be changed, and pids and ticks can repeat after a reboot.
    """
    if not psutil.LINUX:
        return repr(process.create_time())
    ticks = round((process.create_time() - psutil.boot_time()) * os.sysconf("SC_CLK_TCK"))
    return f"{_BOOT_ID.read_text(encoding='ascii').strip()}/{ticks}"
