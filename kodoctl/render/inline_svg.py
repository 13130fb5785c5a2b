# pure: every branch is tested
"""Drawings of Graphviz as SVG elements for a page: only shapes, texts and links into the same catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape
from types import MappingProxyType
from typing import Final
from xml.etree import ElementTree as ET

NO_TEXTS: Final[Mapping[str, str]] = MappingProxyType({})
_SVG: Final = "{http://www.w3.org/2000/svg}"
_LINK: Final = "{http://www.w3.org/1999/xlink}href"
_SHAPES: Final = {
    "g": ("transform",),
    "path": ("d", "fill", "stroke", "stroke-dasharray"),
    "polygon": ("points", "fill", "stroke", "stroke-dasharray"),
    "text": ("x", "y", "text-anchor", "font-size", "font-weight", "fill"),
}
"""Element -> its attributes that a page gets. Others, such as scripts and styles, are left out."""
_IN_CATALOGUE: Final = re.compile(r"(?:topologies/)?[\w.-]+\.html(?:#[\w.~-]+)?", re.ASCII)
_WIDEST: Final = 1100  # points: a wider drawing keeps its size and is scrolled, so that it can be read
_GROUND: Final = ("white", "transparent")  # fill and stroke of the ground that Graphviz draws below everything


def inline_svg(document: str, label: str, texts: Mapping[str, str] = NO_TEXTS) -> str:
    """One SVG document of Graphviz as an element of a page: shapes, texts and links, and nothing else of it. `label`:
    text of the drawing for those who do not see it; `texts`: text in the document -> the text to show in its place.

    A link is kept if it has the form of a link to a page of the catalogue or to a section of one.
    """
    root = ET.fromstring(document.partition("</svg>")[0] + "</svg>")  # noqa: S314  # the user's own Graphviz
    width, height, box = (root.get(name, "") for name in ("width", "height", "viewBox"))
    size = f'viewBox="{escape(box)}" width="{escape(width)}" height="{escape(height)}"'
    kind = "drawing" if float(width.removesuffix("pt") or 0) <= _WIDEST else "drawing wide"
    return f'<svg class="{kind}" role="group" aria-label="{escape(label)}" {size}>{_inside(root, texts)}</svg>'


def _inside(element: ET.Element, texts: Mapping[str, str]) -> str:
    return "".join(_shown(inner, texts) for inner in element)


def _shown(element: ET.Element, texts: Mapping[str, str]) -> str:
    name = str(element.tag).removeprefix(_SVG)
    if name == "a":
        return _linked(element, texts)
    if name not in _SHAPES or tuple(map(element.get, ("fill", "stroke"))) == _GROUND:
        return ""
    text = element.text or ""
    inside = escape(texts.get(text, text)) if name == "text" else _inside(element, texts)
    return f"<{name}{''.join(_attributes(element, _SHAPES[name]))}>{inside}</{name}>"


def _attributes(element: ET.Element, names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        if (value := element.get(name)) is not None:
            yield f' {name}="{escape(value)}"'


def _linked(element: ET.Element, texts: Mapping[str, str]) -> str:
    link = element.get(_LINK, "")
    if not _IN_CATALOGUE.fullmatch(link):
        return _inside(element, texts)
    return f'<a href="{escape(link)}">{_inside(element, texts)}</a>'
