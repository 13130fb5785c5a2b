"""Host facts that a deployment may lack: a home folder, a working folder, a name of the user; and files above the working
folder, which may be another user's.

Containers run as users without an entry in the list of users, and jobs delete the folder that they were started in.
"""

from __future__ import annotations

import getpass
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

NO_HOME: Final = "/nonexistent"
"""Home folder of who has none, where a program wants an absolute one: nothing is there, and nothing can be made there."""


def working_folder() -> Path:
    """The folder that relative paths begin at. Raises UsageError (K031) where it was deleted."""
    try:
        return Path.cwd()
    except OSError as problem:
        from kodoctl.errors import UsageError, error

        detail = f"the folder that this process was started in is gone ({problem.strerror}): go to another one"
        raise UsageError(error("K031", "no working folder", detail)) from None


def expand_home(path: str | Path) -> Path:
    """A path whose `~` stands for the user's home folder; as it was given where the user has none."""
    try:
        return Path(path).expanduser()
    except (RuntimeError, KeyError):
        return Path(path)


def absolute_uri(place: str) -> str:
    """A folder as a URI, without a slash at its end, or as an absolute path."""
    return place.rstrip("/") if "://" in place else str(expand_home(place).absolute())


def user_name() -> str:
    """Name of who runs this process, or its number where the machine knows no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def is_listed_user() -> bool:
    """True if the machine's list of users has an entry for who runs this process."""
    import pwd

    try:
        return bool(pwd.getpwuid(os.geteuid()))
    except KeyError:
        return False


def home_folder(environ: Mapping[str, str]) -> str:
    """The home folder that the environment names, else one in which nothing is."""
    home = environ.get("HOME", "")
    return home if Path(home).is_absolute() else NO_HOME


def nearest_file(name: str, folder: Path) -> Path | None:
    """The nearest file of that name in the folder or above it."""
    return next((place / name for place in (folder, *folder.parents) if (place / name).is_file()), None)


def why_a_strangers(file: Path) -> str:
    """Reason not to follow a file that was found and not named; "" if there is none. In a folder where everybody may
    write, as /tmp is, every user of the machine can put a file above the working folders of others.
    """
    try:
        owners = {file.stat().st_uid, file.lstat().st_uid} - {0, os.geteuid()}
        is_anybodys = file.parent.stat().st_mode & stat.S_IWOTH
    except OSError:  # whoever reads the file meets that, too
        return ""
    if not owners or not is_anybodys:
        return ""
    return (
        f"it belongs to user {owners.pop()} and lies where everybody may write: remove it, or work in a folder that is not"
        f" below {file.parent}"
    )
