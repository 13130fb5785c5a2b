"""Pydantic without plugins: kodoctl has none, and looking for some slows each command down."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any, Final

_LOADER: Final = "pydantic.plugin._loader"


def leave_out_plugins() -> None:
    """Switches the plugins of pydantic off, unless the variable PYDANTIC_DISABLE_PLUGINS is set. Has to be called
    before pydantic is imported.

    The variable alone is not enough: pydantic's module that looks for plugins still imports `importlib.metadata` (8
    ms). So an empty module takes the place of that module. If pydantic wants any other name of it, the real one is
    imported.
    """
    if os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__") != "__all__":
        return
    empty = ModuleType(_LOADER)
    vars(empty).update(get_plugins=tuple, __getattr__=_from_real_module)
    sys.modules.setdefault(_LOADER, empty)


def _from_real_module(name: str) -> Any:
    if name.startswith("__"):  # asked by the import system itself
        raise AttributeError(name)
    del sys.modules[_LOADER]
    return getattr(importlib.import_module(_LOADER), name)
