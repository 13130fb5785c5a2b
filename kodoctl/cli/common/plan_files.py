"""Reader and writer of plan files of every kind: of applies and of recalls."""

from __future__ import annotations

import atexit
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from kodoctl.errors import UsageError, Where, error
from kodoctl.host.private_files import write_private

_BEGIN: Final = 200  # bytes: every plan has the key _OURS among its first, even if the rest was never stored
_OURS: Final = b'"kodoctl_version"'


def is_plan_file(path: str) -> bool:
    """True for the path of a plan file: one that ends in `.json`, or a file whose content is a plan's."""
    if path.endswith(".json"):
        return True
    try:
        text = Path(path).read_bytes()
        document = json.loads(text) if text[:1] == b"{" else None
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and {"format_version", "seal"} <= document.keys()


def read_plan_text(file: str, written_by: str) -> str:
    """Reads the text of a plan file. `written_by`: command that writes such files, named in the error if the file does
    not exist. Raises UsageError if the file cannot be read.
    """
    try:
        return Path(file).read_text(encoding="utf-8")
    except FileNotFoundError:
        detail = f"there is no such plan file; `{written_by} --out FILE` writes one"
        raise UsageError(error("K016", "cannot read file", detail, Where(file))) from None
    except (OSError, ValueError) as problem:
        reason = str(getattr(problem, "strerror", None) or problem)
        raise UsageError(error("K016", "cannot read file", reason, Where(file))) from None


def write_plan_text(text: str, out: str) -> None:
    """Writes a plan file atomically. Only its owner may read it, because plans of recalls contain payloads. Raises
    UsageError if the file cannot be written, or if it is there and no plan.
    """
    _refuse_other(out)
    try:
        write_private(Path(out), text)
    except OSError as problem:
        raise UsageError(error("K535", "the plan file cannot be written", str(problem.strerror), Where(out))) from None


def _refuse_other(out: str) -> None:
    """Raises UsageError if `out` is there and neither empty nor a plan: a plan replaces plan files alone. A pipe is not
    read, because a writer would be waited for.
    """
    path, is_other = Path(out), False
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as there:
                begin = there.read(_BEGIN)
            is_other = begin != b"" and not (begin.startswith(b"{") and _OURS in begin)
        else:
            is_other = path.is_fifo()
    if is_other:
        detail = "it is no plan file; a plan replaces plan files alone. For JSON on standard output: --format json"
        raise UsageError(error("K021", "file exists", detail, Where(out)))


def scratch_file(out: str | None) -> Path:
    """Path of a temporary file that the caller may create: in the folder of `out`, or in the system's folder for
    temporary files if `out` is None. The file is removed when the process ends, unless `keep_scratch` renames it.
    Raises UsageError if there is no folder for temporary files, or if `out` is another file than a plan.
    """
    if out is not None:
        _refuse_other(out)
        path = Path(out).with_name(f".{Path(out).name}.{os.getpid()}.new")
    else:
        try:
            folder = tempfile.gettempdir()
        except OSError as problem:  # of a container whose whole disk is read-only
            detail = f"{problem.strerror or problem}: set TMPDIR to a folder that can be written"
            raise UsageError(error("K535", "the plan file cannot be written", detail)) from None
        path = Path(folder) / f"kodoctl-{os.getpid()}-{os.urandom(4).hex()}.new"
    atexit.register(_remove, path)
    return path


def keep_scratch(scratch: Path, out: str) -> Path:
    """Renames the temporary file to `out`, and returns the new path. Raises UsageError if that fails."""
    try:
        return scratch.replace(out)
    except OSError as problem:
        raise UsageError(error("K535", "the plan file cannot be written", str(problem.strerror), Where(out))) from None


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)
