"""Defaults of Avro fields as values: a schema file has texts for bytes, and numbers for dates."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from kodo_consumer.core.payloads.avro_values import fit_of

_NONE: Final = object()


def read_defaults(names: Mapping[str, Any]) -> None:
    """Replaces the defaults of all fields, in place, by values. `names`: named types of a schema parsed by fastavro."""
    for schema in names.values():
        for field in schema.get("fields", ()):
            if "default" in field:
                field["default"] = _default(field["type"], field["default"], names)


def _default(schema: Any, given: Any, names: Mapping[str, Any]) -> Any:
    """Returns the default `given` of a field as a value of `schema`; of a union, by its first branch that accepts it."""
    from fastavro.read import LOGICAL_READERS

    if isinstance(schema, list):
        return next((found for one in schema if (found := _branch_default(one, given, names)) is not _NONE), given)
    if isinstance(schema, str):
        schema = names.get(schema, {"type": schema})
    match kind := schema["type"]:
        case "bytes" | "fixed" if isinstance(given, str):
            given = given.encode("latin-1")
        case "array" if isinstance(given, list):
            return [_default(schema["items"], one, names) for one in given]
        case "map" if isinstance(given, Mapping):
            return {key: _default(schema["values"], one, names) for key, one in given.items()}
        case "record" | "error" if isinstance(given, Mapping):
            return {
                field["name"]: _default(field["type"], given.get(field["name"], field.get("default")), names)
                for field in schema["fields"]
                if field["name"] in given or "default" in field
            }
    logical = LOGICAL_READERS.get(f"{kind}-{schema.get('logicalType')}")
    is_raw = isinstance(given, str if kind == "string" else bytes if kind in ("bytes", "fixed") else int)
    return logical(given, schema, schema) if logical and is_raw else given


def _branch_default(schema: Any, given: Any, names: Mapping[str, Any]) -> Any:
    with suppress(ValueError, KeyError, TypeError, OverflowError):
        found = _default(schema, given, names)
        fit_of(schema, names)(found)
        return found
    return _NONE
