"""Avro's rules of schema resolution: whether a reader's schema accepts data of a writer's schema.

From the Avro specification, "Schema Resolution". A record or enum matches by its unqualified name, as brokers
check it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kodoctl.text.formatting import many

Definition = Any
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_PROMOTIONS: Final[Mapping[str, frozenset[str]]] = {  # writer -> readers that take it as well
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}


def cannot_read(reader: Definition, writer: Definition) -> Iterator[str]:
    """Yields every reason why the schema `reader` cannot read payloads written with the schema `writer`, each after its
    place ("at amount: …"; none for the whole). Both schemas must be valid.
    """
    names = (_Names.of(reader), _Names.of(writer))
    yield from _Match(*names).check(names[0].root, names[1].root, "")


@dataclass
class _Names:
    """A schema as fastavro parses it, with its named types by full name, to resolve references."""

    root: Definition
    types: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, definition: Definition) -> _Names:
        import fastavro

        types: dict[str, dict[str, Any]] = {}
        root: Any = fastavro.parse_schema(definition, types)
        return cls(root, types)

    def resolve(self, definition: Definition) -> Definition:
        """The named type that a reference stands for; any other definition as it is."""
        if isinstance(definition, str) and definition not in _PRIMITIVES:
            return self.types[definition]
        return definition


@dataclass
class _Match:
    reader: _Names
    writer: _Names
    seen: set[tuple[str, str]] = field(default_factory=set)

    def check(self, reader: Definition, writer: Definition, path: str) -> Iterator[str]:
        reader, writer = self.reader.resolve(reader), self.writer.resolve(writer)
        if isinstance(writer, list):
            for branch in writer:
                yield from self.check(reader, branch, path)
            return
        if isinstance(reader, list):
            if not any(self._fits(branch, writer) for branch in reader):
                yield f"{_at(path)}{_show(writer)} is none of {', '.join(map(_show, reader))}"
            return
        kinds = (_kind(reader), _kind(writer))
        match kinds:
            case ("record", "record") | ("error", "error") | ("enum", "enum") if not _same_name(reader, writer):
                yield f"{_at(path)}{_show(writer)} is not {_show(reader)}: add it to `aliases`"
            case ("record", "record") | ("error", "error"):
                yield from self._records(reader, writer, path)
            case ("enum", "enum"):
                unknown = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
                if unknown and "default" not in reader:
                    yield f"{_at(path)}{', '.join(unknown)} is unknown, and the enum has no default"
            case ("fixed", "fixed"):
                if not _same_name(reader, writer) or reader["size"] != writer["size"]:
                    yield f"{_at(path)}{_show(writer)} is not {_show(reader)}"
                yield from _decimals(reader, writer, path)
            case ("array", "array"):
                yield from self.check(reader["items"], writer["items"], f"{path}[]")
            case ("map", "map"):
                yield from self.check(reader["values"], writer["values"], f"{path}{{}}")
            case (same, other) if same == other or same in _PROMOTIONS.get(other, ()):
                yield from _decimals(reader, writer, path)
            case _:
                yield f"{_at(path)}{_show(writer)} cannot be read as {_show(reader)}"

    def _fits(self, reader: Definition, writer: Definition) -> bool:
        """True if one branch of a reader's union can read the writer's type. It checks with a copy of `seen`, which
        only a check without a reason replaces: otherwise records in unions would be judged again at each of their uses.
        """
        attempt = _Match(self.reader, self.writer, set(self.seen))
        if any(attempt.check(reader, writer, "")):
            return False
        self.seen |= attempt.seen
        return True

    def _records(self, reader: Definition, writer: Definition, path: str) -> Iterator[str]:
        pair = (reader["name"], writer["name"])
        if pair in self.seen:  # a record that contains itself is being judged already
            return
        self.seen.add(pair)
        written = {one["name"]: one for one in writer["fields"]}
        for one in reader["fields"]:
            names = (one["name"], *one.get("aliases", ()))
            source = next((written[name] for name in names if name in written), None)
            place = f"{path}.{one['name']}" if path else one["name"]
            if source is not None:
                yield from self.check(one["type"], source["type"], place)
            elif "default" not in one:
                yield f"{_at(place)}the field is not written and has no default"


def _decimals(reader: Definition, writer: Definition, path: str) -> Iterator[str]:
    """Yields an error if both types are decimals of different scale or precision. Other logical types are compared as
    the types that they annotate.
    """
    read, written = _digits(reader), _digits(writer)
    if read and written and read != written:
        yield f"{_at(path)}decimal{written} cannot be read as decimal{read}"


def _digits(definition: Definition) -> tuple[int, int] | None:
    """(precision, scale) of a decimal; None for any other type. By the specification a type is no decimal if it lacks a
    precision, or is neither bytes nor fixed.
    """
    if _kind(definition) not in ("bytes", "fixed") or not isinstance(definition, dict):
        return None
    is_decimal = definition.get("logicalType") == "decimal" and definition.get("precision")
    return (definition["precision"], definition.get("scale") or 0) if is_decimal else None


def _kind(definition: Definition) -> str:
    return str(definition["type"]) if isinstance(definition, dict) else str(definition)


def _same_name(reader: dict[str, Any], writer: dict[str, Any]) -> bool:
    own = reader["name"].rpartition(".")[2]
    aliases = {alias.rpartition(".")[2] for alias in reader.get("aliases", ())}
    return writer["name"].rpartition(".")[2] in {own, *aliases}


def _show(definition: Definition) -> str:
    if isinstance(definition, dict) and "name" in definition:
        size = f" of {many(definition['size'], 'byte')}" if "size" in definition else ""
        return f"{definition['type']} {definition['name']}{size}"
    return str(definition if isinstance(definition, str) else definition.get("logicalType", definition["type"]))


def _at(path: str) -> str:
    return f"at {path}: " if path else ""
