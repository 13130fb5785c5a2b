"""Pyright in its strict mode judges the decorators as mypy does: see test_types, which is what it reads here."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TYPES = Path(__file__).with_name("test_types.py")


@pytest.mark.full
def test_pyright_accepts_what_works_and_refuses_what_would_not(tmp_path: Path) -> None:
    assert find_spec("basedpyright"), "make test-full-unit installs it: requirements/full-unit.txt"
    settings = {
        "include": [str(TYPES)], "extraPaths": [str(ROOT), str(ROOT / "consumer")], "typeCheckingMode": "strict",
        "enableTypeIgnoreComments": True, "reportUnnecessaryTypeIgnoreComment": "error",
        "reportUnusedFunction": False,  # decorators keep them
    }  # fmt: skip
    project = tmp_path / "pyrightconfig.json"
    project.write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "--project", str(project), "--outputjson"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    assert found["summary"]["filesAnalyzed"] == 1
    assert [
        f"{one['range']['start']['line'] + 1}: {one['message']}"
        for one in found["generalDiagnostics"]
        if one["severity"] == "error"
    ] == []
