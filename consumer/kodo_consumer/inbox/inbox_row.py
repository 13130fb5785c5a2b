# pure: every branch is tested
"""Rows of the inbox: a received message as a row, and a row as the message that was received."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, NamedTuple

from kodo_consumer.core.values.envelope import BrokenHeadersError, Delivery, message_identity, read_headers
from kodoctl.protocol.audit_records import Event


@dataclass(frozen=True, slots=True)
class InboxToken:
    """Token by which a worker acknowledges a row: `row` is its id, `claim` the claim under which it was delivered; two
    tokens are equal if both are. It prints as the token of the message on its topic. `end`: the event by which the
    message ended, and the reason; DONE until `with_end` sets another one. `discarded`: reason for which a person
    discards the message unhandled; empty: it is to be handled.
    """

    row: int
    claim: str
    position: str = field(compare=False)
    end: tuple[Event, str] = field(default=(Event.DONE, ""), compare=False)
    discarded: str = field(default="", compare=False)

    def with_end(self, event: Event, reason: str) -> InboxToken:
        """Returns the token of the ended message."""
        return replace(self, end=(event, reason))

    def __str__(self) -> str:
        """Position of the message on its topic: `(ledger,entry,partition,batch index)`."""
        return f"({self.position.replace(':', ',')})"


class ClaimedRow(NamedTuple):
    """Row as a claim returns it. `retries`: number of times that a person had it handled again; `discarded`: reason for
    which a person discards it; None or empty: it is to be handled.
    """

    id: int
    position: str
    head: str
    body: bytes | memoryview | None
    retries: int = 0
    discarded: str | None = None


def name_of_row(topic: str, delivery: Delivery) -> str:
    """Name of the message's row, 64 hexadecimal digits: a message with the same name is a repeat, and gets no row of
    its own. Before the first move or recall it is made from the topic and the identity of the message. After one, or
    with broken headers, it is made from the topic and the position: only a redelivery is a repeat then, another copy of
    the message is not.
    """
    try:
        headers = read_headers(delivery.properties)
    except BrokenHeadersError:
        identity = delivery.position
    else:
        identity = message_identity(delivery, headers) if headers.first_receipt else f"at {delivery.position}"
    return hashed(f"{topic}\0{identity}")


def hashed(text: str) -> str:
    """Hash of any text, in 64 characters."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def head_of(delivery: Delivery) -> str:
    """All fields of a message but `entry`, `token` and `payload`, as JSON in ASCII, which every database stores."""
    return json.dumps(
        {
            "properties": dict(delivery.properties), "key": delivery.key,
            "ordering_key": delivery.ordering_key, "event_time": delivery.event_time,
            "publish_time": delivery.publish_time, "batch_index": delivery.batch_index, "broken": delivery.broken,
            "schema": delivery.schema,
        }
    )  # fmt: skip


def delivery_of(row: ClaimedRow, claim: str) -> Delivery:
    """The message of a row that was claimed as `claim`, as it was received, but with the row's token, and with the
    reason of a discard, if there is one, in `broken`. After each time that a person had the row handled again it has
    another entry, because a worker drops repeats of an entry that it has just done.
    """
    kept: dict[str, Any] = json.loads(row.head)
    ledger, entry, partition = (int(part) for part in row.position.split(":")[:3])
    payload = None if row.body is None else bytes(row.body)
    unit = f"{ledger}:{entry}:{partition} again {row.retries}" if row.retries else (ledger, entry, partition)
    reason = row.discarded or ""
    kept["broken"] = kept["broken"] or reason
    return Delivery(unit, InboxToken(row.id, claim, row.position, discarded=reason), payload, **kept)
