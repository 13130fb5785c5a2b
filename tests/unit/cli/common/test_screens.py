"""Where output goes: pipes without colour, terminals with it, narrow ones, readers that leave early."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from kodoctl.cli.common.terminal import show_lines
from kodoctl.text.line import Line
from tests.brokers.workspace import run_main

NAMES = [f"a-rather-long-name-of-a-ground-topic-{number:03}" for number in range(120)]
MANY = "version: 1\nname: trade\ntenant: kodo\nnamespace: trade\ntopics:\n" + "".join(
    f"  {name}: {{levels: double, subscriptions: {{billing: {{}}}}}}\n" for name in NAMES
)
ANSI = re.compile(r"\x1b\[")
PROSE = Line("      a sentence that is longer than the narrow screen of whoever has to read it at night", "red")


@pytest.fixture(autouse=True)
def files(folder: Path) -> Path:
    """120 ground topics in the default folder: more output than a pipe holds."""
    (folder / "topologies").mkdir()
    (folder / "topologies" / "trade.yaml").write_text(MANY)
    return folder


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def _on_a_terminal(*arguments: str, columns: int = 80, **environment: str) -> str:
    """What a process writes to a terminal of this width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "TERM")}
    done = subprocess.Popen(
        [sys.executable, "-m", "kodoctl", *arguments],
        stdin=slave, stdout=slave, stderr=slave, env={**kept, "TERM": "xterm-256color", **environment},
    )  # fmt: skip
    os.close(slave)
    read = b""
    while True:
        try:
            block = os.read(master, 65_536)
        except OSError:  # the last writer is gone
            break
        if not block:
            break
        read += block
    os.close(master)
    assert done.wait() in (0, 1)
    return read.decode()


@pytest.mark.parametrize("arguments", [("expand",), ("lint",), ("graph",), ("plan",), ("context", "list")])
def test_a_pipe_gets_no_colour(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "")
    assert not ANSI.search(run_main(*arguments).text)


def test_a_terminal_gets_colour_and_folds_to_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    show_lines([PROSE])
    shown = terminal.getvalue()
    assert ANSI.search(shown)
    assert all(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) <= 60 for line in shown.splitlines())


def test_no_color_is_honoured_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    show_lines([PROSE])
    assert not ANSI.search(terminal.getvalue())


def test_no_color_is_honoured_by_the_process_too(files: Path) -> None:
    (files / "topologies" / "trade.yaml").write_text("\n".join(MANY.splitlines()[:6]))
    coloured = _on_a_terminal("expand", "--explain")
    plain = _on_a_terminal("expand", "--explain", NO_COLOR="1")
    assert not ANSI.search(plain)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_a_style_that_no_terminal_knows_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    show_lines([Line("one", "bold mauve"), Line("two", "mauve")])
    assert capsys.readouterr().out == "\x1b[1mone\x1b[0m\ntwo\n"


@pytest.mark.parametrize("columns", ["1", "10", "40"])
@pytest.mark.parametrize("arguments", [("expand",), ("lint",), ("graph", "--topic", NAMES[0]), ("plan",), ("--help",)])
def test_a_narrow_terminal_breaks_nothing(
    columns: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    ran = run_main(*arguments)
    assert ran.code in (0, 64)
    assert ran.text.strip()


def test_columns_that_are_no_number_break_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "wide")
    assert run_main("plan").err.startswith("Error: no cluster named [K503]\n")


@pytest.mark.parametrize("arguments", [("expand",), ("expand", "--format", "json"), ("schema",), ("lint",)])
def test_a_reader_that_leaves_early_sees_no_traceback(arguments: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kodoctl", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0


def test_errors_and_notes_go_to_standard_error_and_data_alone_to_standard_output(files: Path) -> None:
    (files / "topologies" / "trade.yaml").write_text(MANY.replace("levels: double", "partitions: 2000"))
    ran = run_main("expand", "--format", "json")
    assert ran.code == 0
    json.loads(ran.out)
    assert run_main("plan").out == ""
