"""Hints for YAML syntax errors: the parser's message, the likely place of the mistake, and the correct form."""

from __future__ import annotations

import re
from typing import Final

import yaml

Place = tuple[int, int]

_HINTS: Final = {
    "mapping values are not allowed": "a text with `: ` in it needs quotes; a key belongs on a line of its own, indented",
    "did not find expected key": "look at the indentation here, and for an open quote or bracket above",
    "did not find expected '-' indicator": "look at the indentation here: entries of one list begin in one column",
    "did not find expected ',' or": "a comma or the closing bracket is missing",
    "could not find expected ':'": "a key is followed by a colon and a space, an entry of a list begins with `- `",
}
_STRUCTURE: Final = (
    "mapping values are not allowed",
    "could not find expected ':'",
    "did not find expected key",
    "did not find expected <document start>",
)
_GLUED: Final = re.compile(r"^ *(?:- +)?([A-Za-z_][\w.-]*):(?!//)([^\s:][^:]*)$")
_VALUED: Final = re.compile(r"^( *)(?:- +)?([A-Za-z_][\w.-]*): +[^\s&!|>#]")


def split_glued_key(text: str) -> tuple[str, str] | None:
    """(key, value) of a text `key:value`, whose colon lacks a space; None for any other text."""
    found = _GLUED.match(text)
    return (found[1], found[2].strip()) if found else None


def yaml_error_hint(problem: yaml.MarkedYAMLError, text: str) -> tuple[Place, str]:
    """((line, column) of the likely mistake, from 1; text on the mistake and its correction)."""
    lines = [*text.splitlines(), ""]
    mark = problem.problem_mark
    assert mark is not None  # libyaml gives its errors one
    place = (mark.line + 1, mark.column + 1)
    message = str(problem.problem)
    if "found unexpected end of stream" in message and problem.context_mark:
        opened = problem.context_mark
        return (opened.line + 1, opened.column + 1), "the quote that opens here is never closed"
    if any(words in message for words in _STRUCTURE):
        return _colon(place, lines) or _deeper(place, lines) or (place, _in_general(problem, message, lines, place))
    return place, _in_general(problem, message, lines, place)


def _colon(place: Place, lines: list[str]) -> tuple[Place, str] | None:
    """The hint for a colon without a space, in the line at the place or in one of the two lines with content above;
    None if there is none.
    """
    for number in (place[0], _above(place[0], lines), _above(_above(place[0], lines), lines)):
        line = _line(number, lines)
        if found := split_glued_key(line):
            return (number, line.index(":") + 1), f"a space is missing after the colon: write `{found[0]}: {found[1]}`"
    return None


def _deeper(place: Place, lines: list[str]) -> tuple[Place, str] | None:
    """The hint for a key that is indented more than the line above, which has a value already; else None."""
    above, line = _above(place[0], lines), _line(place[0], lines)
    column = len(line) - len(line.lstrip(" "))
    valued = _VALUED.match(_line(above, lines))
    if valued is None or column <= len(valued[1]):
        return None
    detail = (
        f"this line stands further in than line {above}, whose `{valued[2]}` has a value already:"
        f" begin both in column {len(valued[1]) + 1}, or take that value away"
    )
    return (place[0], column + 1), detail


def _in_general(problem: yaml.MarkedYAMLError, text: str, lines: list[str], place: Place) -> str:
    at = _line(place[0], lines)[place[1] - 1 : place[1]]
    opened = problem.context_mark
    since = f" that begins on line {opened.line + 1}" if opened and opened.line + 1 != place[0] else ""
    context = f" ({problem.context}{since})" if problem.context else ""
    if at == "\t":
        return "this is a tab; indent with spaces, two a level"
    if at and at in "@`%" and "cannot start any token" in text:
        return f"{text}{context}: a text that begins with {at} needs quotes"
    hint = next((f": {hint}" for words, hint in _HINTS.items() if words in text), "")
    return f"{text}{context}{hint}"


def _above(number: int, lines: list[str]) -> int:
    """Number of the nearest line above with content; 0 if there is none."""
    while (number := number - 1) > 0:
        text = _line(number, lines).strip()
        if text and not text.startswith("#"):
            return number
    return 0


def _line(number: int, lines: list[str]) -> str:
    return lines[number - 1].split(" #", 1)[0].rstrip(" ") if 0 < number <= len(lines) else ""
