"""Field types of the YAML file: each turns what people write into a value, or says in one sentence what would do.

They exist so that a wrong value gives *one* finding in our words instead of one a branch of a union.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    StrictInt,
    StrictStr,
    Tag,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from kodoctl.topology.units import UNLIMITED, Duration, Rate, Size, SizeRate, UnitError, Unlimited

INT32: Final = 2**31 - 1
DURATION_PATTERN: Final = r"^[0-9]+(\.[0-9]+)? ?(ms|s|m|h|d)$"
SIZE_PATTERN: Final = r"^[0-9]+(\.[0-9]+)? ?(B|KiB|MiB|GiB|TiB|kB|MB|GB|TB)$"
RATE_PATTERN: Final = r"^[0-9]+ ?/ ?[smhd]$"

T = TypeVar("T")


class FileModel(BaseModel):
    """Base of everything that stands in the file: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def wrong_unit(message: str) -> PydanticCustomError:
    """A finding K005. The message is text of ours: braces in it must not be read as a template."""
    return PydanticCustomError("unit", "{text}", {"text": message})


def wrong_value(message: str) -> PydanticCustomError:
    """A finding K004."""
    return PydanticCustomError("value", "{text}", {"text": message})


def _quantity(
    parse: Callable[[str], T], units: str, example: str, *, unlimited: bool
) -> Callable[[Any], T | Unlimited]:
    also = " or `unlimited`" if unlimited else ""

    def validate(raw: Any) -> T | Unlimited:
        if unlimited and raw == UNLIMITED:
            return UNLIMITED
        if isinstance(raw, bool) or not isinstance(raw, (str, int, float, Duration, Size, Rate, SizeRate)):
            raise wrong_unit(f"should be a text such as {example}{also}")
        if isinstance(raw, (int, float)) and not isinstance(raw, (Duration, Size)):
            raise wrong_unit(f"{raw} has no unit: write one of {units}, for example {example}{also}")
        try:
            return parse(str(raw))
        except UnitError as problem:
            raise wrong_unit(f"{problem}{also}") from None

    return validate


def _multiple_of(scale: int, unit: str, largest: int = INT32) -> Callable[[Any], Any]:
    """Pulsar stores whole `unit`s: name the two nearest values, and never let a non-zero value become 0."""

    def validate(value: Any) -> Any:
        if value == UNLIMITED:
            return value
        below = value // scale
        if value % scale:
            nearest = (
                f"{type(value)(below * scale)} or {type(value)((below + 1) * scale)}"
                if below
                else f"{type(value)(scale)}"
            )
            raise wrong_unit(f"{value} cannot be stored: Pulsar counts in whole {unit} here; the nearest is {nearest}")
        if below > largest:
            raise wrong_unit(f"{value} is more than Pulsar can store ({type(value)(largest * scale)})")
        return value

    return validate


def _schema(pattern: str, example: str, *, unlimited: bool = False) -> WithJsonSchema:
    text: dict[str, Any] = {"type": "string", "pattern": pattern, "examples": [example]}
    return WithJsonSchema(
        {"anyOf": [text, {"const": UNLIMITED}], "examples": [example, UNLIMITED]} if unlimited else text
    )


_AS_TEXT = PlainSerializer(str, return_type=str)
_DURATION = PlainValidator(_quantity(Duration.parse, "ms, s, m, h, d", "30s", unlimited=False))
_DURATION_OR_UNLIMITED = PlainValidator(_quantity(Duration.parse, "ms, s, m, h, d", "7d", unlimited=True))
_SIZE = PlainValidator(_quantity(Size.parse, "B, KiB, MiB, GiB, TiB", "10GiB", unlimited=False))
_SIZE_OR_UNLIMITED = PlainValidator(_quantity(Size.parse, "B, KiB, MiB, GiB, TiB", "10GiB", unlimited=True))
_RATE = PlainValidator(_quantity(Rate.parse, "/s, /m, /h, /d", "100/s", unlimited=False))

DurationField = Annotated[Duration, _DURATION, _AS_TEXT, _schema(DURATION_PATTERN, "30s")]
SizeField = Annotated[Size, _SIZE, _AS_TEXT, _schema(SIZE_PATTERN, "128MiB")]
RateField = Annotated[Rate, _RATE, _AS_TEXT, _schema(RATE_PATTERN, "100/s")]

Seconds = Annotated[
    Duration | Unlimited,
    _DURATION_OR_UNLIMITED,
    AfterValidator(_multiple_of(1_000, "seconds")),
    _AS_TEXT,
    _schema(DURATION_PATTERN, "7d", unlimited=True),
]
BoundedSeconds = Annotated[
    Duration, _DURATION, AfterValidator(_multiple_of(1_000, "seconds")), _AS_TEXT, _schema(DURATION_PATTERN, "1s")
]
Minutes = Annotated[
    Duration | Unlimited,
    _DURATION_OR_UNLIMITED,
    AfterValidator(_multiple_of(60_000, "minutes")),
    _AS_TEXT,
    _schema(DURATION_PATTERN, "7d", unlimited=True),
]
Mebibytes = Annotated[
    Size | Unlimited,
    _SIZE_OR_UNLIMITED,
    AfterValidator(_multiple_of(1 << 20, "MiB")),
    _AS_TEXT,
    _schema(SIZE_PATTERN, "20GiB", unlimited=True),
]
Bytes = Annotated[Size | Unlimited, _SIZE_OR_UNLIMITED, _AS_TEXT, _schema(SIZE_PATTERN, "5GiB", unlimited=True)]


def _per_second(raw: Any) -> Rate | Unlimited:
    rate = _quantity(Rate.parse, "/s, /m, /h, /d", "100/s", unlimited=True)(raw)
    if rate == UNLIMITED:
        return UNLIMITED
    assert isinstance(rate, Rate)
    amount, rest = divmod(rate.amount * 1000, int(rate.period))
    if rest:
        raise wrong_unit(
            f"{rate} cannot be stored: Pulsar counts per second here; the nearest are {amount}/s and {amount + 1}/s"
        )
    return Rate(amount, Duration(1000))


MessageRate = Annotated[
    Rate | Unlimited, PlainValidator(_per_second), _AS_TEXT, _schema(RATE_PATTERN, "1000/s", unlimited=True)
]
DataRate = Annotated[
    SizeRate | Unlimited,
    PlainValidator(_quantity(SizeRate.parse, "B/s, KiB/s, MiB/s", "10MiB/s", unlimited=True)),
    _AS_TEXT,
    _schema(SIZE_PATTERN[:-1] + " ?/ ?s$", "10MiB/s", unlimited=True),
]


def _count(raw: Any) -> int | Unlimited:
    if raw == UNLIMITED:
        return UNLIMITED
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise wrong_value("should be a whole number or `unlimited`")
    if raw == 0:
        raise wrong_value("0 means unlimited to Pulsar: write `unlimited`")
    if not 0 < raw <= INT32:
        raise wrong_value(f"should be between 1 and {INT32}, or `unlimited`")
    return raw


Count = Annotated[
    int | Unlimited,
    PlainValidator(_count),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": UNLIMITED}], "examples": [1000, UNLIMITED]}),
]

INHERIT: Final = "inherit"
Inherit = Literal["inherit"]
OrInherit = Annotated[
    Annotated[Inherit, Tag("inherit")] | Annotated[T, Tag("value")],
    Discriminator(lambda raw: "inherit" if raw == INHERIT else "value"),
]

PositiveInt = Annotated[StrictInt, Field(ge=1, le=INT32)]
Text = Annotated[StrictStr, Field(min_length=1, max_length=1024)]
