"""Lint rules K304 and K306: files of payload schemas that can be used, and those that cannot."""

import json
from pathlib import Path

import pytest

from kodoctl.errors import Severity
from kodoctl.topology.lint.linter import lint
from kodoctl.topology.load import load_set, source_of
from tests.unit.topology.topology_files import FILE, found_in

RECORD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}


def payload_findings(folder: Path, kind: str, content: str | bytes | None) -> list[tuple[str, str]]:
    schema = folder / "order.schema"
    if content is not None:
        schema.write_bytes(content if isinstance(content, bytes) else content.encode())
    body = f"version: 1\nname: n\ntenant: k\nnamespace: n\ntopics: {{orders: {{payload: {{type: {kind}, schema: order.schema}}}}}}\n"
    report = lint([source_of(body.encode(), str(folder / "t.yaml"))])
    return [(f"{f.code} {f.where.line}:{f.where.column}" if f.where else "", f.detail) for f in report.findings]


@pytest.mark.parametrize("own", [True, False])
def test_a_mask_over_avro_payloads_is_told_where_it_stands(tmp_path: Path, own: bool) -> None:
    (tmp_path / "order.schema").write_text(json.dumps(RECORD), encoding="utf-8")
    mask, payload = "payloads: {mask: ['$.a']}", "payload: {type: avro, schema: order.schema}"
    inner = f"{payload}, {mask}" if own else payload
    body = f"version: 1\nname: n\ntenant: k\nnamespace: n\n{'' if own else mask}\ntopics: {{orders: {{{inner}}}}}\n"
    report = lint([source_of(body.encode(), str(tmp_path / "t.yaml"))])
    (found,) = [one for one in report.findings if one.code == "K306"]
    assert "payloads of orders are avro" in found.detail
    assert found.where is not None
    assert found.where.line == (6 if own else 5)


def chained(length: int, keyword: str) -> str:
    """A schema in which each definition refers to the next one: with `allOf` twice, so that a value meets 2^length of them."""

    def after(number: int) -> dict[str, object]:
        following = {"$ref": f"#/$defs/d{number + 1}"}
        return {keyword: [following, following] if keyword == "allOf" else following}

    return json.dumps({"$ref": "#/$defs/d0", "$defs": {**{f"d{n}": after(n) for n in range(length)}, f"d{length}": {}}})


@pytest.mark.parametrize(
    ("kind", "content", "says"),
    [
        ("json", None, "No such file or directory"),
        ("json", "{", "it is not JSON: Expecting property name"),
        ("json", b"\xff", "it is not JSON"),
        ("json", "[]", "not valid JSON Schema: it should be an object"),
        ("json", '"x"', "not valid JSON Schema"),
        ("json", "5", "not valid JSON Schema: it should be an object"),
        ("json", '{"type": "strin"}', "not valid JSON Schema: at $.type"),
        ("json", '{"type": 5}', "not valid JSON Schema: at $.type"),
        (
            "json",
            '{"properties": {"a": {"$ref": "common.json#/a"}}}',
            "`$ref: common.json#/a` at $.properties.a leads out of the file",
        ),
        (
            "json",
            '{"items": {"$ref": "http://127.0.0.1:9/a.json"}}',
            "at $.items leads out of the file, and nothing is fetched",
        ),
        (
            "json",
            '{"items": {"$ref": "file:///etc/hostname"}}',
            "at $.items leads out of the file, and nothing is fetched",
        ),
        (
            "json",
            '{"not": {"$dynamicRef": "http://127.0.0.1:9/a#b"}}',
            "`$dynamicRef: http://127.0.0.1:9/a#b` at $.not leads out",
        ),
        ("json", '{"items": {"$ref": "#/$defs/a"}}', "`$ref: #/$defs/a` at $.items points at nothing in the file"),
        ("json", '{"$ref": "#a"}', "`$ref: #a` at $ points at nothing in the file"),
        (
            "json",
            '{"$schema": "http://127.0.0.1:9/schema"}',
            "is no draft that is known: write https://json-schema.org/draft/2020-12/",
        ),
        (
            "json",
            '{"properties": {"a": {"pattern": "^(?!x)"}}}',
            "its pattern ^(?!x) at $.properties.a cannot be used: it looks ahead: say",
        ),
        ("json", '{"pattern": "(?<=x)y"}', "its pattern (?<=x)y at $ cannot be used: it looks behind: match"),
        (
            "json",
            '{"patternProperties": {"(a)\\\\1": {}}}',
            "at $.patternProperties.(a)\\1 cannot be used: it refers back to a group",
        ),
        ("json", '{"pattern": "(?>a)b"}', "it keeps what it has matched: leave that out"),
        ("json", '{"pattern": "a\\\\Z"}', "the end of a text is `$`"),
        ("json", '{"pattern": "("}', "it is no regular expression (ECMA 262)"),
        ("json", '{"pattern": "(a{1,1000}){1,300}"}', "it is too large: lower the numbers in its `{}`"),
        ("json", '{"anyOf": [{"type": "null"}, {"$ref": "#"}]}', "its schema at $ refers to itself for the same value"),
        ("json", chained(51, "not"), "is a chain of more than 100 schemas for one value"),
        ("json", chained(3000, "not"), "is a chain of more than 100 schemas for one value"),
        (
            "json",
            '{"$id": "http://127.0.0.1:9/a/", "$ref": "../b"}',
            "not valid JSON Schema: Resource 'http://127.0.0.1:9/b'",
        ),
        ("json", '{"pattern": "\\ud800"}', "not valid JSON Schema: Failed to get UTF-8"),
        ("json", chained(20, "allOf"), "has more than 10000 schemas for one value"),
        ("json", "[" * 100 + "]" * 100, "it is nested more than 64 levels deep"),
        ("json", "[" * 100_000 + "]" * 100_000, "it is nested more than 64 levels deep"),
        ("json", " " * (8 << 20) + "{}", "it is larger than 8 MiB"),
        ("avro", '{"type": "record", "name": "Order"}', "a record has no list of `fields`"),
        (
            "avro",
            '["null", {"type": "array", "items": {"type": "record", "name": "Order", "fields": {}}}]',
            "a record has no list of `fields`",
        ),
        ("avro", '{"type": "enum", "name": "Kind"}', "not valid Avro: 'symbols' is missing"),
        ("avro", '{"type": "reco"}', "not valid Avro"),
        ("avro", '{"type": []}', "not valid Avro"),
        ("avro", "{}", "not valid Avro"),
    ],
)
def test_a_payload_schema_that_cannot_be_used_is_found(
    tmp_path: Path, kind: str, content: str | bytes | None, says: str
) -> None:
    ((place, detail),) = payload_findings(tmp_path, kind, content)
    assert place == "K304 5:49"
    assert detail.startswith(f"{tmp_path}/order.schema: ")
    assert says in detail


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("json", '{"type": "object"}'), ("json", "true"), ("json", chained(45, "not")),
        ("json", '{"properties": {"not": {"$ref": "#"}, "next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}}'),
        ("json", '{"$id": "https://a/b", "$ref": "https://a/b#/$defs/c", "$defs": {"c": {"$ref": "d"}, "d": {"$id": "d"}}}'),
        ("json", '{"$anchor": "a", "items": {"$ref": "#a"}}'),
        ("json", '{"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": true}'),
        ("json", '{"pattern": "^\\\\p{L}{1,99}$", "patternProperties": {"^(\\\\w+\\\\s?)*$": {}}}'), ("avro", json.dumps(RECORD)), ("avro", '"string"'),
    ],
)  # fmt: skip
def test_a_payload_schema_that_can_be_used_is_not_found(tmp_path: Path, kind: str, content: str) -> None:
    assert payload_findings(tmp_path, kind, content) == []


def test_a_payload_path_that_is_none_is_found() -> None:
    (finding,) = found_in('topics: {orders: {payload: {type: json, schema: "a\\tb"}}}')
    assert (finding.code, finding.severity) == ("K304", Severity.ERROR)


def test_a_schema_file_that_two_topics_name_is_judged_for_both() -> None:
    body = "topics:\n  a: {payload: {type: json, schema: nowhere.json}}\n  b: {payload: {type: json, schema: nowhere.json}}\n"
    assert [(f.code, f.where and f.where.line) for f in found_in(body)] == [("K304", 6), ("K304", 7)]
    assert FILE in str(found_in(body)[0].where)


@pytest.mark.parametrize("levels", ["[L2]", "[]"])
def test_a_change_of_a_schema_is_judged_on_a_topic_without_the_first_level(tmp_path: Path, levels: str) -> None:
    (tmp_path / "order.schema").write_text('{"type": "object"}', encoding="utf-8")
    name = str(tmp_path / "t.yaml")
    body = f"version: 1\nname: n\ntenant: k\nnamespace: n\ntopics: {{orders: {{levels: {levels}, payload: {{type: json, schema: order.schema}}}}}}\n"
    files = [source_of(body.encode(), name)]
    (before,) = (one.payloads["orders"] for one in load_set(files, None).topologies)
    assert "K103" in {finding.code for finding in lint(files, {(name, "orders"): before}).findings}
