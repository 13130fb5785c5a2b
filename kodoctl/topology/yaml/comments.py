"""Positions of comments in a YAML text: a `#` inside a scalar is no comment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import yaml
from yaml.cyaml import CParser  # type: ignore[attr-defined]  # the stubs forget to re-export it


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment from its `#` to the end of the line. `line`, `column`: from 1; `alone`: nothing else is on the line."""

    line: int
    column: int
    text: str
    alone: bool


def find_comments(text: str) -> Iterator[Comment]:
    """Yields every comment of a text, in order. Raises yaml.YAMLError for a text that is no YAML."""
    scalars = _scalars(text)
    start, end = next(scalars)
    for number, line in enumerate(text.splitlines(), 1):
        column = line.find("#") + 1
        while column:
            while end <= (number, column):
                start, end = next(scalars)
            if (number, column) < start:
                before = line[: column - 1].strip()
                yield Comment(number, column, line[column - 1 :].rstrip(), alone=not before)
                break
            column = line.find("#", column) + 1


def _scalars(text: str) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yields (start, end) of every scalar, keys included: (line, column) from 1, end exclusive; at last a pair after
    all lines. A block text starts on the line after its `|` or `>`.
    """
    parser = CParser(text)
    while (token := parser.get_token()) is not None:
        if isinstance(token, yaml.ScalarToken):
            start, end = token.start_mark, token.end_mark
            first = (start.line + 1, start.column + 1)
            if token.style in ("|", ">"):
                first = (start.line + 2, 1)  # a comment may stand behind the sign
            yield first, (end.line + 1, end.column + 1)
    behind = (len(text) + 2, 0)
    yield behind, behind
