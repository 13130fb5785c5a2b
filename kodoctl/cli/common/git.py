"""Git history of a file: the only module that runs git.

Git always starts in a folder with a `.git`, which no commit can contain, never takes a folder of files for a
repository, and fetches nothing. Reason: git runs among the files of a pull request and trusts much of what it finds
there. To git, a folder with `HEAD`, `config` and `refs` is a bare repository, whose settings name commands that git
runs with every credential of the environment.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from kodoctl.errors import UsageError, error
from kodoctl.host.programs import find_program
from kodoctl.pulsar.values.ledger import Source
from kodoctl.topology.load import is_topology_file, source_of
from kodoctl.topology.loaded_topology import SourceFile
from kodoctl.topology.path_guard import repository_root
from kodoctl.topology.payload_schemas import PayloadFile, declared_payloads, payload_of

TIMEOUT: Final = 60  # seconds; a healthy git answers in milliseconds
_LINK: Final = "120000"  # git's mode of a symbolic link
_MOST_LINKS: Final = 10  # that a path may lead through
_SETTINGS: Final = {"safe.bareRepository": "explicit"}  # from git 2.38 on: files alone make no repository
_ENVIRONMENT: Final = {
    "GIT_ALLOW_PROTOCOL": "",  # what is not there is fetched from nowhere, whatever a configuration or the shell allows
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
}


class Revision:
    """Files at one commit of the repository that contains `folder`. `ref`: a name of the commit that git knows, such as
    a branch; the attribute `commit` is its full id, and `top` the root of the repository.

    Raises UsageError (exit 64) if there is no git, no repository or no such commit.
    """

    def __init__(self, ref: str, folder: Path) -> None:
        top = _top(folder)
        if top is None:
            _git(folder, "version")  # where there is no git, that is what is said
            raise _unknown(ref, folder, "not a git repository: neither it nor a folder above it has a .git")
        done = _git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
        if done.returncode != 0:
            reason = done.stderr.decode(errors="replace").strip() or f"git knows no commit {ref!r} there"
            raise _unknown(ref, folder, f"{reason}\nFetch it first (in CI: a checkout with its history).")
        self.top, self._ref, self._folder = top, ref, folder
        self.commit = done.stdout.decode().strip()

    def read(self, path: Path) -> bytes | None:
        """Content of a file at this commit, even if its folder no longer exists; None if the commit has no such file.
        A link is followed within the commit; the content of one that leads nowhere there is the path that it names.
        Raises UsageError if this clone lacks the content (a partial clone), because the file may exist then.
        """
        place, data = path.parent.resolve() / path.name, None
        for _ in range(_MOST_LINKS):
            found = {name: (mode, blob) for name, mode, blob in self._list_blobs(place)}.get(self._inside(place))
            if found is None:
                return data
            data = self._run_git("cat-file", "blob", found[1])
            if found[0] != _LINK:
                return data
            place = Path(os.path.normpath(place.parent / os.fsdecode(data)))
        return data

    def files(self) -> dict[Path, str]:
        """Returns all files of this commit: the path of each, absolute and below `top`, -> git's name of its content
        (blob), which `content` takes. Nothing on disk is looked at. Links are among the files and are not followed: the
        content of one is the path that it names. Raises UsageError as `read` does.
        """
        return {self.top / name: blob for name, _, blob in self._list_blobs(self.top)}

    def content(self, blob: str) -> bytes:
        """Returns the content of a file by git's name of it (blob). Raises UsageError as `read` does."""
        return self._run_git("cat-file", "blob", blob)

    def below(self, folder: Path) -> list[Path]:
        """Paths of all topology files in and below a folder at this commit, sorted; each begins with `folder` as given.
        Raises UsageError as `read` does.
        """
        inside = self._inside(folder.resolve())
        start = "" if inside == "." else f"{inside}/"
        names = [name for name, *_ in self._list_blobs(folder.resolve()) if name.startswith(start)]
        return sorted(folder / name.removeprefix(start) for name in names if is_topology_file(name))

    def _list_blobs(self, path: Path) -> Iterator[tuple[str, str, str]]:
        """(name, mode, blob) of a file, or of everything below a folder; `path` contains no symbolic links."""
        inside = self._inside(path)
        if inside.partition("/")[0] == "..":
            return  # of another folder than the repository's
        within = [] if inside == "." else ["--", inside]
        for line in os.fsdecode(self._run_git("ls-tree", "-r", "-z", "--full-tree", self.commit, *within)).split("\0"):
            about, _, name = line.partition("\t")
            if about.split(" ")[1:2] == ["blob"]:
                yield name, about.split(" ")[0], about.split(" ")[2]

    def _inside(self, path: Path) -> str:
        return Path(os.path.relpath(path, self.top)).as_posix()

    def _run_git(self, *arguments: str) -> bytes:
        """Output of a git command. Raises UsageError if git fails: the clone then lacks a part of the commit."""
        done = _git(self.top, *arguments)
        if done.returncode != 0:
            reason = done.stderr.decode(errors="replace").strip()
            advice = "A partial clone lacks files of earlier commits, and none is fetched here: clone without --filter."
            raise _unknown(self._ref, self._folder, f"{reason}\n{advice}")
        return done.stdout


def has_content(path: Path, blob: str) -> bool:
    """True if a file on disk surely has the content that git names `blob`."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest() == blob


def _unknown(ref: str, folder: Path, why: str) -> UsageError:
    return UsageError(error("K024", "unknown git revision", f"--against {ref} in {folder}: {why}"))


def _top(folder: Path) -> Path | None:
    """Root of the repository that a folder lies in, links followed; None if there is none."""
    return repository_root(folder.resolve())


def _git(top: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Runs git in a folder with a `.git`, and returns its result, failed or not. Raises UsageError (K025) if there is
    no git, if it cannot be started, or if it gives no result within TIMEOUT seconds.
    """
    settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
    if (git := find_program("git", os.environ)) is None:
        raise UsageError(error("K025", "git is needed", "--against reads earlier files with git: install it"))
    command = [git, "-C", str(top), *settings, *arguments]
    environment = {**os.environ, **_ENVIRONMENT}
    try:
        return subprocess.run(command, env=environment, capture_output=True, timeout=TIMEOUT, check=False)  # noqa: S603  # no shell, no option from outside
    except subprocess.TimeoutExpired:
        detail = f"it gives no answer within {TIMEOUT} s in {top}"
        raise UsageError(error("K025", "git is needed", detail)) from None
    except OSError as problem:  # such as of a program for another machine
        raise UsageError(error("K025", "git is needed", f"{git}: {problem.strerror}")) from None


def earlier_payloads(files: Iterable[SourceFile], ref: str) -> dict[tuple[str, str], PayloadFile]:
    """Payload schemas that these topology files declared at the revision `ref`, without the overlays of environments:
    (`name` of the SourceFile, ground topic) -> schema. Files and schemas that did not exist at `ref` are left out.
    Raises UsageError as `Revision` does.
    """
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
    """Location of a topology file: `origin`, the git remote `origin` as `host/owner/name` (None: no such remote), and
    `path`, the path of the file in the repository. Both are None without git or without a repository.
    """
    top = _top(file.parent)
    if top is None:
        return Source()
    try:
        inside = _git(top, "rev-parse", "--is-inside-work-tree")  # it may refuse: the checkout of somebody else
        origin = _git(top, "config", "--get", "remote.origin.url")
    except UsageError:
        return Source()
    if inside.returncode != 0:
        return Source()
    path = os.path.relpath(file.resolve(), top)
    return Source(repository(origin.stdout.decode(errors="replace").strip()) or None, Path(path).as_posix())


def head_of(path: Path) -> str | None:
    """Hash of the commit that is checked out in the repository of a file or folder; None if git is not installed,
    `path` is in no repository, or the repository has no commit.
    """
    top = _top(path if path.is_dir() else path.parent)
    if top is None:
        return None
    try:
        done = _git(top, "rev-parse", "--verify", "--quiet", "HEAD")
    except UsageError:
        return None
    return done.stdout.decode().strip() if done.returncode == 0 else None


def repository(url: str) -> str:
    """Address of a git remote without scheme, user and `.git`, in lower case, so that clones over HTTPS and SSH give
    the same text. A port is kept, and so is the colon of `HOST:OWNER/NAME` without a user: these give another text.
    """
    rest = (
        url.partition("://")[2] if "://" in url else url.replace(":", "/", 1) if "@" in url.partition(":")[0] else url
    )
    return rest.rpartition("@")[2].removesuffix("/").removesuffix(".git").lower()
