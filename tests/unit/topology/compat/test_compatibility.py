"""Payload schemas old against new: who can read what, in the directions that schema_compatibility asks for."""

from typing import Any

import pytest

from kodoctl.topology.compat.compatibility import what_breaks


def record(*fields: dict[str, Any], name: str = "Order", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, name: str = "Kind", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
TREE = record(field("value", "int"), field("children", {"type": "array", "items": "Tree"}), name="Tree")

# reader, writer, why the reader cannot take what the writer wrote ("" = it can)
AVRO = [
    ("int", "int", ""),
    ("long", "int", ""), ("float", "int", ""), ("double", "int", ""), ("double", "long", ""), ("double", "float", ""),
    ("float", "long", ""), ("string", "bytes", ""), ("bytes", "string", ""),
    ("int", "long", "long cannot be read as int"), ("float", "double", "double cannot be read as float"),
    ("string", "int", "int cannot be read as string"), ("boolean", "int", "int cannot be read as boolean"),
    ({"type": "int"}, "int", ""),
    ({"type": "int", "logicalType": "date"}, "int", ""),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, ""),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "string"}, "at []: string cannot be read as int"),
    ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, "at {}: string cannot be read as int"),
    ({"type": "map", "values": "int"}, {"type": "array", "items": "int"}, "array cannot be read as map"),
    # unions
    (["null", "int"], "int", ""),
    (["null", "long"], ["null", "int"], ""),
    ("int", ["null", "int"], "null cannot be read as int"),
    (["null", "int"], "string", "string is none of null, int"),
    (["null", "string"], ["null", record()], "record Order is none of null, string"),
    # records
    (record(field("a", "int")), record(field("a", "int"), field("b", "int")), ""),
    (record(field("a", "int"), field("b", "int", default=0)), record(field("a", "int")), ""),
    (record(field("a", "int"), field("b", "int")), record(field("a", "int")), "at b: the field is not written and has no default"),
    (record(field("b", "int", aliases=["a"])), record(field("a", "int")), ""),
    (record(field("a", "int")), record(field("a", "string")), "at a: string cannot be read as int"),
    (record(field("o", record(field("a", "int"), name="Inner"))), record(field("o", record(name="Inner"))), "at o.a: the field is not written and has no default"),
    (record(name="New"), record(name="Old"), "record Old is not record New: add it to `aliases`"),
    (record(name="New", aliases=["Old"]), record(name="Old"), ""),
    (record(name="Order", namespace="a"), record(name="Order", namespace="b"), ""),
    (TREE, TREE | {"doc": "a tree"}, ""),
    (TREE, record(field("value", "string"), field("children", {"type": "array", "items": "Tree"}), name="Tree"), "at value: string cannot be read as int"),
    ([TREE, "int"], record(field("value", "string"), field("children", {"type": "array", "items": "Tree"}), name="Tree"), "record Tree is none of record Tree, int"),
    (record(field("a", enum("X")), field("b", "Kind")), record(field("a", enum("X")), field("b", "Kind")) | {"doc": ""}, ""),
    # enums, fixed, decimals
    (enum("A", "B"), enum("A"), ""),
    (enum("A"), enum("A", "B"), "B is unknown, and the enum has no default"),
    (enum("A", default="A"), enum("A", "B"), ""),
    (enum("A", name="New"), enum("A", name="Old"), "enum Old is not enum New: add it to `aliases`"),
    (enum("A", name="New", aliases=["Old"]), enum("A", name="Old"), ""),
    ({"type": "fixed", "name": "Id", "size": 8}, {"type": "fixed", "name": "Id", "size": 8, "aliases": ["x"]}, ""),
    ({"type": "fixed", "name": "Id", "size": 8}, {"type": "fixed", "name": "Id", "size": 16}, "fixed Id of 16 bytes is not fixed Id of 8 bytes"),
    ({"type": "fixed", "name": "Id", "size": 8}, {"type": "fixed", "name": "Other", "size": 8}, "fixed Other of 8 bytes is not fixed Id of 8 bytes"),
    (DECIMAL, DECIMAL | {"precision": 5}, "decimal(5, 2) cannot be read as decimal(4, 2)"),
    (DECIMAL, DECIMAL | {"scale": 1}, "decimal(4, 1) cannot be read as decimal(4, 2)"),
    (DECIMAL, DECIMAL | {"doc": "x"}, ""),
    (DECIMAL, "bytes", ""),
    (DECIMAL, {"type": "bytes", "logicalType": "decimal", "doc": "no decimal without a precision"}, ""),
    (DECIMAL | {"scale": 0}, {"type": "bytes", "logicalType": "decimal", "precision": 4}, ""),
    ({"type": "string", "logicalType": "decimal"}, {"type": "string", "logicalType": "decimal", "doc": "x"}, ""),
    ({"type": "string", "logicalType": "uuid"}, {"type": "int", "logicalType": "date"}, "date cannot be read as uuid"),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "writer", "reason"), AVRO)
def test_avro_readers_take_what_the_specification_says(reader: Any, writer: Any, reason: str) -> None:
    said = what_breaks("avro", old=writer, new=reader, mode="BACKWARD")
    assert said == ([f"the new schema cannot read what the old one wrote: {reason}"] if reason else [])


def obj(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties}


TEXT, NUMBER = {"type": "string"}, {"type": "number"}

# new, old, why the new schema refuses what the old one accepts ("" = it does not)
JSON = [
    (obj(a=TEXT), obj(a=TEXT) | {"title": "x"}, ""),
    (obj(a=TEXT, b=NUMBER), obj(a=TEXT), ""),
    (obj(("a",), a=TEXT), obj(a=TEXT), "a is required"),
    (obj(a=TEXT), obj(("a",), a=TEXT), ""),
    (obj(a={"type": "integer"}), obj(a=NUMBER), "at a: type number: only integer is accepted"),
    (obj(a=NUMBER), obj(a={"type": "integer"}), ""),
    (obj(a={"type": ["string", "null"]}), obj(a=TEXT), ""),
    (obj(a=TEXT), obj(a={"type": ["string", "null"]}), "at a: type null, string: only string is accepted"),
    (obj(a=TEXT), obj(a={}), "at a: only string is accepted"),
    (obj(a={"enum": ["x", "y"]}), obj(a={"enum": ["x"]}), ""),
    (obj(a={"enum": ["x"]}), obj(a={"enum": ["x", "y"]}), "at a: 'y' is not accepted"),
    (obj(a={"enum": ["x"]}), obj(a={}), "at a: only 'x' is accepted"),
    (obj(a={"const": 1}), obj(a={"const": 2}), "at a: 2 is not accepted"),
    (obj() | {"additionalProperties": False}, obj(), "additionalProperties is false: properties left open are refused"),
    (obj(), obj() | {"additionalProperties": False}, ""),
    (obj() | {"additionalProperties": False}, obj() | {"additionalProperties": False}, ""),
    (obj() | {"additionalProperties": TEXT}, obj() | {"additionalProperties": NUMBER}, "at *: type number: only string is accepted"),
    (obj(a=TEXT) | {"additionalProperties": False}, obj(a=TEXT, b=TEXT) | {"additionalProperties": False}, "at b: nothing is accepted"),
    (obj(a=TEXT, b=TEXT) | {"additionalProperties": False}, obj(a=TEXT) | {"additionalProperties": False}, ""),
    (obj(a=TEXT), obj() | {"additionalProperties": NUMBER}, "at a: type number: only string is accepted"),
    (obj(o=obj(("x",), x=TEXT)), obj(o=obj(x=TEXT)), "at o: x is required"),
    (obj(o={"additionalProperties": TEXT}), obj(o={"additionalProperties": NUMBER}), "at o.*: type number: only string is accepted"),
    ({"type": "array", "items": TEXT}, {"type": "array", "items": NUMBER}, "at []: type number: only string is accepted"),
    ({"type": "array", "items": TEXT}, {"type": "array"}, "at []: only string is accepted"),
    ({"type": "array"}, {"type": "array", "items": TEXT}, ""),
    ({"type": "array", "items": [TEXT]}, {"type": "array", "items": [NUMBER]}, "`items` may have changed in a way that cannot be judged"),
    ({"type": "array", "items": TEXT}, {"type": "array", "items": [TEXT]}, "at []: only string is accepted"),
    (True, obj(), ""),
    (obj(), True, "only object is accepted"),
    (False, obj(), "nothing is accepted"),
    (obj(), False, ""),
    # bounds
    ({"minimum": 2}, {"minimum": 1}, "minimum is 2, not 1"),
    ({"minimum": 1}, {"minimum": 2}, ""),
    ({"minimum": 1}, {}, "minimum is 1"),
    ({"maximum": 1}, {"maximum": 2}, "maximum is 1, not 2"),
    ({"maxLength": 5}, {}, "maxLength is 5"),
    ({"minLength": 0}, {}, ""),
    ({"minItems": 1}, {"minItems": 0}, "minItems is 1, not 0"),
    ({"exclusiveMaximum": 5}, {"exclusiveMaximum": 6}, "exclusiveMaximum is 5, not 6"),
    ({"multipleOf": 3}, {"multipleOf": 6}, ""),
    ({"multipleOf": 0.01}, {"multipleOf": 0.1}, ""),
    ({"multipleOf": 0.1}, {"multipleOf": 0.01}, "multipleOf is 0.1, not 0.01"),
    ({"multipleOf": 4}, {"multipleOf": 6}, "multipleOf is 4, not 6"),
    ({"multipleOf": 1e-5}, {"multipleOf": 1e30}, ""),
    ({"multipleOf": 1e30}, {"multipleOf": 1e-5}, "multipleOf is 1e+30, not 1e-05"),
    ({"multipleOf": 10**400}, {"multipleOf": 10**401}, ""),
    ({"multipleOf": float("inf")}, {"multipleOf": 2}, "multipleOf is Infinity, not 2"),
    ({"uniqueItems": True}, {}, "uniqueItems is true"),
    ({"uniqueItems": True}, {"uniqueItems": True, "title": "x"}, ""),
    ({"uniqueItems": False}, {}, ""),
    # what is only compared
    ({"pattern": "a"}, {"pattern": "b"}, "`pattern` may have changed in a way that cannot be judged"),
    ({"pattern": "a"}, {"pattern": "a", "title": "x"}, ""),
    ({}, {"pattern": "b"}, ""),
    ({"anyOf": [TEXT]}, {"anyOf": [TEXT, NUMBER]}, "`anyOf` may have changed in a way that cannot be judged"),
    ({"items": TEXT}, {"items": TEXT, "prefixItems": [NUMBER]}, "at []: only string is accepted"),
    (obj() | {"additionalProperties": False}, obj() | {"additionalProperties": False, "patternProperties": {"^x": TEXT}}, "additionalProperties is false: properties left open are refused"),
    ({"$dynamicRef": "#n", "$defs": {"n": TEXT}}, {"$dynamicRef": "#n", "$defs": {"n": NUMBER}}, "`$dynamicRef` may have changed in a way that cannot be judged"),
    # references
    ({"$ref": "#/$defs/a", "$defs": {"a": TEXT}}, {"$ref": "#/$defs/a", "$defs": {"a": NUMBER}}, "type number: only string is accepted"),
    (obj(x={"$ref": "#/$defs/a"}) | {"$defs": {"a": TEXT}}, obj(x=TEXT), ""),
    (obj(x={"$ref": "#/$defs/a", "maxLength": 3}) | {"$defs": {"a": TEXT}}, obj(x=TEXT), "at x: maxLength is 3"),
    (obj(x={"$ref": "#/$defs/a~1b"}) | {"$defs": {"a/b": True}}, obj(x=TEXT), ""),
    ({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": TEXT}}, {"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": NUMBER}}, "`anyOf` may have changed in a way that cannot be judged"),
    (obj(x={"$ref": "#/$defs/a%20b"}) | {"$defs": {"a b": TEXT}}, obj(x=TEXT), ""),
    (obj(x={"$ref": "#/anyOf/1"}) | {"anyOf": [True, TEXT]}, obj(x=TEXT) | {"anyOf": [True, TEXT]}, ""),
    (obj(x={"$ref": "#/anyOf/9"}) | {"anyOf": [TEXT]}, obj(x=TEXT) | {"anyOf": [TEXT]}, "at x: `$ref: #/anyOf/9` points at nothing"),
    (obj(x={"$ref": "other.json"}), obj(x=TEXT), "at x: `$ref: other.json` cannot be followed: only references inside the file can be compared"),
    (obj(x={"$ref": "#/$defs/no"}), obj(x=TEXT), "at x: `$ref: #/$defs/no` points at nothing"),
    (obj(x={"$ref": "#/type/0"}), obj(x=TEXT), "at x: `$ref: #/type/0` points at nothing"),
    (obj(x={"$ref": "#/properties/x"}), obj(x=TEXT), "at x: `$ref: #/properties/x` cannot be followed: only references inside the file can be compared"),
    (obj(x={"$ref": "#"}) | {"title": "new"}, obj(x={"$ref": "#"}), ""),
]  # fmt: skip


@pytest.mark.parametrize(("new", "old", "reason"), JSON)
def test_json_schemas_are_judged_conservatively(new: Any, old: Any, reason: str) -> None:
    said = what_breaks("json", old, new, "BACKWARD")
    assert said == ([f"the new schema cannot read what the old one wrote: {reason}"] if reason else [])


NARROW, WIDE = {"type": "integer"}, {"type": "number"}
NEW_CANNOT = ["the new schema cannot read what the old one wrote: type number: only integer is accepted"]
OLD_CANNOT = ["the old schema cannot read what the new one wrote: type number: only integer is accepted"]


@pytest.mark.parametrize(
    ("mode", "narrowed", "widened"),
    [
        ("BACKWARD", NEW_CANNOT, []),
        ("FORWARD", [], OLD_CANNOT),
        ("FULL", NEW_CANNOT, OLD_CANNOT),
        ("BACKWARD_TRANSITIVE", NEW_CANNOT, []),
        ("FORWARD_TRANSITIVE", [], OLD_CANNOT),
        ("FULL_TRANSITIVE", NEW_CANNOT, OLD_CANNOT),
        ("ALWAYS_COMPATIBLE", [], []),
        ("ALWAYS_INCOMPATIBLE", ["schema_compatibility ALWAYS_INCOMPATIBLE allows no change"], ["schema_compatibility ALWAYS_INCOMPATIBLE allows no change"]),
    ],
)  # fmt: skip
def test_the_mode_says_who_must_read_whom(mode: str, narrowed: list[str], widened: list[str]) -> None:
    assert what_breaks("json", old=WIDE, new=NARROW, mode=mode) == narrowed
    assert what_breaks("json", old=NARROW, new=WIDE, mode=mode) == widened
    assert what_breaks("json", WIDE, WIDE, mode) == []


def test_avro_goes_both_ways_by_default() -> None:
    old, new = record(field("a", "int")), record(field("a", "long"), field("b", "string", default=""))
    assert what_breaks("avro", old, new) == [
        "the old schema cannot read what the new one wrote: at a: long cannot be read as int"
    ]


@pytest.mark.parametrize(
    "draft", ["http://json-schema.org/draft-03/schema#", "http://json-schema.org/draft-04/schema#"]
)
def test_schemas_of_old_drafts_are_not_guessed_at(draft: str) -> None:
    assert what_breaks("json", {"$schema": draft}, {}) == ["only JSON Schema from draft 6 on can be compared"]


def test_every_reason_is_told() -> None:
    old, new = obj(a=NUMBER, b=TEXT), obj(("a", "b"), a=TEXT, b=NUMBER)
    assert len(what_breaks("json", old, new, "BACKWARD")) == 3


def test_a_schema_that_contains_itself_is_judged_once_a_level() -> None:
    old, new = obj(n=NUMBER, x={"$ref": "#"}), obj(("n",), n=NUMBER, x={"$ref": "#"})
    assert [reason.rpartition("wrote: ")[2] for reason in what_breaks("json", old, new, "BACKWARD")] == [
        "n is required",
        "at x: n is required",
    ]


def test_a_reference_is_compared_with_each_level_of_a_schema_without_references() -> None:
    new = obj(n=NUMBER, x={"$ref": "#"})
    old = obj(n=NUMBER, x=obj(n=NUMBER, x=obj(n=TEXT)))
    assert what_breaks("json", old, new, "BACKWARD") == [
        "the new schema cannot read what the old one wrote: at x.x.n: type string: only number is accepted"
    ]


def _doubling_json(title: str) -> dict[str, Any]:
    parts = {f"d{n}": obj(a={"$ref": f"#/$defs/d{n + 1}"}, b={"$ref": f"#/$defs/d{n + 1}"}) for n in range(60)}
    return {"$ref": "#/$defs/d0", "title": title, "$defs": {**parts, "d60": TEXT}}


def _doubling_avro(doc: str) -> dict[str, Any]:
    inner = record(name="R60")
    for n in range(59, -1, -1):
        inner = record(field("a", ["null", inner]), field("b", ["null", f"R{n + 1}"]), name=f"R{n}")
    return inner | {"doc": doc}


def test_definitions_that_are_used_twice_do_not_double_the_time_at_each_level() -> None:
    assert what_breaks("json", _doubling_json("old"), _doubling_json("new")) == []
    assert what_breaks("avro", _doubling_avro("old"), _doubling_avro("new")) == []


def test_schemas_that_are_nested_too_deeply_are_not_compared() -> None:
    parts = {f"d{n}": obj(a={"$ref": f"#/$defs/d{n + 1}"}) for n in range(1_000)}
    old, new = ({"$ref": "#/$defs/d0", "title": title, "$defs": {**parts, "d1000": TEXT}} for title in "ab")
    assert what_breaks("json", old, new) == ["the schemas are nested too deeply to be compared"]
