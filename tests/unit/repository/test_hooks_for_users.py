"""Hooks that other repositories take from this one: their commands exist, and they choose topology files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from kodoctl.cli.main import app

ROOT = Path(__file__).parents[3]
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}


def test_the_page_offers_each_hook() -> None:
    page = (ROOT / "docs/how-to/editor.md").read_text(encoding="utf-8")
    assert set(re.findall(r"- id: (\S+)", page)) == set(HOOKS)


@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
def test_a_hook_chooses_topologies_and_its_command_accepts_them(
    hook: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [
        name for name in ("topologies/a.yaml", "shop/topologies/eu/a.yml", "a.yaml") if re.search(hook["files"], name)
    ]
    assert chosen == ["topologies/a.yaml", "shop/topologies/eu/a.yml"]
    file = tmp_path / "topologies/trade.yaml"
    file.parent.mkdir()
    file.write_text(
        (ROOT / "topologies/trade.yaml").read_text(encoding="utf-8").replace("../schemas", str(ROOT / "schemas")),
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    program, *words = hook["entry"].split()
    names = ["topologies/trade.yaml"] if hook.get("pass_filenames", True) else []
    assert program == "kodoctl"
    done = CliRunner().invoke(app, [*words, *names])
    assert done.exit_code == 0, done.output
