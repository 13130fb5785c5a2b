"""What git remembers of a file: the only place that runs git for commands on the file."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from kodoctl.errors import UsageError, error
from kodoctl.plan.ledger import Source
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
            raise UsageError(error("K024", "unknown git revision", detail))
        self.commit = done.stdout.decode().strip()

    def read(self, path: Path) -> bytes | None:
        """The file as it was; None if there was none."""
        if not path.parent.is_dir():
            return None
        done = _git(path.parent, "cat-file", "blob", f"{self.commit}:./{path.name}")
        return done.stdout if done.returncode == 0 else None

    def below(self, folder: Path) -> list[Path]:
        """Every `*.yaml` that was below a folder, sorted."""
        done = _git(folder, "ls-tree", "-r", "-z", "--name-only", self.commit)
        names = done.stdout.decode(errors="replace").split("\0") if done.returncode == 0 else []
        return sorted(folder / name for name in names if name.endswith(".yaml"))

    def read_below(self, folder: Path, file: Path) -> bytes | None:
        """A file below a folder as it was, also where its own folder is gone."""
        done = _git(folder, "cat-file", "blob", f"{self.commit}:./{file.relative_to(folder).as_posix()}")
        return done.stdout if done.returncode == 0 else None


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = ["git", "-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)  # noqa: S603  # no shell, no option from outside
    except FileNotFoundError:
        raise UsageError(error("K025", "git is needed", "--against reads earlier files with git: install it")) from None


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


def source_of_topology(file: Path) -> Source:
    """Where a topology file lives: `host/owner/name` of its repository's origin, and its path there; nothing without git."""
    try:
        top = _git(file.parent, "rev-parse", "--show-toplevel")
        origin = _git(file.parent, "config", "--get", "remote.origin.url")
    except UsageError:
        return Source()
    if top.returncode != 0:
        return Source()
    path = file.resolve().relative_to(Path(top.stdout.decode().strip()).resolve())
    return Source(repository(origin.stdout.decode().strip()) or None, path.as_posix())


def head_of(path: Path) -> str | None:
    """The commit checked out where a file or folder lies; None without git, repository or commit."""
    try:
        done = _git(path if path.is_dir() else path.parent, "rev-parse", "--verify", "--quiet", "HEAD")
    except UsageError:
        return None
    return done.stdout.decode().strip() if done.returncode == 0 else None


def repository(url: str) -> str:
    """A remote's address without scheme, user and `.git`: the same however it was cloned."""
    rest = (
        url.partition("://")[2] if "://" in url else url.replace(":", "/", 1) if "@" in url.partition(":")[0] else url
    )
    return (
        rest.rpartition("@")[2].removesuffix("/").removesuffix(".git").lower()
        if rest.partition("@")[2]
        else rest.removesuffix("/").removesuffix(".git")
    )
