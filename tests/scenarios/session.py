"""A golden scenario: one `session.txt` that reads as a terminal does, run line by line and compared with what it says.

    ## a remark, kept as it is
    $ kodoctl plan --env prod        a command; what it printed follows, then `[exit N]` unless N is 0
    % use after.yaml                 something done without kodoctl (tests/scenarios/by_hand.py)

What differs from run to run is written in words: the tenant is `acme`, addresses of the broker `ADMIN`, and so on. Commands run
five hours after the messages were published, so that ages are the same on every machine.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kodoctl.cli.main import main
from kodoctl.dev.instance import STANDALONE
from tests.brokers.broker import CLUSTER_NAME
from tests.brokers.workspace import Workspace, normalised, this_process_goes_on
from tests.scenarios.by_hand import by_hand

WIDTH = 80
LATER = 5 * 3600.0  # seconds between what happens on the broker and what commands take for now
_EVENT = re.compile(r"\[\d+/\d+\] (?:[A-Z ]+: )?(create|update|delete|adopt|forg[eo]t)(?:e?d)? (\w+)\.")
_KINDS = ("tenant", "namespace", "topic", "schema", "subscription", "grant")


@dataclass(frozen=True)
class Step:
    """A line that does something, with the remark lines before it."""

    line: str
    remarks: tuple[str, ...]


def steps_of(text: str) -> tuple[list[Step], tuple[str, ...]]:
    """The steps of a session, and remarks after the last one; what commands printed is left out."""
    steps: list[Step] = []
    remarks: list[str] = []
    for line in text.splitlines():
        if line.startswith(("$ ", "% ")):
            steps.append(Step(line, tuple(remarks)))
            remarks = []
        elif line.startswith("## "):
            remarks.append(line)
    return steps, tuple(remarks)


def play(text: str, workspace: Workspace, files: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The session as it goes today; `files`: the folder with the scenario's input."""
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.delenv("CI", raising=False)
    steps, last = steps_of(text)
    blocks = []
    for step in steps:
        line = step.line[2:]
        output = _command(line, workspace) if step.line.startswith("$ ") else by_hand(line, workspace, files)
        blocks.append("\n".join([*step.remarks, step.line, *output]))
    return "\n\n".join([*blocks, *last]) + "\n"


def _command(line: str, workspace: Workspace) -> list[str]:
    """What one command prints on both streams, as a terminal would show it."""
    words = shlex.split(line.replace("acme", workspace.tenant))
    assert words.pop(0) == "kodoctl", line
    connection = [] if _offline(words) else workspace.connection()
    stream = io.StringIO()
    with _five_hours_later(), contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        code = _exit_code([*words, *connection])
    shown = _in_order(_settled(stream.getvalue(), workspace.tenant).rstrip("\n").split("\n"))
    return [*(text for text in shown if text or len(shown) > 1), *([f"[exit {code}]"] if code else [])]


def _offline(words: list[str]) -> bool:
    return words[0] in ("lint", "expand", "fmt", "show")


def _exit_code(words: list[str]) -> int:
    before = sys.argv
    sys.argv = ["kodoctl", *words]
    try:
        with this_process_goes_on():
            main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    raise AssertionError("main ends with an exit code")


@contextlib.contextmanager
def _five_hours_later() -> Iterator[None]:
    real = time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: real() + LATER)
        yield


def too_wide(text: str) -> list[str]:
    """Lines of a session that are longer than the screen, but for those that end in a long address, and those for machines."""
    found, machines = [], False
    for line in text.splitlines():
        if line.startswith(("$ ", "% ")):
            machines = line.startswith("% ") or bool({"json", "markdown", "github", "lint"} & set(line.split()))
        word = line.split()[-1].rstrip("\\") if line else ""
        if not machines and len(line) > WIDTH and not line.startswith(("## ", "$ ", "% ")) and "://" not in word:
            found.append(line)
    return found


_VOLATILE = (
    (re.compile(r'"uuid(s?)": "[0-9a-f-]{36}"'), r'"uuid\1": "UUID"'),
    (re.compile(r"\b[0-9a-f]{64}\b"), "DIGEST"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}\b"), "UUID"),
    (re.compile(r"\b\d+\.\d\d s\b"), "TIME"),
    (re.compile(r"\b\d+ write requests?\b"), "N write requests"),
    (re.compile(r"\b1[6-9]\d{11}\b"), "MOMENT"),
    (re.compile(r"(?<=since HEAD \()[0-9a-f]{8}\b"), "COMMIT"),
    (
        re.compile(
            r"(?m)^[0-9a-f]{8}(?=  20)|(?<=^  )[0-9a-f]{8}(?=, 20)|(?<=undoes )[0-9a-f]{8}\b|(?<=--id )[0-9a-f]{8}\b"
            r"|(?<=apply of acme/trade, )[0-9a-f]{8}\b"
        ),
        "APPLY-ID",
    ),
    (re.compile(r"\bby \S+@\S+ pid \d+"), "by WHO"),
    (re.compile(r"\b127\.0\.0\.1:\d+"), "CLIENT"),
    (re.compile(r"(?<=Plan )[0-9a-f]{12}\b"), "PLAN-HASH"),
    (re.compile(r"(?<=--hash )[0-9a-f]{12}\b"), "PLAN-HASH"),
    (re.compile(r"\b\d+:(\d+:\d+:-1)\b"), r"LEDGER:\1"),
    (re.compile(r"\b20\d\d-\d\d-\d\d \d\d:\d\d UTC\b"), "DAY-AND-TIME"),
    (re.compile(r"\b\d+\.\d s\b"), "TIME"),
    (re.compile(r"^[\d,]+ of [\d,]+\n", re.MULTILINE), ""),  # progress, told every two seconds
)


def _settled(text: str, tenant: str) -> str:
    text = normalised(text, tenant)
    for pattern, word in _VOLATILE:
        text = pattern.sub(word, text)
    return text.replace(CLUSTER_NAME, STANDALONE)


def _in_order(lines: list[str]) -> list[str]:
    """Changes that ran side by side, each with its reasons, in the order of their levels and names, counted anew."""
    events: list[list[str]] = []
    shown: list[str] = []
    for line in [*lines, ""]:
        if _EVENT.match(line):
            events.append([line])
        elif events and line.startswith("    "):
            events[-1].append(line)
        else:
            for number, event in enumerate(sorted(events, key=lambda event: _event_key(event[0])), 1):
                shown += [re.sub(r"^\[\d+", f"[{number}", event[0]), *event[1:]]
            events = []
            shown.append(line)
    return shown[:-1]


def _event_key(line: str) -> tuple[Any, ...]:
    found = _EVENT.match(line)
    assert found is not None
    rank = _KINDS.index(found[2]) if found[2] in _KINDS else len(_KINDS)
    deleting = found[1] == "delete"
    return (deleting, -rank if deleting else rank, line.partition("] ")[2])
