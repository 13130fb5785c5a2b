# pure: every branch is tested
"""Message as a handler gets it, with its lane and its history. Read-only; a handler must not keep it after its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Protocol, overload

from kodo_consumer.core.values.deferral import Deferral, Timeout, ended_error, new_deferral
from kodo_consumer.core.values.envelope import PREFIX, Delivery, Headers, Level, State, effect_key, message_identity
from kodo_consumer.core.values.exceptions import InvalidPayloadError, Postpone
from kodoctl.protocol.json_payload import JsonPayloadError, read_json

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session
    from typing_extensions import TypeVar

    from kodo_consumer.core.values.policy import Lane
    from kodo_consumer.dedup import AsyncWork

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


def json_value(data: bytes) -> Any:
    """Returns the value of a JSON payload. Raises InvalidPayloadError if the payload is not JSON, has NaN, Infinity, a
    key twice or a number beyond a double, or is nested more than 200 levels deep.
    """
    try:
        return read_json(data)
    except JsonPayloadError as problem:
        rule = str(problem)
        raise InvalidPayloadError(f"payload is not JSON: {rule}" if rule else "payload is not JSON") from None


class Check(Protocol):
    """Reader of payloads that validates them by their declaration: kodo_consumer.core.payloads.codec.

    All methods raise InvalidPayloadError for a payload that does not fit; `json` and `value` also raise Unavailable if
    the schema version of an Avro message cannot be read now. `schema`: schema version of the message, such as `L1:3`;
    "" if it has none: the declared schema applies.
    """

    def __call__(self, value: Any) -> None:
        """Validates a JSON value by the declared JSON schema; does nothing if there is none."""

    def json(self, data: bytes, schema: str = "") -> Any:
        """Returns the payload, validated by the declared schema if there is one, as a value of JSON, or as the record
        of an Avro topic.
        """

    def value(self, data: bytes, schema: str = "") -> Any:
        """Returns the payload as an object of the type in the handler's annotation; without an annotation, or if it is
        bytes or str, as `json` if a schema is declared, else as bytes (as text for str).
        """


class Message(Generic[T]):
    """One message as a handler gets it. Times are ms since the epoch, 0 = none. `tenant`: the value of the property
    that `fair_by` names, or the key for `fair_by: key`; "(none)" if it is missing or empty, or without `fair_by`.
    `deferral`: token of a deferred message; None for others.

    With the annotation `Message[Order]` of a handler, `value` is an `Order`: a pydantic model, a dataclass, a
    TypedDict, or another type that pydantic can validate.
    """

    __slots__ = ("_check", "_delivery", "_headers", "_in_flight", "_lane", "_runs", "_value", "deferral", "tenant")

    def __init__(
        self,
        delivery: Delivery,
        lane: Lane,
        headers: Headers,
        tenant: str,
        check: Check | None = None,
        in_flight: object = None,
        runs: Mapping[Message, float] | None = None,
    ) -> None:
        self._delivery, self._lane, self._headers = delivery, lane, headers
        self._check, self._in_flight = check, in_flight
        self._runs = runs  # those of the worker, where messages may be deferred
        self.deferral: Deferral | None = None
        self._value: T  # once it was asked for
        self.tenant = tenant

    def __repr__(self) -> str:
        return f"Message({self.id} on {self._lane.name}, tenant {self.tenant})"

    @property
    def data(self) -> bytes:
        """The payload; empty for a tombstone."""
        return self._delivery.payload or b""

    @property
    def is_tombstone(self) -> bool:
        """True if the message has no payload at all, which means that its key is gone; False for an empty payload."""
        return self._delivery.payload is None

    def text(self) -> str:
        """The payload as UTF-8 text, "" for a tombstone. Raises InvalidPayloadError if it is not UTF-8: unless the
        handler catches it, it counts as Dead.
        """
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            raise InvalidPayloadError("payload is not UTF-8 text") from None

    def json(self) -> Any:
        """The payload as a value: of JSON, validated by the declared schema if there is one, or the record of an Avro
        topic. Each call decodes it anew.

        Raises InvalidPayloadError if it cannot be read so, as with a tombstone: unless the handler catches it, it
        counts as Dead. Raises Unavailable if the schema version of an Avro message cannot be read now.
        """
        if self._check is not None:
            return self._check.json(self.data, self._delivery.schema)
        return json_value(self.data)

    @property
    def value(self) -> T:
        """The payload as an object of the annotated type, an `Order` for `Message[Order]`. Without an annotation, and
        for `Message[bytes]` and `Message[str]`: as `json` if the topology declares a schema; else bytes, or text for
        `Message[str]`, empty for a tombstone. Decoded once: later accesses give the same object.

        Raises InvalidPayloadError if the payload cannot be read so, as with a tombstone unless bytes or text are asked
        for: unless the handler catches it, it counts as Dead. Raises Unavailable as `json` does.
        """
        try:
            return self._value
        except AttributeError:
            data = self.data
            value: Any = data if self._check is None else self._check.value(data, self._delivery.schema)
            self._value = value
            return self._value

    @property
    def properties(self) -> Mapping[str, str]:
        """Properties of the message, without those of the platform (`kodo-*`)."""
        return {name: value for name, value in self._delivery.properties.items() if not name.startswith(PREFIX)}

    @property
    def key(self) -> str:
        """The message key; "" if the message has no key."""
        return self._delivery.key

    @property
    def ordering_key(self) -> str:
        """Key by which the order of messages is kept, in place of `key`; "" if the message has no such key."""
        return self._delivery.ordering_key

    @property
    def id(self) -> str:
        """Identity of the message, the same on every delivery and in every lane: the sender's id (`kodo-id`), or else
        the position where the message was first stored.
        """
        return message_identity(self._delivery, self._headers)

    @property
    def effect(self) -> str:
        """Idempotency key of this handling for `once` and the store of the worker: `id`; for a letter that `recall plan
        --again` sent back, the recall id as well.
        """
        return effect_key(self._delivery, self._headers)

    @overload
    def once(self, session: Session | Connection) -> Literal[True]: ...
    @overload
    def once(self, session: AsyncSession | AsyncConnection) -> AsyncWork[Literal[True]]: ...
    def once(self, session: Any) -> Any:
        """Records in the handler's own transaction that this message is done: the effects in it and this record are
        committed together, or neither is. Returns True: the handler does the work now. With an async session, returns
        an awaitable.

        Raises Repeat, after a rollback, if the message was done before for this subscription: let it pass, and the
        message is acknowledged. A batch handler that lets it pass is called again with parts of the batch, so that it
        ends this message alone. A dead letter that `recall plan --again` sends back is done once more for that recall.
        Raises Unavailable and UsageError as kodo_consumer.dedup.once does. The tables:
        kodo_consumer.dedup.create_tables.
        """
        from kodo_consumer.dedup import once

        return once(session, self._lane.subscription, self.id, self.effect)

    def postpone(self, until: datetime | timedelta | str, why: str = "") -> NoReturn:
        """Ends the run by raising Postpone: the handler gets the message again at the time `until` (with a time zone),
        or after a timedelta or a text such as "30s", and no attempt counts; see Postpone for its limits, and for the
        errors that wrong arguments raise instead. In a batch handler this postpones the whole batch; return Postpone
        for single messages.
        """
        raise Postpone(until, why)

    @property
    def postponements(self) -> int:
        """Number of times that handlers of this subscription postponed the message; 0: never. A recall may begin it
        anew, and on a lane that keeps an order a redelivery does.
        """
        return self._headers.postponed

    @property
    def subscription(self) -> str:
        """Full name of the subscription that received the message: `kodo/trade/orders:billing`."""
        return self._lane.subscription

    @property
    def topic(self) -> str:
        """Full name of the topic from which the worker received the message, without the number of a partition."""
        return self._lane.topic

    @property
    def level(self) -> Level:
        """Level of the lane from which the worker received the message."""
        return self._lane.level

    @property
    def state(self) -> State:
        """State of the lane from which the worker received the message."""
        return self._lane.state

    @property
    def attempt(self) -> int:
        """Number of this attempt: 1, and one more for each attempt that RETRYING or a backup level has counted, most of
        them failures. Runs before other waits (in place, in PENDING or BLOCKING, postponed) and before moves are not
        counted. A recall begins anew; a redelivery forgets attempts after which the message waited in memory, as it
        does on lanes that keep an order, and for short waits on a backup level.
        """
        return 1 + self._headers.retrying + self._headers.backup

    @property
    def reason(self) -> str | None:
        """Reason with which the message travels: of the last move that gave one, or of the last failure on a backup
        level; None: there is none. Other failures after which it waited in memory leave it as it was.
        """
        return self._headers.reason

    @property
    def publish_time(self) -> int:
        """Time at which the message was first published, in ms since the epoch, whatever lanes it passed since."""
        return self._headers.origin_time or self._delivery.publish_time

    @property
    def event_time(self) -> int:
        """Event time that the producer set, in ms since the epoch; 0 if it set none."""
        return self._delivery.event_time

    def defer(self, timeout: Timeout | None = None) -> Deferral:
        """Leaves this message open when the handler returns, and returns the token that ends it: `done()` or
        `failed(error)`, from any thread or task. If the handler raises or times out, that ends the message instead.
        Further calls return the same token, and ignore `timeout`.

        `timeout`: time from the handler's return after which the attempt counts as failed, as a timedelta or a text
        such as "10m"; None: `defer_timeout` of the settings. Raises UsageError where no token can end a message: in a
        process of its own, in a batch handler, and outside of a running handler; UnitError or TypeError for a `timeout`
        that is no time.
        """
        if self.deferral is None:
            self.deferral = new_deferral(self, self._runs, timeout)
        if self not in (self._runs or ()):  # looked at last: a time-out that comes before closes no token
            self.deferral.close()
            raise ended_error()
        return self.deferral


def parts_of(message: Message) -> tuple[Delivery, Lane, Headers]:
    """Returns (delivery, lane, headers) of a message: for executors that carry it elsewhere, not for handlers."""
    return message._delivery, message._lane, message._headers  # noqa: SLF001
