"""`kodoctl ui` before and beside its pages: the extra, the audit's file, the words of its commands, and the browser."""

from __future__ import annotations

import json
import stat
import sys
import time
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from kodoctl.cli.common.command_target import TargetOptions, load_desired
from kodoctl.cli.ui.console_data import _read_audit
from kodoctl.cli.ui.ui_command import _open, _words
from kodoctl.plan.inventory import Desired
from tests.samples.consoles import WORDS
from tests.unit.cli.running import kodoctl

NOTHING = Desired((), None, {})


@pytest.mark.parametrize("library", ["starlette", "uvicorn"])
def test_a_missing_extra_is_named_with_the_way_to_install_it(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    ran = kodoctl("ui")
    assert ran.code == 64
    assert "[K035]" in ran.err
    assert "pip install '.[ui]'" in ran.err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "{}",
        '{"verdict": "fine", "reasons": []}',
        '{"verdict": [], "reasons": []}',
        '{"verdict": "loss", "reasons": 3}',
        "[" * 200_000,
    ],
)
def test_a_file_that_is_no_audit_is_no_verdict(folder: Path, text: str) -> None:
    (folder / "audit.json").write_text(text)
    sentence = _read_audit(Path("audit.json"), WORDS, NOTHING)
    assert sentence.style == "open"
    assert "audit.json is no document of `kodoctl pipeline audit --format json`" in sentence.text
    assert sentence.command == "kodoctl pipeline audit topologies/trade.yaml --format json --context prod > audit.json"


def test_the_audit_is_read_each_time_as_it_may_be_replaced(folder: Path) -> None:
    file = Path("audit.json")
    assert _read_audit(file, WORDS, NOTHING).text == "Not judged whether a message was lost"
    for verdict, style in (("no loss", "good"), ("loss", "bad")):
        file.write_text(
            json.dumps({"verdict": verdict, "reasons": [], "coverage": [], "read_at": time.time_ns() // 1_000_000})
        )
        assert _read_audit(file, WORDS, NOTHING).style == style
    assert _read_audit(None, WORDS, NOTHING).command.endswith("> audit.json; kodoctl ui … --audit audit.json")


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
