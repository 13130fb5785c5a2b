"""Decoder of the client library's messages into deliveries, which copy all data, so that the library's objects can be
freed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kodo_consumer.core.values.envelope import Delivery
from kodoctl.protocol.properties import SCHEMA
from kodoctl.pulsar.binary.message_decoding import content, schema_version, unreturned_count

if TYPE_CHECKING:
    from kodo_consumer.core.values.broker import LaneRequest

log = logging.getLogger("kodo.consumer")


class ReadResult(NamedTuple):
    """Result of one read. `unreturned`: how many messages the broker counts as sent and the client never counts,
    because it takes an encrypted batch for one message (`unreturned_count`). Their permits are lost.
    """

    deliveries: list[Delivery]
    unreturned: int = 0


class DeliveryDecoder:
    """Decoder of the messages of one lane. A message that is encrypted, or of which a part cannot be read, becomes a
    delivery with `broken` set, and delays no other message.
    """

    def __init__(self, request: LaneRequest) -> None:
        self._topic = request.topic
        self._copied = partial(_copied_with_schema, request.schemas) if request.schemas else _copy_message

    def decode(self, messages: Sequence[Any]) -> ReadResult:
        """Returns one delivery for each message, in their order, with the number of lost permits. No content that a
        producer chose makes it raise.
        """
        copied = self._copied
        try:
            copies = [copied(message) for message in messages]
        except Exception:  # of one of them: the others are as good as any
            log.exception("%s: a message cannot be read, which is a fault of ours", self._topic)
            copies = [_in_any_case(copied, message) for message in messages]
        lost = sum(unreturned_count(message) for message, copy in zip(messages, copies, strict=True) if copy.broken)
        return ReadResult(copies, lost)


def _copy_message(message: Any) -> Delivery:
    """Delivery with a copy of everything in a message: an object of the client's would keep its whole batch in memory."""
    token = message.message_id()
    index = token.batch_index()
    entry = (token.ledger_id(), token.entry_id(), token.partition())
    payload, properties, key, ordering_key, happened, published, broken = content(message, alone=index < 0)
    return Delivery(entry, token, payload, properties, key, ordering_key, happened, published, index, broken)


def _in_any_case(copied: Callable[[Any], Delivery], message: Any) -> Delivery:
    """Delivery that `copied` makes of a message. If `copied` raises, a delivery with the position and the payload only,
    marked as broken: such a message goes to the dead letters.
    """
    try:
        return copied(message)
    except Exception as problem:  # noqa: BLE001  # told already, for all of them
        token = message.message_id()
        entry = (token.ledger_id(), token.entry_id(), token.partition())
        broken = f"it cannot be read: {type(problem).__name__}"
        return Delivery(entry, token, message.data(), {}, "", "", 0, 0, token.batch_index(), broken)


def _copied_with_schema(level: str, message: Any) -> Delivery:
    """Delivery with the schema version: the broker's or, from a topic without schemas, the version that the message
    carries.
    """
    delivery = _copy_message(message)
    version = schema_version(message)
    schema = f"{level}:{version}" if version >= 0 else delivery.properties.get(SCHEMA, "")
    return delivery._replace(schema=schema)
