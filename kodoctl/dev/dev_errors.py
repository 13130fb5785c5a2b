"""Errors of a development broker (K601 to K626), with advice."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kodoctl.errors import KodoctlError, UsageError, Where, error

_FULL = (errno.ENOSPC, errno.EDQUOT)
MAKE_ROOM = "make room there, then run the command again"
_MEGABYTE = 1_000_000


def failure(code: str, summary: str, detail: str, where: Path | None = None) -> KodoctlError:
    """Makes an error of `kodoctl dev`. `where`: file with more details."""
    return KodoctlError(error(code, summary, detail, Where(str(where)) if where else None))


def still_there(*pids: int) -> KodoctlError:
    """Makes the error (K620) that processes did not end, not even by force."""
    named = f"process {', '.join(map(str, pids))}" if pids else "its process"
    return failure(
        "K620", "cannot stop the broker", f"still there: {named}; it may hang in the system, waiting for a disk"
    )


def not_found(code: str, summary: str, detail: str) -> UsageError:
    """Makes the error for an instance or a node that the command line names and that does not exist on this machine."""
    return UsageError(error(code, summary, detail))


def disk_full(where: Path, detail: str = "") -> KodoctlError:
    """Makes the error (K607) that the disk of `where` has no space left."""
    return failure("K607", "disk full", f"{detail}\n{MAKE_ROOM}" if detail else MAKE_ROOM, where)


def too_little_room(where: Path, free: int, needed: int, purpose: str) -> KodoctlError | None:
    """Returns the error (K607) that `free` bytes at `where` are fewer than `needed`; None if they are enough.
    `purpose`: what needs them, a plural such as "data and logs".
    """
    if free >= needed:
        return None
    have, want = free // _MEGABYTE, needed // _MEGABYTE
    return disk_full(where, f"{purpose} need about {want} MB, and {have} MB are free there")


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Context that raises KodoctlError in place of an OSError. The error names the path of the OSError, or `folder` if
    it has none.
    """
    try:
        yield
    except OSError as problem:
        raise of_os(problem, folder) from None


def of_os(problem: OSError, folder: Path) -> KodoctlError:
    """Makes the error for a refusal of the file system: K607 if the disk is full, else K610."""
    where = Path(problem.filename) if isinstance(problem.filename, str) else folder
    if problem.errno in _FULL:
        return disk_full(where)
    reason = (problem.strerror or str(problem)).lower()
    detail = f"{reason}\nfree or fix it, or name another folder with KODOCTL_DEV_HOME (data) or XDG_CACHE_HOME (jars)"
    return failure("K610", "cannot use file or folder", detail, where)
