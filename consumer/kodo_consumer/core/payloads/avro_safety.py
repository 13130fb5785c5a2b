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
    """True if the schema has an array whose items need no bytes. Raises what fastavro raises for a schema that it does
    not take.
    """
    from fastavro import parse_schema

    names: dict[str, Any] = {}
    parsed = parse_schema(schema, names)  # names in full: two namespaces may have types of one name
    return any(
        isinstance(found, Mapping) and found.get("type") == "array" and _is_empty(found["items"], names)
        for found, _ in _parts(parsed, ())
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


def _is_empty(schema: Any, names: Mapping[str, Any], seen: tuple[str, ...] = ()) -> bool:
    """True if a value of the schema, which fastavro has parsed with its named types `names`, may take no bytes at all.
    `seen`: names of the types around it.
    """
    if isinstance(schema, str):
        return schema == "null" or (
            schema in names and schema not in seen and _is_empty(names[schema], names, (*seen, schema))
        )
    if isinstance(schema, list):  # a union begins with the number of its branch
        return False
    kind = schema["type"]
    if kind in ("record", "error"):
        return all(_is_empty(field["type"], names, seen) for field in schema.get("fields", []))
    if kind == "fixed":
        return bool(schema["size"] == 0)
    return isinstance(kind, Mapping | str) and kind not in ("array", "map", "enum") and _is_empty(kind, names, seen)
