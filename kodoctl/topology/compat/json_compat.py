"""Conservative check whether a JSON Schema refuses payloads that another one accepts.

It reports a newly required property, a narrowed type, a removed enum value, `additionalProperties` newly false, tighter
bounds, and any change that it cannot judge (of `anyOf`, `pattern` and the like). It does not report a property that the
other schema did not mention and left open, because payloads grow by optional properties.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final
from urllib.parse import unquote

Schema = Any
_REFERS: Final = re.compile(r'"\$(ref|dynamicRef|recursiveRef)"')
_ALL_TYPES: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_LOWER: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains")
_FROM_ZERO: Final = frozenset({"minLength", "minItems", "minProperties"})
_UPPER: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains")
_SILENT: Final = frozenset({  # they say something to people, or are looked at one by one
    "$schema", "$id", "$comment", "$defs", "definitions", "$ref", "title", "description", "default", "examples", "deprecated",
    "readOnly", "writeOnly", "format", "type", "enum", "const", "required", "properties", "additionalProperties", "items",
    "multipleOf", "uniqueItems", *_LOWER, *_UPPER,
})  # fmt: skip


def can_judge(schema: Schema) -> bool:
    """False if `$schema` names draft 1 to 4, where bounds and `required` were flags; else True, also without `$schema`."""
    return not re.search(r"/draft-0[1-4]/", str(schema.get("$schema", "")) if isinstance(schema, dict) else "")


def refuses(new: Schema, old: Schema) -> Iterator[str]:
    """Yields every reason why `new` may refuse a payload that `old` accepts: "at amount: …". Both must be valid. The
    type that `new` gives to a property that `old` leaves open and does not name is no reason; that it requires or
    forbids one is. A reason below a reference that stands in a shared definition is given at its first place only.
    """
    yield from _Judge(new, old).check(new, old, "")


class _Judge:
    """Comparison of two schemas; `new` and `old` are the whole documents, in which references are resolved."""

    def __init__(self, new: Schema, old: Schema) -> None:
        self.new, self.old = new, old
        self.seen: set[tuple[int, int]] = set()  # ids of schemas in the documents, of which one or both refer

    def check(self, new: Schema, old: Schema, path: str) -> Iterator[str]:
        if _reference(new) or _reference(old):
            pair = (id(new), id(old))
            if pair in self.seen:  # a schema that contains itself, or is used in several places
                return
            self.seen.add(pair)
        try:
            new, old = _resolve(new, self.new), _resolve(old, self.old)
        except LookupError as problem:
            yield f"{_at(path)}{problem.args[0]}"
            return
        if new is True or old is False:
            return
        if new is False:
            yield f"{_at(path)}nothing is accepted"
            return
        old = {} if old is True else old
        for reason in (*_own(new, old), *self._not_judged(new, old)):
            yield f"{_at(path)}{reason}"
        yield from self._properties(new, old, path)
        items, before = new.get("items", True), old.get("items", True)
        if isinstance(before, list) or _only_in_old("prefixItems", new, old):
            before = True
        if not isinstance(items, list):  # a list of schemas (before draft 2020-12) is only compared
            yield from self.check(items, before, f"{path}[]")

    def _not_judged(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
        """Yields keywords that are only compared as a whole, and differ or refer to definitions that may differ."""
        for key in sorted({*new} - _SILENT | ({"items"} if isinstance(new.get("items"), list) else set())):
            if new[key] != old.get(key) or (self.new != self.old and _REFERS.search(json.dumps({key: new[key]}))):
                yield f"`{key}` may have changed in a way that cannot be judged"

    def _properties(self, new: Schema, old: Schema, path: str) -> Iterator[str]:
        before, now = old.get("properties", {}), new.get("properties", {})
        rest_before, rest_now = old.get("additionalProperties", True), new.get("additionalProperties", True)
        if _only_in_old("patternProperties", new, old):
            rest_before = True
        for name in sorted({*before, *now}):
            place = f"{path}.{name}" if path else name
            if name in now and name not in before and rest_before is True:
                continue
            yield from self.check(now.get(name, rest_now), before.get(name, rest_before), place)
        if rest_now is False and rest_before is not False:
            yield f"{_at(path)}additionalProperties is false: properties left open are refused"
        elif rest_now is not False:
            yield from self.check(rest_now, rest_before, f"{path}.*" if path else "*")


def _only_in_old(key: str, new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """True if `old` alone has `key`: values that it judges there meet the schema of the rest in `new`."""
    return key in old and key not in new


def _own(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
    """Yields differences of two schemas about the value itself: type, allowed values, required properties, bounds."""
    if _types(old) - _types(new):
        written = f"type {_words(_declared_types(old))}: " if "type" in old else ""
        yield f"{written}only {_words(_declared_types(new))} is accepted"
    yield from _values(new, old)
    if needed := [name for name in new.get("required", ()) if name not in old.get("required", ())]:
        yield f"{', '.join(needed)} is required"
    yield from _bounds(new, old)


def _values(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
    allowed, before = _enum_values(new), _enum_values(old)
    if allowed is None:
        return
    if before is None:
        yield f"only {_words(map(repr, allowed))} is accepted"
    elif lost := [value for value in before if value not in allowed]:
        yield f"{_words(map(repr, lost))} is not accepted"


def _bounds(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
    tighter: tuple[tuple[tuple[str, ...], Callable[[Any, Any], bool]], ...] = (
        (_LOWER, lambda now, before: now > before),
        (_UPPER, lambda now, before: now < before),
        (("multipleOf",), lambda now, before: not _is_multiple(before, now)),
        (("uniqueItems",), lambda now, before: now and not before),
    )
    for keys, is_tighter in tighter:
        for key in keys:
            now, before = new.get(key), old.get(key)
            says_nothing = now is None or now is False or (key in _FROM_ZERO and now == 0)
            if not says_nothing and (before is None or is_tighter(now, before)):
                yield f"{key} is {json.dumps(now)}" + ("" if before is None else f", not {json.dumps(before)}")


def _is_multiple(number: float, step: float) -> bool:
    """True if `number` is a multiple of `step`, as written in decimal digits."""
    try:
        return Fraction(str(number)) % Fraction(str(step)) == 0
    except (ValueError, ZeroDivisionError):  # infinite, or 0
        return number == step


def _declared_types(schema: Mapping[str, Any]) -> frozenset[str]:
    declared = schema.get("type", _ALL_TYPES)
    return frozenset([declared] if isinstance(declared, str) else declared)


def _types(schema: Mapping[str, Any]) -> frozenset[str]:
    """Types that a schema accepts, among them integer if it accepts number."""
    types = _declared_types(schema)
    return types | {"integer"} if "number" in types else types


def _enum_values(schema: Mapping[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values: list[Any] | None = schema.get("enum")
    return values


def _reference(schema: Schema) -> str:
    return str(schema.get("$ref", "")) if isinstance(schema, dict) else ""


def _resolve(schema: Schema, root: Schema) -> Schema:
    """The schema that a chain of local `$ref` leads to, with the keywords beside each reference. Raises LookupError."""
    followed = 0
    while reference := _reference(schema):
        followed += 1
        if not reference.startswith("#") or followed > 64:
            raise LookupError(
                f"`$ref: {reference}` cannot be followed: only references inside the file can be compared"
            )
        target = root
        for step in filter(None, unquote(reference[1:]).split("/")):
            try:
                target = target[int(step) if isinstance(target, list) else step.replace("~1", "/").replace("~0", "~")]
            except (LookupError, TypeError, ValueError):
                raise LookupError(f"`$ref: {reference}` points at nothing") from None
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**target, **beside} if isinstance(target, dict) else target
    return schema


def _words(words: Any) -> str:
    return ", ".join(sorted(words))


def _at(path: str) -> str:
    return f"at {path}: " if path else ""
