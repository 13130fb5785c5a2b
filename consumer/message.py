"""What a handler is given: one message with its place and its history. Read-only; not to be kept beyond the handler."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, overload

from consumer.envelope import PREFIX, Control, Delivery, Level, State, identity
from consumer.outcomes import InvalidPayloadError
from consumer.policy import Lane

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

Check = Callable[[Any], None]


class Message:
    """One message as a handler sees it. Times are ms since the epoch, 0 = none."""

    __slots__ = ("_check", "_control", "_delivery", "_held", "_lane", "tenant")

    def __init__(
        self,
        delivery: Delivery,
        lane: Lane,
        control: Control,
        tenant: str,
        check: Check | None = None,
        held: object = None,
    ) -> None:
        self._delivery, self._lane, self._control = delivery, lane, control
        self._check, self._held = check, held
        self.tenant = tenant

    def __repr__(self) -> str:
        return f"Message({self.id} on {self._lane.name}, tenant {self.tenant})"

    @property
    def data(self) -> bytes:
        """The payload; empty for a tombstone."""
        return self._delivery.payload or b""

    @property
    def is_tombstone(self) -> bool:
        """Whether the message has no payload at all, which says that its key is gone."""
        return self._delivery.payload is None

    def text(self) -> str:
        """The payload as UTF-8 text. Raises InvalidPayloadError (the message dies) when it is none."""
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            raise InvalidPayloadError("payload is not UTF-8 text") from None

    def json(self) -> Any:
        """The payload as JSON, checked against the declared schema. Raises InvalidPayloadError: the message dies."""
        try:
            value = json.loads(self.data)
        except (ValueError, RecursionError):
            raise InvalidPayloadError("payload is not JSON") from None
        if self._check is not None:
            self._check(value)
        return value

    @property
    def properties(self) -> Mapping[str, str]:
        """What the producer sent along, without the platform's own properties."""
        return {name: value for name, value in self._delivery.properties.items() if not name.startswith(PREFIX)}

    @property
    def key(self) -> str:
        """The message key, empty without one."""
        return self._delivery.key

    @property
    def id(self) -> str:
        """The same on every delivery and in every lane: the producer's id, else where the message was first stored."""
        return identity(self._delivery, self._control)

    @overload
    def once(self, session: Session | Connection) -> None: ...
    @overload
    def once(self, session: AsyncSession | AsyncConnection) -> Awaitable[None]: ...
    def once(self, session: Any) -> Any:
        """Ties this message to the handler's own transaction: its effects and the note that it is done are there both, or
        neither. To be awaited with an async session.

        Raises Repeat when it was done before for this subscription: the transaction is rolled back, the message is
        acknowledged. Raises Unavailable when the database cannot be asked. The tables: consumer.dedup.create_tables.
        """
        from consumer.dedup import once

        return once(session, self._lane.subscription, self.id)

    @property
    def subscription(self) -> str:
        """The subscription it was received for, in full: `kodo/trade/orders:billing`."""
        return self._lane.subscription

    @property
    def topic(self) -> str:
        """The topic it was received from."""
        return self._lane.topic

    @property
    def level(self) -> Level:
        """The level it was received from."""
        return self._lane.level

    @property
    def state(self) -> State:
        """The state it was received from."""
        return self._lane.state

    @property
    def attempt(self) -> int:
        """1 for the first handling; failures in place are not counted."""
        return 1 + self._control.retrying + self._control.backup

    @property
    def reason(self) -> str | None:
        """Why it was moved here, None for a first delivery."""
        return self._control.reason

    @property
    def publish_time(self) -> int:
        """When the broker first got it."""
        return self._control.origin_time or self._delivery.publish_time

    @property
    def event_time(self) -> int:
        """What the producer set as event time."""
        return self._delivery.event_time


def payload_check(schema: Mapping[str, Any] | None) -> Check | None:
    """A check of JSON values against a JSON Schema, compiled once; None without a schema.

    Its errors name the place and the rule, never the value: reasons travel with dead letters.
    """
    if schema is None:
        return None
    from jsonschema.validators import validator_for

    validator = validator_for(schema)(schema)

    def check(value: Any) -> None:
        problem = next(iter(validator.iter_errors(value)), None)
        if problem is not None:
            raise InvalidPayloadError(f"payload breaks its schema at {problem.json_path}: {problem.validator}")

    return check
