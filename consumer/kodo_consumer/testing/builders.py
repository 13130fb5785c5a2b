"""Messages for tests that call a handler directly, without any broker."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any, Final

from kodo_consumer.core.envelope import Delivery, Headers, Level, State
from kodo_consumer.core.limit_policy import NOBODY
from kodo_consumer.core.message_validation import MessageValidator
from kodo_consumer.core.payloads.codec import Payloads
from kodo_consumer.core.policy import Lane
from kodo_consumer.message import Message
from kodo_consumer.testing.manual_clock import START_WALL

_numbers: Final = count()


def message(
    payload: Any = b"",
    *,
    key: str = "",
    properties: Mapping[str, str] | None = None,
    place: tuple[str, str] = ("L1", "ready"),
    attempt: int = 1,
    tenant: str = NOBODY,
    schema: Mapping[str, Any] | None = None,
) -> Message:
    """A message as a handler gets it; a payload that is no bytes is JSON. `place` is level and state, `schema` what
    `message.json()` checks against, `attempt` the number of this handling.
    """
    data = MessageValidator().encoded(payload)
    number = next(_numbers)
    delivery = Delivery(number, f"(0,{number},-1,-1)", data, dict(properties or {}), key, "", 0, START_WALL)
    level, state = Level(place[0]), State(place[1])
    lane = Lane(0, level, state, f"persistent://test/test/{level}-{state}", 1, 1.0, subscription="test/test:test")
    return Message(
        delivery, lane, Headers(retrying=attempt - 1), tenant, None if schema is None else Payloads("json", schema)
    )
