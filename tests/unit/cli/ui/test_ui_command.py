"""`kodoctl ui` before and beside its pages: the extra, the words of its commands, and the browser."""

from __future__ import annotations

import stat
import sys
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from kodoctl.cli.common.command_target import TargetOptions, load_desired
from kodoctl.cli.ui.ui_command import _open, _words
from tests.unit.cli.running import kodoctl


@pytest.mark.parametrize("library", ["starlette", "uvicorn"])
def test_a_missing_extra_is_named_with_the_way_to_install_it(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    ran = kodoctl("ui")
    assert ran.code == 64
    assert "[K035]" in ran.err
    assert "pip install '.[ui]'" in ran.err


def test_commands_of_pages_reach_the_same_cluster_in_the_same_environment() -> None:
    kodoctl("init")
    desired = load_desired(None, None)
    words = _words(TargetOptions(context="prod", token_file="t k"), desired, ["topologies"], "base")
    name = desired.expansions[0].name
    assert words.line("kodoctl plan", name).endswith(" --env base --context prod --token-file 't k'")
    assert words.line_of_cluster("kodoctl peek", "a/b/c") == "kodoctl peek a/b/c --context prod --token-file 't k'"


@pytest.mark.parametrize("opened", [True, False])
def test_the_browser_gets_the_token_by_a_file_of_its_owner(
    opened: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Arguments of a program can be seen by every user of the machine."""
    given: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: given.append(url) or opened)
    _open("http://127.0.0.1:1/?token=secret")
    assert "secret" not in given[0]
    file = Path(unquote(urlsplit(given[0]).path))
    assert "url=http://127.0.0.1:1/?token=secret" in file.read_text()
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert ("No browser was found" in capsys.readouterr().err) is not opened
