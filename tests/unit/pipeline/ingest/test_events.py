"""Messages of a topology's topics as canonical events: what each column says, whatever the properties hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from kodo_pipeline.ingest.events import NOBODY, UNKNOWN, TopicRole, events, roles
from kodo_pipeline.landing.tables import EVENTS, MESSAGES

from kodoctl.protocol.error_causes import cause_of
from kodoctl.protocol.properties import ENCRYPTED
from kodoctl.pulsar.binary.undeliverable_entries import UNREAD
from tests.unit.topology.topology_files import expanded

READY = TopicRole("orders", "B2", "ready", None, "uid")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ORIGIN = "7:12:1:3"
PLAIN = {
    "topic": "persistent://a/b/orders", "partition": 2, "ledger": 7, "batch_index": -1, "key": None, "publish_ts": NOW,
    "event_ts": None, "broken": None, "size": 3, "payload": b"abc", "split_id": "s",
}  # fmt: skip
RUN = "000018bcfe5680000"


def made(*said: dict[str, str], role: TopicRole = READY, **more: Any) -> list[dict[str, Any]]:
    """Rows of messages with these properties, in entries from 0 on."""
    rows = [{**PLAIN, **more, "entry": entry, "properties": list(one.items())} for entry, one in enumerate(said)]
    found = events(pa.RecordBatch.from_pylist(rows, schema=MESSAGES.arrow()), role, "run-1")
    found.validate(full=True)
    assert found.schema == EVENTS.arrow()
    return [dict(row) for row in found.to_pylist()]


def column(name: str, *said: dict[str, str], **more: Any) -> list[Any]:
    return [row[name] for row in made(*said, **more)]


def test_a_plain_message_is_its_own_first_hop() -> None:
    (row,) = made({"n": "1", "uid": "u7"})
    told = {name: value for name, value in row.items() if value is not None}
    assert told == {
        "mid": "7:0:2:-1", "id": "7:0:2:-1", "msg_topic": "persistent://a/b/orders", "msg_partition": 2, "ledger": 7,
        "entry": 0, "batch_index": -1, "topic": "orders", "level": "B2", "state": "ready", "tenant": "u7", "hop": 0,
        "attempts": [], "publish_ts": NOW, "origin_publish_ts": NOW, "size": 3,
        "properties": [("n", "1"), ("uid", "u7")], "payload": b"abc", "ingest_run": "run-1", "split_id": "s",
    }  # fmt: skip


def test_a_plain_topic_has_the_ids_that_workers_write_as_origins() -> None:
    assert column("id", {}, partition=-1, batch_index=4) == ["7:0:-1:4"]


def test_a_moved_message_says_where_it_came_from() -> None:
    said = {
        "kodo-origin-id": ORIGIN, "kodo-origin-time": "1700000000123", "kodo-hop": "3", "kodo-reason": "ValueError",
        "kodo-attempts-retrying": "2", "kodo-attempts-backup": "1", "kodo-level": "L1", "kodo-id": "order-5",
        "kodo-parent": "1:2:3:4", "kodo-recall": "r:1:2", "kodo-for": "billing",
    }  # fmt: skip
    row, other, none = made(said, {"kodo-attempts-pending": "7"}, {})
    assert (row["mid"], row["id"], row["kodo_id"], row["hop"]) == (ORIGIN, "7:0:2:-1", "order-5", 3)
    assert row["origin_publish_ts"] == datetime.fromtimestamp(1_700_000_000, UTC) + timedelta(milliseconds=123)
    assert (row["reason"], row["died_in"], row["parent"]) == ("ValueError", "L1", "1:2:3:4")
    assert (row["recall"], row["for_subscription"]) == ("r:1:2", "billing")
    assert [one["attempts"] for one in (row, other, none)] == [[("retrying", 2), ("backup", 1)], [("pending", 7)], []]
    assert (none["mid"], none["hop"], none["origin_publish_ts"]) == ("7:2:2:-1", 0, NOW)


def test_the_cause_is_that_of_reason_and_error_text() -> None:
    said = [
        {"kodo-reason": "ConnectionError", "kodo-error": "bank 7 answered 503"},
        {"kodo-reason": "ConnectionError", "kodo-error": "bank 8 answered 504"},
        {"kodo-reason": "KeyError"},
        {"kodo-error": "at 7:\0:x"},
        {"kodo-reason": "", "kodo-error": ""},
        {},
    ]
    bank = "ConnectionError: bank # answered #"
    assert column("cause", *said) == [bank, bank, "KeyError", "at #:\0:x", None, None]
    assert column("cause", *said) == [cause_of(one.get("kodo-reason"), one.get("kodo-error")) for one in said]
    assert column("cause", {}, {}) == [None, None]


@pytest.mark.parametrize(
    ("text", "hop"),
    [("3", 3), (" 3\n", 3), ("+3", 3), ("-1", -1), ("three", 0), ("", 0), ("1.5", 0), ("1_0", 0), ("٣", 0),
     ("2147483647", 2147483647), ("2147483648", 0), ("99999999999999999999999", 0)],
)  # fmt: skip
def test_what_is_no_number_counts_as_none(text: str, hop: int) -> None:
    assert column("hop", {"kodo-hop": text}, {"kodo-hop": "1"}) == [hop, 1]


@pytest.mark.parametrize("text", ["9223372036854775807", "9999999999999999", "253402214400000", "yesterday"])
def test_a_time_that_no_timestamp_holds_is_not_believed(text: str) -> None:
    assert column("origin_publish_ts", {"kodo-origin-time": text}) == [NOW]


def test_the_tenant_is_who_the_topology_says() -> None:
    assert column("tenant", {"uid": "u1"}, {"uid": ""}, {"other": "x"}, {}) == ["u1", NOBODY, NOBODY, NOBODY]
    assert column("tenant", {"uid": "u1"}, role=READY._replace(fair_by="key"), key="k") == ["k"]
    assert column("tenant", {"uid": "u1"}, role=READY._replace(fair_by="key")) == [NOBODY]
    assert column("tenant", {"uid": "u1"}, role=READY._replace(fair_by=None)) == [NOBODY]
    assert column("tenant", {"uid": "u1"}, role=READY._replace(state="audit")) == [None]


def test_a_tenant_that_cannot_be_read_is_unknown_and_not_nobody() -> None:
    lost = "not UTF-8 text, and lost: "
    by_property = {
        f"{lost}properties": UNKNOWN, f"{lost}null value, properties, key; {ENCRYPTED}": UNKNOWN, UNREAD: UNKNOWN,
        f"{lost}key": NOBODY, ENCRYPTED: NOBODY,
    }  # fmt: skip
    assert [column("tenant", {}, broken=text)[0] for text in by_property] == list(by_property.values())
    by_key = {
        f"{lost}properties, key": UNKNOWN,
        f"{lost}ordering key": NOBODY,
        f"{lost}properties": NOBODY,
        UNREAD: UNKNOWN,
    }
    role = READY._replace(fair_by="key")
    assert [column("tenant", {}, role=role, broken=text)[0] for text in by_key] == list(by_key.values())
    assert column("tenant", {}, role=READY._replace(fair_by=None), broken=UNREAD) == [NOBODY]
    assert column("tenant", {"uid": "u1"}, {}, broken=f"{lost}key") == ["u1", NOBODY]


def test_numbers_of_producers_and_their_marks_are_told_apart() -> None:
    texts = [
        f"{RUN}:1:77", f"{RUN}:0:high=9", f"{RUN}:1:high=9:void=2,4-6:end", f"{RUN}:99999999999:5", f"{RUN}:99999999999:high=5",
        f"{RUN}:1:", f"x{RUN}:1:7", f"{RUN}:1:77\n", "", f"{RUN}:1:high=9:void=7-,-3,,1-2-3",
    ]  # fmt: skip
    rows = made(*({"kodo-seq": text} for text in texts), {})
    seqs = [tuple(row[name] for name in EVENTS.names if name.startswith("seq_")) for row in rows]
    nothing = (None,) * 6
    assert seqs == [
        (RUN, 1, 77, None, None, None),
        (RUN, 0, None, 9, None, False),
        (RUN, 1, None, 9, [{"first": 2, "last": 2}, {"first": 4, "last": 6}], True),
        (RUN, None, 5, None, None, None),
        (RUN, None, None, 5, None, False),
        *(nothing,) * 4,
        (RUN, 1, None, 9, [{"first": 7, "last": 7}, {"first": None, "last": 3}, {"first": None, "last": None},
                           {"first": 1, "last": 1}], False),
        nothing,
    ]  # fmt: skip


def test_roles_come_from_the_topology() -> None:
    found = roles(expanded("topics:\n  orders: {fair_by: uid, subscriptions: {billing: {audit: true}}}"))
    by_state = {one.state: one for one in found.values()}
    assert by_state["ready"] == TopicRole("orders", "L1", "ready", None, "uid")
    assert by_state["dead"] == TopicRole("orders", None, "dead", "billing", "uid")
    assert by_state["audit"] == TopicRole("orders", None, "audit", "billing", "uid")
