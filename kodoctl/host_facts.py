"""Host facts that a deployment may lack: a home folder, a working folder, a name of the user.

Containers run as users without an entry in the list of users, and jobs delete the folder that they were started in.
"""

from __future__ import annotations

import getpass
import os
from pathlib import Path


def working_folder() -> Path:
    """The folder that relative paths begin at. Raises UsageError (K031) where it was deleted."""
    try:
        return Path.cwd()
    except OSError as problem:
        from kodoctl.errors import UsageError, error

        detail = f"the folder that this process was started in is gone ({problem.strerror}): go to another one"
        raise UsageError(error("K031", "no working folder", detail)) from None


def expanded(path: str | Path) -> Path:
    """A path whose `~` stands for the user's home folder; as it was given where the user has none."""
    try:
        return Path(path).expanduser()
    except (RuntimeError, KeyError):
        return Path(path)


def user_name() -> str:
    """Name of who runs this process, or its number where the machine knows no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
