# adapter: draws for people
"""Text of SQL results: a table if it fits the screen, else one line per column; CSV and JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

from kodoctl.text.escaping import printable
from kodoctl.text.formatting import many
from kodoctl.text.wrap import fold

SHOWN: Final = 1_000  # rows of a table for people
_LONGEST: Final = 2_000  # characters of a value for people
_GAP: Final = "  "
Row = Sequence[Any]


def text_lines(columns: Sequence[str], rows: Sequence[Row], width: int, *, more: bool) -> Iterator[str]:
    """Yields a text table that is at most `width` characters wide; if it would be wider, a block for each row instead,
    in which each column begins a line. `more`: there are more rows than these. Values for people are cut to 2,000
    characters. The last line counts the rows.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    heads = [printable(name) for name in columns]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    if sum(widths) + len(_GAP) * (len(widths) - 1) <= width:
        right = [_is_number(column) for column in zip(*rows, strict=True)] if rows else [False] * len(heads)
        yield _align(heads, widths, right)
        yield _GAP.join("-" * one for one in widths)
        yield from (_align(row, widths, right) for row in cells)
    else:
        yield from _records(heads, cells, width)
    if more:
        yield f"({len(rows):,} rows, and there are more: LIMIT chooses, --format csv prints all)"
    else:
        yield f"({many(len(rows), 'row')})"


def _records(heads: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    wide = max(map(len, heads))
    for number, row in enumerate(cells, 1):
        yield f"-- row {number:,} ".ljust(width, "-")
        for head, cell in zip(heads, row, strict=True):
            yield from fold(f"{head.ljust(wide)}{_GAP}{cell}", width, wide + len(_GAP))


def _align(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    placed = (
        cell.rjust(wide) if is_right else cell.ljust(wide)
        for cell, wide, is_right in zip(cells, widths, right, strict=True)
    )
    return _GAP.join(placed).rstrip()


def _is_number(values: Sequence[Any]) -> bool:
    known = [one for one in values if one is not None]
    return bool(known) and all(isinstance(one, int | float | Decimal) and not isinstance(one, bool) for one in known)


def _cell(value: Any) -> str:
    text = printable(_text(value))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _text(value: Any) -> str:
    """One value as text, for people and for CSV."""
    plain = to_json(value)
    if plain is None:
        return "NULL"
    if isinstance(plain, str):
        return plain
    return json.dumps(plain, ensure_ascii=False)


def csv_line(values: Sequence[Any]) -> str:
    """A line of CSV (RFC 4180) without its line end. Null is an empty field, an empty text is two quotes."""
    return ",".join("" if value is None else _field(_text(value)) for value in values)


def _field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if not text or set(text) & set(',"\r\n') else text


def to_json(value: Any) -> Any:
    r"""Converts a value of Arrow to a value of JSON. Times become ISO 8601; bytes become text, or hexadecimal digits
    after `\x`; a Decimal becomes a number; numbers that are not finite become texts; keys become texts; pairs of a map
    become lists; values of other types become `str` of them.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case bytes():
            return _of_bytes(value)
        case dict():
            return {str(to_json(key)): to_json(one) for key, one in value.items()}
        case list() | tuple() if type(value) in (list, tuple):  # not a named one, such as an interval
            return [to_json(one) for one in value]
        case _:
            return str(value)


def _of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"\\x{value.hex()}"


def unique_names(columns: Sequence[str]) -> list[str]:
    """Makes names of columns unique for a JSON object: a repeated name gets a number at its end, from _2 on."""
    found: list[str] = []
    for name in columns:
        other, number = name, 1
        while other in found:
            number += 1
            other = f"{name}_{number}"
        found.append(other)
    return found
