"""What git remembers of a file: the only place that runs git for commands on the file."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from kodoctl.errors import UsageError, error
from kodoctl.topology.load import SourceFile, source_of
from kodoctl.topology.payloads import PayloadFile, declared_payloads, payload_of

TIMEOUT = 60  # seconds; a healthy git answers in milliseconds


class Revision:
    """Files as they were at one commit of the repository that `folder` lies in.

    Raises UsageError (exit 64) when there is no git, no repository or no such commit.
    """

    def __init__(self, ref: str, folder: Path) -> None:
        done = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip() or f"git knows no commit {ref!r} there"
            detail = f"--against {ref} in {folder}: {said}\nFetch it first (in CI: a checkout with its history)."
            raise UsageError(error("K304", "unknown git revision", detail))
        self.commit = done.stdout.decode().strip()

    def read(self, path: Path) -> bytes | None:
        """The file as it was; None if there was none."""
        if not path.parent.is_dir():
            return None
        done = _git(path.parent, "cat-file", "blob", f"{self.commit}:./{path.name}")
        return done.stdout if done.returncode == 0 else None


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = ["git", "-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)  # noqa: S603  # no shell, no option from outside
    except FileNotFoundError:
        raise UsageError(error("K304", "git is needed", "--against reads earlier files with git: install it")) from None


def earlier_payloads(files: Iterable[SourceFile], ref: str) -> dict[tuple[str, str], PayloadFile]:
    """(file, ground topic) -> the payload schema it named at `ref`, where there was one."""
    revision = cache(lambda folder: Revision(ref, folder))
    found: dict[tuple[str, str], PayloadFile] = {}
    for file in files:
        folder = file.path.parent
        if (data := revision(folder).read(file.path)) is None:
            continue
        for ground, (kind, name) in declared_payloads(source_of(data, file.name).root).items():
            path = folder / name
            if (schema := revision(folder).read(path)) is not None:
                found[file.name, ground] = payload_of(kind, path, schema)
    return found
