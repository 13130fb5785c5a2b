"""What an apply shows while it runs: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest

from kodoctl.apply.report import ApplyEvent
from kodoctl.cli.apply.apply_progress import ApplyProgress
from kodoctl.cli.common.console import tell_wait
from kodoctl.plan.changes import ChangeContext, Forget
from kodoctl.topology.resources import Address

LONG = Address(f"topic.persistent://acme/trade/{'orders-' * 12}billing-RETRYING")
SHORT = Address("topic.persistent://acme/trade/x")
CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def event(kind: str, address: Address, number: int, detail: str = "") -> ApplyEvent:
    return ApplyEvent(kind, Forget(address, None, ChangeContext("trade")), number, 12, detail)


def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error from here on; in the test itself, for between a fixture and its test pytest takes it back."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    return screen


def refreshed(progress: ApplyProgress, screen: Terminal) -> list[str]:
    """The lines of the table as it is drawn now."""
    assert progress._live is not None
    before = screen.tell()
    progress._live.refresh()
    return [line.rstrip() for line in CONTROLS.sub("", screen.getvalue()[before:]).splitlines() if line.strip()]


def test_a_terminal_shows_what_runs_and_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    with ApplyProgress() as progress:
        progress.of("")(event("started", LONG, 0))
        progress.of("")(event("started", SHORT, 0))
        first, second, last = refreshed(progress, terminal)
        assert re.fullmatch(r"\r?forgetting +…[a-z-]+billing-RETRYING +\d\.\d s", first)
        assert len(first.strip()) <= 60
        assert re.fullmatch(r"forgetting +topic.persistent://acme/trade/x +\d\.\d s", second)
        assert re.fullmatch(r"0/12 +finished +\d\.\d s", last)
        progress.of("")(event("done", LONG, 1))
        assert f"[1/12] forgot {LONG}\n" in CONTROLS.sub("", terminal.getvalue()).replace("\r", "")  # in one piece
        assert [line.split()[0] for line in refreshed(progress, terminal)] == ["forgetting", "1/12"]
    assert terminal.getvalue().endswith(2 * "\x1b[1A\x1b[2K"), "both lines of the table are wiped"


def test_many_that_run_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    with ApplyProgress() as progress:
        for number in range(11):
            progress.of("")(event("started", Address(f"topic.persistent://acme/trade/t{number}"), 0))
        lines = refreshed(progress, terminal)
    assert len(lines) == 9
    assert lines[-1].split("  ")[0] == "0/12"
    assert "3 more running" in lines[-1]


def test_clusters_side_by_side_have_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    with ApplyProgress() as progress:
        east, west = progress.of("east"), progress.of("west")
        east(event("started", SHORT, 0))
        west(event("failed", SHORT, 3, "403: not allowed"))
        lines = refreshed(progress, terminal)
    assert [line.split()[:2] for line in lines] == [["east", "forgetting"], ["east", "0/12"], ["west", "3/12"]]
    shown = CONTROLS.sub("", terminal.getvalue())
    assert f"west [3/12] FAILED: forget {SHORT}" in shown
    assert "    403: not allowed" in shown


def test_elsewhere_it_is_a_line_for_what_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    with ApplyProgress() as progress:
        progress.of("")(event("started", LONG, 0))
        progress.of("")(event("done", LONG, 1))
    assert capsys.readouterr().err == f"[1/12] forgot {LONG}\n"


def test_machines_get_a_json_line_for_each_event(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = a_terminal(monkeypatch)
    with ApplyProgress(stream_json=True) as progress:
        progress.of("east")(event("started", SHORT, 0))
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) | {"status": "started", "context": "east", "action": "forget"} == json.loads(line)
    assert terminal.getvalue() == ""


def test_a_wait_past_its_limit_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    tell_wait("the journal", 7.0, 60.0)
    tell_wait("the journal", 144.0, 60.0)
    assert capsys.readouterr().err.splitlines() == [
        "Waiting for the cluster, 7 s of at most 60 s: the journal",
        "Waiting for the cluster, 144 s (limit 60 s), last try, then giving up: the journal",
    ]
