"""Validation of outgoing messages: payload, properties and size that a topic takes.

The producer, the outbox that stores rows and the relay that sends them use the same rules. Every refusal is a
UsageError, which functions raise and `too_large` returns.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

from kodo_consumer.core.checks.message_times import as_delay, as_time
from kodo_consumer.core.payloads.codec import Payloads
from kodo_consumer.core.payloads.plain_values import json_default, record_of
from kodo_consumer.core.values.envelope import PREFIX, Duration, Outgoing, wire_size
from kodo_consumer.core.values.exceptions import InvalidPayloadError
from kodo_consumer.core.values.wire_texts import PropertyValue, property_texts, why_no_text
from kodo_consumer.message import json_value
from kodoctl.errors import Diagnostic, UsageError, error
from kodoctl.protocol.compression import algorithm_within
from kodoctl.protocol.properties import ID, SEQ, TRACE_NAMES
from kodoctl.text.escaping import one_line
from kodoctl.topology.names import whole_topic

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from kodo_consumer.core.values.send_target import SendTarget
    from kodo_consumer.message import Check
    from kodoctl.protocol.sequence_numbers import Number
    from kodoctl.protocol.signing import Signer
    from kodoctl.topology.model.policies import DelayedDelivery

_MAX_SHOWN: Final = 60  # characters of a property's name in an error
_TIME_END: Final = 1 << 63  # ms


class SendOptions(TypedDict, total=False):
    """Options of a message that is sent. A name that is left out counts as None, or as 0 for `event_time`.

    `key`: chooses the partition, and messages with the same key stay in order for readers that keep an order;
    `ordering_key`: the key within which these readers keep the order, in place of `key`; it chooses the partition if
    there is no `key`. `properties`: texts; true, false and finite numbers are sent as JSON writes them. `event_time`:
    an aware datetime, or ms since the epoch, not before 1970; 0: none. `delay`: time from the call on after which
    readers get the message, at the earliest, as "10m", seconds or a timedelta; `deliver_at`: earliest moment at which
    they get it, as an aware datetime or ms since the epoch; they get it at once if that is past. Give at most one of
    these two. `id`: identity of the message (`kodo-id`), the same for a message that is sent again; None or empty: a
    new one.
    """

    key: str | None
    ordering_key: str | None
    properties: Mapping[str, PropertyValue] | None
    event_time: int | datetime
    delay: str | float | timedelta | None
    deliver_at: int | datetime | None
    id: str | None


_OPTIONS: Final = frozenset(SendOptions.__annotations__)


def check_option_names(call: str, options: Iterable[str]) -> None:
    """Raises UsageError with one diagnostic for each name that is no option of a message. `call`: name of the call that
    got the options.
    """
    if unknown := [name for name in options if name not in _OPTIONS]:
        raise _argument_error(f"{call}() has no option {_suggest(name)}" for name in unknown)


def _suggest(name: str) -> str:
    from difflib import get_close_matches  # only for an error

    near = get_close_matches(name, _OPTIONS, 1)
    there_is = f"did you mean {near[0]}?" if near else f"there is {', '.join(SendOptions.__annotations__)}"
    return f"{one_line(name, _MAX_SHOWN)}; {there_is}"


def message_arguments(*, key: Any = None, id: Any = None, event_time: Any = 0, **texts: Any) -> str:  # noqa: A002
    """Checks arguments of a message and returns its key, which is empty if `key` is None. `key`, and `id` (the value of
    its `kodo-id`): a text or None; `event_time`: ms since the epoch as an int, 0: none; `texts`: other arguments by
    name, each of which must be a text. Raises UsageError with one diagnostic for each wrong argument.
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
        raise _argument_error(found)
    return key or ""


def _argument_error(found: Iterable[str]) -> UsageError:
    return UsageError(*(error("K730", "not an argument of a message", detail) for detail in found))


def plain_properties(properties: Mapping[str, PropertyValue] | None) -> dict[str, str]:
    """Returns the properties as texts, without a check against a topology; None gives an empty dict. Raises UsageError
    with one diagnostic for each property whose name is no text, or whose value cannot become one (see
    kodo_consumer.core.values.wire_texts), or with a single one if `properties` is no mapping.
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
    """Returns the check of payloads against the schema of a topic; None: the topology declares none for the topic."""
    return None if send_target.schema is None else Payloads(send_target.payload_type, send_target.schema)


def validator_of(send_target: SendTarget, largest: int = 0, delays: DelayedDelivery | None = None) -> MessageValidator:
    """Returns the rules for messages to a send target. `largest`: bytes that a message may have there, 0: any number;
    sizes in `send_target` do not count. `delays`: the broker's setting of delayed delivery; None: not known, and then
    only `send_target` limits delays.
    """
    return MessageValidator(
        check_of(send_target),
        send_target.properties,
        largest,
        DelayRule.of(send_target, delays),
        compression=send_target.compression,
        ordered=send_target.ordered,
    )


class DelayRule(NamedTuple):
    """Rule for delays of messages to a topic. `refusal`: why no message may have a delay; "": messages may. `longest`:
    maximum delay in ms, 0: any delay is allowed; `whose`: what sets the maximum, in words.
    """

    refusal: str = ""
    longest: int = 0
    whose: str = ""

    @classmethod
    def of(cls, send_target: SendTarget, delays: DelayedDelivery | None) -> DelayRule:
        """Returns the rule for a send target: no delay if one of its subscriptions would get delayed messages at once,
        or if the broker's delayed delivery is off, so that all would; else at most the smaller one of `ttl` and the
        broker's maximum, as far as they are set. `delays`: the broker's setting; None: not known.
        """
        ground = send_target.ground
        if send_target.undelayed:
            names = ", ".join(send_target.undelayed)
            return cls(
                f"{ground}: readers of {names} would get it at once: Pulsar keeps delayed messages back from shared and"
                " key_shared subscriptions only, not from exclusive and failover ones"
            )
        if delays is not None and not delays.on:
            return cls(f"{ground}: the broker delivers delayed messages at once: its `delayedDelivery` is off")
        limits = [(send_target.ttl, f"after which messages of {ground} expire (`ttl`)")]
        if delays is not None:
            limits.append((delays.longest, "the most that the broker keeps messages back (`maxDeliveryDelayInMillis`)"))
        return cls("", *min(((longest, whose) for longest, whose in limits if longest), default=(0, "")))

    def check(self, delay: int) -> None:
        """Raises UsageError (K732) if a message may not be delayed by `delay` ms, which are more than 0."""
        why = self.refusal
        if not why and self.longest and delay > self.longest:
            why = f"a delay of {Duration(delay)} is beyond {Duration(self.longest)}, {self.whose}"
        if why:
            raise UsageError(error("K732", "message cannot be delayed", why))


class NewMessage(NamedTuple):
    """A message that its topic takes, not sent yet; only its size is not checked yet. `id`: its identity (`kodo-id`),
    "" if the database of an outbox makes one; `event_time`: ms since the epoch, 0: none; `deliver_at`: ms since the
    epoch, None: at once.
    """

    id: str
    payload: bytes | None
    properties: dict[str, str]
    key: str = ""
    ordering_key: str = ""
    event_time: int = 0
    deliver_at: int | None = None

    @property
    def partition_key(self) -> str:
        """Key that chooses the partition: `key`, or `ordering_key` if there is no `key`; "": the message may go to any
        partition.
        """
        return self.key or self.ordering_key

    def outgoing(self, topic: str, partition: str, number: Number | None, signer: Signer | None) -> Outgoing:
        """Returns the message to publish to `partition`, the full name of a partition of the topic (or of the topic
        itself), with its identity and its sequence number (None: it has none), signed for `topic` by `signer` (None:
        not signed). `properties` of this object stay as they are.
        """
        properties = {**self.properties, ID: self.id}
        if number is not None:
            properties[SEQ] = str(number)
        if signer is not None:
            properties = signer.signed(topic, self.payload, properties)
        return Outgoing(
            partition, self.payload, properties, self.key, self.ordering_key, self.event_time, self.deliver_at
        )


class CheckedMessage:
    """A message whose payload, properties and options the topology (if the sender knows one) allows; its size is not
    checked yet. Hooks get it before it is published (Producer) or becomes a row (Outbox). `id`: its identity
    (`kodo-id`), "" for a row of an outbox whose database makes one; `topic`: the full name of the topic to which a
    Producer publishes it, the name in the row from an Outbox; `properties`: a view; change it by `add_properties`.
    """

    __slots__ = ("_form", "_message", "id", "topic")

    def __init__(self, message: NewMessage, topic: str, form: MessageValidator) -> None:
        self.id, self.topic, self._message, self._form = message.id, topic, message, form

    def __repr__(self) -> str:
        return f"CheckedMessage({self.id!r}, {self.topic!r})"

    @property
    def key(self) -> str:
        """Key of the message; "": it has none."""
        return self._message.key

    @property
    def payload(self) -> bytes | None:
        """Bytes to be sent; None: a tombstone."""
        return self._message.payload

    @property
    def properties(self) -> Mapping[str, str]:
        """Properties of the message, as texts, without those of the platform."""
        return MappingProxyType(self._message.properties)

    def add_properties(self, properties: Mapping[str, PropertyValue]) -> None:
        """Adds properties, in place of those that the message has by these names; to be called before the message is
        published or becomes a row. Raises UsageError, and adds none, if `properties` is no mapping, and for names and
        values that the topology does not allow.
        """
        self._message.properties.update(self._form.check_added(properties))


def _due(delay: Any, deliver_at: Any, now: int, found: list[str]) -> int | None:
    """Time (ms since the epoch) at which readers get a message; None: at once. Adds problems to `found`."""
    if delay is not None and deliver_at is not None:
        found.append("delay and deliver_at say both when the message comes: give one of them")
        return None
    due = as_time("deliver_at", deliver_at, found) if delay is None else now + as_delay(delay, found)
    return due if due > now else None


class MessageValidator:
    """Rules for messages to one topic: its payload schema, its properties, its size limit and its rule for delays."""

    def __init__(
        self,
        check: Check | None = None,
        properties: Mapping[str, str] | None = None,
        largest: int = 0,
        delays: DelayRule = DelayRule(),  # noqa: B008  # it cannot be changed
        *,
        compression: str = "",
        ordered: bool = False,
    ) -> None:
        """`check`: for payloads, None: any payload fits. `properties`: "required" or "optional" by name, empty: any may
        be sent. `largest`: bytes a message may have, 0: the topic has no limit of its own. `delays`: rule for delays.
        `compression`: algorithm of the topic, "": none. `ordered`: a reader of the topic keeps order within a key.
        """
        self._compression, self._is_free = compression, bool(compression) and not ordered
        self._check, self._declared, self._largest, self._delays = check, properties or {}, largest, delays

    def accept(  # noqa: PLR0913
        self,
        payload: Any,
        wall: Callable[[], int],
        *,
        key: str | None = None,
        ordering_key: str | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
        event_time: int | datetime = 0,
        delay: str | float | timedelta | None = None,
        deliver_at: int | datetime | None = None,
        id: str | None = None,  # noqa: A002  # the word of the message property
    ) -> NewMessage:
        """Returns the message that a sender gave, as NewMessage, with a new `id` if it has none: the one rule of
        `Producer`, of sources and of the test harness. `wall`: returns the time, in ms since the epoch; the other
        arguments: see SendOptions. Raises UsageError for options of a wrong type or value, and for anything that the
        topology does not allow, except for the size, which depends on the sequence number (see `too_large`).
        """
        found = [
            f"{name} is {why}"
            for name, value in (("key", key), ("ordering_key", ordering_key), ("id", id))
            if value is not None and (why := why_no_text(value))
        ]
        happened, due, now = as_time("event_time", event_time, found), None, 0
        if delay is not None or deliver_at is not None:
            now = wall()
            due = _due(delay, deliver_at, now, found)
        if found:
            raise _argument_error(found)
        data, texts = self.encode(payload), self.check_properties(properties)
        if due is not None:
            self._delays.check(due - now)  # the same `now`, or a delay of 2m would be checked as a shorter one
        return NewMessage(id or uuid.uuid4().hex, data, texts, key or "", ordering_key or "", happened, due)

    def for_encoded(self) -> MessageValidator:
        """The same rules, except that payloads, which `encode` must have returned before, are not checked again."""
        return MessageValidator(
            None,
            self._declared,
            self._largest,
            self._delays,
            compression=self._compression,
            ordered=not self._is_free,
        )

    def encode(self, payload: Any) -> bytes | None:
        """Returns the payload as bytes; None, a tombstone, stays None. Bytes stay as they are, and are checked if the
        topic has a schema. Any other value is encoded, as Avro on a topic with an Avro schema, else as compact JSON (a
        text with its quotes; see kodo_consumer.core.payloads.plain_values), and checked. Raises UsageError if the
        schema forbids the payload, or if a value that is to be JSON is not, such as NaN, a set or a bytearray.
        """
        try:
            if isinstance(self._check, Payloads) and self._check.kind == "avro":
                return None if payload is None else self._check.encode(record_of(payload))
            if payload is None or isinstance(payload, bytes):
                data = payload
            else:
                data = json.dumps(payload, separators=(",", ":"), ensure_ascii=False, default=json_default).encode()
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
        one UsageError about required properties that are missing, names that are reserved, that are not declared if the
        topic declares any (those of traces are free) or that are no texts, and values that cannot become texts; if
        `properties` is no mapping, about that alone.
        """
        texts, wrong = property_texts({} if properties is None else properties)
        if not isinstance(properties, Mapping | None):
            raise UsageError(_refusal(wrong[0]))
        if found := [*self._misfits(texts, self.missing(properties or {})), *wrong]:
            raise UsageError(*map(_refusal, found))
        return texts

    def check_added(self, properties: Mapping[str, Any]) -> Mapping[str, str]:
        """Checks properties that are added to a message with checked ones, and returns them as texts. Raises UsageError
        as `check_properties` does, except about missing ones; None is refused.
        """
        if isinstance(properties, dict):
            for name, value in properties.items():
                if name not in TRACE_NAMES or type(value) is not str or not value.isascii():
                    break
            else:
                return properties  # those of traces, of each message: the rest would cost more than all of it
        texts, wrong = property_texts(properties)
        if found := [*self._misfits(texts, ()), *wrong]:
            raise UsageError(*map(_refusal, found))
        return texts

    def _misfits(self, names: Collection[str], missing: Sequence[str]) -> Iterator[str]:
        """Details of a refusal for the names of properties, and for required ones that are `missing`."""
        reserved = [name for name in names if name.startswith(PREFIX)]
        known = {*self._declared, *reserved, *TRACE_NAMES}
        undeclared = [name for name in names if self._declared and name not in known]
        declared = f"; declared: {_list_names(self._declared)}"
        groups = (
            (missing, "missing", "; the topology requires it: send it in `properties={…}`, or by --property"),
            (undeclared, "not declared", declared),
            (reserved, "reserved", f"; names that begin with {PREFIX} are the platform's"),
        )
        return (f"{what}: {_list_names(found)}{advice}" for found, what, advice in groups if found)

    def too_large(self, message: Outgoing) -> UsageError | None:
        """Returns the UsageError to raise for a message that is too large for the topic in every way in which it may be
        sent (see kodoctl.protocol.compression.algorithm_within); None: it may be sent, or no limit of the topic is
        known here, and only the broker knows its maximum.
        """
        if not self._largest:
            return None
        size, largest = wire_size(message), self._largest
        if algorithm_within(self._compression, message.payload, size, largest, is_free=self._is_free) is not None:
            return None
        detail = f"{whole_topic(message.topic)}: {size} bytes with its properties; the topic takes {largest}"
        if size <= largest:
            detail += f"; {self._compression} may make it larger, and sent uncompressed it would overtake earlier ones"
        return UsageError(error("K729", "message too large", detail))
