"""The compiled core is used beside the sources that it was made of, and no others; else it says why it is not."""

from __future__ import annotations

import copy
import importlib
import json
import os
import pickle
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer.core import COMPILED, CoreStatus
from kodo_consumer.core.values.counters import Counts
from kodo_consumer.core.values.envelope import Level
from kodo_consumer.core.values.lane_set import LaneSet
from kodo_consumer.core.values.limit_policy import Quota
from kodo_consumer.core.values.outcomes import DONE, ErrorDetails, Failed, MoveAsked
from kodo_consumer.core.values.policy import ErrorTextPolicy, IsolationPolicy

import kodoctl
from tests.unit.consumer.engine_bench import policy

compiled_core = pytest.importorskip("kodo_fast.compiled_core", reason="kodo-fast is not built (make setup)")
use, LIBRARY = compiled_core.use_compiled_core, compiled_core.LIBRARY
SOURCES = ["kodo_consumer/core/engine/engine.py", "kodoctl/errors/__init__.py"]


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither what this run goes on with nor what it is told counts."""
    for switch in compiled_core.SWITCHES:
        monkeypatch.delenv(switch, raising=False)
    monkeypatch.delitem(sys.modules, LIBRARY, raising=False)
    before = list(sys.meta_path)
    yield
    assert sys.meta_path == before, "what is refused is not looked up"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A consumer of one module."""
    found = tmp_path / "kodo_consumer"
    (found / "core/engine").mkdir(parents=True)
    (found / "core/engine/engine.py").write_text("one = 1\n", encoding="utf-8")
    return found


@pytest.fixture
def build(tmp_path: Path, package: Path) -> Path:
    """A build for it, whose library is none."""
    found = tmp_path / "build"
    found.mkdir()
    manifest = {
        "digest": compiled_core.digest(SOURCES, package, Path(kodoctl.__file__).parent),
        "modules": ["a.b"],
        "sources": SOURCES,
    }
    (found / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (found / f"{LIBRARY}{EXTENSION_SUFFIXES[0]}").write_bytes(b"no library")
    return found


def test_without_a_build_the_core_is_interpreted(package: Path, tmp_path: Path) -> None:
    assert use(package, tmp_path) == (False, "this build of kodo-fast has none")


@pytest.mark.parametrize("variable", ["KODO_CONSUMER_NATIVE", "KODO_FAST_CORE"])
@pytest.mark.parametrize("text", ["0", "false", "False"])
def test_a_variable_switches_it_off(
    monkeypatch: pytest.MonkeyPatch, package: Path, build: Path, variable: str, text: str
) -> None:
    monkeypatch.setenv(variable, text)
    assert use(package, build) == (False, f"switched off by the variable {variable}")


def test_beside_newer_sources_it_is_refused(package: Path, build: Path) -> None:
    (package / "core/engine/engine.py").write_text("one = 2\n", encoding="utf-8")
    assert use(package, build) == (
        False, "it was compiled from other sources than those installed: build it again",
    )  # fmt: skip


def test_beside_sources_that_lack_a_file_it_is_refused(package: Path, build: Path) -> None:
    (package / "core/engine/engine.py").unlink()
    assert use(package, build).compiled is False


def test_for_another_python_it_is_refused(package: Path, build: Path) -> None:
    (build / f"{LIBRARY}{EXTENSION_SUFFIXES[0]}").unlink()
    assert use(package, build) == (
        False, f"it was compiled for another Python than {sys.implementation.cache_tag}",
    )  # fmt: skip


def test_what_cannot_be_loaded_is_refused_and_says_why(package: Path, build: Path) -> None:
    compiled, detail = use(package, build)
    assert not compiled
    assert detail.startswith("it cannot be loaded: ")


def test_a_manifest_that_cannot_be_read_is_refused(package: Path, build: Path) -> None:
    for text in ("{", "[]", "{}"):
        (build / "manifest.json").write_text(text, encoding="utf-8")
        assert use(package, build).detail.startswith("its manifest cannot be read: ")


def test_only_what_is_compiled_is_found_there(tmp_path: Path) -> None:
    finder = compiled_core.CompiledModules({"a.b": tmp_path / f"b{EXTENSION_SUFFIXES[0]}"})
    found = finder.find_spec("a.b", ["anywhere"])
    assert isinstance(found.loader, ExtensionFileLoader)
    assert finder.find_spec("a.c") is None


@pytest.mark.parametrize(
    "value",
    [
        DONE,
        Failed("ValueError", ErrorDetails("a", "b")),
        MoveAsked(Level.L2),
        Quota("uid", 3, 1_000, shared=True),
        ErrorTextPolicy(1, 2),
        IsolationPolicy(0.5, 9, "B1"),
        LaneSet((), (Level.L2,)),
        policy().lanes[0],
        Counts(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_that_leave_the_core_can_be_copied_and_pickled(value: Any) -> None:
    assert pickle.loads(pickle.dumps(value)) == copy.copy(value) == copy.deepcopy(value) == value


def test_what_a_policy_works_out_is_worked_out_once() -> None:
    of = policy()
    assert of.route_table is of.route_table


def test_its_status_is_one_line() -> None:
    assert str(CoreStatus(compiled=True, detail="x")) == "compiled core: on (x)"
    assert str(CoreStatus(compiled=False, detail="y")) == "compiled core: off (y)"


@pytest.mark.skipif("KODOCTL_TEST_COMPILED" not in os.environ, reason="the core is not asked to be compiled")
def test_a_run_that_is_to_test_the_compiled_core_does() -> None:
    assert COMPILED.compiled, COMPILED.detail
    manifest = json.loads((compiled_core.BUILD / "manifest.json").read_text(encoding="utf-8"))
    for name in manifest["modules"]:
        assert importlib.import_module(name).__file__.endswith(EXTENSION_SUFFIXES[0]), name  # type: ignore[union-attr]
