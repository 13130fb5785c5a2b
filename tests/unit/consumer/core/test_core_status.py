"""What the core says of itself where it is not compiled."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import kodo_consumer.core
import pytest
from kodo_consumer.core import CoreStatus


@pytest.fixture(autouse=True)
def _no_kodo_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "kodo_fast"]:
        monkeypatch.delitem(sys.modules, name)


def _status() -> str:
    """What the package says when it is imported once more; the one in use stays."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kodo_consumer, "core", kodo_consumer.core)
        patched.delitem(sys.modules, "kodo_consumer.core")
        status: CoreStatus = importlib.import_module("kodo_consumer.core").COMPILED
    assert not status.compiled
    return str(status)


def test_a_core_beside_no_build_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kodo_fast", None)
    assert _status() == "compiled core: off (kodo-fast is not installed)"


def test_an_earlier_kodo_fast_without_a_compiled_core_is_said_to_be_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "kodo_fast").mkdir()
    (tmp_path / "kodo_fast/__init__.py").write_text("__version__ = '1.0.0'\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert _status() == "compiled core: off (the installed kodo-fast is of an earlier release, which has none)"


def test_a_kodo_fast_that_cannot_be_imported_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "kodo_fast.py").write_text("raise ImportError('made for another Python')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert _status() == "compiled core: off (kodo-fast cannot be imported: made for another Python)"
