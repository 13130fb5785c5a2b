# pure: every branch is tested
"""Drawings that topics share: two DOT graphs that differ only in labels of about the same width are drawn once.

Graphviz needs a process for each graph. The topics of a large topology are alike apart from their names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

_LABEL: Final = re.compile(r'label="((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")
_NARROW: Final = frozenset("fijlrtI.,:;|!'()[]/ -")
_WIDE: Final = frozenset("mwMW@%")


@dataclass(frozen=True, slots=True)
class Drawing:
    """An SVG document of Graphviz. `texts`: text in it -> the text to show in its place, of a graph that shares it."""

    document: str
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GraphShape:
    """A DOT graph apart from its labels. `key`: equal for graphs of the same shape whose labels have about the same
    widths; `labels`: lines of its labels, as the drawing shows them.
    """

    key: str
    labels: tuple[str, ...]


def shape_of(dot: str) -> GraphShape:
    """The shape of a DOT graph whose labels are quoted strings."""
    labels = tuple(line for label in _LABEL.findall(dot) for line in _lines(label))
    widths = ",".join(str(ceil(_width(line))) for line in labels)
    return GraphShape(f"{_LABEL.sub('label=', dot)}\n{widths}", labels)


def texts_between(first: Sequence[str], second: Sequence[str], drawn: str) -> dict[str, str] | None:
    """Text of the first graph -> text of the second, for the labels that differ. None if the drawing of the first,
    `drawn`, cannot serve for the second: a text of it stands for two of the second, or the drawing shows it in another
    form. `first`, `second`: `labels` of shapes with the same `key`.
    """
    texts: dict[str, str] = {}
    for one, other in zip(first, second, strict=True):
        if texts.setdefault(one, other) != other:
            return None
    differing = {one: other for one, other in texts.items() if one != other}
    return differing if all(f">{_as_drawn(one)}</text>" in drawn for one in differing) else None


def _as_drawn(text: str) -> str:
    """A text as Graphviz writes it into an SVG document."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("-", "&#45;").replace('"', "&quot;").replace("'", "&#39;")


def _lines(label: str) -> list[str]:
    text = _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], label)
    return text.replace("&amp;", "&").split("\n")


def _width(text: str) -> float:
    """Width of a text in Helvetica, in ems, roughly: a box has room for one em more."""
    return sum(0.3 if one in _NARROW else 0.85 if one in _WIDE else 0.7 if one.isupper() else 0.56 for one in text)
