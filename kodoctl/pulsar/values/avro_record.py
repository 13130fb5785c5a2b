"""Decoder of Avro records, for topic policies: a plan reads them without fastavro, which only payloads of type avro
need (the extra `avro`).
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

Read = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value from the bytes at a position, and returns it with the position after it."""
_LONGEST: Final = 63  # bits before the last byte of a number
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")


class InvalidRecordError(ValueError):
    """Error: a schema that is not Avro, or bytes that are no record of their schema."""


def record_decoder(schema: Any) -> Callable[[bytes], Any]:
    """Returns the decoder of payloads that were written with this schema, which is parsed JSON. Logical types are
    ignored: a value has its underlying type. Raises InvalidRecordError for an invalid schema; the decoder raises it for
    an invalid payload, but ignores bytes after the record.
    """
    try:
        read = _reader(schema, "", {})
    except (KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise InvalidRecordError(f"not an Avro schema: {problem!r}") from None

    def decode(data: bytes) -> Any:
        try:
            return read(data, 0)[0]
        except (IndexError, struct.error, UnicodeDecodeError, RecursionError) as problem:
            raise InvalidRecordError(f"not a record of its schema: {problem!r}") from None

    return decode


def _reader(schema: Any, namespace: str, named: dict[str, Read]) -> Read:
    if isinstance(schema, str):
        return _PRIMITIVES.get(schema) or named[schema if "." in schema or not namespace else f"{namespace}.{schema}"]
    if isinstance(schema, list):
        return _union([_reader(branch, namespace, named) for branch in schema])
    match schema["type"]:
        case "array":
            return _blocks(_reader(schema["items"], namespace, named), list)
        case "map":
            value = _reader(schema["values"], namespace, named)
            return _blocks(lambda data, at: _pair(value, data, at), dict)
        case "record" | "error" | "enum" | "fixed":
            return _named(schema, namespace, named)
        case other:
            return _reader(other, namespace, named)


def _named(schema: Mapping[str, Any], namespace: str, named: dict[str, Read]) -> Read:
    """Reader of a type with a name, which is in `named` from now on."""
    own, _, short = schema["name"].rpartition(".")
    space = own or schema.get("namespace", namespace)
    name = f"{space}.{short}" if space else short
    match schema["type"]:
        case "enum":
            symbols = tuple(schema["symbols"])
            named[name] = lambda data, at: _symbol(symbols, data, at)
        case "fixed":
            size = operator.index(schema["size"])
            named[name] = lambda data, at: _slice(data, at, size)
        case _:
            fields: list[tuple[str, Read]] = []
            named[name] = lambda data, at: _record(fields, data, at)  # before its fields, which may refer to it
            fields += [(field["name"], _reader(field["type"], space, named)) for field in schema["fields"]]
    return named[name]


def _long(data: bytes, at: int) -> tuple[int, int]:
    """Reads a zigzag number; nearly all of them take one byte."""
    byte = data[at]
    number, at, shift = byte & 0x7F, at + 1, 7
    while byte & 0x80:
        if shift > _LONGEST:
            raise InvalidRecordError("not a record of its schema: a number of more than 64 bits")
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return (number >> 1) ^ -(number & 1), at


def _slice(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if not 0 <= size <= len(data) - at:
        raise InvalidRecordError(f"not a record of its schema: {size} bytes where {len(data) - at} are left")
    return data[at : at + size], at + size


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    return _slice(data, at, size)


def _string(data: bytes, at: int) -> tuple[str, int]:
    text, at = _bytes(data, at)
    return text.decode(), at


def _symbol(symbols: tuple[str, ...], data: bytes, at: int) -> tuple[str, int]:
    index, at = _index(data, at)
    return symbols[index], at


def _index(data: bytes, at: int) -> tuple[int, int]:
    index, at = _long(data, at)
    if index < 0:
        raise InvalidRecordError(f"not a record of its schema: index {index}")
    return index, at


def _union(branches: list[Read]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, at = _index(data, at)
        return branches[index](data, at)

    return read


def _record(fields: list[tuple[str, Read]], data: bytes, at: int) -> tuple[dict[str, Any], int]:
    values = {}
    for name, read in fields:
        values[name], at = read(data, at)
    return values, at


def _pair(value: Read, data: bytes, at: int) -> tuple[tuple[str, Any], int]:
    key, at = _string(data, at)
    found, at = value(data, at)
    return (key, found), at


def _blocks(item: Read, collect: Callable[[list[Any]], Any]) -> Read:
    """Reader of the items of an array or a map. More items than bytes are left is refused, because ten bytes can claim
    any number of items that take none.
    """

    def read(data: bytes, at: int) -> tuple[Any, int]:
        items = []
        count, at = _long(data, at)
        while count:
            if count < 0:  # followed by the block's size in bytes
                count, (_, at) = -count, _long(data, at)
            if count > len(data) - at:
                raise InvalidRecordError(f"not a record of its schema: {count} items in {len(data) - at} bytes")
            for _ in range(count):
                found, at = item(data, at)
                items.append(found)
            count, at = _long(data, at)
        return collect(items), at

    return read


_PRIMITIVES: Final[Mapping[str, Read]] = {
    "null": lambda _, at: (None, at),
    "boolean": lambda data, at: (data[at] != 0, at + 1),
    "int": _long,
    "long": _long,
    "float": lambda data, at: (_FLOAT.unpack_from(data, at)[0], at + 4),
    "double": lambda data, at: (_DOUBLE.unpack_from(data, at)[0], at + 8),
    "bytes": _bytes,
    "string": _string,
}
