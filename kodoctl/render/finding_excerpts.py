"""Lint findings for a screen: each with its line of the file, and a caret below its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final
from unicodedata import east_asian_width

from kodoctl.errors import Severity
from kodoctl.render.findings import summary
from kodoctl.text.escaping import printable
from kodoctl.text.line import Line
from kodoctl.text.wrap import NARROWEST

if TYPE_CHECKING:
    from kodoctl.topology.lint.linter import LintReport


def excerpt_lines(report: LintReport, source: Callable[[str], Sequence[str]], width: int) -> Iterator[Line]:
    """Lines for a screen of `width` columns: each finding, then the summary. If `source` returns the line of a finding,
    that line is shown, cut to the width, with carets below the word at the finding's column; users and passwords in
    addresses are masked. All other lines are as long as their texts. `source`: returns the lines of a file, given its
    name.
    """
    for finding in report.findings:
        allowed = finding.allowed_because is not None
        style = "dim" if allowed else _STYLES[finding.severity]
        yield Line(f"{'allowed' if allowed else finding.severity.value} {finding.code}: {finding.summary}", style)
        if where := finding.where:
            yield Line(f"  at {where}", "cyan")
            lines = source(where.file) if where.line else ()
            if 0 < where.line <= len(lines):
                yield from _excerpt(lines[where.line - 1], where.line, where.column, width, style)
        for part in filter(None, finding.detail.split("\n")):
            yield Line(f"  {part}")
        if allowed:
            yield Line(f"  allowed because {finding.allowed_because}", "dim")
        yield Line()
    yield Line(summary(report), "bold")


def _excerpt(text: str, number: int, column: int, width: int, style: str) -> Iterator[Line]:
    """The line of a file, or its part around the column if it is longer than the screen, and carets below the word."""
    text = _PASSWORD.sub(lambda found: "*" * len(found[0]), text)  # as long, so that the carets stand right
    word = _WORD.match(text, max(column, 1) - 1)
    if word is None:  # the end of the line, or behind it
        return
    lead = f"  {number:>4} | "
    room = max(width, NARROWEST) - len(lead)
    before, marked, whole = printable(text[: word.start()]), printable(word[0]), printable(text)
    begin = max(0, min(len(before) - room // 3, len(whole) - room))
    shown = whole[begin : begin + room]
    shown = f"{'…' if begin else ''}{shown[bool(begin) :]}"
    shown = f"{shown[:-1]}…" if begin + room < len(whole) else shown
    blanks = _columns(before[begin:])
    carets = max(1, min(_columns(marked), room - blanks))
    yield Line(f"{lead}{shown}", hang=0)
    yield Line(f"{' ' * (len(lead) - 2)}| {' ' * blanks}{'^' * carets}", style)


def _columns(text: str) -> int:
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


_PASSWORD: Final = re.compile(r"(?<=://)[^@\s]+(?=@)")  # of an address, with its user
_WORD: Final = re.compile(r"""\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s,\[\]{}:#\"'][^\s,\[\]{}:]*|\S""")
_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}
