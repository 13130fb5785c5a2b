"""Numbers with units as people write them in the file: `7d`, `20GiB`, `100/s`.

Durations are whole milliseconds, sizes whole bytes, rates a whole count per period. Values are `int` or frozen, compare
and hash by value. `str` gives a form that the file accepts: a whole number of the largest unit that divides the value
(sizes: of B, KiB, MiB, GiB or TiB). A number has at most 19 digits, as Pulsar's largest one (2**63 - 1) has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

UNLIMITED: Final = "unlimited"
LATEST: Final = 253_402_214_399_999
"""Latest moment that kodoctl accepts from a message, in ms since the epoch: the end of 9999-12-30. In any time zone,
Spark, Python and a date as text have a year for it, and for the beginning of the next day. Pulsar accepts any 64 bits.
"""
MAX_ERROR_SIZE: Final = 2_048  # bytes of an error's text, and of its stack, that are added to a message
Unlimited = Literal["unlimited"]

_DURATION_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BINARY_UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE_UNITS: Final = {**_BINARY_UNITS, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_QUANTITY = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,9}))? ?([A-Za-z]*)", re.ASCII)
_RATE = re.compile(r"(.*?) ?/ ?(s|m|h|d)", re.ASCII)


class UnitError(ValueError):
    """A text is not a quantity of the expected kind. The message gives the reason or a correct example."""


def _parse_quantity(text: str, units: dict[str, int], what: str, example: str) -> int:
    match = _QUANTITY.fullmatch(text)
    if match is None or match[3] not in units:
        wanted = ", ".join(units)
        if match is not None and not match[3]:
            raise UnitError(f"{text!r} has no unit: write one of {wanted}, for example {example}")
        raise UnitError(f"{text!r} is not a {what}: a number with one of the units {wanted}, for example {example}")
    scale = units[match[3]]
    fraction = match[2] or ""
    value, rest = divmod(int(match[1] + fraction) * scale, int(10 ** len(fraction)))
    if rest:
        raise UnitError(f"{text!r} is not a whole number of {'milliseconds' if units is _DURATION_UNITS else 'bytes'}")
    return value


def _print_quantity(value: int, units: dict[str, int]) -> str:
    unit = max((u for u, scale in units.items() if value % scale == 0), key=lambda u: units[u])
    return f"{value // units[unit]}{unit}"


class Duration(int):
    """A span of time in whole milliseconds. It is an `int`; arithmetic with it gives a plain `int`."""

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Parses a text such as `90s`, `1.5h` or `7d`. Raises UnitError for anything else, and for parts of a
        millisecond.
        """
        return cls(_parse_quantity(text, _DURATION_UNITS, "duration", "30s"))

    @property
    def seconds(self) -> float:
        """The span in seconds."""
        return int(self) / 1000

    def __str__(self) -> str:
        return _print_quantity(int(self), _DURATION_UNITS) if self else "0s"

    __repr__ = __str__


class Size(int):
    """An amount of data in whole bytes. It is an `int`; arithmetic with it gives a plain `int`."""

    @classmethod
    def parse(cls, text: str) -> Size:
        """Parses a text such as `10GiB`, `1.5MB` or `512 B`. Raises UnitError for anything else, and for parts of a
        byte.
        """
        return cls(_parse_quantity(text, _SIZE_UNITS, "size", "10GiB"))

    def __str__(self) -> str:
        return _print_quantity(int(self), _BINARY_UNITS) if self else "0B"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class Rate:
    """`amount` messages per `period`, a Duration of 1s, 1m, 1h or 1d."""

    amount: int
    period: Duration

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Parses a text such as `100/s` or `5000/h`. Raises UnitError for anything else."""
        match = _RATE.fullmatch(text)
        if match is None or not match[1].isascii() or not match[1].isdigit() or len(match[1]) > 18:
            raise UnitError(f"{text!r} is not a rate: a whole number per s, m, h or d, for example 100/s")
        return cls(int(match[1]), Duration(_DURATION_UNITS[match[2]]))

    @property
    def per_second(self) -> float:
        """The rate in messages a second."""
        return self.amount / self.period.seconds

    def __str__(self) -> str:
        return f"{self.amount}/{str(self.period)[1:]}"


@dataclass(frozen=True, slots=True)
class SizeRate:
    """`amount` bytes per second. Pulsar has no other period for publishing."""

    amount: Size

    @classmethod
    def parse(cls, text: str) -> SizeRate:
        """Parses a text such as `10MiB/s`. Raises UnitError for anything else, and for another period than a second."""
        match = _RATE.fullmatch(text)
        if match is None or match[2] != "s":
            raise UnitError(f"{text!r} is not a data rate: a size per second, for example 10MiB/s")
        return cls(Size.parse(match[1]))

    def __str__(self) -> str:
        return f"{self.amount}/s"


def as_limit(value: int | Unlimited) -> float:
    """A duration, size or count as float for comparisons; unlimited is infinity."""
    return float("inf") if value == UNLIMITED else float(value)
