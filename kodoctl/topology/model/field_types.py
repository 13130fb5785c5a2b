"""Field types of the topology file. Each parses the text in the file into a value, or gives one sentence on the correct
form.

They exist so that a wrong value gives *one* finding in our words, not one for each branch of a union.
"""

import re
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    StrictFloat,
    StrictInt,
    StrictStr,
    Tag,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError, core_schema

from kodoctl.topology.units import UNLIMITED, Duration, Rate, Size, SizeRate, UnitError, Unlimited

INT32: Final = 2**31 - 1
INT64: Final = 2**63 - 1
DURATION_PATTERN: Final = r"^[0-9]+(\.[0-9]+)? ?(ms|s|m|h|d)$"
SIZE_PATTERN: Final = r"^[0-9]+(\.[0-9]+)? ?(B|KiB|MiB|GiB|TiB|kB|MB|GB|TB)$"
RATE_PATTERN: Final = r"^[0-9]+ ?/ ?[smhd]$"
SHARE_PATTERN: Final = r"^[0-9]{1,3}(\.[0-9]{1,6})?%$"
_LONGEST: Final = 100  # characters of a text that is read
_SHARE: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%", re.ASCII)

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


_within_model: Final = ContextVar("_within_model", default=False)  # True while a model's validator is built
_of_file: Final = ContextVar("_of_file", default=False)  # True while a document of a file is validated


class FileModel(BaseModel):
    """Base of everything that stands in the file: unknown keys are refused, values never change. `of_file` also refuses
    null, which elsewhere stands for a field that is left out.

    The validator of a model that is part of another model is built when a file first has that part. Most files have few
    of the parts, and building all of them takes longer than the rest of a small file's lint.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @classmethod
    def of_file(cls, document: object) -> Self:
        """Validates a document as a file has it, in which no key is null: overlays are merged. Raises
        pydantic.ValidationError.
        """
        token = _of_file.set(True)
        try:
            return cls.model_validate(document)
        finally:
            _of_file.reset(token)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        if _within_model.get() and "kind" not in cls.model_fields:  # pydantic reads the kinds of a union at once
            ref = f"{cls.__module__}.{cls.__name__}:{id(cls)}"  # by which a JSON Schema has the model once
            return core_schema.no_info_plain_validator_function(cls.model_validate, ref=ref)
        token = _within_model.set(True)
        try:
            schema = handler(source)
        finally:
            _within_model.reset(token)
        _refuse_null(schema)
        return schema

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        if schema["type"] != "function-plain":
            return handler(schema)
        cls.model_rebuild()
        return handler(cls.__pydantic_core_schema__)


def _refuse_null(schema: Any) -> None:
    """Changes a model's core schema so that its fields refuse null in a document of a file. A default of None is not
    validated.
    """
    while schema["type"] != "model-fields":  # of validators around it, and of the model
        schema = schema["schema"]
    for field in schema["fields"].values():
        if field["schema"]["type"] == "default" and (inner := field["schema"]["schema"])["type"] == "nullable":
            field["schema"]["schema"] = core_schema.no_info_before_validator_function(_not_null, inner)


def _not_null(value: Any) -> Any:
    if value is None and _of_file.get():
        raise wrong_value("has no value")
    return value


def optional_like(*examples: Any) -> Any:
    """A pydantic field that may be left out and is None then. `examples` become those of its JSON Schema."""
    return Field(default=None, examples=list(examples))


def defaults_of(model: type[M]) -> Callable[[], M]:
    """The `default_factory` of a field of type `model`: returns the same instance, in which nothing is set, for every
    owner of the field. Values never change, and a file with 20,000 topics would have 180,000 instances.
    """
    return cache(model.model_construct)


def wrong_unit(message: str) -> PydanticCustomError:
    """The pydantic error that becomes a finding K005, for the caller to raise. Braces in the message stay as they are."""
    return PydanticCustomError("unit", "{text}", {"text": message})


def wrong_value(message: str) -> PydanticCustomError:
    """The pydantic error that becomes a finding K004, for the caller to raise. Braces in the message stay as they are."""
    return PydanticCustomError("value", "{text}", {"text": message})


def pattern_words(pattern: str, message: str) -> dict[str, str]:
    """JSON Schema of a pattern, with the error that editors show in place of the pattern."""
    return {"pattern": pattern, "patternErrorMessage": message}


@dataclass(frozen=True, slots=True)
class _Quantity:
    """Annotation of a field whose value is a text with a unit. `parse` makes the value of the text; `units`, `example`:
    for error texts; `pattern`, `shown`: of the JSON Schema; `check` refuses values; `unlimited`: that word is a value
    too.
    """

    parse: Callable[[str], Any]
    units: str
    example: str
    pattern: str
    shown: str
    check: Callable[[Any], Any] | None = None
    unlimited: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        as_text = core_schema.plain_serializer_function_ser_schema(str, return_schema=core_schema.str_schema())
        return core_schema.no_info_plain_validator_function(self.validate, serialization=as_text)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        text: dict[str, Any] = {
            "type": "string",
            **pattern_words(self.pattern, f"Should be a number with a unit ({self.units}), such as {self.shown}."),
            "examples": [self.shown],
        }
        return {"anyOf": [text, {"const": UNLIMITED}], "examples": [self.shown, UNLIMITED]} if self.unlimited else text

    def validate(self, raw: Any) -> Any:
        """Parses and checks a value of the file. Raises PydanticCustomError."""
        value = self._parse_value(raw)
        return value if self.check is None else self.check(value)

    def _parse_value(self, raw: Any) -> Any:
        also = " or `unlimited`" if self.unlimited else ""
        if self.unlimited and raw == UNLIMITED:
            return UNLIMITED
        if isinstance(raw, bool) or not isinstance(raw, (str, int, float, Duration, Size, Rate, SizeRate)):
            raise wrong_unit(f"should be a text such as {self.example}{also}")
        if isinstance(raw, (int, float)) and not isinstance(raw, (Duration, Size)):
            raise wrong_unit(f"{raw} has no unit: write one of {self.units}, for example {self.example}{also}")
        try:
            return self.parse(str(raw)[:_LONGEST])  # no quantity is longer, and the error repeats the text
        except UnitError as problem:
            raise wrong_unit(f"{problem}{also}") from None


def _multiple_of(scale: int, unit: str, *, zero: str = "", largest: int = INT32) -> Callable[[Any], Any]:
    """A check that a value is a whole number of Pulsar's `unit`, which is `scale` ms or bytes. Its error names the
    nearest valid values, never 0.

    `zero`: the error for 0; "" if 0 is a value. `largest`: the most that Pulsar can store, in `unit`.
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
        if below > largest:
            raise wrong_unit(f"{value} is more than Pulsar can store ({type(value)(largest * scale)})")
        return value

    return validate


def _above_zero(reason: str) -> Callable[[Any], Any]:
    """A check that refuses 0 with `reason`: Pulsar takes 0 for something else, or nothing would ever move."""

    def validate(value: Any) -> Any:
        nothing = (value.amount if isinstance(value, Rate | SizeRate) else value) == 0
        if nothing:
            raise wrong_value(reason)
        return value

    return validate


def _per_second(rate: Any) -> Rate | Unlimited:
    """Converts a rate to whole messages a second, as Pulsar counts it. Raises PydanticCustomError if that is not exact."""
    if rate == UNLIMITED:
        return UNLIMITED
    amount, rest = divmod(rate.amount * 1000, int(rate.period))
    if rest:
        nearest = f"the nearest are {amount}/s and {amount + 1}/s" if amount else "the nearest is 1/s"
        raise wrong_unit(f"{rate} cannot be stored: Pulsar counts per second here; {nearest}")
    if amount > INT32:
        raise wrong_unit(f"{rate} is more than Pulsar can store ({INT32}/s)")
    if amount == 0:
        raise wrong_value(ZERO_IS_UNLIMITED)
    return Rate(amount, Duration(1000))


ZERO_IS_UNLIMITED: Final = "0 means unlimited to Pulsar: write `unlimited`"
_DURATION: Final = _Quantity(Duration.parse, "ms, s, m, h, d", "30s", DURATION_PATTERN, "30s")
_DURATION_OR_UNLIMITED: Final = replace(_DURATION, example="7d", shown="7d", unlimited=True)
_SIZE: Final = _Quantity(Size.parse, "B, KiB, MiB, GiB, TiB", "10GiB", SIZE_PATTERN, "128MiB")
_SIZE_OR_UNLIMITED: Final = replace(_SIZE, shown="5GiB", unlimited=True)
_RATE: Final = _Quantity(Rate.parse, "/s, /m, /h, /d", "100/s", RATE_PATTERN, "100/s")
_DATA_RATE: Final = _Quantity(
    SizeRate.parse, "B/s, KiB/s, MiB/s", "10MiB/s", SIZE_PATTERN[:-1] + " ?/ ?s$", "10MiB/s", unlimited=True
)
_WHOLE_SECONDS: Final = _multiple_of(1_000, "seconds", zero=ZERO_IS_UNLIMITED)
_WHOLE_MINUTES: Final = _multiple_of(60_000, "minutes", zero=ZERO_IS_UNLIMITED)
_NO_QUOTA: Final = "0 would stop every producer: write a size above 0, or `unlimited`"
_NO_ROOM: Final = "0 leaves no room at all: write a size above 0"
_NO_RATE: Final = "0 lets nothing through, ever: write a rate of at least 1"

DurationField = Annotated[Duration, _DURATION]
PositiveDuration = Annotated[
    Duration, replace(_DURATION, check=_above_zero("0 leaves no time at all: write a duration above 0"))
]
SizeField = Annotated[Size, replace(_SIZE, check=_above_zero(_NO_ROOM))]
RateField = Annotated[Rate, replace(_RATE, check=_above_zero(_NO_RATE))]
OffloadSize = Annotated[Size | Unlimited, replace(_SIZE_OR_UNLIMITED, check=_multiple_of(1, "bytes", largest=INT64))]
OffloadSeconds = Annotated[Duration | Unlimited, replace(_DURATION_OR_UNLIMITED, check=_multiple_of(1_000, "seconds"))]
OffloadDelay = Annotated[
    Duration | Unlimited, replace(_DURATION_OR_UNLIMITED, check=_multiple_of(1, "milliseconds", largest=INT64))
]
Milliseconds = Annotated[
    Duration | Unlimited,
    replace(_DURATION_OR_UNLIMITED, check=_multiple_of(1, "milliseconds", zero=ZERO_IS_UNLIMITED, largest=INT64)),
]
Seconds = Annotated[Duration | Unlimited, replace(_DURATION_OR_UNLIMITED, check=_WHOLE_SECONDS)]
BoundedSeconds = Annotated[
    Duration,
    replace(_DURATION, shown="1s", check=_multiple_of(1_000, "seconds", zero="0 is no period: write at least 1s")),
]
Minutes = Annotated[Duration | Unlimited, replace(_DURATION_OR_UNLIMITED, check=_WHOLE_MINUTES)]
RetentionMinutes = Annotated[
    Duration | Unlimited, replace(_DURATION_OR_UNLIMITED, check=_multiple_of(60_000, "minutes"))
]
RetentionSize = Annotated[
    Size | Unlimited, replace(_SIZE_OR_UNLIMITED, shown="20GiB", check=_multiple_of(1 << 20, "MiB"))
]
Bytes = Annotated[
    Size | Unlimited,
    replace(_SIZE_OR_UNLIMITED, check=_multiple_of(1, "bytes", zero=ZERO_IS_UNLIMITED, largest=INT64)),
]
QuotaBytes = Annotated[
    Size | Unlimited, replace(_SIZE_OR_UNLIMITED, check=_multiple_of(1, "bytes", zero=_NO_QUOTA, largest=INT64))
]
MessageBytes = Annotated[Size, replace(_SIZE, check=_multiple_of(1, "bytes", zero=_NO_ROOM))]
MessageRate = Annotated[Rate | Unlimited, replace(_RATE, shown="1000/s", check=_per_second, unlimited=True)]
DataRate = Annotated[SizeRate | Unlimited, replace(_DATA_RATE, check=_above_zero(ZERO_IS_UNLIMITED))]


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
    str,
    PlainValidator(_share),
    WithJsonSchema(
        {
            "type": "string",
            **pattern_words(SHARE_PATTERN, "Should be a percentage above 0% and at most 100%, such as 25%."),
            "examples": ["25%"],
        }
    ),
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


def _not_blank(text: str) -> str:
    if text.isspace():
        raise wrong_value("should have a letter or another sign, not only spaces")
    return text


Text = Annotated[StrictStr, Field(min_length=1, max_length=1024)]
Words = Annotated[Text, AfterValidator(_not_blank)]
