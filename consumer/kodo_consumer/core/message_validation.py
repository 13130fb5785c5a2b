"""Validation of outgoing messages: payload, properties and size that a topic takes.

The producer, the outbox that stores rows and the relay that sends them get one answer. Errors are UsageError.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kodo_consumer.core.envelope import PREFIX, Outgoing, wire_size
from kodo_consumer.core.exceptions import InvalidPayloadError
from kodo_consumer.core.payloads.codec import Payloads
from kodo_consumer.message import json_value
from kodoctl.errors import UsageError, error
from kodoctl.protocol.properties import TRACE_NAMES
from kodoctl.topology.names import whole_topic

if TYPE_CHECKING:
    from kodo_consumer.core.outlet import Outlet
    from kodo_consumer.message import Check


def check_of(outlet: Outlet) -> Check | None:
    """Check for the payloads of a topic; None: nothing is declared."""
    return None if outlet.schema is None else Payloads(outlet.payload_type, outlet.schema)


class MessageValidator:
    """Rules for messages to a topic: payloads fit its schema, properties are those it declares (any,
    where none is).
    """

    def __init__(
        self, check: Check | None = None, properties: Mapping[str, str] | None = None, largest: int = 0
    ) -> None:
        """`largest`: bytes a message may have, 0: the topic has no limit of its own."""
        self._check, self._declared, self._largest = check, properties or {}, largest

    def encoded(self, payload: Any) -> bytes | None:
        """The payload's bytes: JSON, or on an Avro topic Avro, of what is no bytes; None is a tombstone.
        Raises UsageError.
        """
        try:
            if isinstance(self._check, Payloads) and self._check.kind == "avro":
                return None if payload is None else self._check.encode(payload)
            if payload is None or isinstance(payload, bytes):
                data = payload
            else:
                data = json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode()
            if data is not None:
                self._read(data, is_ours=not isinstance(payload, bytes))
        except (TypeError, ValueError, RecursionError, InvalidPayloadError) as problem:
            raise UsageError(error("K716", "payload refused", str(problem))) from None
        return data

    def _read(self, data: bytes, *, is_ours: bool) -> None:
        """Reads the bytes as a receiver will: whatever is written, one rule decides. Raises InvalidPayloadError."""
        if self._check is not None:
            self._check.json(data)
        elif is_ours:
            json_value(data)

    def missing(self, properties: Mapping[str, str]) -> list[str]:
        """The properties that are required and not there."""
        return [name for name, need in self._declared.items() if need == "required" and name not in properties]

    def allowed(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The properties as texts. Raises UsageError with everything that is wrong with them."""
        missing = self.missing(properties)
        reserved = [name for name in properties if name.startswith(PREFIX)]
        known = {*self._declared, *reserved, *TRACE_NAMES}
        undeclared = [name for name in properties if self._declared and name not in known]
        wrong = ((missing, "missing"), (undeclared, "not declared"), (reserved, "reserved"))
        if found := [f"{what}: {', '.join(names)}" for names, what in wrong if names]:
            raise UsageError(*(error("K717", "message properties refused", detail) for detail in found))
        return {name: str(value) for name, value in properties.items()}

    def too_large(self, message: Outgoing) -> UsageError | None:
        """Error to raise for a message that is too large for the topic; None: it may be sent."""
        if not self._largest or (size := wire_size(message)) <= self._largest:
            return None
        detail = f"{whole_topic(message.topic)}: {size} bytes with its properties; the topic takes {self._largest}"
        return UsageError(error("K729", "message too large", detail))
