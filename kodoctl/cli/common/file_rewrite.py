"""Rewriting of topology files in place: atomically, with the same mode."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from kodoctl.errors import Diagnostic, UsageError, Where, error
from kodoctl.host.private_files import write_private
from kodoctl.topology.fmt.formatter import format_text
from kodoctl.topology.fmt.tree import CannotFormatError
from kodoctl.topology.load import load_set
from kodoctl.topology.loaded_topology import SourceFile


@dataclass(frozen=True)
class RewriteRefusal:
    """Result for a file that must stay as it is. `findings`: the reasons."""

    findings: tuple[Diagnostic, ...]


@dataclass(frozen=True)
class Formatted:
    """Result for a file that can be formatted: its text `before` and `after`."""

    path: Path
    name: str
    before: str
    after: str

    def diff(self) -> str:
        """Returns the changed lines as a unified diff; "" if there are none. Line ends are not compared, so that the
        texts may still differ by them.
        """
        lines = difflib.unified_diff(
            self.before.splitlines(), self.after.splitlines(), f"{self.name}", f"{self.name} (formatted)", lineterm=""
        )
        return "\n".join(lines)


def format_file(file: SourceFile) -> Formatted | RewriteRefusal:
    """Formats the text that a file has now. Returns a refusal with the findings instead if `file` does not load without
    errors in every environment, or if the text cannot be formatted (K026). Writes nothing.
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
    """Replaces a file's text atomically and keeps its mode; if `path` is a symbolic link, the file that it leads to.
    Raises UsageError if the file cannot be written; it is then unchanged.
    """
    target = path.resolve()  # a link stays a link
    try:
        write_private(target, text, target.stat().st_mode & 0o7777)
    except OSError as problem:
        detail = f"{path}: {problem.strerror}: it stays as it was"
        raise UsageError(error("K020", "cannot write file", detail)) from None
