"""Payloads against their schema: decimals, drafts, places; and that no payload takes long, whatever its schema is."""

from __future__ import annotations

import json
import pickle
import socket
import time
from typing import Any

import pytest

from kodoctl.protocol.json_payload import MAX_DEPTH
from kodoctl.recall.message.payload_patch import Edit, NotEditableError
from kodoctl.topology.payload_validator import PayloadValidator, UnusableSchemaError

SCHEMAS = "http://json-schema.org/draft-0{}/schema#"


def is_valid(schema: Any, payload: str) -> bool:
    return PayloadValidator(schema).misfit(json.loads(payload)) is None


def test_every_amount_in_cents_is_a_multiple_of_a_cent_and_no_tenth_of_one_is() -> None:
    cents, tenths = PayloadValidator({"multipleOf": 0.01}), PayloadValidator({"multipleOf": 0.001})
    for amount in range(1, 100_001):
        value = json.loads(f"{amount // 100}.{amount % 100:02}")
        assert cents.misfit(value) is None
        if amount % 97 == 0:
            assert tenths.misfit(value) is None
            assert cents.misfit(json.loads(f"{amount // 100}.{amount % 100:02}1")) is not None


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({"multipleOf": 0.0001}, "0.0075", "0.00755"),
        ({"multipleOf": 1e-8}, "12.12345678", "12.123456785"),
        ({"multipleOf": 7}, "7" + "0" * 300, "7" + "0" * 299 + "1"),
        ({"minimum": 9007199254740993}, "9007199254740993", "9007199254740992"),
        ({"maximum": 10**30}, "1" + "0" * 30, "1" + "0" * 29 + "1" + "0"),
        ({"const": 1}, "1.0", "true"),
        ({"type": "integer"}, "1.0", "1.5"),
        ({"uniqueItems": True}, "[1, true, 0, false, [1], [true]]", "[1, 2, 1.0]"),
        ({"uniqueItems": True}, json.dumps([*range(40), "0"]), json.dumps([*range(40), 39.0])),
        ({"enum": [{"a": [1, None]}]}, '{"a": [1.0, null]}', '{"a": [true, null]}'),
        ({"pattern": "^a$"}, '"a"', '"a\\n"'),
        ({"pattern": "^.$"}, '"\U0001f600"', '"ab"'),
        ({"pattern": "b"}, '"abc"', '"acd"'),
        ({"patternProperties": {"^x": {"type": "null"}}, "additionalProperties": False}, '{"xy": null}', '{"y": null}'),
        ({"$schema": SCHEMAS.format(4), "minimum": 1, "exclusiveMinimum": True}, "2", "1"),
        ({"$schema": SCHEMAS.format(7), "dependencies": {"a": ["b"]}}, '{"b": 1}', '{"a": 1}'),
        ({"dependentRequired": {"a": ["b"]}}, '{"b": 1}', '{"a": 1}'),
        ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, '{"a": 1}', '{"b": 1}'),
    ],
)
def test_a_value_is_what_json_schema_says(schema: Any, valid: str, invalid: str) -> None:
    assert is_valid(schema, valid)
    assert not is_valid(schema, invalid)


@pytest.mark.parametrize("draft", [4, 6, 7])
@pytest.mark.parametrize(
    "schema", [{"format": "email"}, {"contentEncoding": "base64"}, {"contentMediaType": "application/json"}]
)
def test_formats_and_encodings_are_notes(draft: int, schema: Any) -> None:
    assert is_valid({"$schema": SCHEMAS.format(draft), **schema}, '"{!"')


@pytest.mark.parametrize(
    ("schema", "payload", "said"),
    [
        ({"properties": {"a": {"type": "integer"}}}, '{"a": "secret"}', " at $.a: type"),
        ({"items": {"required": ["a"]}}, '[{"a": 1}, {"secret": 1}]', " at $[1]: required"),
        ({"additionalProperties": False}, '{"secret": 1}', " at $: additionalProperties"),
        ({"oneOf": [{"type": "null"}, {"type": "boolean"}]}, '"secret"', " at $: oneOf"),
        ({"dependentRequired": {"a": ["b"]}}, '{"a": "secret"}', " at $: dependentRequired"),
        ({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"maxLength": 1}}}, '{"a": "secret"}', " at $.a: maxLength"),
        ({"additionalProperties": {"type": "null"}}, json.dumps({"k" * 100: 1}), " at $." + "k" * 78 + ": type"),
        ({"type": "object", "properties": {"name": {"type": "string"}, "kids": {"items": {"$ref": "#"}}}},
         '{"kids": [{"kids": [{"name": 1}]}]}', " at $.kids[0].kids[0].name: type"),
        ({"$schema": SCHEMAS.format(7), "additionalProperties": False, "properties": {"kids": {"items": [{"$ref": "#"}]}}},
         '{"kids": [{"secret": 1}]}', " at $.kids[0]: additionalProperties"),
        ({"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"$ref": "#", "properties": {"b": {"type": "null"}}}}},
         '{"a": {"b": 1}}', ""),
        ({"anyOf": [{"type": "null"}, {"properties": {"a": {"$ref": "#"}}, "required": ["b"]}]}, '{"a": 1}', ""),
        ({"allOf": [{"properties": {"a": {"$dynamicRef": "#n"}}}], "$dynamicAnchor": "n", "type": "object"}, '{"a": 1}', ""),
        ({"pattern": "a"}, '"\\ud83d"', " at $: a text that is no Unicode"),
        ({"uniqueItems": True}, "[" * 300 + "]" * 300, " at $: Recursion limit reached"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_by_place_and_rule(schema: Any, payload: str, said: str) -> None:
    misfit = PayloadValidator(schema).misfit(json.loads(payload) if "[[" not in payload else [json.loads(payload)] * 2)
    assert str(misfit) == said


def tree(*schemas: Any) -> Any:
    return {"anyOf": [*schemas, {"type": "integer"}]}


CHILD = {"properties": {"a": {"$ref": "#"}}}
TWICE = [
    {"allOf": [CHILD, CHILD]}, tree({**CHILD, "required": ["x"]}, {**CHILD, "required": ["y"]}, CHILD),
    {"oneOf": [CHILD, {**CHILD, "required": ["x"]}]}, {"if": CHILD, "then": CHILD, "else": CHILD}, {"not": {"not": CHILD}, **CHILD},
    {"patternProperties": {"a": {"$ref": "#"}, "^a": {"$ref": "#"}}, "properties": {"a": {"$ref": "#"}}},
    {"dependentSchemas": {"a": CHILD}, **CHILD}, {"anyOf": [CHILD, CHILD], "unevaluatedProperties": {"$ref": "#"}},
    {"$dynamicAnchor": "n", "allOf": [{"properties": {"a": {"$dynamicRef": "#n"}}}] * 2},
]  # fmt: skip


@pytest.mark.parametrize("schema", TWICE, ids=range(len(TWICE)))
@pytest.mark.parametrize("leaf", [1, "x"])
def test_a_schema_that_contains_itself_in_several_ways_is_quick(schema: Any, leaf: Any) -> None:
    value = leaf
    for _ in range(MAX_DEPTH - 1):
        value = {"a": value}
    began = time.process_time()
    PayloadValidator({**schema, "type": ["object", "integer"]}).misfit(value)
    assert time.process_time() - began < 1, "2^199 steps would take for ever"


@pytest.mark.parametrize(
    ("reference", "head"),
    [
        ("#/$defs/{}", {}), ("#/%24defs/{}", {}), ("#/$defs/{}", {"$id": "urn:a:b"}), ("y#/%24defs/{}", {"$id": "http://x/y"}),
        ("http://x/{}", {}), ("#/definitions/{}", {"$schema": SCHEMAS.format(4), "id": "http://x/y#"}),
    ],
)  # fmt: skip
def test_the_checks_of_a_value_are_counted_however_a_reference_is_written(reference: str, head: dict[str, Any]) -> None:
    """Through `#/%24defs/a17` one number took half a minute."""

    def levels(count: int) -> Any:
        found: dict[str, Any] = {"a0": {"type": "string"}}
        for number in range(1, count):
            below = {"$ref": reference.format(f"a{number - 1}")}
            found[f"a{number}"] = {"anyOf": [below, {"allOf": [below]}]}
        for name, schema in found.items() if reference.startswith("http") else ():
            schema["$id"] = f"http://x/{name}"
        top = {"$ref": reference.format(f"a{count - 1}")}
        return {**head, "definitions" if "$schema" in head else "$defs": found, "allOf": [top]}

    assert str(PayloadValidator(levels(8)).misfit(1)).startswith(" at $: ")
    with pytest.raises(UnusableSchemaError, match="more than 10000 schemas for one value"):
        PayloadValidator(levels(18))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"$ref": "#/%24defs/a", "$defs": {"a": {"$ref": "#/%24defs/a"}}}, "refers to itself for the same value"),
        ({"$ref": "#/$defs/", "$defs": {"": {"$ref": "#/$defs/"}}}, "refers to itself for the same value"),
        ({"$ref": "http://["}, "leads out of the file"),
        (
            {"$id": "http://a/", "properties": {"b": {"$id": "http://["}}},
            "not valid JSON Schema: Invalid URI reference",
        ),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(schema: Any, said: str) -> None:
    with pytest.raises(UnusableSchemaError, match=said):
        PayloadValidator(schema)


def test_anchors_and_meta_schemas_can_be_referred_to() -> None:
    anchor = {
        "$schema": SCHEMAS.format(7),
        "definitions": {"a": {"$id": "#a", "type": "string"}},
        "allOf": [{"$ref": "#a"}],
    }
    assert str(PayloadValidator(anchor).misfit(1)) == " at $: type"
    known = {"$ref": "https://json-schema.org/draft/2020-12/schema"}
    assert is_valid(known, '{"type": "string"}')
    assert str(PayloadValidator(known).misfit({"type": 5})) == " at $.type: anyOf"


@pytest.mark.parametrize(
    "pattern", [r"^(\w+\s?)*$", r"(a+)+$", r"(a|a)*b", r"(x+x+)+y", r"^(([a-z])+.)+[A-Z]([a-z])+$"]
)
def test_a_pattern_takes_time_in_proportion_to_the_text(pattern: str) -> None:
    for schema in (
        {"pattern": pattern},
        {"patternProperties": {pattern: False}},
        {"propertyNames": {"pattern": pattern}},
        {"patternProperties": {pattern: {}}, "additionalProperties": False},
        {"patternProperties": {pattern: {}}, "unevaluatedProperties": False},
    ):
        validator = PayloadValidator(schema)
        for letter in "ax":
            text = letter * 1_000_000 + "!"
            began = time.process_time()
            validator.misfit(text if "pattern" in schema else {text: 1})
            assert time.process_time() - began < 2, "30 letters would take as long"


@pytest.mark.parametrize(
    "item", [lambda n: {"sku": n}, lambda n: [[n]], float, lambda n: {"a": {"b": "x" * 100}, "c": [n]}]
)
def test_unique_items_take_time_in_proportion_to_their_number(item: Any) -> None:
    validator = PayloadValidator({"uniqueItems": True})
    items = [item(n) for n in range(50_000)]
    began = time.process_time()
    assert validator.misfit(items) is None
    assert validator.misfit([*items, items[0]]) is not None
    assert time.process_time() - began < 5, "2,000 would take as long"


def test_a_validator_and_an_edit_go_to_other_processes() -> None:
    edit = Edit({"amount": 2}, {"properties": {"amount": {"multipleOf": 0.01}}})
    assert edit.apply(b"{}") == b'{"amount":2}'
    assert pickle.loads(pickle.dumps(edit)).apply(b"{}") == b'{"amount":2}'
    with pytest.raises(NotEditableError, match=r"no longer fits the declared schema at \$.amount: multipleOf"):
        pickle.loads(pickle.dumps(Edit({"amount": 0.001}, edit.schema))).apply(b"{}")


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        at = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        for schema in ({"$ref": at}, {"$schema": at}, {"$id": at, "$ref": "y"}, {"$dynamicRef": f"{at}#a"}):
            with pytest.raises(UnusableSchemaError):
                PayloadValidator(schema)
        assert (
            PayloadValidator({"$id": at, "default": {"$ref": at}, "const": {"$ref": at}}).misfit({"$ref": at}) is None
        )
        with pytest.raises(BlockingIOError):
            server.accept()
