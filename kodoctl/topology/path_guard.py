"""Read guard of topology files: a file may name only paths inside the repository that it lies in, links followed.

Otherwise a pull request could read any file of the machine that plans it, and show it in a finding. Files outside of
any repository may name any path: the user who runs kodoctl there wrote them, or mounted them.
"""

from __future__ import annotations

from os.path import lexists, normpath, realpath
from pathlib import Path


def repository_root(folder: Path) -> Path | None:
    """The nearest folder with a `.git`, at or above `folder`: the root of a checkout, a linked worktree or a submodule;
    None if there is none. `folder`, if relative, is relative to the working folder. The result is an absolute path
    without `..`: a link to another place does not choose the repository.
    """
    here = Path(normpath(folder.absolute()))
    return next((one for one in (here, *here.parents) if lexists(one / ".git")), None)


def why_outside_repository(folder: Path, path: Path) -> str | None:
    """Reason not to read `path`, which a file in `folder` names: the path lies outside of the repository of `folder`,
    links followed. None if it may be read, as any path may if `folder` is in no repository. `path` is joined with
    `folder` already; both, if relative, are relative to the working folder. Looks for `.git` on disk.
    """
    top = repository_root(folder)
    if top is None or Path(realpath(path)).is_relative_to(realpath(top)):
        return None
    return f"it lies outside of the repository {top}, links followed, and is not read: keep it where it is reviewed"
