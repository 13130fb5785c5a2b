"""Builder of messages for tests that call a handler directly, without a broker."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.core.checks.message_validation import MessageValidator, message_arguments, plain_properties
from kodo_consumer.core.payloads.codec import Payloads
from kodo_consumer.core.values.envelope import Delivery, Headers, Level, State
from kodo_consumer.core.values.limit_policy import NOBODY
from kodo_consumer.core.values.policy import Lane
from kodo_consumer.message import Message
from kodo_consumer.testing.manual_clock import START_WALL

if TYPE_CHECKING:
    from kodo_consumer.core.values.wire_texts import PropertyValue

_numbers: Final = count()


def message(
    payload: Any = b"",
    *,
    key: str | None = None,
    properties: Mapping[str, PropertyValue] | None = None,
    place: tuple[str, str] = ("L1", "ready"),
    attempt: int = 1,
    tenant: str = NOBODY,
    schema: Mapping[str, Any] | None = None,
) -> Message:
    """Returns a message as a handler gets it; a payload other than bytes is encoded as JSON, None is a tombstone.
    `place`: level and state; `attempt`: number of this handling; `schema`: JSON schema by which `message.json()`
    validates the payload, None: any JSON is valid. No worker has the message, so `defer` raises UsageError.
    """
    data = MessageValidator().encode(payload)
    number = next(_numbers)
    delivery = Delivery(
        number, f"(0,{number},-1,-1)", data, plain_properties(properties), message_arguments(key=key), "", 0, START_WALL
    )
    level, state = Level(place[0]), State(place[1])
    lane = Lane(0, level, state, f"persistent://test/test/{level}-{state}", 1, 1.0, subscription="test/test:test")
    return Message(
        delivery, lane, Headers(retrying=attempt - 1), tenant, None if schema is None else Payloads("json", schema)
    )
