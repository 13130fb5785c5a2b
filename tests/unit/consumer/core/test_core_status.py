"""What the core says of itself where kodo-fast is not installed."""

from __future__ import annotations

import runpy
import sys

import kodo_consumer.core
import pytest


def test_a_core_beside_no_build_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kodo_fast.compiled_core", None)
    found = runpy.run_path(str(kodo_consumer.core.__file__))["COMPILED"]
    assert not found.compiled
    assert str(found) == "compiled core: off (kodo-fast is not installed)"
