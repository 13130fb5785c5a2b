"""Safety of Avro schemas against hostile payloads: detection of unsafe schemas, and a reader that is safe for them.

Measured with fastavro 1.12: its compiled reader recurses on the C stack, so a payload of 100 kB of a schema that
contains itself ends the process; its Python reader raises RecursionError. And ten bytes may claim 2^62 items where an
item needs no bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


def contains_itself(schema: Any) -> bool:
    """True if a record of the schema is found within itself: a payload can nest its values to any depth."""
    return any(isinstance(found, str) and found in inside for found, inside in _parts(schema, ()))


def empty_items(schema: Any) -> bool:
    """True if the schema has an array whose items need no bytes."""
    sizes = _Sizes(schema)
    return any(
        isinstance(found, Mapping) and found.get("type") == "array" and sizes.is_empty(found["items"])
        for found, _ in _parts(schema, ())
    )


def reader_of(schema: Any) -> Callable[..., Any]:
    """Fastavro's reader for schemaless payloads: the compiled one, or the Python one for a schema that contains itself."""
    if contains_itself(schema):
        from fastavro._read_py import schemaless_reader as careful

        found: Callable[..., Any] = careful
        return found
    from fastavro import schemaless_reader

    compiled: Callable[..., Any] = schemaless_reader
    return compiled


def _parts(schema: Any, inside: tuple[str, ...], space: str = "") -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Every schema within a schema, with the full names of the records around it; references as full names."""
    if isinstance(schema, str):
        yield (schema if "." in schema or not space else f"{space}.{schema}"), inside
        yield schema, inside
        return
    if isinstance(schema, list):
        for branch in schema:
            yield from _parts(branch, inside, space)
        return
    yield schema, inside
    kind = schema.get("type")
    if isinstance(kind, Mapping | list):
        yield from _parts(kind, inside, space)
    elif kind == "array":
        yield from _parts(schema["items"], inside, space)
    elif kind == "map":
        yield from _parts(schema["values"], inside, space)
    elif kind in ("record", "error"):
        space, _, name = str(schema["name"]).rpartition(".") if "." in schema["name"] else (
            schema.get("namespace", space), "", schema["name"]
        )  # fmt: skip
        around = (*inside, f"{space}.{name}" if space else name)
        for field in schema.get("fields", []):
            yield from _parts(field["type"], around, space)
    elif isinstance(kind, str):
        yield from _parts(kind, inside, space)


class _Sizes:
    """Test for schemas that may take no bytes at all."""

    def __init__(self, schema: Any) -> None:
        self._named = {
            str(found["name"]).rpartition(".")[2]: found
            for found, _ in _parts(schema, ())
            if isinstance(found, Mapping) and "name" in found and "type" in found
        }

    def is_empty(self, schema: Any, seen: tuple[str, ...] = ()) -> bool:
        if isinstance(schema, str):
            name = schema.rpartition(".")[2]
            if schema == "null":
                return True
            return name in self._named and name not in seen and self.is_empty(self._named[name], (*seen, name))
        if isinstance(schema, list):  # a union begins with the number of its branch
            return False
        kind = schema["type"]
        if kind in ("record", "error"):
            return all(self.is_empty(field["type"], seen) for field in schema.get("fields", []))
        if kind == "fixed":
            return bool(schema["size"] == 0)
        return isinstance(kind, Mapping | str) and kind not in ("array", "map", "enum") and self.is_empty(kind, seen)
