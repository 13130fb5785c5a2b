"""Validation of outgoing messages: payload, properties and size that a topic takes.

The producer, the outbox that stores rows and the relay that sends them use the same rules. Every refusal is a
UsageError, which functions raise and `too_large` returns.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodo_consumer.core.payloads.codec import Payloads
from kodo_consumer.core.values.envelope import PREFIX, Outgoing, wire_size
from kodo_consumer.core.values.exceptions import InvalidPayloadError
from kodo_consumer.core.values.wire_texts import PropertyValue, property_texts, why_no_text
from kodo_consumer.message import json_value
from kodoctl.errors import Diagnostic, UsageError, error
from kodoctl.protocol.properties import ID, SEQ, TRACE_NAMES
from kodoctl.text.escaping import one_line
from kodoctl.topology.names import whole_topic

if TYPE_CHECKING:
    from kodo_consumer.core.values.send_target import SendTarget
    from kodo_consumer.message import Check
    from kodoctl.protocol.sequence_numbers import Number
    from kodoctl.protocol.signing import Signer

_MAX_SHOWN: Final = 60  # characters of a property's name in an error
_TIME_END: Final = 1 << 63  # ms


def message_arguments(*, key: Any = None, id: Any = None, event_time: Any = 0, **texts: Any) -> str:  # noqa: A002
    """Checks arguments of a message and returns its key, which is empty if `key` is None. `id`: value of its `kodo-id`,
    None: not given; `event_time`: ms since the epoch, 0: none; `texts`: other arguments by name, each of which must be
    a text. Raises UsageError with one diagnostic for each wrong argument.
    """
    given = {**texts, "key": key, "id": id}
    optional = ("key", "id")
    found = [
        f"{name} is {why}"
        for name, value in given.items()
        if not (value is None and name in optional) and (why := why_no_text(value))
    ]
    if not isinstance(event_time, int) or isinstance(event_time, bool) or not 0 <= event_time < _TIME_END:
        found.append(f"event_time is {one_line(repr(event_time), _MAX_SHOWN)}, not ms since the epoch")
    if found:
        raise UsageError(*(error("K730", "not an argument of a message", detail) for detail in found))
    return key or ""


def plain_properties(properties: Mapping[str, PropertyValue] | None) -> dict[str, str]:
    """Returns the properties as texts, without a check against a topology; None gives an empty dict. Raises UsageError
    with one diagnostic for each property that cannot become a text (see kodo_consumer.core.values.wire_texts).
    """
    texts, wrong = property_texts({} if properties is None else properties)
    if wrong:
        raise UsageError(*map(_refusal, wrong))
    return texts


def _refusal(detail: str) -> Diagnostic:
    return error("K717", "message properties refused", detail)


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(one_line(name, _MAX_SHOWN) for name in names)


def check_of(send_target: SendTarget) -> Check | None:
    """Returns the check of payloads against the schema of a topic; None: the topology declares no schema for the topic."""
    return None if send_target.schema is None else Payloads(send_target.payload_type, send_target.schema)


def validator_of(send_target: SendTarget, largest: int = 0) -> MessageValidator:
    """Returns the rules for messages to a send target. `largest`: bytes that a message may have there; 0: any number."""
    return MessageValidator(check_of(send_target), send_target.properties, largest)


class NewMessage(NamedTuple):
    """A message that its topic takes, not sent yet. `id`: its identity (`kodo-id`); `event_time`: ms since the epoch,
    0: none.
    """

    id: str
    payload: bytes | None
    properties: dict[str, str]
    key: str = ""
    event_time: int = 0

    def outgoing(self, topic: str, partition: str, number: Number | None, signer: Signer | None) -> Outgoing:
        """Returns the message to publish to a partition of the topic (or to the topic itself), with its identity and its
        sequence number (None: it has none), signed by `signer` (None: not signed).
        """
        properties = self.properties
        properties[ID] = self.id
        if number is not None:
            properties[SEQ] = str(number)
        if signer is not None:
            properties = signer.signed(topic, self.payload, properties)
        return Outgoing(partition, self.payload, properties, self.key, event_time=self.event_time)


class MessageValidator:
    """Rules for messages to one topic: its payload schema, and the properties that it declares."""

    def __init__(
        self, check: Check | None = None, properties: Mapping[str, str] | None = None, largest: int = 0
    ) -> None:
        """`check`: for payloads, None: any payload fits. `properties`: "required" or "optional" by name, empty: any may
        be sent. `largest`: bytes a message may have, 0: the topic has no limit of its own.
        """
        self._check, self._declared, self._largest = check, properties or {}, largest

    def accept(
        self,
        payload: Any,
        *,
        key: str | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
        event_time: int = 0,
        id: str | None = None,  # noqa: A002  # the word of the message property
    ) -> NewMessage:
        """Returns the message that a sender gave: the one rule of `Producer` and of the test harness. `key`,
        `event_time`, `id`: see message_arguments; without an `id` the message gets a new one. Raises UsageError for
        anything that the topology does not allow, but for the size (see `too_large`), which depends on the number.
        """
        key = message_arguments(key=key, id=id, event_time=event_time)
        data = self.encode(payload)
        return NewMessage(id or uuid.uuid4().hex, data, self.check_properties(properties), key, event_time)

    def encode(self, payload: Any) -> bytes | None:
        """Returns the payload as bytes. Bytes stay as they are, and are checked if the topic has a schema; any other
        value is encoded, as Avro on an Avro topic, else as compact JSON; None, a tombstone, stays None. Raises
        UsageError if the schema forbids the payload, or if a value is not JSON, such as NaN or a set.
        """
        try:
            if isinstance(self._check, Payloads) and self._check.kind == "avro":
                return None if payload is None else self._check.encode(payload)
            if payload is None or isinstance(payload, bytes):
                data = payload
            else:
                data = json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode()
            if data is not None:
                self._check_readable(data, is_ours=not isinstance(payload, bytes))
        except (TypeError, ValueError, RecursionError, InvalidPayloadError) as problem:
            raise UsageError(error("K716", "payload refused", one_line(problem))) from None
        return data

    def _check_readable(self, data: bytes, *, is_ours: bool) -> None:
        """Reads the bytes as a receiver will, so that senders and receivers follow one rule. Without a check only bytes
        encoded here (`is_ours`) are read. Raises InvalidPayloadError.
        """
        if self._check is not None:
            self._check.json(data)
        elif is_ours:
            json_value(data)

    def missing(self, properties: Mapping[str, object]) -> list[str]:
        """Names of required properties that are absent or None."""
        return [name for name, need in self._declared.items() if need == "required" and properties.get(name) is None]

    def check_properties(self, properties: Mapping[str, Any] | None) -> dict[str, str]:
        """Returns the properties as texts (see kodo_consumer.core.values.wire_texts); None gives an empty dict. Raises
        UsageError about all missing, undeclared and reserved names, and values that cannot become texts.
        """
        texts, wrong = property_texts({} if properties is None else properties)
        if not isinstance(properties, Mapping | None):
            raise UsageError(_refusal(wrong[0]))
        names = list(texts)
        missing = self.missing(properties or {})
        reserved = [name for name in names if name.startswith(PREFIX)]
        known = {*self._declared, *reserved, *TRACE_NAMES}
        undeclared = [name for name in names if self._declared and name not in known]
        declared = f"; declared: {_list_names(self._declared)}"
        groups = (
            (missing, "missing", "; the topology requires it: send `properties={…}` with it"),
            (undeclared, "not declared", declared),
            (reserved, "reserved", f"; names that begin with {PREFIX} are the platform's"),
        )
        found = [f"{what}: {_list_names(names)}{advice}" for names, what, advice in groups if names]
        found += wrong
        if found:
            raise UsageError(*map(_refusal, found))
        return texts

    def too_large(self, message: Outgoing) -> UsageError | None:
        """Returns the UsageError to raise for a message that is too large for the topic; None: it may be sent."""
        if not self._largest or (size := wire_size(message)) <= self._largest:
            return None
        detail = f"{whole_topic(message.topic)}: {size} bytes with its properties; the topic takes {self._largest}"
        return UsageError(error("K729", "message too large", detail))
