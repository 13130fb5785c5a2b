"""Plugins of pydantic are left out, whatever pydantic wants of the module that looks for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.source_roots import PATHS

START = "from kodoctl.cli.common.pydantic_plugins import leave_out_plugins\nleave_out_plugins()\n"
MODEL = (
    "import sys, pydantic\nprint(pydantic.create_model('Model', a=int)(a='1'), 'importlib.metadata' in sys.modules)\n"
)


@pytest.mark.parametrize(
    ("program", "variables", "printed"),
    [
        (f"{START}{MODEL}", {}, "a=1 False"),
        (f"{START}{MODEL}", {"PYDANTIC_DISABLE_PLUGINS": "other"}, "a=1 True"),
        (f"{MODEL}{START}{MODEL}", {}, "a=1 True\na=1 True"),
        (
            f"{START}from pydantic.plugin._loader import PYDANTIC_ENTRY_POINT_GROUP\nprint(PYDANTIC_ENTRY_POINT_GROUP)",
            {},
            "pydantic",
        ),
    ],
    ids=["usual", "chosen by the user", "pydantic is imported already", "another name of the module"],
)
def test_a_model_is_made(program: str, variables: dict[str, str], printed: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": PATHS, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == printed
