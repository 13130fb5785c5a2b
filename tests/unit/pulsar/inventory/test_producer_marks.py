"""Backlogs without the marks of producers: what the broker shows of an entry, and which entries it is asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from kodoctl.pulsar.admin.admin import Reply
from kodoctl.pulsar.inventory.producer_marks import MANY, Backlog, read_backlog
from kodoctl.topology.names import TopicName

TOPIC = TopicName.parse("kodo/shop/orders")
MARK = {"kodo-seq": "1a221f894fd5f235953:0:high=5:end", "kodo-for": "(mark)"}
OTHER = {"customer": "acme", "kodo-for": "billing"}


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _batch(*messages: tuple[dict[str, str], bytes]) -> bytes:
    """As Pulsar stores a batch: the size of the metadata, the metadata, the payload, for each message."""
    out = b""
    for properties, payload in messages:
        pairs = [_bytes(1, _bytes(1, key.encode()) + _bytes(2, value.encode())) for key, value in properties.items()]
        metadata = b"".join(pairs) + _bytes(2, b"a key") + _varint(3 << 3) + _varint(len(payload))
        out += len(metadata).to_bytes(4) + metadata + payload
    return out


def batch(*messages: tuple[dict[str, str], bytes], at: str = "2026-11-28T11:44:28.934Z") -> Reply:
    """What the broker shows of a batch."""
    headers = {"X-Pulsar-num-batch-message": str(len(messages)), "X-Pulsar-publish-time": at}
    return Reply("GET", "", 200, body=_batch(*messages), headers=headers)


def alone(properties: dict[str, str]) -> Reply:
    """What the broker shows of a message outside of batches."""
    headers = {"X-Pulsar-PROPERTY": json.dumps(properties), "X-Pulsar-publish-time": "1970-01-01T00:00:03Z"}
    return Reply("GET", "", 200, body=b"payload", headers=headers)


M, X = batch((MARK, b"")), batch((OTHER, b"x" * 300), at="1970-01-01T00:00:02Z")
BOTH = batch((OTHER, b'{"n":1}'), (MARK, b""), (OTHER, b""), at="1970-01-01T00:00:01Z")


class Stored:
    """Entries of a backlog; `asked` are the places that were looked at."""

    def __init__(self, entries: Sequence[Reply]) -> None:
        self.entries, self.asked = entries, list[int]()

    def call(self, method: str, path: str, *, patient: bool) -> Reply:
        head, _, place = path.rpartition("/")
        assert (method, head, patient) == (
            "GET",
            "persistent/kodo/shop/orders-partition-0/subscription/billing/position",
            False,
        )
        self.asked.append(int(place))
        return self.entries[int(place) - 1]


def read(entries: Sequence[Reply], *, size: int = 100, **given: Any) -> tuple[Backlog, list[int]]:
    admin = Stored(entries)
    sub = {"msgBacklog": len(entries), "backlogSize": size, "earliestMsgPublishTimeInBacklog": 7}
    return read_backlog(admin, TOPIC, 0, "billing", sub, **given), admin.asked  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], Backlog()),
        ([M], Backlog(0, 1, None)),
        ([alone(MARK)], Backlog(0, 1, None)),
        ([M, M, X, M], Backlog(1, 3, 2_000)),
        ([M, alone(OTHER)], Backlog(1, 1, 3_000)),
        ([BOTH, M], Backlog(1, 2, 1_000)),
    ],
)
def test_marks_are_in_no_figure(entries: list[Reply], expected: Backlog) -> None:
    assert read(entries)[0] == expected


def test_a_large_backlog_is_looked_at_from_both_ends_up_to_a_message() -> None:
    assert read([M, M, *[X] * 95, M]) == (Backlog(95, 3, 2_000, whole=False), [1, 2, 3, 98, 97])
    assert read([X, *[M] * 98, X]) == (Backlog(100, 0, 2_000, whole=False), [1, 100])
    assert read([M, *[X] * 98, M], most=MANY)[0] == Backlog(98, 2, 2_000)


def test_so_many_marks_that_no_message_is_seen_leave_the_rest_and_the_brokers_age() -> None:
    assert read([M] * 100) == (Backlog(90, 10, 7, whole=False), [*range(1, 6), *range(100, 95, -1)])


def test_large_entries_are_looked_at_sparingly() -> None:
    assert read([X] * 10, size=100 << 20)[1] == [1, 10]


@pytest.mark.parametrize(
    "reply",
    [
        Reply("GET", "", 404, reason="Message not found"),
        Reply("GET", "", 500, reason="cannot decompress"),
        Reply("GET", "", 200, body=b"\xff" * 40, headers={"X-Pulsar-num-batch-message": "3"}),
        Reply("GET", "", 200, body=b"", headers={"X-Pulsar-num-batch-message": "3"}),
        Reply("GET", "", 200, body=b"\0\0\0\1\x80", headers={"X-Pulsar-num-batch-message": "1"}),
        Reply("GET", "", 200, body=b"", headers={"X-Pulsar-num-batch-message": "many"}),
        Reply("GET", "", 200, body=b"", headers={"X-Pulsar-PROPERTY": "[1"}),
        Reply("GET", "", 200, body=b"", headers={"X-Pulsar-PROPERTY": '["(mark)"]'}),
        Reply("GET", "", 200, body=b"", headers={"X-Pulsar-num-batch-message": "0"}),
        Reply("GET", "", 200, body=b"", headers={"X-Pulsar-publish-time": "soon"}),
    ],
)
def test_what_cannot_be_looked_at_counts_as_a_message(reply: Reply) -> None:
    assert read([reply])[0] == Backlog(1, 0, 7, whole=reply.ok), "and what the broker does not show may be a mark"


@pytest.mark.parametrize("local", ["orders-billing-RETRYING", "orders-L2-billing-BLOCKING", "orders-billing-DLQ"])
def test_no_producer_marks_the_lanes_behind(local: str) -> None:
    sub = {"msgBacklog": 3, "earliestMsgPublishTimeInBacklog": 7}
    topic = TopicName.parse(f"kodo/shop/{local}")
    assert read_backlog(None, topic, 0, "billing", sub) == Backlog(3, 0, 7)  # type: ignore[arg-type]
