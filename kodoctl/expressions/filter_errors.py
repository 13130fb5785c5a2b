"""Errors in a condition. Each shows the text with a caret below its place."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Final

from kodoctl.errors import Diagnostic, UsageError, error

_SHOWN: Final = 60  # characters of the text around the place


class ConditionError(UsageError):
    """A condition cannot be parsed or uses syntax that is not allowed; every finding in `diagnostics` has its place."""


@dataclass(frozen=True, slots=True, order=True)
class SyntaxIssue:
    """One error in a condition. `at`: its first character, from 0; `length`: number of characters that the caret marks."""

    at: int
    length: int
    code: str
    summary: str
    detail: str


def diagnostics(text: str, faults: list[SyntaxIssue]) -> list[Diagnostic]:
    """Findings for the errors of a condition, without duplicates, in the order of their places."""
    return [error(fault.code, fault.summary, _fault_text(text, fault)) for fault in sorted(set(faults))]


def _fault_text(text: str, fault: SyntaxIssue) -> str:
    """Three lines: the detail, some 60 characters around the place, the caret. Only the detail if `text` is empty."""
    at = min(max(fault.at, 0), len(text))
    first = max(0, at - _SHOWN * 2 // 3)
    piece = text[first : first + _SHOWN]
    before = _plain(piece[: at - first])
    marked = max(1, min(fault.length, len(piece) - (at - first)))
    head = "…" if first else ""
    tail = "…" if first + _SHOWN < len(text) else ""
    line = f"  {head}{_plain(piece)}{tail}"
    caret = f"  {' ' * (_width(head) + _width(before))}{'^' * marked}"
    place = f"at character {at + 1}: {fault.detail}"
    return f"{place}\n{line}\n{caret}" if text else place


def _plain(text: str) -> str:
    """The text with `·` for each character that would not print as one column or two."""
    return "".join(c if c.isprintable() and not unicodedata.combining(c) else "·" for c in text)


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
