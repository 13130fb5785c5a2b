"""Compiles the hot modules of the consumer's core with mypyc: `python compile_core.py CHECKOUT TARGET`.

mypyc takes strictly type-checked modules, and needs the sources of all that they import: it reads them from a checkout.
Hot modules are those that a message passes through from its delivery to its acknowledgement: all of core/ takes
minutes, and the others run once a second, once a lane or at the start. Values that leave the core (policies, limits,
outcomes) are left out, too: frozen dataclasses can be neither copied nor pickled once they are compiled, and a cached
property is worked out each time.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from mypyc.build import mypycify
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(Path(__file__).parent / "src"))
from kodo_fast.compiled_core import LIBRARY, digest

HOT: Final = (
    "state_machine",
    "checks.outcome_validation", "checks.receive_checks",
    "engine.audit_recorder", "engine.engine", "engine.handler_runs", "engine.local_delays", "engine.message_flow",
    "engine.pending_actions", "engine.publishing", "engine.tenant_isolation",
    "limits.limiter_set", "limits.limiter_values",
    "scheduling.bulkheads", "scheduling.circuit_breaker",
    "scheduling.concurrency_control", "scheduling.newcomers", "scheduling.quick_load", "scheduling.scheduler",
    "scheduling.slot_reservation", "scheduling.slow_breakers", "scheduling.turn_queues",
    "state.cause_counts", "state.confirmations", "state.engine_context", "state.fairness", "state.in_flight", "state.lookahead",
    "state.tenant_queue", "state.tenant_ring", "state.timers",
    "values.counters", "values.due_times", "values.effects", "values.envelope",
)  # fmt: skip
MODULES: Final = tuple(f"kodo_consumer.core.{name}" for name in HOT)
LEVEL: Final = os.environ.get("KODO_FAST_OPT", "1")  # of the C compiler
CONFIG: Final = (
    "[mypy]\nstrict = true\nexplicit_package_bases = true\nfollow_imports = silent\nignore_missing_imports = true\n"
)


class ParallelBuild(build_ext):
    """Build that compiles the files of an extension side by side, as setuptools does only with extensions."""

    def build_extension(self, ext: Extension) -> None:
        """Compiles the sources in threads, then links the object files."""

        def compiled(source: str) -> list[str]:
            return self.compiler.compile(
                [source], output_dir=self.build_temp, macros=ext.define_macros, include_dirs=ext.include_dirs,
                extra_postargs=ext.extra_compile_args, depends=ext.depends,
            )  # fmt: skip

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for objects in pool.map(compiled, ext.sources):
                ext.extra_objects += objects
        ext.sources = []
        super().build_extension(ext)


def sources_of(consumer: Path, checkout: Path) -> list[str]:
    """Paths of the hot modules and of the modules that they import, whose constants are compiled in; relative to
    `consumer` or `checkout`, sorted. Exits if a hot module has a cached property.
    """
    found = set()
    for module in MODULES:
        path = f"{module.replace('.', '/')}.py"
        found.add(path)
        for node in ast.walk(ast.parse((consumer / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name) and node.id == "cached_property":
                sys.exit(f"{path} has a cached property, which is not cached where it is compiled: leave it out of HOT")
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                paths = [
                    f"{name.replace('.', '/')}.py" for name in names if name.startswith(("kodo_consumer.", "kodoctl."))
                ]
                found |= {path for path in paths if (consumer / path).exists() or (checkout / path).exists()}
    return sorted(found)


def main(checkout: Path, target: Path) -> None:
    """Compiles the hot modules of a checkout. Writes the extension modules and manifest.json (digest and paths of the
    sources, names of the modules) below `target`. Exits if the sources changed meanwhile. Changes the directory.
    """
    consumer = checkout / "consumer"
    sources = sources_of(consumer, checkout)
    folders = consumer / "kodo_consumer", checkout / "kodoctl"
    before = digest(sources, *folders)
    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch, "mypy.ini")
        config.write_text(CONFIG, encoding="utf-8")
        os.environ["MYPYPATH"] = f"{consumer}{os.pathsep}{checkout}"
        os.chdir(consumer)  # mypy names modules by their paths from here
        paths = [f"{module.replace('.', '/')}.py" for module in MODULES]
        extensions = mypycify(
            [f"--config-file={config}", f"--cache-dir={scratch}/cache", *paths],
            opt_level=LEVEL, debug_level="0", multi_file=True, target_dir=f"{scratch}/c",
            group_name=LIBRARY.removesuffix("__mypyc"),
        )  # fmt: skip
        command = ParallelBuild(Distribution({"name": "kodo-core", "ext_modules": extensions}))
        command.build_lib, command.build_temp = str(target), f"{scratch}/objects"
        command.ensure_finalized()
        command.run()
    if digest(sources, *folders) != before:
        sys.exit("the sources were edited while they were compiled")
    manifest = {"digest": before, "modules": MODULES, "sources": sources}
    (target / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
