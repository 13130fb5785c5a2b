"""Payloads as values: models, schemas, Avro; and that no payload, however made, does more than make its message die."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from kodo_consumer import Consumer, Message
from kodo_consumer.core.payloads.avro_safety import contains_itself, empty_items
from kodo_consumer.core.payloads.codec import Payloads, model_of, payload_reader
from kodo_consumer.core.values.exceptions import InvalidPayloadError
from kodo_consumer.testing import Harness
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

from kodoctl.errors import KodoctlError
from tests.unit.consumer.topologies import write

SCHEMA = {"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer", "minimum": 0}}}
AVRO = {
    "type": "record", "name": "Order",
    "fields": [{"name": "customer", "type": "string"}, {"name": "amount", "type": "int"}],
}  # fmt: skip
LIST: dict[str, Any] = {
    "type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"], "default": None}],
}  # fmt: skip


class Order(BaseModel):
    """What a user would declare."""

    amount: int
    note: str = ""


class Strict(BaseModel):
    """Nothing beyond what it names."""

    model_config = ConfigDict(extra="forbid")
    lines: list[Order]


@dataclass
class Point:
    """A dataclass will do."""

    x: int


class Named(TypedDict):
    """And so will a TypedDict."""

    name: str


def avro(value: Any, schema: Any = AVRO) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(dict(schema)), value)
    return out.getvalue()


@pytest.mark.parametrize(
    ("model", "data", "expected"),
    [
        (Order, b'{"amount": "7"}', Order(amount=7)),
        (list[Order], b'[{"amount": 1}]', [Order(amount=1)]),
        (Point, b'{"x": 1}', Point(1)),
        (Named, b'{"name": "n"}', {"name": "n"}),
        (bytes, b"\xff", b"\xff"),
        (str, b"text", "text"),
        (None, b"\xff", b"\xff"),
    ],
)
def test_a_payload_is_what_the_annotation_says(model: Any, data: bytes, expected: Any) -> None:
    assert Payloads(model=model).value(data) == expected


def test_without_an_annotation_it_is_what_the_topology_declares() -> None:
    assert Payloads("json", SCHEMA).value(b'{"amount": 1}') == {"amount": 1}
    assert Payloads("avro", AVRO).value(avro({"customer": "c", "amount": 1})) == {"customer": "c", "amount": 1}
    assert Payloads("avro", AVRO).with_model(Order).value(avro({"customer": "c", "amount": 1})) == Order(amount=1)


def test_schema_and_model_both_have_to_agree() -> None:
    both = Payloads("json", SCHEMA, Order)
    assert both.value(b'{"amount": 1}') == Order(amount=1)
    with pytest.raises(InvalidPayloadError, match=r"breaks its schema at \$.amount: minimum"):
        both.value(b'{"amount": -1}')


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (lambda: Payloads(model=Order).value(b'{"amount": "secret"}'), "payload breaks Order at $.amount: int_parsing"),
        (
            lambda: Payloads(model=Strict).value(b'{"lines": [{"amount": 1}, {"amount": "secret"}]}'),
            "payload breaks Strict at $.lines[1].amount: int_parsing",
        ),
        (lambda: Payloads(model=Order).value(b"{secret"), "payload breaks Order at $: json_invalid"),
        (lambda: Payloads("json", SCHEMA).json(b'{"amount": "secret"}'), "payload breaks its schema at $.amount: type"),
        (lambda: Payloads("avro", AVRO).json(b"\xffsecret"), "payload is not Avro of its schema: "),
        (lambda: Payloads("avro", AVRO).json(avro({"customer": "secret", "amount": 1}) + b"x"), "left over"),
        (lambda: Payloads(model=str).value(b"\xffsecret"), "payload is not UTF-8 text"),
    ],
)
def test_what_is_wrong_is_told_by_place_and_rule_never_by_value(read: Callable[[], Any], reason: str) -> None:
    with pytest.raises(InvalidPayloadError) as raised:
        read()
    assert reason in str(raised.value)
    assert "secret" not in str(raised.value)


DEEP = b"[" * 200_000 + b"]" * 200_000
NESTED = b'{"amount":' * 900 + b"1" + b"}" * 900
HOSTILE = [
    b"",
    b"{",
    DEEP,
    NESTED,
    b"1" * 50_000,
    b'{"amount": 1e999999}',
    b"\x00" * 100,
    b"\xff\xfe",
    b'"\\ud800"',
    b"NaN",
]


@pytest.mark.parametrize(
    "schema", [None, SCHEMA, {"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"amount": {"$ref": "#/$defs/n"}}}}}]
)
@pytest.mark.parametrize("model", [None, Order, Strict, str])
@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_no_json_does_more_than_make_its_message_die(data: bytes, schema: Any, model: Any) -> None:
    payloads = Payloads("json", schema, model)
    for read in (payloads.json, payloads.value):
        with suppress(InvalidPayloadError):  # or a value: some of them are one
            read(data)


@pytest.mark.parametrize(
    "data", [b"", b"\x02" * 100_000, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x01", b"\x80" * 50, b"\x07"]
)
@pytest.mark.parametrize(
    "schema", [AVRO, LIST, {"type": "array", "items": "string"}, {"type": "map", "values": "long"}]
)
def test_no_avro_does_more_than_make_its_message_die(data: bytes, schema: Any) -> None:
    with suppress(InvalidPayloadError):
        Payloads("avro", schema).json(data)


def test_avro_is_read_with_the_schema_it_was_written_with() -> None:
    older = {**AVRO, "fields": [*reversed(AVRO["fields"]), {"name": "gone", "type": "string"}]}
    asked: list[str] = []

    def schema_of(version: str) -> dict[str, Any] | None:
        asked.append(version)
        return older if version == "0" else None

    payloads = Payloads("avro", AVRO, None, schema_of)
    data = avro({"customer": "c", "amount": 1, "gone": "x"}, older)
    assert payloads.json(data, "0") == {"customer": "c", "amount": 1}
    assert payloads.json(data, "0") == {"customer": "c", "amount": 1}
    assert asked == ["0"], "asked for once"
    assert payloads.json(avro({"customer": "c", "amount": 1}), "1") == {"customer": "c", "amount": 1}


@pytest.mark.parametrize("given", [{"type": "int", "default": "x"}, {"type": "Unknown"}, {}])
def test_a_version_that_the_broker_keeps_and_fastavro_refuses_makes_its_messages_die(given: Any) -> None:
    broken = {"type": "record", "name": "Order", "fields": [{"name": "amount", **given}]}
    data = avro({"customer": "c", "amount": 1})
    with pytest.raises(InvalidPayloadError, match="its Avro schema cannot be read: "):
        Payloads("avro", AVRO, None, lambda _: broken).json(data, "L1:1")
    with pytest.raises(ValueError, match="its Avro schema cannot be read: "):
        payload_reader("avro", AVRO, lambda _: broken)(data, "L1:1")


def test_a_record_is_encoded_or_refused() -> None:
    payloads = Payloads("avro", AVRO)
    assert payloads.encode({"customer": "c", "amount": 1}) == avro({"customer": "c", "amount": 1})
    with pytest.raises(InvalidPayloadError):
        payloads.encode({"customer": "c"})


def test_payloads_go_to_other_processes_without_what_cannot() -> None:
    payloads = pickle.loads(pickle.dumps(Payloads("json", SCHEMA, Order, lambda version: None)))
    assert (payloads.schema, payloads.model) == (SCHEMA, None)
    assert payloads.json(b'{"amount": 1}') == {"amount": 1}


def test_the_model_is_found_in_the_annotation() -> None:
    def one(message: Message[Order]) -> None: ...
    def several(messages: list[Message[Order]]) -> None: ...
    def none(message: Message) -> None: ...
    def anything(message: Message[Any]) -> None: ...
    def bare(message): ...
    def hidden(message: NoSuchThing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    class Callable_:  # noqa: N801
        def __call__(self, message: Message[Order]) -> None: ...

    assert [model_of(function) for function in (one, several, Callable_())] == [Order] * 3
    assert [model_of(function) for function in (none, anything, bare, hidden, print, lambda: None)] == [None] * 6


def test_an_annotation_that_cannot_be_read_is_told_when_the_handler_is_declared(tmp_path: Path) -> None:
    consumer = Consumer.load(
        write(tmp_path, "  J: {subscriptions: {s: {}}}\n"), topic="J", subscription="s", environ={}
    )
    with pytest.raises(KodoctlError, match=r"K753.*NoSuchOrder"):

        @consumer.handler
        def handle(message: Message[NoSuchOrder]) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def test_an_annotation_that_is_no_model_is_told_when_the_handler_is_declared(tmp_path: Path) -> None:
    consumer = Consumer.load(
        write(tmp_path, "  J: {subscriptions: {s: {}}}\n"), topic="J", subscription="s", environ={}
    )
    with pytest.raises(KodoctlError, match=r"K753.*Payloads"):

        @consumer.handler
        def handle(message: Message[Payloads]) -> None: ...


def test_a_handler_gets_its_model_and_what_breaks_it_dies_at_once(tmp_path: Path) -> None:
    (tmp_path / "order.schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    topics = "  J: {payload: {type: json, schema: order.schema.json}, subscriptions: {s: {}}}\n"
    consumer = Consumer.load(write(tmp_path, topics), topic="J", subscription="s", environ={})
    seen: list[Order] = []

    @consumer.handler
    def handle(message: Message[Order]) -> None:
        assert message.value is message.value
        seen.append(message.value)

    harness = Harness(consumer)
    for payload in (b'{"amount": 1}', b'{"amount": "many"}', b"", DEEP, NESTED):
        harness.inject(payload)
    harness.run()
    assert seen == [Order(amount=1)]
    assert len(harness.dead_letters) == 4
    assert harness.counts.started == 5, "each was tried once"


EMPTY = {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}


@pytest.mark.parametrize(
    ("schema", "itself"),
    [
        (AVRO, False),
        (LIST, True),
        ({"type": "record", "name": "a.b.T", "fields": [{"name": "f", "type": {"type": "array", "items": "T"}}]}, True),
        (
            {
                "type": "record",
                "name": "T",
                "namespace": "x",
                "fields": [{"name": "f", "type": {"type": "map", "values": "x.T"}}],
            },
            True,
        ),
        ([{"type": "enum", "name": "A", "symbols": ["T"]}, {"type": "array", "items": "A"}], False),
        ({"type": {"type": "string"}}, False),
    ],
)
def test_a_schema_that_contains_itself_is_recognised(schema: Any, itself: bool) -> None:
    assert contains_itself(schema) is itself


@pytest.mark.parametrize(
    ("items", "empty"),
    [
        ("null", True), ({"type": "null"}, True), (EMPTY, True), ({"type": "fixed", "name": "F", "size": 0}, True),
        ("string", False), (["null", "string"], False), (AVRO, False), ({"type": "array", "items": "int"}, False),
        ({"type": "fixed", "name": "F", "size": 1}, False), ({"type": "map", "values": "int"}, False),
        ({"type": "record", "name": "Two", "fields": [{"name": "a", "type": EMPTY}, {"name": "b", "type": "E"}]}, True),
    ],
)  # fmt: skip
def test_items_without_bytes_are_recognised_and_never_read(items: Any, empty: bool) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "list", "type": {"type": "array", "items": items}}]}
    assert empty_items(schema) is empty
    if empty:
        with pytest.raises(InvalidPayloadError, match="take no bytes"):
            Payloads("avro", schema).json(b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00")


@pytest.mark.parametrize(("space", "empty"), [("a", True), ("b", False)])
@pytest.mark.parametrize("turned", [False, True])
def test_types_of_one_name_in_two_namespaces_are_told_apart(space: str, *, empty: bool, turned: bool) -> None:
    fields: list[dict[str, Any]] = [
        {"name": "a", "type": {"type": "record", "name": "E", "namespace": "a", "fields": []}},
        {"name": "b", "type": {"type": "record", "name": "E", "namespace": "b", "fields": AVRO["fields"]}},
    ]
    fields = [
        *(reversed(fields) if turned else fields),
        {"name": "l", "type": {"type": "array", "items": f"{space}.E"}},
    ]
    assert empty_items({"type": "record", "name": "R", "fields": fields}) is empty


def test_a_list_of_a_schema_that_contains_itself_is_read_and_a_deep_one_dies() -> None:
    assert Payloads("avro", LIST).json(b"\x02\x02\x00") == {"next": {"next": {"next": None}}}
    with pytest.raises(InvalidPayloadError, match="RecursionError"):
        Payloads("avro", LIST).json(b"\x02" * 100_000 + b"\x00")
