"""One answer to a payload on every path: what Producer and Outbox refuse, no receiver takes; what they send, each takes."""

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest
from kodo_consumer import Consumer, Message
from kodo_consumer.core.checks.message_validation import MessageValidator, check_of
from kodo_consumer.core.payloads.plain_values import json_default
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.outbox import TABLE, Outbox
from kodo_consumer.outbox.target_topics import OutboxTopics
from kodo_consumer.policy_builder import load, send_target_of
from kodo_consumer.producer import Producer
from kodo_consumer.testing import Harness, MemoryBroker
from pydantic import BaseModel, Field, TypeAdapter
from sqlalchemy import create_engine, select

from kodoctl.errors import UsageError
from kodoctl.recall.message.payload_patch import Edit, NotEditableError
from tests.unit.consumer.pump import Pump
from tests.unit.consumer.topologies import write

SELF = {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#"}}}
MONEY = {
    "properties": {"amount": {"multipleOf": 0.01}, "name": {"pattern": r"^(\w+\s?)*$"}, "lines": {"uniqueItems": True}}
}


@dataclass
class Paths:
    """A topology with one topic, and all that its payloads go through."""

    folder: Path
    kind: str
    schema: Any

    def __post_init__(self) -> None:
        payload = ""
        if self.schema is not None:
            (self.folder / "schema").write_text(json.dumps(self.schema), encoding="utf-8")
            payload = f"payload: {{type: {self.kind}, schema: schema}}, "
        file = write(self.folder, f"  J: {{{payload}subscriptions: {{s: {{states: [], in_place: []}}}}}}\n")
        self.file, self.topology = file, load(file, None)

    def produced(self, payload: Any) -> bytes:
        """What Producer stores. Raises UsageError."""
        broker, send_target = MemoryBroker(SystemClock()), send_target_of(self.topology, "J", "L1")
        broker.create(send_target.topic)
        pump = Pump(broker)
        try:
            with Producer(send_target.topic, broker, form=MessageValidator(check_of(send_target))) as producer:
                producer.send(payload)
            stored, *_ = broker.messages(send_target.topic)  # the mark of its numbers comes last
        finally:
            pump.stop()
        return bytes(stored.payload or b"")

    def added(self, payload: Any) -> bytes:
        """What Outbox stores. Raises UsageError."""
        engine = create_engine("sqlite://")
        TABLE.create(engine)
        with engine.begin() as connection:
            Outbox(send_targets=OutboxTopics(self.topology)).add(connection, topic="J", payload=payload)
            return bytes(connection.execute(select(TABLE.c.body)).scalar_one())

    def harnessed(self, payload: Any) -> bytes:
        """What the test harness stores. Raises UsageError."""
        return self._harness([]).send(payload).payload

    def received(self, payload: Any) -> list[Any]:
        """What a handler gets of it, whoever sent it; [] where it died, once and as nothing else."""
        seen: list[Any] = []
        harness = self._harness(seen)
        harness.inject(payload)
        harness.run()
        assert (harness.counts.started, len(harness.dead_letters)) == (1, 0 if seen else 1)
        return seen

    def _harness(self, seen: list[Any]) -> Harness:
        consumer = Consumer.load(self.file, topic="J", subscription="s", environ={})

        @consumer.handler
        def handle(message: Message) -> None:
            seen.append(message.json())

        return Harness(consumer)


JSON_TAKEN: list[tuple[Any, Any]] = [
    *((MONEY, {"amount": amount}) for amount in (19.99, 4.35, 0.07, 1.10, 1e15, 0)),
    (MONEY, {"name": "a b c"}), (MONEY, {"lines": [1, True, "1", [1], {"a": 1}]}),
    (SELF, {"name": "a", "next": {"name": "b"}}), (None, {"price": 1e308, "of": [None, True]}), (None, {1: "a"}), (None, (1, 2)),
]  # fmt: skip
DEEP: Any = [1]
for _ in range(200):
    DEEP = [DEEP]
JSON_REFUSED: list[tuple[Any, Any, str]] = [
    (MONEY, {"amount": 19.991}, "breaks its schema at $.amount: multipleOf"),
    (MONEY, {"name": "a" * 40 + "!"}, "breaks its schema at $.name: pattern"),
    (MONEY, {"lines": [{"a": 1}, {"a": 1.0}]}, "breaks its schema at $.lines: uniqueItems"),
    (SELF, {"next": {"next": {"name": 5}}}, "breaks its schema at $.next.next.name: type"),
    *(
        (schema, {"amount": number}, f"it holds {name}, which is no JSON")
        for schema in (MONEY, None)
        for number, name in ((math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"))
    ),
    (None, {1: "a", "1": "b"}, "it holds a key twice"), (MONEY, {"x": {None: 1, "null": 2}}, "it holds a key twice"),
    (None, {"n": 10**400}, "it holds a number that is too large for a double"),
    (None, DEEP, "it is nested more than 200 levels deep"), (SELF, {"x": DEEP}, "it is nested more than 200 levels deep"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value"), JSON_TAKEN)
def test_json_that_is_taken_is_taken_everywhere(tmp_path: Path, schema: Any, value: Any) -> None:
    paths = Paths(tmp_path, "json", schema)
    data = paths.produced(value)
    assert data == paths.added(value) == paths.produced(data) == paths.added(data) == paths.harnessed(value)
    assert paths.received(data) == paths.received(value) == [json.loads(data)]
    assert Edit({"new": 1}, schema).apply(b'{"old": 1}') == b'{"old":1,"new":1}'


@pytest.mark.parametrize(("schema", "value", "said"), JSON_REFUSED)
def test_json_that_is_refused_is_refused_everywhere(tmp_path: Path, schema: Any, value: Any, said: str) -> None:
    paths = Paths(tmp_path, "json", schema)
    data = json.dumps(value).encode()
    for send in (paths.produced, paths.added, paths.harnessed):
        with pytest.raises(UsageError, match="K716") as raised:
            send(value)
        assert said in str(raised.value)
        if schema is not None:
            with pytest.raises(UsageError, match="K716"):
                send(data)
    assert paths.received(data) == []
    with pytest.raises(NotEditableError):
        Edit({"new": 1}, schema).apply(data)


def logical(kind: Any, name: str, **more: Any) -> Any:
    return {**(kind if isinstance(kind, dict) else {"type": kind}), "logicalType": name, **more}


def fixed(size: int) -> Any:
    return {"type": "fixed", "name": "F", "size": size}


def record(name: str, *fields: Any) -> Any:
    return {"type": "record", "name": name, "fields": list(fields)}


UTC = dt.UTC
MOMENT = dt.datetime(2024, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
ID = uuid.UUID(int=7)
MONEY_TYPE = logical("bytes", "decimal", precision=4, scale=2)
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
FULL = record(
    "R", {"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"], "default": None},
    {"name": "c", "type": "int", "default": 7}, {"name": "d", "type": "bytes", "default": "\u00ff"},
    {"name": "e", "type": MONEY_TYPE, "default": "\u0001"}, {"name": "f", "type": logical("int", "date"), "default": 1},
    {"name": "g", "type": {"type": "map", "values": "bytes"}, "default": {"k": "v"}},
    {"name": "h", "type": {"type": "array", "items": fixed(1)}, "default": ["x"]},
    {"name": "i", "type": record("S", {"name": "x", "type": ["bytes", "null"], "default": "y"}), "default": {}},
    {"name": "j", "type": ["int", "string"], "default": "z"},
)  # fmt: skip
FILLED = {
    "b": None, "c": 7, "d": b"\xff", "e": Decimal("0.01"), "f": dt.date(1970, 1, 2), "g": {"k": b"v"}, "h": [b"x"],
    "i": {"x": b"y"}, "j": "z",
}  # fmt: skip
TREE = record("T", {"name": "next", "type": ["null", "T"], "default": None}, {"name": "n", "type": "int"})
PAIR = [
    record("A", {"name": "x", "type": "int"}),
    record("B", {"name": "x", "type": "int"}, {"name": "y", "type": "int"}),
]
AVRO_TAKEN: list[tuple[Any, Any, Any]] = [
    ("int", 2**31 - 1, 2**31 - 1), ("int", -(2**31), -(2**31)), ("long", 2**63 - 1, 2**63 - 1), ("long", -(2**63), -(2**63)),
    ("float", 1.5, 1.5), ("float", 2**24, 2.0**24), ("float", math.inf, math.inf), ("double", 1e300, 1e300), ("double", 2**53, 2.0**53),
    ("double", Decimal("1.5"), 1.5), ("boolean", True, True), ("string", "ä😀", "ä😀"), ("bytes", b"\xff", b"\xff"),
    ("bytes", bytearray(b"a"), b"a"), ("null", None, None), (ENUM, "B", "B"), (fixed(2), b"ab", b"ab"),
    ({"type": "array", "items": "int"}, (1, 2), [1, 2]), ({"type": "map", "values": "int"}, {"a": 1}, {"a": 1}),
    (["null", "int"], None, None), (["null", "int"], 1, 1), (["int", "long"], 2**40, 2**40), (["float", "double"], 1e300, 1e300),
    (["float", "double"], 0.1, 0.1), (["int", "boolean"], True, True), (["string", "bytes"], b"a", b"a"),
    (["null", logical("int", "date")], dt.date(2024, 1, 2), dt.date(2024, 1, 2)), (PAIR, {"x": 1}, {"x": 1}),
    (PAIR, {"x": 1, "y": 2}, {"x": 1, "y": 2}), (PAIR, ("B", {"x": 1, "y": 2}), {"x": 1, "y": 2}),
    (MONEY_TYPE, Decimal("12.34"), Decimal("12.34")), (MONEY_TYPE, Decimal("1.230"), Decimal("1.23")),
    (MONEY_TYPE, Decimal("-99.99"), Decimal("-99.99")), (MONEY_TYPE, Decimal("1E+1"), Decimal("10.00")), (MONEY_TYPE, 12, Decimal("12.00")),
    (MONEY_TYPE, b"\x01", Decimal("0.01")), (logical(fixed(2), "decimal", precision=4, scale=2), Decimal("99.99"), Decimal("99.99")),
    (logical("long", "timestamp-millis"), MOMENT, MOMENT), (logical("long", "timestamp-millis"), 1, dt.datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)),
    (logical("long", "timestamp-micros"), MOMENT, MOMENT),
    (logical("long", "local-timestamp-millis"), MOMENT.replace(tzinfo=None), MOMENT.replace(tzinfo=None)),
    (logical("int", "date"), dt.date.max, dt.date.max), (logical("int", "date"), "2024-01-02", dt.date(2024, 1, 2)),
    (logical("int", "time-millis"), dt.time(1, 2, 3), dt.time(1, 2, 3)),
    (logical("long", "time-micros"), dt.time(1, 2, 3, 4), dt.time(1, 2, 3, 4)),
    (logical("string", "uuid"), ID, ID), (logical("string", "uuid"), str(ID), ID), (logical("string", "unknown"), "x", "x"),
    (FULL, {"a": 1}, {"a": 1, **FILLED}), (FULL, {"a": 1, "b": "x", "j": 5}, {"a": 1, **FILLED, "b": "x", "j": 5}),
    (TREE, {"n": 1, "next": {"n": 2}}, {"n": 1, "next": {"n": 2, "next": None}}),
]  # fmt: skip
AVRO_REFUSED: list[tuple[Any, Any, str]] = [
    *(("int", value, "$.v: int of 32 bits") for value in (2**31, -(2**31) - 1, 1.0, 1.5, True, "1", None, Decimal(1))),
    *(("long", value, "$.v: long of 64 bits") for value in (2**63, -(2**63) - 1, 1.5, True)),
    ("float", 1e39, "$.v: float of 32 bits"), ("float", -3.4028235677973366e38, "$.v: float of 32 bits"),
    ("float", 2**24 + 1, "$.v: float, which would change this whole number"), ("float", True, "$.v: float"), ("float", "1", "$.v: float"),
    ("float", 10**39, "$.v: float, which would change this whole number"),
    ("double", 10**400, "$.v: double, which would change"), ("double", 2**53 + 1, "$.v: double, which would change"),
    ("boolean", 1, "$.v: boolean"), ("boolean", "true", "$.v: boolean"), ("boolean", None, "$.v: boolean"),
    ("string", "\ud83d", "$.v: string: it is no Unicode"), ("string", b"a", "$.v: string"), ("string", 1, "$.v: string"),
    ("bytes", "a", "$.v: bytes"), ("null", 0, "$.v: null"), ("null", "", "$.v: null"), (ENUM, "C", "$.v: none of the symbols"),
    (ENUM, 0, "$.v: none of the symbols"), (fixed(3), b"ab", "$.v: fixed of 3 bytes"), (fixed(3), "abc", "$.v: fixed of 3 bytes"),
    ({"type": "array", "items": "int"}, [1, 2**40], "$.v[1]: int of 32 bits"), ({"type": "array", "items": "string"}, "ab", "$.v: array"),
    ({"type": "map", "values": "int"}, {"a": {"b": 1}}, "$.v.a: int of 32 bits"), ({"type": "map", "values": "int"}, {1: 1}, "$.v.1: string"),
    ({"type": "map", "values": "int"}, [("a", 1)], "$.v: map"), (["null", "int"], 2**31, "$.v: int of 32 bits"),
    (["int", "string"], 1.5, "$.v: none of int, string"), (["int", "long"], 2**70, "$.v: none of int, long"),
    (PAIR, {"z": 1}, "$.v.x: missing, and it has no default"), (PAIR, {"x": 2**40}, "$.v.x: int of 32 bits"),
    (PAIR, ("B", {"x": 1}), "$.v.y: missing"), (PAIR, 5, "$.v: none of A, B"),
    *(
        (MONEY_TYPE, value, "$.v: decimal of 4 digits, 2 of them behind the point")
        for value in map(Decimal, ("123.45", "1.234", "NaN", "Infinity", "1E+999999", "1E-999999"))
    ),
    (MONEY_TYPE, 1.5, "$.v: bytes"), (MONEY_TYPE, "1.50", "$.v: bytes"), (MONEY_TYPE, b"\x7f" * 9, "$.v: decimal of 4 digits"),
    (logical(fixed(1), "decimal", precision=2, scale=2), Decimal("1.28"), "$.v: decimal of 2 digits"),
    (logical("long", "timestamp-millis"), dt.date(2024, 1, 1), "$.v: long from -62135596800000 to 253402300799999"),
    (logical("long", "timestamp-millis"), 2**62, "$.v: long from"), (logical("long", "timestamp-micros"), 1.5, "$.v: long from"),
    (logical("long", "local-timestamp-micros"), MOMENT, "$.v: local-timestamp-micros, which has no time zone"),
    (logical("int", "date"), MOMENT, "$.v: int from -719162 to 2932896"), (logical("int", "date"), "x", "$.v: date"),
    (logical("int", "date"), 2**31 - 1, "$.v: int from"), (logical("int", "time-millis"), 86_400_000, "$.v: int from 0 to 86399999"),
    (logical("int", "time-millis"), -1, "$.v: int from 0"), (logical("long", "time-micros"), dt.time(1, tzinfo=UTC), "$.v: time-micros, which has no"),
    *((logical("string", "uuid"), value, "$.v: uuid") for value in ("nonsense", f"{{{ID}}}", ID.hex, 1, b"x" * 16)),
    (FULL, {"a": 1, "x": 2}, "$.v.x: record R has no such field"), (FULL, {}, "$.v.a: missing, and it has no default"),
    (FULL, {"a": 1, "c": None}, "$.v.c: int of 32 bits"), (FULL, [1], "$.v: record R"),
    (TREE, {"n": 1, "next": {"n": 1, "next": {"n": 2**31}}}, "$.v.next.next.n: int of 32 bits"),
]  # fmt: skip


def avro_paths(folder: Path, kind: Any) -> Paths:
    return Paths(folder, "avro", record("Root", {"name": "v", "type": kind}))


@pytest.mark.parametrize(("kind", "value", "read"), AVRO_TAKEN)
def test_avro_that_is_taken_is_taken_everywhere(tmp_path: Path, kind: Any, value: Any, read: Any) -> None:
    paths = avro_paths(tmp_path, kind)
    data = paths.produced({"v": value})
    assert data == paths.added({"v": value}) == paths.produced(data) == paths.added(data)
    assert paths.received(data) == paths.received({"v": value}) == [{"v": read}]
    assert data == written(paths.schema, {"v": read}), "as the library itself writes it"


def written(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


@pytest.mark.parametrize(("kind", "value", "said"), AVRO_REFUSED)
def test_avro_that_is_refused_is_refused_everywhere(tmp_path: Path, kind: Any, value: Any, said: str) -> None:
    paths = avro_paths(tmp_path, kind)
    for send in (paths.produced, paths.added, paths.received):
        with pytest.raises(UsageError, match="K716") as raised:
            send({"v": value})
        assert f"payload does not fit its Avro schema at {said}" in str(raised.value)


HELD_BY_BYTES: list[tuple[Any, Callable[[], bytes]]] = [
    ("int", lambda: written("long", 2**31)), ("int", lambda: written("long", -(2**40))), (["null", "int"], lambda: written(["null", "long"], 2**40)),
    ({"type": "array", "items": "int"}, lambda: written({"type": "array", "items": "long"}, [2**40])),
    (MONEY_TYPE, lambda: written("bytes", b"\x7f" * 9)), (logical("string", "uuid"), lambda: written("string", "nonsense")),
    (logical("int", "date"), lambda: written("int", 2**31 - 1)),
    (logical("long", "timestamp-millis"), lambda: written("long", 2**62)), (ENUM, lambda: written("int", 7)), ("string", lambda: b"\x02\xff"),
    (logical("int", "time-millis"), lambda: written("int", 86_400_000)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "data"), HELD_BY_BYTES)
def test_bytes_that_hold_more_than_the_type_are_refused_everywhere(
    tmp_path: Path, kind: Any, data: Callable[[], bytes]
) -> None:
    paths = avro_paths(tmp_path, kind)
    for send in (paths.produced, paths.added, paths.harnessed):
        with pytest.raises(UsageError, match="K716"):
            send(data())
    assert paths.received(data()) == []


def test_a_record_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    value: Any = {"n": 1}
    for _ in range(10_000):
        value = {"n": 1, "next": value}
    paths = avro_paths(tmp_path, TREE)
    for send in (paths.produced, paths.added, paths.harnessed):
        with pytest.raises(UsageError, match=r"K716.*nested too deeply for its Avro schema"):
            send({"v": value})


class State(Enum):
    OPEN = "open"


class Line(BaseModel):
    quantity: int = Field(alias="qty")


class Money(BaseModel):
    amount: Decimal
    at: datetime


@dataclass
class Purchase:
    id: UUID
    day: date
    total: Decimal
    state: State
    lines: list[Line]
    takes: timedelta
    note: Path | None = None


AT = datetime(2026, 11, 29, 10, 30, tzinfo=UTC)
PURCHASE = Purchase(
    ID, AT.date(), Decimal("10.50"), State.OPEN, [Line(qty=2)], timedelta(days=1, seconds=3, microseconds=50)
)
OBJECTS: list[tuple[Any, Any]] = [
    (
        PURCHASE,
        {
            "id": str(ID), "day": "2026-11-29", "total": 10.5, "state": "open", "lines": [{"qty": 2}],
            "takes": "P1DT3.00005S", "note": None,
        },
    ),
    (Money(amount=Decimal(3), at=AT), {"amount": 3, "at": "2026-11-29T10:30:00+00:00"}),
    ({"at": [AT.time()], "path": Path("a/b"), "late": timedelta(seconds=-5)}, {"at": ["10:30:00"], "path": "a/b", "late": "-P0DT5S"}),
]  # fmt: skip


@pytest.mark.parametrize(("value", "plain"), OBJECTS)
def test_objects_of_applications_are_sent_as_plain_json_everywhere(tmp_path: Path, value: Any, plain: Any) -> None:
    paths = Paths(tmp_path, "json", {"type": "object"})
    data = paths.produced(value)
    assert json.loads(data) == plain
    assert data == paths.added(value) == paths.harnessed(value)


def test_what_was_sent_as_an_object_is_read_as_one() -> None:
    data = json.dumps(PURCHASE, default=json_default)
    assert TypeAdapter(Purchase).validate_json(data) == PURCHASE
    money = Money(amount=Decimal("0.1"), at=AT)
    assert Money.model_validate_json(json.dumps(money, default=json_default)) == money


@pytest.mark.parametrize(
    ("value", "refusal"),
    [
        ({"x": {1, 2}}, "set is no JSON: send what it stands for"),
        ({"x": b"bytes"}, "bytes is no JSON"),
        ({"x": Line}, "is no JSON"),
        ({"x": Decimal("0.1234567890123456789")}, "Decimal 0.1234567890123456789 is no number that a double holds"),
        ({"x": Decimal("NaN")}, "Decimal NaN is no number that a double holds: send a text"),
    ],
)
def test_objects_that_have_no_plain_form_are_refused(tmp_path: Path, value: Any, refusal: str) -> None:
    paths = Paths(tmp_path, "json", None)
    for send in (paths.produced, paths.added, paths.harnessed):
        with pytest.raises(UsageError, match="K716") as raised:
            send(value)
        assert refusal in str(raised.value)


def test_an_avro_topic_takes_models_and_dataclasses_with_its_own_types(tmp_path: Path) -> None:
    fields = [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["open"]}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [{"name": "qty", "type": "int"}]}}},
    ]  # fmt: skip
    paths = Paths(tmp_path, "avro", {"type": "record", "name": "Purchase", "fields": fields})
    plain = {"id": ID, "day": AT.date(), "total": Decimal("10.50"), "state": "open", "lines": [{"qty": 2}]}

    @dataclass
    class Short:
        id: UUID
        day: date
        total: Decimal
        state: State
        lines: list[Line]

    value = Short(ID, AT.date(), Decimal("10.50"), State.OPEN, [Line(qty=2)])
    assert paths.produced(value) == paths.produced(plain) == paths.added(value) == paths.harnessed(value)
