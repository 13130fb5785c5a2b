# pure: every branch is tested
"""Times of a message as senders give them: delays, and moments as datetimes or ms since the epoch."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import isfinite
from typing import Any, Final

from kodo_consumer.core.values.envelope import Duration
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import epoch_ms
from kodoctl.topology.units import UnitError

_MAX_SHOWN: Final = 60  # characters of a value in an error
_TIME_END: Final = 1 << 63  # ms
_LONGEST: Final = 1_000 * 365 * 86_400_000  # ms: a thousand years
_MS: Final = timedelta(milliseconds=1)


def as_time(name: str, value: Any, found: list[str]) -> int:
    """Returns a moment in ms since the epoch, in the past as well. `value`: that number, or an aware datetime. For any
    other value, and for one before 1970, adds a problem about the argument `name` to `found`, and returns 0.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _TIME_END:
        return value
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            found.append(f"{name} is {value}, without a time zone: give `datetime.now(UTC)` or the like")
            return 0
        if (since := epoch_ms(value)) >= 0:
            return since
    found.append(
        f"{name} is {one_line(repr(value), _MAX_SHOWN)}, not ms since the epoch, nor a datetime with a time zone"
    )
    return 0


def as_delay(value: Any, found: list[str]) -> int:
    """Returns a delay in ms. `value`: a text such as "10m", seconds, or a timedelta, from 0 to 1,000 years. For any
    other value, adds a problem to `found`, and returns 0.
    """
    shown = one_line(repr(value), _MAX_SHOWN)
    try:
        if isinstance(value, str):
            ms: float = Duration.parse(value)
        elif isinstance(value, timedelta):
            ms = value / _MS
        elif isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
            ms = value * 1000
        else:
            found.append(f'delay is {shown}, not a text such as "10m", seconds, or a timedelta')
            return 0
    except (UnitError, OverflowError) as problem:
        found.append(f"delay: {one_line(problem, 200)}")
        return 0
    if 0 <= ms <= _LONGEST:
        return round(ms)
    found.append(f"delay is {shown}: {'it cannot be negative' if ms < 0 else 'more than 1,000 years'}")
    return 0
