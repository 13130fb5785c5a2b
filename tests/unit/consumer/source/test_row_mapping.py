"""Messages of a table's changes."""

from __future__ import annotations

from typing import Any

import pytest
from kodo_consumer.core.values.send_target import SendTarget
from kodo_consumer.source.pgoutput import UNCHANGED, Relation, RelationColumn, RowChange, Unchanged
from kodo_consumer.source.row_mapping import GoneError, MappedMessage, RowMapping

from kodoctl.errors import UsageError
from kodoctl.topology.change_sources import TableMapping
from kodoctl.topology.model.source import SourceTable

COLUMNS = tuple(
    RelationColumn(name, kind, name == "id")
    for name, kind in (("id", 23), ("total", 1700), ("region", 25), ("body", 17))
)
RELATION = Relation(1, "public.orders", "d", COLUMNS)
ROW = [b"1", b"1.50", b"eu", b"\\x00"]


def mapping(fetched: Any = None, schema: Any = None, key: tuple[str, ...] = ("id",), **spec: Any) -> RowMapping:
    target = SendTarget("t", schema, {}, by_key=False, ordered=False)

    def fetch(*_: Any) -> Any:
        if fetched is None:
            raise GoneError
        return fetched

    table = TableMapping("public.orders", SourceTable.model_validate({"topic": "orders", **spec}))
    return RowMapping(table, RELATION, list(key), target, fetch)


def messages(one: RowMapping, old: Any, only_key: bool, new: Any, *, insert: bool = False) -> list[MappedMessage]:
    return list(one.messages(RowChange(1, old, only_key, new, insert)))


def test_a_row_with_key_and_properties() -> None:
    found = messages(mapping(properties={"bucket": "region"}, columns=["id", "total"]), None, False, ROW, insert=True)
    assert found == [MappedMessage("orders", "1", {"bucket": "eu"}, {"id": 1, "total": "1.50"})]
    (number,) = messages(
        mapping(schema={"properties": {"total": {"type": ["number", "null"]}, "id": True}}), None, False, ROW
    )
    assert number.payload["total"] == 1.5
    assert messages(mapping(), None, False, [b"1", None, None, None])[0].payload["total"] is None


def test_the_bytes_of_a_column_and_a_key_of_several() -> None:
    one = mapping(payload={"column": "body"}, key=("id", "region"))
    assert messages(one, None, False, ROW) == [MappedMessage("orders", '["1","eu"]', {}, b"\x00")]
    assert messages(one, None, False, [b"1", None, b"eu", None])[0].payload is None
    assert messages(mapping(payload={"column": "region"}), None, False, ROW)[0].payload == b"eu"


def test_deletes_and_changed_keys_are_tombstones() -> None:
    one, old = mapping(properties={"bucket": "region", "n": "id"}), [b"1", None, None, None]
    assert messages(one, old, True, None) == [MappedMessage("orders", "1", {"n": "1"}, None)]
    assert messages(one, ROW, False, None) == [MappedMessage("orders", "1", {"bucket": "eu", "n": "1"}, None)]
    assert [found.key for found in messages(one, old, True, [b"2", *ROW[1:]])] == ["1", "2"]
    assert [found.key for found in messages(one, ROW, False, ROW)] == ["1"]
    assert messages(mapping(deletes="ignore"), old, True, None) == []
    assert messages(one, None, True, None) == []


def test_a_message_key_that_the_log_of_a_delete_lacks() -> None:
    with pytest.raises(UsageError, match="lacks region"):
        messages(mapping(key=("region",)), [b"1", None, None, None], True, None)


def test_a_value_that_the_log_does_not_repeat() -> None:
    new = [b"1", UNCHANGED, b"eu", UNCHANGED]
    (found,) = messages(mapping(fetched=[b"7"], columns=["id", "total"]), None, False, new)
    assert found.payload == {"id": 1, "total": "7"}
    (found,) = messages(mapping(columns=["id", "total"]), ROW, False, new)
    assert found.payload == {"id": 1, "total": "1.50"}
    assert messages(mapping(columns=["id"]), None, False, new)[0].payload == {"id": 1}
    with pytest.raises(GoneError):
        messages(mapping(), None, False, new)


def test_what_a_change_requires_without_the_table() -> None:
    one = mapping()
    new: list[bytes | Unchanged | None] = [b"2", UNCHANGED, b"eu", b"x"]
    by_key = RowChange(1, [b"1", None, None, None], only_key=True, new=new, is_insert=False)
    assert (one.reads_table(by_key), one.count(by_key)) == (True, 2)
    assert mapping(deletes="ignore").count(by_key) == 1
    whole = by_key._replace(old=ROW, only_key=False)
    assert (one.reads_table(whole), one.count(whole)) == (False, 2)
    same = by_key._replace(old=None)
    assert (one.reads_table(same), one.count(same)) == (True, 1)
    assert not mapping(columns=["id"]).reads_table(same), "no message has the value"
    deleted = by_key._replace(new=None)
    assert (one.reads_table(deleted), one.count(deleted)) == (False, 1)


def test_columns_that_are_not_there() -> None:
    with pytest.raises(UsageError, match="no column area any more"):
        mapping(properties={"bucket": "area"})
    with pytest.raises(UsageError, match="no column area"):
        mapping(payload={"column": "area"})
    with pytest.raises(UsageError, match="no primary key"):
        mapping(key=())


def test_a_column_of_the_primary_key_that_the_log_does_not_have_makes_no_key_shorter() -> None:
    with pytest.raises(UsageError, match=r"K791.*its primary key has order_id, which the log of this change does not"):
        mapping(key=("region", "order_id"))
    assert outbox(None, primary_key=("order_id",)), "rows of an outbox have the key that the outbox names"


def outbox(total: bytes | None, primary_key: tuple[str, ...] = ("id",), **columns: str) -> list[MappedMessage]:
    spec = SourceTable.model_validate({"outbox": {"topic": "region", "payload": "body", **columns}})
    one = RowMapping(TableMapping("public.orders", spec), RELATION, primary_key, None, lambda *_: [])
    row = [b"1", total, b"orders", b"\\x00"]
    assert messages(one, None, False, row) == []
    return messages(one, None, False, row, insert=True)


def test_an_outbox() -> None:
    assert outbox(None) == [MappedMessage("orders", "", {}, b"\x00")]
    assert outbox(b'{"a": "b"}', key="id", properties="total") == [MappedMessage("orders", "1", {"a": "b"}, b"\x00")]
    assert outbox(None, properties="total")[0].properties == {}
    for wrong in (b"[]", b"{"):
        with pytest.raises(UsageError, match="no JSON object"):
            outbox(wrong, properties="total")


@pytest.mark.parametrize("spec", [{}, {"properties": {"bucket": "region"}, "columns": ["id"]}, {"key": ["region"]}])
def test_a_value_that_is_not_utf_8_is_named(spec: dict[str, Any]) -> None:
    """A database with the encoding SQL_ASCII stores any bytes, and sends them as they are."""
    with pytest.raises(UsageError, match=r"K791.*not UTF-8"):
        messages(mapping(**spec), None, False, [b"1", None, b"caf\xe9", None])
