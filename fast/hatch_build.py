"""Build hook: compiles the one C++ file with the compiler of the variable CXX, else c++ (it links no library), and the
hot modules of the consumer's core, which it finds beside this folder in a checkout.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE: Final = "src/kodo_fast/_native.cpp"
FLAGS: Final = ("-std=c++17", "-O2", "-g0", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-shared")


def compile_native(folder: Path, *more: str) -> Path:
    """Compiles the C++ module into its package, with flags `more`; returns its path. Raises OSError,
    CalledProcessError.
    """
    target = folder / f"src/kodo_fast/_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler = shlex.split(os.environ.get("CXX") or "c++")
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run([*compiler, *FLAGS, *more, include, str(folder / SOURCE), "-o", str(target)], check=True)
    return target


def compile_core(folder: Path) -> Path | None:
    """Compiles the core into the package, in place of an earlier build, and returns its folder. Without a checkout,
    mypyc or setuptools, or if the compilation fails, writes so to stderr and returns None: the core is interpreted.
    """
    target = folder / "src/kodo_fast/core"
    shutil.rmtree(target, ignore_errors=True)
    missing = [name for name in ("mypyc", "setuptools") if find_spec(name) is None]
    if missing or not (folder.parent / "consumer/kodo_consumer/core").is_dir():
        what = f"without {missing[0]}" if missing else "outside of a checkout of kodoctl"
        print(f"{what} the core is not compiled, but interpreted", file=sys.stderr)  # noqa: T201
        return None
    command = [sys.executable, str(folder / "compile_core.py"), str(folder.parent), str(target)]
    if subprocess.run(command, check=False, stdout=sys.stderr).returncode:
        shutil.rmtree(target, ignore_errors=True)
        print("the core was not compiled: it is interpreted", file=sys.stderr)  # noqa: T201
        return None
    return target


class NativeBuild(BuildHookInterface):  # type: ignore[type-arg]
    """Build hook of a wheel for this Python on this machine."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Compiles module and core for a wheel (flags: KODO_FAST_FLAGS), and adds them to `build_data`, which names the
        wheel for this platform. Other targets need nothing.
        """
        if self.target_name == "wheel":
            flags = shlex.split(os.environ.get("KODO_FAST_FLAGS", ""))
            with ThreadPoolExecutor(1) as pool:  # mypyc has one core busy before there is anything else to compile
                native = pool.submit(compile_native, Path(self.root), *flags)
                core = compile_core(Path(self.root))
                target = native.result()
            build_data.update(pure_python=False, infer_tag=True)
            build_data["artifacts"].append(target.relative_to(self.root).as_posix())
            if core:
                build_data["artifacts"].append(f"{core.relative_to(self.root).as_posix()}/**")
