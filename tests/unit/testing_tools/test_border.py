"""The environment's word on the native border, for whole test runs: what is asked for is what is tested."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.worlds import NATIVE
from tests.source_roots import PATHS

ROOT = Path(__file__).parents[3]
_ASK = """
from tests.native.border import follow_environment

follow_environment()
from kodo_consumer.adapters.pulsar.native_border import DELIVERIES

print(DELIVERIES.choose().status)
"""


def _status(asked: str | None, *first: Path) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "KODO_CONSUMER_NATIVE"}
    environ |= {} if asked is None else {"KODO_CONSUMER_NATIVE": asked}
    environ["PYTHONPATH"] = os.pathsep.join([*map(str, first), PATHS, environ.get("PYTHONPATH", "")])
    return subprocess.run([sys.executable, "-c", _ASK], env=environ, capture_output=True, text=True, check=False)


@NATIVE
@pytest.mark.parametrize("asked", [None, "true"])
def test_where_it_is_built_tests_run_with_it(asked: str | None) -> None:
    assert _status(asked).stdout.startswith("native border: on")


def test_false_runs_them_without_it() -> None:
    assert _status("false").stdout == "native border: off (kodo-fast is not installed)\n"


def test_true_refuses_to_run_without_it(tmp_path: Path) -> None:
    (tmp_path / "kodo_fast.py").write_text("raise ImportError('broken')\n", encoding="utf-8")
    found = _status("true", tmp_path)
    assert found.returncode == 1
    assert "KODO_CONSUMER_NATIVE=true, and native border: off (kodo-fast cannot be imported: broken)" in found.stderr
