"""Facts about the host that a deployment may lack (home folder, working folder, user name), and files above the working
folder, which may belong to another user.

Containers run as users without an entry in the list of users, and jobs delete the folder that they were started in.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

NO_HOME: Final = "/nonexistent"
"""Home folder for a program that needs an absolute one when the user has none: it does not exist and cannot be created.
"""


def working_folder() -> Path:
    """The folder that relative paths begin at, as an absolute path. Raises UsageError (K031) if it was deleted."""
    try:
        return Path.cwd()
    except OSError as problem:
        from kodoctl.errors import UsageError, error

        detail = f"the folder that this process was started in is gone ({problem.strerror}): go to another one"
        raise UsageError(error("K031", "no working folder", detail)) from None


def expand_home(path: str | Path) -> Path:
    """The path with `~` or `~NAME` at its beginning replaced by the home folder of this user, or of the user NAME;
    unchanged if there is none.
    """
    try:
        return Path(path).expanduser()
    except (RuntimeError, KeyError):
        return Path(path)


def absolute_path(path: str | Path) -> Path:
    """The path with `~` expanded (`expand_home`) and, if it is relative, below the working folder; `..` and links stay.
    Raises UsageError (K031) if the working folder is needed and was deleted.
    """
    found = expand_home(path)
    return found if found.is_absolute() else working_folder() / found


def absolute_uri(place: str) -> str:
    """A location in the form that storage libraries require: a URI (a text with `://`) without slashes at its end, or
    else the path of a folder as `absolute_path` returns it. Raises UsageError (K031) as that does.
    """
    return place.rstrip("/") if "://" in place else str(absolute_path(place))


def user_name() -> str:
    """Login name of the user of this process: the value of LOGNAME or a similar variable, which the user can set, else
    that in the machine's list of users; `uid NUMBER` without both.
    """
    import getpass  # it imports termios, which few commands need

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def is_listed_user() -> bool:
    """True if the machine's list of users has an entry for the effective user of this process."""
    import pwd

    try:
        return bool(pwd.getpwuid(os.geteuid()))
    except KeyError:
        return False


def home_folder(environ: Mapping[str, str]) -> str:
    """`HOME` of `environ` if it is an absolute path, else NO_HOME (/nonexistent)."""
    home = environ.get("HOME", "")
    return home if Path(home).is_absolute() else NO_HOME


def nearest_file(name: str, folder: Path) -> Path | None:
    """Path of the file `name` in `folder` (absolute), or in the nearest folder above that has one; None if no folder
    has one. A folder of that name is passed over. Raises OSError, such as for a folder that must not be searched.
    """
    return next((place / name for place in (folder, *folder.parents) if (place / name).is_file()), None)


def why_a_strangers(file: Path) -> str:
    """Text of the reason not to trust a file that was found in a folder above the working folder: its owner (or of a
    link, the owner of either) is neither this user nor root, and everybody may write to its folder, as in /tmp. ""
    if there is no such reason, or if the file cannot be examined.
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
