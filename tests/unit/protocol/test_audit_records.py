"""Audit records as messages: nothing is lost on the way there and back, and what is no such message is told."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kodoctl.protocol.audit_records import (
    COUNT_PROPERTY,
    FIRST_PROPERTY,
    MAX_TEXT,
    RUN_PROPERTY,
    BrokenAuditError,
    Event,
    Record,
    decode,
    encode,
)

ORDERS, RETRYING = "persistent://kodo/trade/orders", "persistent://kodo/trade/orders-billing-RETRYING"
texts = st.text(st.characters(codec="utf-8"), max_size=MAX_TEXT)
records = st.builds(
    Record,
    run=st.just("run"),
    subscription=st.just("billing"),
    number=st.just(0),
    at=st.integers(0, 2**42),
    topic=st.sampled_from([ORDERS, RETRYING]),
    id=st.sampled_from(["7:1:0:-1", "7:2:0:3"]),
    identity=texts,
    hop=st.integers(0, 100),
    event=st.sampled_from(Event),
    rule=st.sampled_from(["done", "retrying"]),
    target=st.sampled_from(["", ORDERS, RETRYING]),
    target_id=st.sampled_from(["", "9:1:0:-1"]),
    reason=texts,
    tenant=texts,
    age=st.integers(0, 2**42),
    slot_time=st.integers(0, 2**31),
)


def record(number: int = 1, **changes: object) -> Record:
    made = Record("run", "billing", number, 1_000, ORDERS, "7:1:0:-1", "order-1", 0, Event.DONE, "done")
    return made._replace(**changes)  # type: ignore[arg-type]


@given(st.lists(records, min_size=1, max_size=20), st.integers(1, 2**40))
def test_records_come_back_as_they_were(found: list[Record], first: int) -> None:
    numbered = [one._replace(number=number) for number, one in enumerate(found, first)]
    encoded = encode(numbered)
    assert decode(encoded.payload) == numbered
    assert encoded.properties[FIRST_PROPERTY] == str(first)
    assert encoded.properties[COUNT_PROPERTY] == str(len(numbered))


def test_slot_time_is_written_only_where_a_handler_ran_and_records_without_it_are_read() -> None:
    assert "slot_time" not in json.loads(encode([record()]).payload)
    both = json.loads(encode([record(1, slot_time=7), record(2)]).payload)
    assert both["slot_time"] == [7, 0]
    assert [one.slot_time for one in decode(encode([record(1, slot_time=7), record(2)]).payload)] == [7, 0]


def test_holes_can_be_looked_for_without_opening_a_message() -> None:
    encoded = encode([record(7), record(8)])
    assert encoded.properties == {
        "kodo-audit": "1", RUN_PROPERTY: "run", FIRST_PROPERTY: "7", COUNT_PROPERTY: "2",
    }  # fmt: skip
    assert encoded.key == "run", "records of a run are in one partition, in order"


def test_a_record_is_small() -> None:
    many = [
        record(number, id=f"123:{number}:0:17", identity=f"order-{number}", tenant="u1") for number in range(1, 1001)
    ]
    assert len(encode(many).payload) / 1000 < 100


def test_long_texts_are_cut_and_a_thousand_records_always_fit() -> None:
    long = "€" * 1_000_000
    most = [record(number, identity=long, reason=long, tenant=long) for number in range(1, 1001)]
    encoded = encode(most)
    assert len(encoded.payload) < 4 << 20
    assert decode(encoded.payload)[0].identity == "€" * MAX_TEXT


def test_half_a_character_does_not_stop_a_record() -> None:
    assert decode(encode([record(identity="\ud800")]).payload)[0].identity == "?"


def test_which_events_end_a_message() -> None:
    assert [event for event in Event if not record(event=event).terminal] == [Event.STORED, Event.MOVED, Event.DEAD]


@pytest.mark.parametrize(
    "payload",
    [b"", b"{", b"[]", b"7", b'"x"', b'{"format": 1}', b"\xff", b'{"format": 2}', b"[" * 100_000],
)
def test_what_no_worker_wrote_is_told(payload: bytes) -> None:
    with pytest.raises(BrokenAuditError, match="no audit records"):
        decode(payload)


def test_a_newer_form_and_damaged_columns_are_told() -> None:
    found = json.loads(encode([record()]).payload)
    with pytest.raises(BrokenAuditError, match="form 2: a newer kodoctl reads it"):
        decode(json.dumps(found | {"format": 2}).encode())
    for damage in ({"id": []}, {"topic": [7]}, {"event": ["eaten"]}, {"hop": ["x"]}, {"after": None}):
        with pytest.raises(BrokenAuditError):
            decode(json.dumps(found | damage).encode())


INFINITE = float("inf")
DAMAGES = [
    {"first": True}, {"first": 10**30}, {"run": 7}, {"run": None}, {"subscription": ["s"]}, {"at": INFINITE}, {"at": "now"},
    {"at": 10**30}, {"at": None}, {"topics": [{}]}, {"topics": {"0": ORDERS}}, {"after": ["now"]}, {"after": [0.5]},
    {"after": [INFINITE]}, {"topic": [None]}, {"topic": [0.0]}, {"topic": ["0"]}, {"id": [{}]}, {"identity": [7]},
    {"hop": [INFINITE]}, {"hop": [float("nan")]}, {"hop": [True]}, {"event": [[]]}, {"event": [None]}, {"rule": [3]},
    {"target": [None]}, {"target": [INFINITE]}, {"target": [0.5]}, {"target_id": [["9:4:0:-1"]]}, {"reason": [{"a": 1}]},
    {"tenant": [None]}, {"age": [INFINITE]}, {"age": [10**400]}, {"age": [None]}, {"error": [[1]]}, {"slot_time": [INFINITE]},
    {"slot_time": ["3"]}, {"at": 2**63 - 1, "after": [1]}, {"at": -(2**63) + 1, "after": [-1]},
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_a_value_of_another_type_is_told_and_no_record(damage: dict[str, object]) -> None:
    """One such record of a stranger ended `kodo-consumer why` for every message of the subscription."""
    found = json.loads(encode([record(error="e", slot_time=1)]).payload)
    assert [*decode(json.dumps(found).encode())] == [record(error="e", slot_time=1)]
    with pytest.raises(BrokenAuditError):
        decode(json.dumps(found | damage).encode())


def test_numbers_that_no_table_holds_are_no_records() -> None:
    """The number of the first record fits, and that of the second one does not."""
    found = json.loads(encode([record(number=1), record(number=2)]).payload)
    assert len(decode(json.dumps(found | {"first": 2**63 - 2}).encode())) == 2
    with pytest.raises(BrokenAuditError):
        decode(json.dumps(found | {"first": 2**63 - 1}).encode())
