"""Compiled core: the hot modules of the consumer's pure core, which mypyc compiled from the very sources installed.

A build carries the digest of the sources that it was made of. If other sources are installed, they are interpreted.
"""

from __future__ import annotations

import json
import os
import sys
from hashlib import blake2b
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BUILD: Final = Path(__file__).with_name("core")
"""Folder of the build: manifest.json, and the extension modules in folders named as their packages."""
LIBRARY: Final = "kodo_core__mypyc"
"""Module that holds the code of all others."""
SWITCHES: Final = ("KODO_CONSUMER_NATIVE", "KODO_FAST_CORE")
"""Environment variables: 0 or false in one of them switches the core off, in the first one all of kodo-fast."""


class CoreStatus(NamedTuple):
    """Whether the compiled core is in use. `detail`: number of modules and digest, or the reason why it is not used."""

    compiled: bool
    detail: str


class CompiledModules:
    """Finder of the compiled modules, by their full names; Python finds others without it."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        """Returns the spec of the compiled module `name`, as importlib's meta path requires. None if there is no such
        module.
        """
        file = self._files.get(name)
        return None if file is None else spec_from_file_location(name, file)


def use_compiled_core(package: Path, build: Path = BUILD) -> CoreStatus:
    """Lets Python import the compiled modules in place of those in the folder `package` (`…/kodo_consumer`) from now
    on, if the build was made of exactly these sources. Returns whether it does. Never raises.
    """
    for switch in SWITCHES:
        if os.environ.get(switch, "").lower() in ("0", "false"):
            return CoreStatus(False, f"switched off by the variable {switch}")
    try:
        manifest = json.loads((build / "manifest.json").read_bytes())
        tool = find_spec("kodoctl")
        if digest(manifest["sources"], package, Path((tool and tool.origin) or "").parent) != manifest["digest"]:
            return CoreStatus(False, "it was compiled from other sources than those installed: build it again")
        suffix = EXTENSION_SUFFIXES[0]
        files = {name: build / f"{name.replace('.', '/')}{suffix}" for name in (LIBRARY, *manifest["modules"])}
        if not files[LIBRARY].exists():
            return CoreStatus(False, f"it was compiled for another Python than {sys.implementation.cache_tag}")
        finder = CompiledModules(files)
        sys.meta_path.insert(0, finder)
        try:
            import_module(LIBRARY)
        except ImportError as problem:
            sys.meta_path.remove(finder)
            return CoreStatus(False, f"it cannot be loaded: {problem}")
    except FileNotFoundError:
        return CoreStatus(False, "this build of kodo-fast has none")
    except (OSError, ValueError, KeyError, TypeError) as problem:
        return CoreStatus(False, f"its manifest cannot be read: {problem}")
    return CoreStatus(True, f"{len(manifest['modules'])} modules, sources {manifest['digest'][:12]}")


def digest(sources: Iterable[str], consumer: Path, tool: Path) -> str:
    """Digest (hex) of the texts of sources, by their paths such as `kodo_consumer/core/engine/engine.py`; `consumer`
    and `tool`: the folders kodo_consumer and kodoctl. Raises OSError if a source is missing.
    """
    found = blake2b(digest_size=20)
    roots = {"kodo_consumer": consumer, "kodoctl": tool}
    for source in sources:
        top, _, path = source.partition("/")
        text = (roots[top] / path).read_bytes()
        found.update(f"{source} {len(text)}\n".encode() + text)
    return found.hexdigest()
