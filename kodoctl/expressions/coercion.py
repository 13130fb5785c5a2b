"""Conversion of texts to values of another kind. A text that cannot be converted becomes None, which is NULL."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Final

from kodoctl.expressions.ast import Value, ValueKind
from kodoctl.text.formatting import epoch_ms

NUMBER: Final = r"^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]{1,5})?$"
_OFFSET: Final = r"(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9]|[+-]18:00)"  # no place on Earth is further
MOMENT: Final = (
    r"^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
    rf"([T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.][0-9]{{1,6}})?)?{_OFFSET}?)?$"
)
TRUTHS: Final = {"true": True, "false": False}
_NUMBER: Final = re.compile(NUMBER)
_MOMENT: Final = re.compile(MOMENT)
LONGEST: Final = 400  # characters of a number: more digits than a double can tell apart


def coerce(text: str, kind: ValueKind) -> Value | None:
    """Converts a text to a number, a moment or a truth (`true` or `false`), None if that is impossible. For other kinds
    returns the text itself.
    """
    match kind:
        case ValueKind.NUMBER:
            return number(text)
        case ValueKind.MOMENT:
            return moment(text)
        case ValueKind.TRUTH:
            return TRUTHS.get(text)
        case _:
            return text


def number(text: str) -> float | None:
    """A decimal number as float; None for other text, over 400 characters (LONGEST), or a value beyond a double."""
    if len(text) > LONGEST or text.endswith("\n") or not _NUMBER.match(text):
        return None
    return finite(float(text))


def finite(value: float) -> float | None:
    """The value, or None (NULL) if it is not a finite number."""
    return value if math.isfinite(value) else None


def moment(text: str) -> int | None:
    """Parses a date, or date and time, such as `2026-01-31` or `2026-01-31T14:00:00+01:00`, to ms since the epoch;
    without an offset it is UTC. None for any other text.
    """
    if text.endswith("\n") or not _MOMENT.match(text):
        return None
    try:
        found = datetime.fromisoformat(text)
        aware = found if found.tzinfo else found.replace(tzinfo=UTC)
        return epoch_ms(aware)
    except (ValueError, OverflowError):
        return None
