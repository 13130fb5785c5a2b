"""Folding of long lines for a screen: at spaces, never inside an address, and inside `{…}` or a quoted command only if
there is no other way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

NARROWEST: Final = 40  # columns; on less, lines stay as long as on this
_SHORT: Final = 44  # characters of a quoted command that stays on one line


def fold(text: str, width: int, hang: int | None = None) -> list[str]:
    """Folds one line for a screen of `width` columns, and returns the lines. Continuation lines begin at column `hang`,
    at most in the middle; None: below the first character. Widths below 40 (NARROWEST) count as 40.

    A word that is longer than a line gets a line of its own and is not cut, so that addresses can be copied.
    """
    width = max(width, NARROWEST)
    if len(text) <= width:
        return [text]
    lead = len(text) - len(text.lstrip(" "))
    indent = min(lead if hang is None else hang, width // 2)
    lines, line, empty = [], " " * lead, True
    for piece in _pieces(text[lead:], width - indent):
        if not empty and len(line) + 1 + len(piece) > width:
            lines.append(line)
            line, empty = " " * indent, True
        if empty and not piece:
            continue  # two spaces where the line was broken
        line = f"{line}{piece}" if empty else f"{line} {piece}"
        empty = False
    return [line.rstrip() for line in (*lines, line)]


def _pieces(text: str, room: int) -> Iterator[str]:
    """Parts of a text that are not broken at the end of a line: words, and, if they fit into `room` columns, `name
    {values: in braces}` and quoted commands.
    """
    piece: list[str] = []
    words = text.split(" ")
    for word, after in zip(words, [*words[1:], ""], strict=True):
        piece.append(word)
        joined = " ".join(piece)
        if _is_closed(joined) and not after.startswith("{"):
            yield from _fitting(piece, room)
            piece = []
    yield from piece


def _fitting(piece: list[str], room: int) -> list[str]:
    """The words of a piece joined if they fit into `room`; else all but the first joined, if they fit; else each word."""
    for split in (0, 1):
        whole = " ".join(piece[split:])
        if len(whole) <= min(room, _SHORT if "`" in whole else room):
            return [*piece[:split], whole] if whole else piece
    return piece


def _is_closed(text: str) -> bool:
    return text.count("{") <= text.count("}") and text.count("`") % 2 == 0
