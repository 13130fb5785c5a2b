# pure: every branch is tested
"""Sizes, counts, ages, durations and times as people read them. JSON has the exact figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kodoctl.text.escaping import one_line

MAX_LISTED: Final = 20
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_AGES: Final = (("d", "d", 86_400_000), ("h", "h", 3_600_000), ("min", "m", 60_000), ("s", "s", 1_000))  # ms
HIDDEN_USER: Final = "***@"
"""Mark in an address whose user and password are left out."""
_READY: Final = "workers take them next"
_BACKUP: Final = "they used up the tries of the usual lanes, or were moved aside; workers try them again later"
_MEANINGS: Final = {
    "retrying": "they failed; workers try them again after a delay",
    "pending": "they are over a rate of the file; workers try them again shortly",
    "blocking": "they are over a quota of the file; workers try them again when its window ends",
    "dead": "they failed for good, or used up all tries; only a person sends them again or discards them",
}
"""Meanings of the states except `ready`: see lane_meaning."""
_USER: Final = re.compile("(?<=://).*@", re.DOTALL)


def without_password(address: str) -> str:
    """The address with `HIDDEN_USER` instead of its user and password; the same text if it has none."""
    return _USER.sub(HIDDEN_USER, address)


def size_text(number: int) -> str:
    """A number of bytes for people, rounded to one decimal, in the largest unit up to TiB that fits: `1.6KiB`, `2MiB`,
    `512B`.
    """
    amount, unit = float(number), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if round(amount, 1) < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f}".removesuffix(".0") + unit


def age_text(ms: int, *, short: bool = False) -> str:
    """Milliseconds in the largest unit that fits, rounded down: `3 h`, `5 min`; short: `3h`, `5m`. Less than a second,
    also a negative age, is `0 s`.
    """
    for unit, letter, size in _AGES:
        if ms >= size:
            return f"{ms // size}{letter}" if short else f"{ms // size} {unit}"
    return "0s" if short else "0 s"


def duration_text(ms: float) -> str:
    """A measured duration, given in milliseconds, for people: `0.8 ms`, `84 ms`, `1.2 s`, `3.4 min`, `5 h`."""
    for (unit, _, size), smaller in zip(_AGES, (*(size for _, _, size in _AGES[1:]), 1), strict=True):
        if ms >= size - smaller / 2:  # the smaller unit would be rounded up to this one
            return f"{_digits(ms / size)} {unit}"
    return f"{_digits(ms)} ms"


def _digits(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0") if number < 10 else f"{number:.0f}"


def epoch_ms(moment: datetime) -> int:
    """Returns the whole ms from the epoch to a time with a zone, rounded down. As whole numbers, because a float is
    often one less.
    """
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def time_text(ms: int, *, seconds: bool = False, zone: bool = True) -> str:
    """A time in ms since the epoch as text in UTC: `2026-01-31 14:00 UTC`. A time that no calendar has is printed as a
    number. `seconds`: with seconds; `zone`: with ` UTC`.
    """
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(ms)
    return f"{moment:{'%Y-%m-%d %H:%M:%S' if seconds else '%Y-%m-%d %H:%M'}}{' UTC' if zone else ''}"


def partitions_text(count: int) -> str:
    """Number of partitions of a topic for people: `4 partitions`; of a plain topic (0) `no partitions`."""
    return many(count, "partition") if count else "no partitions"


def window_text(ms: int, width: int) -> str:
    """Start of a time window (`ms` since the epoch) as text, with seconds unless the window's `width` in ms is a whole
    number of minutes.
    """
    return time_text(ms, seconds=width % 60_000 != 0)


def lane_text(level: str | None, state: str | None) -> str:
    """Name of a lane for people: `L1 pending`; `dead letters` (state `dead`); "not in the file" without both."""
    if state == "dead":
        return "dead letters"
    return " ".join(part for part in (level, state) if part) or "not in the file"


def lane_meaning(level: str | None, state: str | None) -> str:
    """Meaning of a lane for people: why messages are there and what follows; "" for a lane that is not in the file."""
    if state == "ready" and level:
        return _BACKUP if level.startswith("B") else _READY
    return _MEANINGS.get(state or "", "")


def shorten_lines(lines: Sequence[str]) -> list[str]:
    """The first 20 lines (MAX_LISTED), and then `and N more` if there are others."""
    rest = len(lines) - MAX_LISTED
    return [*lines[:MAX_LISTED], *([f"and {rest} more"] if rest > 0 else [])]


def many(number: int, noun: str, plural: str = "") -> str:
    """A count with its noun: `1 consumer`, `2,000 consumers`; `plural` if it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def entries_text(number: int) -> str:
    """A count of stored entries, each of which is a message or a batch of messages: `2 messages or batches`."""
    return many(number, "message or batch", "messages or batches")


def value_text(value: Any) -> str:
    """A value of a plan's JSON for people: None is `unset`, True is `true`, lists are joined by commas, an empty list
    is `none`; the members of an object are in braces; texts are escaped and cut as by `one_line`. An object with the
    one key `foreign` (a value that kodoctl cannot express) is printed as the text in it.
    """
    match value:
        case None:
            return "unset"
        case dict() if set(value) == {"foreign"}:
            return one_line(value["foreign"])
        case dict():
            return "{" + ", ".join(f"{key}: {value_text(member)}" for key, member in value.items()) + "}"
        case list():
            return ", ".join(value_text(member) for member in value) or "none"
        case bool():
            return str(value).lower()
        case _:
            return one_line(value)
