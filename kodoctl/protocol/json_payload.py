"""JSON payloads: a parser that refuses the same payloads for senders and receivers.

A payload is refused if readers in other languages would disagree about it or fail on it (RFC 7493): NaN and Infinity, a
key twice in an object, a number beyond a double. Errors name the rule that is broken and never the value, because they
are stored with dead letters.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final

MAX_DEPTH: Final = 200
"""Levels of arrays and objects that a payload may have: pydantic's own limit, and well within a thread's stack."""
_NESTED: Final = frozenset({dict, list})
_SHAPES: Final = bytes.maketrans(b"123456789E", b"000000000e")
_TOO_DEEP: Final = f"it is nested more than {MAX_DEPTH} levels deep"


class JsonPayloadError(ValueError):
    """A payload is not acceptable JSON. The text of the exception says why, such as `it holds a key twice`, or is "" if
    the payload cannot be parsed.
    """


def read_json(data: bytes, real: Callable[[str], float] | None = None) -> Any:
    """Parses a payload (UTF-8, UTF-16 or UTF-32) into plain Python values. Raises JsonPayloadError for a payload that
    is no JSON, or is more than 200 levels deep (MAX_DEPTH), and for NaN, Infinity, a key twice in one object and a
    number beyond a double. `real`: converts the text of a number with a fraction or an exponent, and checks its size
    itself; None: float. Exceptions that `real` raises pass through.
    """
    decoder = _decoder(real or _finite) if real or _may_be_huge(data) else _DECODER
    try:
        value = decoder.decode(data.decode(json.detect_encoding(data)))
    except RecursionError:
        raise JsonPayloadError(_TOO_DEEP) from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise JsonPayloadError from None
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and too_deep(value):
        raise JsonPayloadError(_TOO_DEEP)
    return value


def _may_be_huge(data: bytes) -> bool:
    """True if the payload may contain a number too large for a double: an exponent of three digits or a run of 200
    digits, even if these are inside a text, or if it is UTF-16 or UTF-32, where digits are not side by side.
    """
    shape = data.translate(_SHAPES, b"+")
    return b"e000" in shape or b"0" * 200 in shape or b"\0" in data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise JsonPayloadError("it holds a key twice")
    return found


def _no_constant(name: str) -> Any:
    raise JsonPayloadError(f"it holds {name}, which is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise JsonPayloadError("it holds a number that is too large for a double")
    return number


def _whole(text: str) -> int:
    _finite(text)
    return int(text)


def too_deep(value: Any) -> bool:
    """True if a plain value has more than MAX_DEPTH levels. It goes level by level, without recursion."""
    level = [value] if type(value) in _NESTED else []
    for _ in range(MAX_DEPTH):
        inner = (one.values() if type(one) is dict else one for one in level)
        level = [child for values in inner for child in values if type(child) in _NESTED]
        if not level:
            return False
    return bool(level)


def _decoder(real: Callable[[str], float] | None = None) -> json.JSONDecoder:
    whole = _whole if real else None
    return json.JSONDecoder(parse_constant=_no_constant, parse_float=real, parse_int=whole, object_pairs_hook=_object)


_DECODER: Final = _decoder()
