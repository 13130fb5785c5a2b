"""Reader and writer of plan files of every kind: of applies, recalls, replays and write-offs."""

from __future__ import annotations

import atexit
import json
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from kodoctl.errors import UsageError, Where, error
from kodoctl.host.private_files import write_private

_BEGIN: Final = 200  # bytes: every plan has its kind's key among its first three, even if the rest was never stored
_RECALL: Final = "a recall"
_KINDS: Final = {
    b"cluster": "an apply",
    b"refused": "an apply",
    b"action": _RECALL,
    b"replay": "a replay",
    b"made_at": "a write-off",
}
"""Kind of a plan by the third key of its file, or by the action `replay` there."""


def is_plan_file(path: str) -> bool:
    """True for a path that counts as a plan file: every path that ends in `.json`, every pipe, which is not read (it
    can be read once, and no topology is read from one), and a file of another name whose content is a plan's. False for
    another file that cannot be read.
    """
    if path.endswith(".json"):
        return True
    try:
        if Path(path).is_fifo():
            return True
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
    UsageError if the file cannot be written, or if `out` is there and neither an empty file nor a plan of the same
    kind: a folder, a device such as /dev/null, or a file that cannot be read is not replaced.
    """
    _refuse_other(out, _kind_of(text[:_BEGIN].encode()))
    try:
        write_private(Path(out), text)
    except OSError as problem:
        raise UsageError(error("K535", "the plan file cannot be written", str(problem.strerror), Where(out))) from None


def _refuse_other(out: str, kind: str) -> None:
    """Raises UsageError if `out` names no file, or if it is there and neither empty nor a plan of this kind, such as "a
    recall".
    """
    if not Path(out).name:  # such as of a variable that is not set
        raise UsageError(error("K535", "the plan file cannot be written", f"{out!r} names no file: --out FILE"))
    begin = _begin_of(out)
    if begin != b"" and ((other := _kind_of(begin or b"")) != kind or not other):
        which = f"it is the plan of {other}" if other else "it is no plan file"
        detail = (
            f"{which}; a plan replaces plan files of its own kind alone. For JSON on standard output: --format json"
        )
        raise UsageError(error("K021", "file exists", detail, Where(out)))


def _begin_of(out: str) -> bytes | None:
    """Returns the first bytes of a file; b"" if there is none, or its folder may not be entered. None: `out` is there
    and cannot be read, or is no regular file: reading a pipe would wait for a writer.
    """
    path = Path(out)
    try:
        if not path.is_file():
            return None if path.exists() else b""
    except OSError:  # the writing says what is wrong
        return b""
    with suppress(OSError), path.open("rb") as file:
        return file.read(_BEGIN)
    return None


def check_replaceable(out: str) -> None:
    """Raises UsageError if `out` is a YAML file with content or one that cannot be read, or a plan file. Commands call
    this before they write output that can be made again, such as a drawing or a page, because a YAML file or a plan
    cannot be made again.
    """
    from kodoctl.topology.load import is_yaml

    begin = _begin_of(out)
    kind = _kind_of(begin or b"")
    if kind or (begin != b"" and is_yaml(out)):
        what = f"the plan of {kind}" if kind else "a YAML file"
        raise UsageError(error("K021", "file exists", f"it is {what}: name another with --out", Where(out)))


def _kind_of(begin: bytes) -> str:
    """Kind of the plan in a file that begins with these bytes; "" for another file."""
    keys = re.findall(rb'"(\w+)":(?: "(replay)")?', begin)[:3] if begin.startswith(b"{") else []
    return _KINDS.get(keys[2][1] or keys[2][0], "") if len(keys) == 3 and keys[0][0] == b"format_version" else ""


def scratch_file(out: str | None) -> Path:
    """Path of a temporary file of a recall's plan, which the caller may create: in the folder of `out`, or in the
    system's folder for temporary files if `out` is None. The file is removed when the process ends, unless
    `keep_scratch` renames it. Raises UsageError if there is no folder for temporary files, or if `out` is not None and
    `write_plan_text` would not replace it by a recall's plan.
    """
    if out is not None:
        _refuse_other(out, _RECALL)
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
