# pure: every branch is tested
"""Typed messages: payloads and options of `kodoctl send` as people type them, and findings about their lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from kodoctl.errors import Diagnostic, UsageError, error
from kodoctl.text.escaping import one_line

_MAX_SHOWN = 60  # characters of a typed text in an error


class TypedMessage(NamedTuple):
    """A message to send. `line`: its line in the input, counted from 1; 0: the whole input is one message."""

    line: int
    payload: bytes


def split_lines(data: bytes) -> list[TypedMessage]:
    """Messages of an input of which each line is one payload. Line ends are left out, and so are lines that are empty
    or blank, which count in the numbers of lines.
    """
    return [
        TypedMessage(number, line.removesuffix(b"\r"))
        for number, line in enumerate(data.split(b"\n"), 1)
        if line.strip()
    ]


def argument_error(detail: str) -> Diagnostic:
    """Finding about a typed option or payload (K730)."""
    return error("K730", "not an argument of a message", detail)


def parse_properties(texts: Iterable[str]) -> tuple[dict[str, str], list[Diagnostic]]:
    """Properties of texts `NAME=VALUE`, and findings about all other texts and about names that are given twice, whose
    first value counts.
    """
    properties: dict[str, str] = {}
    findings = []
    for text in texts:
        name, is_there, value = text.partition("=")
        if not (is_there and name):
            findings.append(argument_error(f"--property {one_line(text, _MAX_SHOWN)!r}: write NAME=VALUE"))
        elif name in properties:
            findings.append(argument_error(f"--property {one_line(name, _MAX_SHOWN)}: given twice"))
        else:
            properties[name] = value
    return properties, findings


def parse_event_time(text: str) -> int:
    """Event time in ms since the epoch, from that number or from a date and time with its zone. Raises UsageError."""
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return round(moment.timestamp() * 1000)
    except ValueError:
        pass
    advice = "write a time with its zone, such as 2026-11-30T10:00:00Z, or ms since the epoch"
    raise UsageError(argument_error(f"--event-time {one_line(text, _MAX_SHOWN)!r}: {advice}"))


def findings_by_line(findings: Iterable[tuple[int, Diagnostic]]) -> list[Diagnostic]:
    """Merges equal findings: returns each once, in the order in which they first come, with the numbers of all its
    lines at the beginning of its detail. `findings`: (number of a line, finding); the numbers of equal findings must
    ascend. A finding with the number 0 is about no line, and its detail stays as it is.
    """
    lines: dict[Diagnostic, list[int]] = {}
    for line, finding in findings:
        lines.setdefault(finding, []).append(line)
    return [
        replace(finding, detail=f"{lines_text(numbers)}: {finding.detail}") if numbers[0] else finding
        for finding, numbers in lines.items()
    ]


def lines_text(numbers: Sequence[int]) -> str:
    """Text of ascending line numbers: `line 3`, or `lines 1-3, 7`."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    texts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    return f"{'line' if len(numbers) == 1 else 'lines'} {', '.join(texts)}"
