"""Build hook: compiles the one C++ file with the compiler of the variable CXX, else c++. Nothing is linked to it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE: Final = "src/kodo_fast/_native.cpp"
FLAGS: Final = ("-std=c++17", "-O2", "-g0", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-shared")


def compile_native(folder: Path, *more: str) -> Path:
    """Compiles the module into its package, with further flags. Raises OSError, CalledProcessError."""
    target = folder / f"src/kodo_fast/_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler = shlex.split(os.environ.get("CXX") or "c++")
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run([*compiler, *FLAGS, *more, include, str(folder / SOURCE), "-o", str(target)], check=True)
    return target


class NativeBuild(BuildHookInterface):  # type: ignore[type-arg]
    """A wheel for this Python on this machine."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Compiles, and has the wheel named for what it holds."""
        if self.target_name == "wheel":
            target = compile_native(Path(self.root), *shlex.split(os.environ.get("KODO_FAST_FLAGS", "")))
            build_data.update(pure_python=False, infer_tag=True)
            build_data["artifacts"].append(target.relative_to(self.root).as_posix())
