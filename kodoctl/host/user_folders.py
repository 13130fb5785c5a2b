"""Paths of the user's folders for kodoctl, by the conventions of the system (on Linux XDG). The functions create
nothing. A relative path in a variable is never taken from the working folder, so that no path is in that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import platformdirs

from kodoctl.errors import UsageError, error

_NAME: Final = "kodoctl"


def config_folder() -> Path:
    """Path of the folder of the user's own `kodoctl.toml`. Creates nothing. Raises UsageError (K020) if neither
    XDG_CONFIG_HOME nor a home folder is known.
    """
    return _folder(platformdirs.user_config_path)


def state_folder() -> Path:
    """Path of the folder of files that must survive a killed command. Creates nothing. Raises UsageError (K020) if
    neither XDG_STATE_HOME nor a home folder is known.
    """
    return _folder(platformdirs.user_state_path)


def data_folder() -> Path:
    """Path of the folder of data to keep, such as development clusters. Creates nothing. Raises UsageError (K020) if
    neither XDG_DATA_HOME nor a home folder is known.
    """
    return _folder(platformdirs.user_data_path)


def cache_folder() -> Path:
    """Path of the folder of files that can be downloaded again. Creates nothing. Raises UsageError (K020) if neither
    XDG_CACHE_HOME nor a home folder is known.
    """
    return _folder(platformdirs.user_cache_path)


def _folder(find: Callable[[str], Path]) -> Path:
    try:
        return Path("/", find(_NAME))
    except (RuntimeError, KeyError):
        detail = "this user has no home folder: set HOME, or XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_DATA_HOME and XDG_CACHE_HOME"
        raise UsageError(error("K020", "cannot write file", detail)) from None
