"""What names a message is one thing to workers, recalls and the pipeline: else a recall takes two messages for one."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from kodo_consumer.core.values.envelope import (
    FRESH,
    BrokenHeadersError,
    Delivery,
    Headers,
    message_identity,
    read_headers,
)
from kodo_pipeline.ingest.events import TopicRole, events
from kodo_pipeline.landing.tables import MESSAGES

from kodoctl.protocol.properties import ID, MAX_ID, ORIGIN_ID
from kodoctl.recall.message.stored_message import DeadLetter, Position

NAMES = st.one_of(
    st.none(),
    st.text(max_size=5),
    st.tuples(st.sampled_from("xé😀"), st.integers(MAX_ID - 1, MAX_ID + 1)).map(lambda one: one[0] * one[1]),
)
PLACE = Position(3, 7, 11, 2)


def of_worker(properties: dict[str, str]) -> str:
    """By what a worker that gets the message remembers it; control properties no worker would have written count as none."""
    delivery = Delivery((PLACE.ledger, PLACE.entry, PLACE.partition), "t", b"", properties, "", "", 0, 0, PLACE.batch)
    headers: Headers
    try:
        headers = read_headers(properties)
    except BrokenHeadersError:
        headers = FRESH
    return message_identity(delivery, headers)


def of_table(properties: dict[str, str]) -> str:
    """What the pipeline's table of events has: the given id where it names something, else `mid`."""
    row = {
        "topic": "t", "partition": PLACE.partition, "ledger": PLACE.ledger, "entry": PLACE.entry, "batch_index": PLACE.batch,
        "key": None, "publish_ts": datetime.now(UTC), "event_ts": None, "properties": list(properties.items()),
        "broken": None, "size": 0, "payload": b"", "split_id": "s",
    }  # fmt: skip
    batch = pa.RecordBatch.from_pylist([row], schema=MESSAGES.arrow())
    (found,) = events(batch, TopicRole("t", "L1", "ready", None, None), "run").to_pylist()
    given_id = found["kodo_id"]
    return str(given_id if given_id and len(given_id) <= MAX_ID else found["mid"])


@given(NAMES, NAMES)
def test_all_name_a_message_alike(own: str | None, origin: str | None) -> None:
    properties = {name: value for name, value in ((ID, own), (ORIGIN_ID, origin)) if value is not None}
    letter = DeadLetter("t", PLACE, b"", properties)
    assert letter.identity == of_worker(properties) == of_table(properties)


def test_two_messages_with_one_endless_id_are_two() -> None:
    """Else the second is acknowledged as the first one's copy."""
    endless = "x" * (MAX_ID + 1)
    letters = [DeadLetter("t", Position(0, 1, n), b"", {ID: endless, ORIGIN_ID: f"7:{n}:0:-1"}) for n in (1, 2)]
    assert [one.identity for one in letters] == ["7:1:0:-1", "7:2:0:-1"]
