"""Pydantic without plugins: kodoctl has none, and looking for some slows each command down."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any, Final

_LOADER: Final = "pydantic.plugin._loader"


def leave_out_plugins() -> None:
    """Switches the plugins of pydantic off, unless the variable PYDANTIC_DISABLE_PLUGINS is set. To be called before
    pydantic is imported.

    The variable alone saves reading the metadata of every package, but pydantic's module that looks for plugins imports
    `importlib.metadata` first (8 ms). An empty look takes the place of that module. If pydantic wants anything else of
    the module, the real one is imported.
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
