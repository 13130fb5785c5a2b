"""Plain values of the objects that applications send: models, dataclasses, times, UUIDs, decimals and enumerations.

One rule for every sender. A receiver reads them back by its annotation: `Message[Order]`.
"""

from __future__ import annotations

import dataclasses
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID


def json_default(value: Any) -> Any:
    """Plain value for JSON of an object that JSON does not know: the `default` of `json.dumps`. A model of pydantic is
    an object with its fields by alias, a dataclass one by names; times and dates are ISO 8601, durations ISO 8601 as
    pydantic writes them, UUIDs and paths texts, enumerations their values.

    A Decimal is a number if it is whole, or if a double holds it exactly as written. Raises TypeError for it otherwise,
    and for anything else, such as a set or bytes.
    """
    if (fields := _fields(value)) is not None:
        return fields
    match value:
        case date() | time():
            return value.isoformat()
        case UUID() | PurePath():
            return str(value)
        case Enum():
            return value.value
        case Decimal():
            return _number(value)
        case timedelta():
            return _duration(value)
    raise TypeError(f"{type(value).__name__} is no JSON: send what it stands for")


def is_model(value: Any) -> bool:
    """True for a model of pydantic, an object and not its class."""
    return not isinstance(value, type) and hasattr(value, "model_dump") and hasattr(value, "model_fields_set")


def record_of(value: Any) -> Any:
    """Dictionary of a model or a dataclass, for Avro; the value of an enumeration; any other value as it is. The same
    for values within models, dataclasses, lists and dictionaries. Times, UUIDs and decimals stay: Avro has types for
    them. Raises TypeError for a value that is nested too deeply.
    """
    try:
        return _record(value)
    except RecursionError:
        raise TypeError("payload is nested too deeply for its Avro schema") from None


def _record(value: Any) -> Any:
    fields = _fields(value)
    if fields is not None:
        return {name: _record(one) for name, one in fields.items()}
    if isinstance(value, list):
        return [_record(one) for one in value]
    if isinstance(value, dict):
        return {name: _record(one) for name, one in value.items()}
    return value.value if isinstance(value, Enum) else value


def _fields(value: Any) -> dict[str, Any] | None:
    """Fields of a model or a dataclass by name; None for anything else, and for a class itself."""
    if isinstance(value, type):
        return None
    if is_model(value):
        dumped: dict[str, Any] = value.model_dump(by_alias=True)
        return dumped
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _number(value: Decimal) -> int | float:
    if value.is_finite():
        if value == value.to_integral_value():
            return int(value)
        if Decimal(repr(float(value))) == value:
            return float(value)
    raise TypeError(f"Decimal {value} is no number that a double holds: send a text")


def _duration(value: timedelta) -> str:
    sign, value = ("-", -value) if value < timedelta(0) else ("", value)
    seconds = (
        f"{value.seconds}.{value.microseconds:06}".rstrip("0").rstrip(".") if value.microseconds else value.seconds
    )
    return f"{sign}P{value.days}DT{seconds}S"
