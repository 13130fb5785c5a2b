# pure: every branch is tested
"""Values of columns for payloads, from PostgreSQL's text form, by the OID of the column's type.

Nothing is rounded. A numeric is a text in JSON, unless the topic's schema says that it is a number. Within json and
jsonb, numbers that a double does not hold exactly become texts, and a value that is nested too deeply for a payload is
a text as a whole. A value that a type of Python cannot hold (`infinity`, years BC) stays the text that PostgreSQL
writes, and so do all other types.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from kodoctl.protocol.json_payload import MAX_DEPTH, too_deep

BYTEA: Final = 17
_NUMERIC: Final = 1700
_JSON: Final = (114, 3802)
Read = Callable[[str], Any]


def _boolean(text: str) -> bool:
    return text == "t"


def _float(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


def _whole(text: str) -> int | str:
    """The integer, or the text itself where readers would refuse it, because it is beyond a double."""
    return int(text) if math.isfinite(float(text)) else text


def _real(text: str) -> float | str:
    """The double with exactly the value of a decimal text, or the text itself where there is none."""
    value = float(text)
    try:
        return value if Decimal(repr(value)) == Decimal(text) else text
    except InvalidOperation:  # its exponent has too many digits
        return text


def _json(text: str) -> Any:
    """The value of a JSON text, or the text itself if the value as a part of a row is nested too deeply."""
    try:
        value = json.loads(text, parse_int=_whole, parse_float=_real)
    except RecursionError:
        return text
    is_flat = text.count("[") + text.count("{") < MAX_DEPTH
    return value if is_flat or not too_deep([value]) else text


def _or_text(read: Callable[[str], Any]) -> Read:
    """`read`, or the text itself where it raises ValueError."""

    def either(text: str) -> Any:
        try:
            return read(text)
        except (ValueError, InvalidOperation):
            return text

    return either


def read_bytes(text: str) -> bytes:
    """Reads a bytea in PostgreSQL's hexadecimal form: two characters, which are not looked at, then the digits. Raises
    ValueError if these are no pairs of hexadecimal digits.
    """
    return bytes.fromhex(text[2:])


def _base64(text: str) -> str:
    return base64.b64encode(read_bytes(text)).decode()


def _iso(read: Callable[[str], Any]) -> Read:
    return _or_text(lambda text: read(text).isoformat())


_COMMON: Final[dict[int, Read]] = {
    16: _boolean,
    **dict.fromkeys((20, 21, 23, 26), int),
    **dict.fromkeys((700, 701), _float),
    **dict.fromkeys(_JSON, _json),
}
_FOR_JSON: Final[dict[int, Read]] = {
    **_COMMON,
    BYTEA: _base64,
    1114: _iso(datetime.fromisoformat),
    1184: _iso(datetime.fromisoformat),
}
_FOR_AVRO: Final[dict[int, Read]] = {
    **_COMMON,
    BYTEA: read_bytes,
    **dict.fromkeys(_JSON, str),
    _NUMERIC: _or_text(Decimal),
    1082: _or_text(date.fromisoformat),
    1083: _or_text(time.fromisoformat),
    1114: _or_text(datetime.fromisoformat),
    1184: _or_text(datetime.fromisoformat),
    2950: UUID,
}
_ELEMENTS: Final[Mapping[int, int]] = {
    1000: 16, 1001: 17, 1005: 21, 1007: 23, 1016: 20, 1028: 26, 1021: 700, 1022: 701, 1231: _NUMERIC, 1182: 1082,
    1183: 1083, 1115: 1114, 1185: 1184, 2951: 2950, 199: 114, 3807: 3802, 1009: 25, 1015: 1043, 1014: 1042, 1002: 18,
}  # fmt: skip
"""OID of an array type -> that of its elements."""


def reader_of(type_oid: int, *, is_avro: bool, is_number: bool = False) -> Read:
    """Function that reads a value of a type, or an array of such values, from PostgreSQL's text. It returns the text
    for types that this module does not list, and for values that the type of Python cannot hold, such as `infinity`.

    `is_avro`: for an Avro record, whose types hold times, UUIDs, bytes and decimals, and json as a text; else for JSON.
    `is_number`: the JSON schema says that a numeric is a number, so it becomes a Decimal.
    """
    if type_oid in _ELEMENTS:
        element = reader_of(_ELEMENTS[type_oid], is_avro=is_avro, is_number=is_number)
        return lambda text: read_array(text, element)
    if type_oid == _NUMERIC and is_number:
        return _or_text(Decimal)
    return (_FOR_AVRO if is_avro else _FOR_JSON).get(type_oid, str)


def read_array(text: str, element: Read) -> list[Any]:
    """Reads an array as PostgreSQL writes it: `{1,2}`, `{{"a,b",NULL},{c,d}}`; NULL becomes None, each other element
    the result of `element`, whose exceptions pass. Bounds before it (`[0:1]=`) are left out. Raises ValueError or
    IndexError for most texts that are no array, and does not notice the others.
    """
    values, at = _elements(text, text.index("{") + 1, element)
    if at != len(text):
        raise ValueError("an array goes on after its end")
    return values


def _elements(text: str, at: int, element: Read) -> tuple[list[Any], int]:
    """Elements from `at` on up to the closing brace, and the place after it. Raises IndexError if there is none."""
    found: list[Any] = []
    while text[at] != "}":
        if text[at] == "{":
            inner, at = _elements(text, at + 1, element)
            found.append(inner)
        elif text[at] == '"':
            part, at = _quoted(text, at + 1)
            found.append(element(part))
        elif text[at] == ",":
            at += 1
        else:
            end = min(place for place in (text.find(",", at), text.find("}", at)) if place >= 0)
            found.append(None if text[at:end] == "NULL" else element(text[at:end]))
            at = end
    return found, at + 1


def _quoted(text: str, at: int) -> tuple[str, int]:
    parts = []
    while text[at] != '"':
        if text[at] == "\\":
            at += 1
        parts.append(text[at])
        at += 1
    return "".join(parts), at + 1
