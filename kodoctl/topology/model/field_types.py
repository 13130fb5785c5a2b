"""Field types of the YAML file: each turns what people write into a value, or says in one sentence what would do.

They exist so that a wrong value gives *one* finding in our words instead of one a branch of a union.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    StrictFloat,
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
SHARE_PATTERN: Final = r"^[0-9]{1,3}(\.[0-9]{1,6})?%$"
_SHARE: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%", re.ASCII)

T = TypeVar("T")


class FileModel(BaseModel):
    """Base of everything that stands in the file: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def wrong_unit(message: str) -> PydanticCustomError:
    """A finding K005. Braces in the message must not be read as a template."""
    return PydanticCustomError("unit", "{text}", {"text": message})


def wrong_value(message: str) -> PydanticCustomError:
    """A finding K004. As in `wrong_unit`, braces in the message stay as they are."""
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


def _multiple_of(scale: int, unit: str, *, zero: str = "") -> Callable[[Any], Any]:
    """Pulsar stores whole `unit`s: name the two nearest values, and never let a non-zero value become 0.

    `zero` says why 0 is no value here; "" where it is one.
    """

    def validate(value: Any) -> Any:
        if value == UNLIMITED:
            return value
        if zero and not value:
            raise wrong_value(zero)
        below = value // scale
        if value % scale:
            nearest = (
                f"{type(value)(below * scale)} or {type(value)((below + 1) * scale)}"
                if below
                else f"{type(value)(scale)}"
            )
            raise wrong_unit(f"{value} cannot be stored: Pulsar counts in whole {unit} here; the nearest is {nearest}")
        if below > INT32:
            raise wrong_unit(f"{value} is more than Pulsar can store ({type(value)(INT32 * scale)})")
        return value

    return validate


def _above_zero(reason: str) -> AfterValidator:
    """Refuses 0 and says why: Pulsar reads it as something else, or nothing would ever move."""

    def validate(value: Any) -> Any:
        nothing = (value.amount if isinstance(value, Rate | SizeRate) else value) == 0
        if nothing:
            raise wrong_value(reason)
        return value

    return AfterValidator(validate)


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

ZERO_IS_UNLIMITED: Final = "0 means unlimited to Pulsar: write `unlimited`"
_NO_TIME: Final = _above_zero("0 leaves no time at all: write a duration above 0")

DurationField = Annotated[Duration, _DURATION, _AS_TEXT, _schema(DURATION_PATTERN, "30s")]
PositiveDuration = Annotated[Duration, _DURATION, _NO_TIME, _AS_TEXT, _schema(DURATION_PATTERN, "30s")]
SizeField = Annotated[
    Size, _SIZE, _above_zero("0 leaves no room at all: write a size above 0"), _AS_TEXT, _schema(SIZE_PATTERN, "128MiB")
]
RateField = Annotated[
    Rate,
    _RATE,
    _above_zero("0 lets nothing through, ever: write a rate of at least 1"),
    _AS_TEXT,
    _schema(RATE_PATTERN, "100/s"),
]

Seconds = Annotated[
    Duration | Unlimited,
    _DURATION_OR_UNLIMITED,
    AfterValidator(_multiple_of(1_000, "seconds", zero=ZERO_IS_UNLIMITED)),
    _AS_TEXT,
    _schema(DURATION_PATTERN, "7d", unlimited=True),
]
BoundedSeconds = Annotated[
    Duration,
    _DURATION,
    AfterValidator(_multiple_of(1_000, "seconds", zero="0 is no period: write at least 1s")),
    _AS_TEXT,
    _schema(DURATION_PATTERN, "1s"),
]
Minutes = Annotated[
    Duration | Unlimited,
    _DURATION_OR_UNLIMITED,
    AfterValidator(_multiple_of(60_000, "minutes", zero=ZERO_IS_UNLIMITED)),
    _AS_TEXT,
    _schema(DURATION_PATTERN, "7d", unlimited=True),
]
RetentionMinutes = Annotated[
    Duration | Unlimited,
    _DURATION_OR_UNLIMITED,
    AfterValidator(_multiple_of(60_000, "minutes")),
    _AS_TEXT,
    _schema(DURATION_PATTERN, "7d", unlimited=True),
]
RetentionSize = Annotated[
    Size | Unlimited,
    _SIZE_OR_UNLIMITED,
    AfterValidator(_multiple_of(1 << 20, "MiB")),
    _AS_TEXT,
    _schema(SIZE_PATTERN, "20GiB", unlimited=True),
]
Bytes = Annotated[
    Size | Unlimited,
    _SIZE_OR_UNLIMITED,
    _above_zero(ZERO_IS_UNLIMITED),
    _AS_TEXT,
    _schema(SIZE_PATTERN, "5GiB", unlimited=True),
]
QuotaBytes = Annotated[
    Size | Unlimited,
    _SIZE_OR_UNLIMITED,
    _above_zero("0 would stop every producer: write a size above 0, or `unlimited`"),
    _AS_TEXT,
    _schema(SIZE_PATTERN, "5GiB", unlimited=True),
]


def _per_second(raw: Any) -> Rate | Unlimited:
    rate = _quantity(Rate.parse, "/s, /m, /h, /d", "100/s", unlimited=True)(raw)
    if rate == UNLIMITED:
        return UNLIMITED
    assert isinstance(rate, Rate)
    amount, rest = divmod(rate.amount * 1000, int(rate.period))
    if rest:
        nearest = f"the nearest are {amount}/s and {amount + 1}/s" if amount else "the nearest is 1/s"
        raise wrong_unit(f"{rate} cannot be stored: Pulsar counts per second here; {nearest}")
    if amount > INT32:
        raise wrong_unit(f"{rate} is more than Pulsar can store ({INT32}/s)")
    return Rate(amount, Duration(1000))


MessageRate = Annotated[
    Rate | Unlimited,
    PlainValidator(_per_second),
    _above_zero(ZERO_IS_UNLIMITED),
    _AS_TEXT,
    _schema(RATE_PATTERN, "1000/s", unlimited=True),
]
DataRate = Annotated[
    SizeRate | Unlimited,
    PlainValidator(_quantity(SizeRate.parse, "B/s, KiB/s, MiB/s", "10MiB/s", unlimited=True)),
    _above_zero(ZERO_IS_UNLIMITED),
    _AS_TEXT,
    _schema(SIZE_PATTERN[:-1] + " ?/ ?s$", "10MiB/s", unlimited=True),
]


def _count(raw: Any) -> int | Unlimited:
    if raw == UNLIMITED:
        return UNLIMITED
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise wrong_value("should be a whole number or `unlimited`")
    if raw == 0:
        raise wrong_value(ZERO_IS_UNLIMITED)
    if not 0 < raw <= INT32:
        raise wrong_value(f"should be between 1 and {INT32}, or `unlimited`")
    return raw


Count = Annotated[
    int | Unlimited,
    PlainValidator(_count),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": UNLIMITED}], "examples": [1000, UNLIMITED]}),
]


def _share(raw: Any) -> str:
    match = _SHARE.fullmatch(str(raw))
    if match is None:
        raise wrong_unit("should be a percentage such as 25%")
    if not 0 < float(match[1]) <= 100:
        raise wrong_value(f"{raw}: a share is above 0% and at most 100%")
    return match[0]


Share = Annotated[
    str, PlainValidator(_share), WithJsonSchema({"type": "string", "pattern": SHARE_PATTERN, "examples": ["25%"]})
]
PositiveNumber = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
FiniteFloat = Annotated[StrictFloat, Field(allow_inf_nan=False)]

INHERIT: Final = "inherit"
Inherit = Literal["inherit"]
OrInherit = Annotated[
    Annotated[Inherit, Tag("inherit")] | Annotated[T, Tag("value")],
    Discriminator(lambda raw: "inherit" if raw == INHERIT else "value"),
]


def _not_empty(raw: Any) -> Any:
    if isinstance(raw, list | tuple) and not raw:
        raise wrong_value("should hold at least one entry")
    return raw


NotEmpty = Annotated[tuple[T, ...], BeforeValidator(_not_empty), Field(json_schema_extra={"minItems": 1})]
PositiveInt = Annotated[StrictInt, Field(ge=1, le=INT32)]
Text = Annotated[StrictStr, Field(min_length=1, max_length=1024)]
