"""Checks of values against Avro types. Fastavro's writer does not make them: it cuts 1.5 to the int 1, and writes the
int 2^40, which other readers refuse.

The same rules hold before a payload is encoded and after one was read. Errors name place and type, never the value.
"""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, Final

Fit = Callable[[Any], Any]
"""Returns the value as fastavro has to write it, in a union as (name of the branch, value). Raises MisfitError."""
_BITS: Final = {"int": 32, "long": 64}
_LARGEST_FLOAT: Final = 3.4028235677973366e38  # from there on 32 bits round to infinity
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MOST_DIGITS: Final = 4_000  # of a decimal, as Python reads them
_DAY: Final = dt.timedelta(days=1)
_NESTED: Final = (bytes, bytearray, memoryview, str)


class MisfitError(ValueError):
    """Error: a value that its type cannot contain. `rule`: the type, in words; `path`: names and indices from the root
    to the value, which the text shows too.
    """

    def __init__(self, rule: str, path: tuple[int | str, ...] = ()) -> None:
        self.rule, self.path = rule, path
        place = "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
        super().__init__(f"{place[:80]}: {rule}")

    def within(self, step: int | str) -> MisfitError:
        """The same error with `step` (a name or an index) put before its path."""
        return MisfitError(self.rule, (step, *self.path))


def fit_of(schema: Any, names: Mapping[str, Any]) -> Fit:
    """Returns the function that checks a value against a schema that fastavro has parsed: it returns the value as
    fastavro has to write it, and raises MisfitError. `names`: the named types that fastavro collected.
    """
    return _Types(names).fit(schema)


class _Types:
    """Fits by schema. A named type is one fit, which a type that contains itself looks up when a value is there."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._fits: dict[str, Fit] = {}

    def fit(self, schema: Any) -> Fit:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return _PRIMITIVES[schema] if schema in _PRIMITIVES else self._fit_name(schema)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.fit(kind)
        logical = _LOGICAL.get((kind, schema.get("logicalType")))
        if logical is not None:
            return logical(schema)
        match kind:
            case "record" | "error":
                return self._record(schema)
            case "array":
                return _array(self.fit(schema["items"]))
            case "map":
                return _map(self.fit(schema["values"]))
            case "enum":
                return _enum(frozenset(schema["symbols"]))
            case "fixed":
                return _fit_fixed(schema["size"])
            case _:
                return self.fit(kind)

    def _fit_name(self, name: str) -> Fit:
        def fit(value: Any) -> Any:
            if name not in self._fits:
                self._fits[name] = self.fit(self._names[name])
            return self._fits[name](value)

        return fit

    def _record(self, schema: Mapping[str, Any]) -> Fit:
        fits = {field["name"]: self.fit(field["type"]) for field in schema["fields"]}
        needed = [field["name"] for field in schema["fields"] if "default" not in field]
        rule = f"record {schema['name']}"

        def fit(value: Any) -> Any:
            if not isinstance(value, Mapping):
                raise MisfitError(rule)
            for name in needed:
                if name not in value:
                    raise MisfitError("missing, and it has no default", (name,))
            found = {}
            for name, one in value.items():
                if name not in fits:
                    raise MisfitError(f"{rule} has no such field", (str(name),))
                try:
                    found[name] = fits[name](one)
                except MisfitError as problem:
                    raise problem.within(name) from None
            return found

        return fit

    def _union(self, branches: Sequence[Any]) -> Fit:
        fits = [(_tag(branch), self.fit(branch)) for branch in branches]
        tags = [tag for tag, _ in fits]
        if "float" in tags and "double" in tags:  # Python's numbers are doubles
            fits.sort(key=lambda one: one[0] == "float")
        rule = f"none of {', '.join(map(_branch_name, branches))}"

        def fit(value: Any) -> Any:
            if isinstance(value, tuple) and len(value) == 2:  # fastavro's own way to name a branch
                chosen = [one for tag, one in fits if tag == value[0]]
                if chosen:
                    return value[0], chosen[0](value[1])
            deepest = MisfitError(rule)
            for tag, one in fits:
                try:
                    return tag, one(value)
                except MisfitError as problem:
                    is_optional = len(fits) == 2 and "null" in tags and tag != "null"
                    if len(problem.path) > len(deepest.path) or is_optional:
                        deepest = problem
            raise deepest

        return fit


def _tag(branch: Any) -> str:
    """The name of a branch by which fastavro chooses it."""
    return branch if isinstance(branch, str) else str(branch.get("name", branch["type"]))


def _branch_name(branch: Any) -> str:
    return branch if isinstance(branch, str) else str(branch.get("name", branch.get("logicalType", branch["type"])))


# ---- primitive types


def _only(kind: type, rule: str) -> Fit:
    def fit(value: Any) -> Any:
        if type(value) is not kind:
            raise MisfitError(rule)
        return value

    return fit


def _whole(kind: str, least: int | None = None, most: int | None = None) -> Fit:
    low = -(2 ** (_BITS[kind] - 1)) if least is None else least
    high = 2 ** (_BITS[kind] - 1) - 1 if most is None else most
    rule = f"{kind} of {_BITS[kind]} bits" if least is None else f"{kind} from {low} to {high}"

    def fit(value: Any) -> Any:
        if type(value) is not int:
            if isinstance(value, bool) or not isinstance(value, Integral):
                raise MisfitError(rule)
            value = int(value)
        if not low <= value <= high:
            raise MisfitError(rule)
        return value

    return fit


def _real(kind: str) -> Fit:
    def fit(value: Any) -> Any:
        if type(value) is not float:
            if isinstance(value, bool) or not isinstance(value, Real | Decimal):
                raise MisfitError(kind)
            given = value
            try:
                value = float(given)
                exact = not isinstance(given, Integral) or _narrow(kind, value) == given
            except (OverflowError, struct.error):
                exact = False
            if not exact:
                raise MisfitError(f"{kind}, which would change this whole number")
        if kind == "float" and _LARGEST_FLOAT <= abs(value) < float("inf"):
            raise MisfitError("float of 32 bits")
        return value

    return fit


def _narrow(kind: str, value: float) -> float:
    found: float = struct.unpack("<f", struct.pack("<f", value))[0] if kind == "float" else value
    return found


def _string(value: Any) -> Any:
    if not isinstance(value, str):
        raise MisfitError("string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise MisfitError("string: it is no Unicode") from None
    return value


def _bytes(value: Any) -> Any:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise MisfitError("bytes")
    return value


def _null(value: Any) -> Any:
    if value is not None:
        raise MisfitError("null")


_PRIMITIVES: Final[dict[str, Fit]] = {
    "null": _null, "boolean": _only(bool, "boolean"), "int": _whole("int"), "long": _whole("long"),
    "float": _real("float"), "double": _real("double"), "string": _string, "bytes": _bytes,
}  # fmt: skip


# ---- complex types


def _array(item: Fit) -> Fit:
    def fit(value: Any) -> Any:
        if not isinstance(value, Sequence) or isinstance(value, _NESTED):
            raise MisfitError("array")
        found = []
        for index, one in enumerate(value):
            try:
                found.append(item(one))
            except MisfitError as problem:
                raise problem.within(index) from None
        return found

    return fit


def _map(values: Fit) -> Fit:
    def fit(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise MisfitError("map")
        found = {}
        for key, one in value.items():
            try:
                found[_string(key)] = values(one)
            except MisfitError as problem:
                raise problem.within(str(key)) from None
        return found

    return fit


def _enum(symbols: frozenset[str]) -> Fit:
    def fit(value: Any) -> Any:
        if not isinstance(value, str) or value not in symbols:
            raise MisfitError("none of the symbols")
        return value

    return fit


def _fit_fixed(size: int) -> Fit:
    def fit(value: Any) -> Any:
        if not isinstance(value, bytes | bytearray) or len(value) != size:
            raise MisfitError(f"fixed of {size} bytes")
        return value

    return fit


# ---- logical types


def _decimal(schema: Mapping[str, Any]) -> Fit:
    precision, scale = schema["precision"], schema.get("scale", 0)
    raw = _fit_fixed(schema["size"]) if schema["type"] == "fixed" else _bytes
    most = 10**precision
    if schema["type"] == "fixed":
        most = min(most, 2 ** (8 * schema["size"] - 1))
    rule = f"decimal of {precision} digits, {scale} of them behind the point"

    def fit(value: Any) -> Any:
        if type(value) is int:
            value = Decimal(value)
        if not isinstance(value, Decimal):
            if abs(int.from_bytes(raw(value), "big", signed=True)) >= most:
                raise MisfitError(rule)
            return value
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int) or len(digits) + max(0, exponent) > _MOST_DIGITS:
            raise MisfitError(rule)
        shift = exponent + scale
        number = int("".join(map(str, digits)))
        unscaled, rest = (number * 10**shift, 0) if shift >= 0 else divmod(number, 10 ** min(-shift, len(digits) + 1))
        if rest or unscaled >= most:
            raise MisfitError(rule)
        return Decimal((sign, tuple(map(int, str(unscaled))), -scale))

    return fit


def _uuid(_: Mapping[str, Any]) -> Fit:
    def fit(value: Any) -> Any:
        if isinstance(value, uuid.UUID):
            return value
        with suppress(ValueError, AttributeError, TypeError):
            if str(uuid.UUID(value)) == value.lower():
                return value
        raise MisfitError("uuid")

    return fit


def _date(_: Mapping[str, Any]) -> Fit:
    days = _whole("int", (dt.date.min - _EPOCH.date()).days, (dt.date.max - _EPOCH.date()).days)

    def fit(value: Any) -> Any:
        if isinstance(value, str):
            with suppress(ValueError):
                return dt.date.fromisoformat(value)
            raise MisfitError("date")
        if isinstance(value, dt.datetime) and value.time() == dt.time.min:
            return value
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            return value
        return days(value)

    return fit


def _time(schema: Mapping[str, Any]) -> Fit:
    per_day = _per_second(schema["logicalType"]) * int(_DAY.total_seconds())
    raw = _whole(schema["type"], 0, per_day - 1)

    def fit(value: Any) -> Any:
        if isinstance(value, dt.time):
            if value.tzinfo is not None:
                raise MisfitError(f"{schema['logicalType']}, which has no time zone")
            return value
        return raw(value)

    return fit


def _timestamp(schema: Mapping[str, Any]) -> Fit:
    name = schema["logicalType"]
    first, last = dt.datetime.min.replace(tzinfo=dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC)
    raw = _whole("long", _count(first, name), _count(last, name))

    def fit(value: Any) -> Any:
        if isinstance(value, dt.datetime):
            if name.startswith("local") and value.tzinfo is not None:
                raise MisfitError(f"{name}, which has no time zone")
            return value
        return raw(value)

    return fit


def _per_second(logical: str) -> int:
    return 1_000 if logical.endswith("millis") else 1_000_000


def _count(moment: dt.datetime, logical: str) -> int:
    return (moment - _EPOCH) // dt.timedelta(microseconds=1) * _per_second(logical) // 1_000_000


_LOGICAL: Final[dict[tuple[str, str | None], Callable[[Mapping[str, Any]], Fit]]] = {
    ("bytes", "decimal"): _decimal,
    ("fixed", "decimal"): _decimal,
    ("string", "uuid"): _uuid,
    ("int", "date"): _date,
    ("int", "time-millis"): _time,
    ("long", "time-micros"): _time,
    ("long", "timestamp-millis"): _timestamp,
    ("long", "timestamp-micros"): _timestamp,
    ("long", "local-timestamp-millis"): _timestamp,
    ("long", "local-timestamp-micros"): _timestamp,
}
