"""Control properties in and out; everything else untouched."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kodo_consumer.core.values.envelope import (
    FRESH,
    HEADER_NAMES,
    MAX_REASON,
    MAX_TEXT,
    BrokenHeadersError,
    Headers,
    State,
    effect_key,
    meant_for,
    message_identity,
    read_headers,
    reroute_message,
    transfer_message,
)
from kodo_consumer.testing.manual_clock import START_WALL

from kodoctl.protocol import properties as names
from tests.unit.consumer.engine_bench import delivery

COUNTS = st.integers(0, 1000)
TIMES = st.none() | st.integers(0, 10**14)
TEXTS = st.none() | st.text(min_size=1, max_size=20)
HEADERS = st.builds(
    Headers, retrying=COUNTS, pending=COUNTS, blocking=COUNTS, backup=COUNTS, due=TIMES, reserved=TIMES, hop=COUNTS,
    meant_for=TEXTS, reason=TEXTS, died_in=TEXTS, origin_id=TEXTS, origin_topic=TEXTS, origin_time=TIMES, recall=TEXTS,
    quota_taken=st.booleans(), again=st.booleans(), error=TEXTS, error_stack=TEXTS, routes=COUNTS,
)  # fmt: skip


@given(HEADERS)
def test_control_properties_survive_printing_and_reading(headers: Headers) -> None:
    properties: dict[str, str] = {}
    headers.write_to(properties)
    assert read_headers(properties) == headers
    assert properties.keys() <= HEADER_NAMES


@given(HEADERS)
def test_of_a_message_that_no_worker_moved_nothing_counts_that_eases_a_limit_or_makes_it_wait(headers: Headers) -> None:
    plain = headers.replace(
        due=None, reserved=None, quota_taken=False, error=None, error_stack=None, routes=0, backup=0
    )
    assert headers.replace(hop=0).unmoved_part == plain.replace(hop=0)
    assert headers.replace(hop=headers.hop + 1).unmoved_part == headers.replace(hop=headers.hop + 1)


def test_a_message_without_control_properties_is_fresh() -> None:
    assert read_headers({"uid": "u1", names.ID: "x", "kodo-unknown": "1"}) is FRESH
    assert FRESH.first_receipt


@pytest.mark.parametrize("text", ["", "-1", "1.5", "x", "٣", "9" * 30, "9" * 5_000, "0" * 5_000, "1000001", " 1"])
def test_a_counter_no_worker_wrote_is_broken(text: str) -> None:
    with pytest.raises(BrokenHeadersError, match=names.ATTEMPTS_RETRYING):
        read_headers({names.ATTEMPTS_RETRYING: text})


@pytest.mark.parametrize("name", [names.REASON, names.FROM_LEVEL, names.ORIGIN_ID, names.ORIGIN_TOPIC, names.RECALL])
def test_a_text_longer_than_any_worker_writes_is_broken(name: str) -> None:
    assert name in HEADER_NAMES
    read_headers({name: "x" * MAX_TEXT})
    with pytest.raises(BrokenHeadersError, match=name):
        read_headers({name: "x" * (MAX_TEXT + 1)})


@pytest.mark.parametrize(("name", "most"), [(names.HOP, 10**6), (names.ORIGIN_TIME, 10**15)])
def test_a_number_beyond_any_that_a_worker_writes_is_broken(name: str, most: int) -> None:
    read_headers({name: str(most)})
    with pytest.raises(BrokenHeadersError, match=name):
        read_headers({name: str(most + 1)})


def test_whom_a_message_is_for_is_readable_however_broken_the_rest_is() -> None:
    assert meant_for({names.FOR: "billing", names.HOP: "many"}) == "billing"


def test_a_moved_or_recalled_message_is_no_first_receipt() -> None:
    assert not Headers(hop=1).first_receipt
    assert not Headers(recall="r1").first_receipt


@pytest.mark.parametrize("state", [State.RETRYING, State.PENDING, State.BLOCKING])
def test_attempts_are_counted_by_state(state: State) -> None:
    assert FRESH.with_attempt(state).attempts(state) == 1
    assert FRESH.with_attempt(state, 0) == FRESH


def test_ready_and_dead_have_no_attempts() -> None:
    with pytest.raises(AssertionError):
        FRESH.attempts(State.READY)
    with pytest.raises(AssertionError):
        FRESH.with_attempt(State.DEAD)


@given(st.binary() | st.none(), st.dictionaries(st.text(max_size=8), st.text(max_size=8)), HEADERS)
def test_moving_changes_nothing_but_control_properties(
    payload: bytes | None, properties: dict[str, str], headers: Headers
) -> None:
    before = delivery(3, payload, key="k")._replace(properties=properties, ordering_key="o", event_time=7)
    moved = reroute_message(before, headers, "from", "to", headers.due)
    assert (moved.payload, moved.key, moved.ordering_key, moved.event_time) == (payload, "k", "o", 7)
    others = {name: value for name, value in moved.properties.items() if name not in HEADER_NAMES}
    assert others == {name: value for name, value in properties.items() if name not in HEADER_NAMES}
    assert (moved.topic, moved.deliver_at) == ("to", headers.due)


def test_the_first_hop_stamps_the_origin_and_later_ones_keep_it() -> None:
    moved = reroute_message(delivery(3), FRESH, "from", "to", None)
    assert moved.properties[names.ORIGIN_ID] == "7:3:0:-1"
    assert moved.properties[names.ORIGIN_TOPIC] == "from"
    again = reroute_message(delivery(9), read_headers(moved.properties), "to", "further", None)
    assert again.properties[names.ORIGIN_ID] == "7:3:0:-1"
    assert again.properties[names.ORIGIN_TIME] == str(START_WALL)


def test_a_reason_is_cut_short() -> None:
    properties: dict[str, str] = {}
    FRESH.replace(reason="x" * 1000).write_to(properties)
    assert len(properties[names.REASON]) == MAX_REASON


def test_a_transferred_message_is_new_but_for_its_parent() -> None:
    before = delivery(3, key="k", uid="u1", kodo_hop=2, kodo_id="i", kodo_strange="s")
    new = transfer_message(before, Headers(hop=2), "p/n/t:s", "to", b"new", {"size": "1"}, None)
    given = new.properties[names.ID]
    assert new.properties == {"uid": "u1", "size": "1", names.PARENT: "7:3:0:-1", names.ID: given}
    assert (new.payload, new.key) == (b"new", "k")
    assert (
        transfer_message(before, Headers(origin_id="o"), "p/n/t:s", "to", b"", {}, "other").properties[names.PARENT]
        == "o"
    )
    assert transfer_message(before, FRESH, "p/n/t:s", "to", b"", {}, "other").key == "other"


def test_the_identity_of_what_is_transferred_is_the_same_each_time_and_no_other_transfers() -> None:
    def made(number: int = 3, origin: str = "p/n/t:s", to: str = "to", **properties: Any) -> str:
        return transfer_message(delivery(number, **properties), FRESH, origin, to, b"", {}, None).properties[names.ID]

    assert made() == made()
    assert len(made()) == 34
    assert made(kodo_id="i") == made(4, kodo_id="i")
    assert len({made(), made(4), made(origin="p/n/t:other"), made(to="elsewhere"), made(kodo_id="i")}) == 5


def test_identity_is_the_producers_id_else_where_it_was_first_stored() -> None:
    assert message_identity(delivery(1, kodo_id="mine"), Headers(origin_id="o")) == "mine"
    assert message_identity(delivery(1), Headers(origin_id="o")) == "o"
    assert message_identity(delivery(1), FRESH) == "7:1:0:-1"


def test_a_recall_that_sends_again_what_is_done_is_an_effect_of_its_own() -> None:
    again = read_headers({names.RECALL: "r1", names.AGAIN: "1"})
    other = read_headers({names.RECALL: "r2", names.AGAIN: "1"})
    assert effect_key(delivery(1, kodo_id="mine"), again) == "mine again:r1"
    assert effect_key(delivery(1, kodo_id="mine"), other) == "mine again:r2"
    for plain in (FRESH, read_headers({names.RECALL: "r1"}), read_headers({names.AGAIN: "1"})):
        assert effect_key(delivery(1, kodo_id="mine"), plain) == "mine"
    moved = reroute_message(delivery(1, kodo_id="mine", kodo_recall="r1", kodo_again=1), again, "from", "to", None)
    assert (moved.properties[names.RECALL], moved.properties[names.AGAIN]) == ("r1", "1")


def test_a_delivery_knows_its_partition() -> None:
    assert delivery(1).partition == "0"
    assert delivery(1)._replace(token="odd").partition == ""


def test_a_position_is_printed_from_the_entry_where_it_is_known() -> None:
    assert delivery(3)._replace(entry=(9, 4, 1), batch_index=2).position == "9:4:1:2"
    assert delivery(3).position == "7:3:0:-1"


def test_the_written_schema_version_goes_along() -> None:
    moved = reroute_message(delivery(3)._replace(schema="L1:3"), FRESH, "from", "to", None)
    assert (moved.properties[names.SCHEMA], moved.schema) == ("L1:3", "L1:3")
