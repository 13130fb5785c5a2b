"""Folders of the user who runs kodoctl: for configuration, state, data and what was downloaded, as the system's
conventions say (on Linux XDG). None of them is ever in the working folder, also for a user without a home: there the
conventions give a relative path, which counts from the root.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import platformdirs

_NAME: Final = "kodoctl"


def config_folder() -> Path:
    """Folder of the user's own `kodoctl.toml`."""
    return _not_here(platformdirs.user_config_path(_NAME))


def state_folder() -> Path:
    """Folder of what has to outlive a command that was killed."""
    return _not_here(platformdirs.user_state_path(_NAME))


def data_folder() -> Path:
    """Folder of data that are kept."""
    return _not_here(platformdirs.user_data_path(_NAME))


def cache_folder() -> Path:
    """Folder of what can be fetched again."""
    return _not_here(platformdirs.user_cache_path(_NAME))


def _not_here(folder: Path) -> Path:
    return Path("/", folder)
