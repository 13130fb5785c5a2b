"""Backlog of a subscription without the marks of producers (watermarks, see `kodoctl.protocol.sequence_numbers`).

A mark has no content and no worker handles it, but the broker counts it as a message: an idle lane whose workers
stopped before the last mark came has a backlog of 1 that grows older. Every figure of a backlog that people read comes
from this module.

The broker returns one entry of a backlog per request. A small backlog is read entry by entry. Of a large one only the
beginning and the end are read, each up to the first message, because producers that pause or have ended leave their
marks there. Marks between messages, one a minute, then count as messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from kodoctl.protocol.properties import FOR
from kodoctl.protocol.sequence_numbers import NOBODY
from kodoctl.pulsar.admin.admin import Admin, Reply, subscription_path
from kodoctl.pulsar.binary.undeliverable_entries import fields
from kodoctl.topology.names import AUDIT_SUFFIX, State

if TYPE_CHECKING:
    from kodoctl.pulsar.admin.topic_stats import Stats
    from kodoctl.topology.names import TopicName

FEW: Final = 10  # entries of a partition looked at for a figure that is read again and again
MANY: Final = 1_000  # for one that somebody waits for
_BYTES: Final = 4 << 20  # of entries, about, that are looked at in a partition: they come with their payloads
_WITHOUT_MARKS: Final = (
    *(state.suffix for state in State if state.suffix),
    AUDIT_SUFFIX,
)  # producers send to no such topic
_PROPERTIES, _PAYLOAD_SIZE = 1, 3  # fields of Pulsar's SingleMessageMetadata
_BROKEN: Final = (IndexError, ValueError)  # what a reader of bytes that anybody chose may raise


@dataclass(frozen=True, slots=True)
class Backlog:
    """Backlog of a subscription in one partition. A mark is a message of a producer without content (a watermark),
    which no worker handles.

    Args:
        entries: number of entries, without those that were found to contain only marks.
        marks: number of marks that were found, also in entries with messages.
        oldest: publish time of the oldest message, or of the oldest entry, perhaps of marks, if that message was not
            read, ms since the epoch; None if there is no message or the time is unknown.
        whole: there are no other marks, because every entry was read, or because no producer sends to the topic. If
            False, `entries` may count entries that contain only marks.
    """

    entries: int = 0
    marks: int = 0
    oldest: int | None = None
    whole: bool = True


@dataclass(frozen=True, slots=True)
class _Entry:
    """Numbers of messages and of marks in one entry, and its publish time (ms since the epoch; None: unknown)."""

    messages: int
    marks: int
    published: int | None

    @property
    def only_marks(self) -> bool:
        """True if the entry has at least one mark of a producer and no message."""
        return self.marks > 0 and not self.messages


def read_backlog(admin: Admin, topic: TopicName, index: int, name: str, sub: Stats, most: int = FEW) -> Backlog:
    """Reads the backlog of the subscription `name` in the partition `index`, by one request per entry; nothing is
    acknowledged. A large backlog is read from both ends, each up to its first message. An entry that the broker does
    not return ends the reading from that end; like all entries that were not read, it counts as a message. Sends no
    request for a topic to which no producer sends (of a waiting state, of dead letters, of audit records). Raises
    ClusterError if no broker answers.

    Args:
        sub: the subscription's part of the partition's stats.
        most: maximum of entries to read (fewer, if they are large); of a larger backlog, half of them at each end.
    """
    entries = int(sub.get("msgBacklog") or 0)
    oldest = int(sub.get("earliestMsgPublishTimeInBacklog") or 0) or None
    if entries <= 0:
        return Backlog()
    if topic.local.endswith(_WITHOUT_MARKS):
        return Backlog(entries, 0, oldest)
    within = max(2, min(most, _BYTES * entries // max(1, int(sub.get("backlogSize") or 0))))
    if entries <= within:
        return _sum(entries, oldest, list(_looked_at(admin, topic, index, name, range(1, entries + 1))))
    first = list(_up_to_message(_looked_at(admin, topic, index, name, range(1, within // 2 + 1))))
    last = _up_to_message(_looked_at(admin, topic, index, name, range(entries, entries - within // 2, -1)))
    front, end = _sum(entries, oldest, first), _sum(entries, oldest, list(last))
    return Backlog(front.entries + end.entries - entries, front.marks + end.marks, front.oldest, whole=False)


def _sum(entries: int, oldest: int | None, seen: list[_Entry]) -> Backlog:
    """Computes the backlog of `entries` entries, of which `seen` were read. `oldest`: by the stats, used if needed."""
    without = sum(one.only_marks for one in seen)
    first = next((one.published for one in seen if not one.only_marks), None) or oldest
    marks, oldest = sum(one.marks for one in seen), first if entries > without else None
    return Backlog(entries - without, marks, oldest, whole=len(seen) == entries)


def _up_to_message(entries: Iterable[_Entry]) -> Iterator[_Entry]:
    for entry in entries:
        yield entry
        if not entry.only_marks:
            return


def _looked_at(admin: Admin, topic: TopicName, index: int, name: str, places: Iterable[int]) -> Iterator[_Entry]:
    """Yields the entries at these places of the backlog, counted from 1, until the broker does not return one."""
    for place in places:
        path = f"{subscription_path(topic, name, index)}/position/{place}"
        reply = admin.call("GET", path, patient=False)
        if not reply.ok:  # gone by now, not for this role, or sent so that the broker itself cannot read it
            return
        yield _entry(reply)


def _entry(reply: Reply) -> _Entry:
    count = reply.headers.get("X-Pulsar-num-batch-message")
    try:
        if count is None:
            properties = json.loads(reply.headers.get("X-Pulsar-PROPERTY") or "{}")
            marks = [_is_mark(properties)]
        else:
            marks = [_is_mark(one) for one in _batch(reply.body, int(count))]
        published = _milliseconds(reply.headers.get("X-Pulsar-publish-time"))
    except _BROKEN:  # encrypted, or not what a client library writes
        return _Entry(1, 0, None)
    return _Entry(len(marks) - sum(marks), sum(marks), published)


def _is_mark(properties: Any) -> bool:
    return isinstance(properties, dict) and properties.get(FOR) == NOBODY


def _milliseconds(text: str | None) -> int | None:
    return round(datetime.fromisoformat(text).timestamp() * 1000) if text else None


def _batch(body: bytes, count: int) -> Iterator[dict[str, str]]:
    """Yields the properties of each message of a batch, from its decompressed body. Raises one of _BROKEN."""
    at = 0
    for _ in range(count):
        size = int.from_bytes(body[at : at + 4])
        if not 0 < size <= len(body) - at - 4:
            raise ValueError("no batch")
        metadata = body[at + 4 : at + 4 + size]
        properties, payload = {}, 0
        for field, value in fields(metadata):
            if field == _PROPERTIES and isinstance(value, bytes):
                pair = dict(fields(value))
                properties[_text(pair.get(1))] = _text(pair.get(2))
            elif field == _PAYLOAD_SIZE and isinstance(value, int):
                payload = value
        yield properties
        at += 4 + size + payload


def _text(value: int | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
