"""Files rewritten in place: in one step, with the mode they had, or not at all."""

from __future__ import annotations

import difflib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kodoctl.errors import Diagnostic, UsageError, Where, error
from kodoctl.topology.fmt.formatter import format_text
from kodoctl.topology.fmt.tree import CannotFormatError
from kodoctl.topology.load import load_set
from kodoctl.topology.loaded_topology import SourceFile


@dataclass(frozen=True)
class RewriteRefusal:
    """A file that stays as it is, and why."""

    findings: tuple[Diagnostic, ...]


@dataclass(frozen=True)
class Formatted:
    """A file's text as it is and as it should be."""

    path: Path
    name: str
    before: str
    after: str
    findings: tuple[Diagnostic, ...] = ()

    def diff(self) -> str:
        """The changes as a unified diff."""
        lines = difflib.unified_diff(
            self.before.splitlines(), self.after.splitlines(), f"{self.name}", f"{self.name} (formatted)", lineterm=""
        )
        return "\n".join(lines)


def format_file(file: SourceFile) -> Formatted | RewriteRefusal:
    """Returns the canonical text of a file that loads in every environment, and for any other file its
    findings.
    """
    sets = [load_set([file], environment) for environment in (None, *file.environments)]
    findings = {finding: None for loaded in sets for finding in loaded.findings}
    if findings:
        return RewriteRefusal(tuple(findings))
    before = file.path.read_bytes().decode("utf-8")
    try:
        return Formatted(file.path, file.name, before, format_text(before))
    except CannotFormatError as problem:
        detail = f"{problem}: the file stays as it is"
        return RewriteRefusal((error("K026", "cannot be formatted", detail, Where(file.name)),))


def replace_file(path: Path, text: str) -> None:
    """Writes the text beside the file and puts it in the file's place: whoever reads sees the old one or the new one."""
    target = path.resolve()  # a link stays a link
    try:
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as problem:
        raise _unwritten(path, problem) from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(target.stat().st_mode & 0o7777)
        Path(name).replace(target)
    except OSError as problem:
        Path(name).unlink(missing_ok=True)
        raise _unwritten(path, problem) from None


def _unwritten(path: Path, problem: OSError) -> UsageError:
    return UsageError(error("K020", "cannot write file", f"{path}: {problem.strerror}: it stays as it was"))
