"""Envelope of a message: the copy that an adapter hands over, and the headers in and out.

Level and state are never read from here: they are those of the topic a message was received from.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodoctl.protocol import properties as names
from kodoctl.protocol.properties import ID, PREFIX
from kodoctl.protocol.wire_size import on_the_way
from kodoctl.topology.names import Level, State
from kodoctl.topology.units import Duration, UnitError

if TYPE_CHECKING:
    from kodoctl.protocol.signing import Signer

__all__ = [
    "FRESH", "HEADER_NAMES", "ID", "PREFIX", "BrokenHeadersError", "Delivery", "Duration", "Envelope", "Headers", "Level",
    "Outgoing", "State", "UnitError", "effect_key", "meant_for", "message_identity", "position", "read_headers",
    "reroute_message", "sign_message", "transfer_message",
]  # fmt: skip

MAX_REASON: Final = 200  # characters of a reason: for people, on every hop
MAX_TEXT: Final = 1_024  # characters of any text that a worker would have written
_MAX_COUNT: Final = 1_000_000
_MAX_TIME: Final = 10**15  # ms since the epoch, far beyond any sane clock


class Delivery(NamedTuple):
    """A message copied out of the client (a kept client object would pin its whole batch).

    `entry` names the unit that the broker stores, mostly a batch, and `batch_index` the place in it, -1 for a message
    alone: together they are equal for two deliveries of the same stored message, unless a person had it handled again
    from an inbox in between. If `entry` is a tuple, it is (ledger, entry, partition). The adapter acknowledges by
    `token`, whose text has the position. Times are ms since the epoch, 0 = none. `payload` None: a tombstone. An empty
    `key` or `ordering_key`: none. `schema`: version of the payload's schema, such as `L1:3`, if the lane was opened
    with `LaneRequest.schemas`; "" = none.

    `broken`: why it must not be handled, else empty. It is encrypted, or a part of it, such as its key, could not be
    read; its headers are corrupt or unsigned on a topic of a state, where only workers write (the engine notes this at
    its receipt); or a person discards it (`discarded` of its token). In a process of handlers `entry` and `token` are
    texts, and `batch_index` and `broken` are not set.
    """

    entry: Hashable
    token: Any  # not `object`: a compiled NamedTuple cannot have that
    payload: bytes | None
    properties: Mapping[str, str]
    key: str
    ordering_key: str
    event_time: int
    publish_time: int
    batch_index: int = -1
    broken: str = ""
    schema: str = ""

    @property
    def position(self) -> str:
        """Position as `ledger:entry:partition:batch index`; "" in a process of handlers, if the headers of the message
        name the place where it was first stored.
        """
        if isinstance(self.entry, tuple):  # far cheaper than asking the client's object
            ledger, entry, partition = self.entry
            return f"{ledger}:{entry}:{partition}:{self.batch_index}"
        return position(self.token)

    @property
    def partition(self) -> str:
        """Number of the partition the message came from, as a text, "-1" for a topic without partitions; empty if
        `position` is.
        """
        parts = self.position.split(":")
        return parts[2] if len(parts) > 2 else ""


def position(token: object) -> str:
    """Position as `ledger:entry:partition:batch index` of a message with this token, of a delivery or a receipt."""
    return str(token).strip("()").replace(",", ":")


@dataclass(slots=True)
class Headers:
    """Headers as values. Moves never reset attempts; `due` (None: at once) and `reserved` are ms since the epoch.
    Instances are shared: only the code that has just made a copy may write to it, as every move does.

    `retrying`, `pending`, `blocking`, `backup`: attempts so far for these states (on a lane that keeps an order, for
    RETRYING without a move there) and on backup levels. `hop`: moves by workers, without some by which the message only
    goes on waiting; at least 1 after `kodoctl waiting` sent it. `routes`: moves by routes, exclusive levels or a move
    of its tenant. `postponed`: number of postponements, also in memory. `meant_for`: the only subscription that handles
    the message, None: each that reads its topic does. `died_in`: level on which a dead letter was before. `origin_…`:
    where and when the message was first stored, once it was moved. `recall`: recall id with which a recall sent the
    dead letter back; `again`: it is handled even if it was done before that recall. `quota_taken`: quotas have counted
    it.
    """

    retrying: int = 0
    pending: int = 0
    blocking: int = 0
    backup: int = 0
    due: int | None = None
    reserved: int | None = None  # the moment a limiter set aside: only a refusal after it counts
    hop: int = 0
    meant_for: str | None = None
    reason: str | None = None
    died_in: str | None = None
    origin_id: str | None = None
    origin_topic: str | None = None
    origin_time: int | None = None
    recall: str | None = None
    quota_taken: bool = False
    again: bool = False
    error: str | None = None  # text and stack of the error that the last failed run ended with
    error_stack: str | None = None
    routes: int = 0
    postponed: int = 0

    def attempts(self, state: State) -> int:
        """Attempts of a waiting state so far. Any other state is a defect (AssertionError)."""
        match state:
            case State.RETRYING:
                return self.retrying
            case State.PENDING:
                return self.pending
            case State.BLOCKING:
                return self.blocking
            case _:
                raise AssertionError(state)

    def copy(self) -> Headers:
        """An equal instance, which the caller may change."""
        new = Headers.__new__(Headers)
        new.retrying, new.pending, new.blocking = self.retrying, self.pending, self.blocking
        new.backup, new.hop = self.backup, self.hop
        new.routes, new.postponed = self.routes, self.postponed
        new.due, new.reserved = self.due, self.reserved
        new.meant_for, new.recall, new.reason = self.meant_for, self.recall, self.reason
        new.origin_id, new.origin_topic, new.origin_time = self.origin_id, self.origin_topic, self.origin_time
        new.died_in, new.quota_taken, new.again = self.died_in, self.quota_taken, self.again
        new.error, new.error_stack = self.error, self.error_stack
        return new

    def replace(self, **changes: Any) -> Headers:
        """A copy with these fields changed."""
        new = self.copy()
        for name, value in changes.items():
            setattr(new, name, value)
        return new

    def with_attempt(self, state: State, by: int = 1) -> Headers:
        """A copy with `by` more attempts of a waiting state. Any other state is a defect (AssertionError)."""
        new = self.copy()
        match state:
            case State.RETRYING:
                new.retrying += by
            case State.PENDING:
                new.pending += by
            case State.BLOCKING:
                new.blocking += by
            case _:
                raise AssertionError(state)
        return new

    @property
    def first_receipt(self) -> bool:
        """True if the headers have neither a move (`hop`) nor a recall id: workers evaluate routes at dispatch only for
        such a message.
        """
        return self.hop == 0 and self.recall is None

    @property
    def unmoved_part(self) -> Headers:
        """Headers that may be believed on a ready topic: all if they say (`hop`) that the message was moved; else all
        but the due time, the moment that a limit set aside, text and stack of an error, the counts of routes,
        postponements and backup attempts, and the note that quotas have counted the message. Attempts of waiting states
        and the reason, for example, stay. Returns this instance if there is nothing to leave out.
        """
        moved = self.due is not None or self.reserved is not None or self.quota_taken or self.routes or self.backup
        moved = moved or self.postponed
        if self.hop or not (moved or self.error or self.error_stack):
            return self
        new = self.copy()
        new.due = new.reserved = new.error = new.error_stack = None
        new.quota_taken, new.routes, new.backup, new.postponed = False, 0, 0, 0
        return new

    def write_to(self, properties: dict[str, str]) -> None:
        """Writes the headers into `properties`. Unset headers add nothing and remove nothing; a reason is cut to 200
        characters.
        """
        if self.retrying:
            properties[names.ATTEMPTS_RETRYING] = str(self.retrying)
        if self.pending:
            properties[names.ATTEMPTS_PENDING] = str(self.pending)
        if self.blocking:
            properties[names.ATTEMPTS_BLOCKING] = str(self.blocking)
        if self.backup:
            properties[names.ATTEMPTS_BACKUP] = str(self.backup)
        if self.due is not None:
            properties[names.DUE] = str(self.due)
        if self.reserved is not None:
            properties[names.RESERVED] = str(self.reserved)
        if self.hop:
            properties[names.HOP] = str(self.hop)
        if self.meant_for is not None:
            properties[names.FOR] = self.meant_for
        if self.reason is not None:
            properties[names.REASON] = self.reason[:MAX_REASON]
        if self.died_in is not None:
            properties[names.FROM_LEVEL] = self.died_in
        if self.origin_id is not None:
            properties[names.ORIGIN_ID] = self.origin_id
        if self.origin_topic is not None:
            properties[names.ORIGIN_TOPIC] = self.origin_topic
        if self.origin_time is not None:
            properties[names.ORIGIN_TIME] = str(self.origin_time)
        if self.recall is not None:
            properties[names.RECALL] = self.recall
        if self.quota_taken:
            properties[names.QUOTA] = "1"
        if self.again:
            properties[names.AGAIN] = "1"
        if self.error is not None:
            properties[names.ERROR] = self.error
        if self.error_stack is not None:
            properties[names.ERROR_STACK] = self.error_stack
        if self.routes:
            properties[names.ROUTES] = str(self.routes)
        if self.postponed:
            properties[names.POSTPONED] = str(self.postponed)


FRESH: Final = Headers()
HEADER_NAMES: Final = frozenset((
    names.ATTEMPTS_RETRYING, names.ATTEMPTS_PENDING, names.ATTEMPTS_BLOCKING, names.ATTEMPTS_BACKUP,
    names.DUE, names.RESERVED, names.HOP, names.FOR, names.REASON, names.FROM_LEVEL,
    names.ORIGIN_ID, names.ORIGIN_TOPIC, names.ORIGIN_TIME, names.RECALL, names.QUOTA,
    names.AGAIN, names.ERROR, names.ERROR_STACK, names.ROUTES, names.POSTPONED,
))  # fmt: skip
"""Names of the properties that hold a message's Headers. A move replaces these, and the signature; all others of the
platform, such as identity and sequence number, it leaves as they are, but for the schema version.
"""
_ERRORS: Final = frozenset({names.ERROR, names.ERROR_STACK})
_REPLACED: Final = HEADER_NAMES | {names.SIGNATURE}  # a signature does not outlive what it was made for


class BrokenHeadersError(ValueError):
    """Error of a header whose value cannot be read. Its text is the name of the header, never the value."""


def read_headers(properties: Mapping[str, str]) -> Headers:
    """Reads the headers of a message from its properties; FRESH, which is shared, if the message has none. Raises
    BrokenHeadersError for a count or a time that is no whole number in digits or is too large, and for a text of more
    than 1,024 characters (of error and stack: 2,048). Other values are not checked.
    """
    if HEADER_NAMES.isdisjoint(properties):
        return FRESH
    return Headers(
        retrying=_number(properties, names.ATTEMPTS_RETRYING, _MAX_COUNT) or 0,
        pending=_number(properties, names.ATTEMPTS_PENDING, _MAX_COUNT) or 0,
        blocking=_number(properties, names.ATTEMPTS_BLOCKING, _MAX_COUNT) or 0,
        backup=_number(properties, names.ATTEMPTS_BACKUP, _MAX_COUNT) or 0,
        due=_number(properties, names.DUE, _MAX_TIME),
        reserved=_number(properties, names.RESERVED, _MAX_TIME),
        hop=_number(properties, names.HOP, _MAX_COUNT) or 0,
        meant_for=meant_for(properties),
        reason=_text(properties, names.REASON),
        died_in=_text(properties, names.FROM_LEVEL),
        origin_id=_text(properties, names.ORIGIN_ID),
        origin_topic=_text(properties, names.ORIGIN_TOPIC),
        origin_time=_number(properties, names.ORIGIN_TIME, _MAX_TIME),
        recall=_text(properties, names.RECALL),
        quota_taken=names.QUOTA in properties,
        again=names.AGAIN in properties,
        error=_text(properties, names.ERROR, names.MAX_ERROR),
        error_stack=_text(properties, names.ERROR_STACK, names.MAX_ERROR),
        routes=_number(properties, names.ROUTES, _MAX_COUNT) or 0,
        postponed=_number(properties, names.POSTPONED, _MAX_COUNT) or 0,
    )


def meant_for(properties: Mapping[str, str]) -> str | None:
    """The one subscription a message is meant for, a name that none has if it is a mark of a producer; None: all. Works
    also if other headers are broken.
    """
    return properties.get(names.FOR)


def _text(properties: Mapping[str, str], name: str, most: int = MAX_TEXT) -> str | None:
    text = properties.get(name)
    if text is not None and len(text) > most:
        raise BrokenHeadersError(name)
    return text or None  # no worker writes an empty one


def _number(properties: Mapping[str, str], name: str, most: int) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) <= most):
        raise BrokenHeadersError(name)
    return int(text)


@dataclass(slots=True, init=False)
class Envelope:
    """Input of a decision: the lane where the message was received, its headers, and its waits in memory.

    `local_retries`: in-place waits so far; `undeliverable_retries`: waits with nowhere to go (Rule.STUCK) so far;
    `unavailable`: waits for a dependency so far. `may_wait`: memory has room for an in-place wait; it does not count on
    a lane that keeps order within a key (`ordered`), unless `Policy.on_failure` is "leave".
    """

    level: Level
    state: State
    headers: Headers
    local_retries: int
    undeliverable_retries: int
    unavailable: int
    may_wait: bool
    ordered: bool

    def __init__(  # noqa: PLR0913, PLR0917  # by position, as every decision takes one; written out, so that it is compiled
        self, level: Level, state: State, headers: Headers = FRESH, local_retries: int = 0,
        undeliverable_retries: int = 0, unavailable: int = 0, may_wait: bool = True, ordered: bool = False,  # noqa: FBT001, FBT002
    ) -> None:  # fmt: skip
        self.level, self.state, self.headers = level, state, headers
        self.local_retries, self.undeliverable_retries = local_retries, undeliverable_retries
        self.unavailable, self.may_wait, self.ordered = unavailable, may_wait, ordered

    def with_headers(self, headers: Headers) -> Envelope:
        """Copy of the envelope with other headers."""
        return Envelope(
            self.level, self.state, headers, self.local_retries, self.undeliverable_retries, self.unavailable,
            self.may_wait, self.ordered,
        )  # fmt: skip


class Outgoing(NamedTuple):
    """A message to publish. `payload` None: a tombstone. `deliver_at`: ms since the epoch, until which the broker is to
    keep it, None = at once; `event_time`: ms since the epoch, 0 = none. An empty `key` or `ordering_key`: none.
    `schema`: version of the payload's schema, such as `L1:3`; "" = none.
    """

    topic: str
    payload: bytes | None
    properties: Mapping[str, str]
    key: str = ""
    ordering_key: str = ""
    event_time: int = 0
    deliver_at: int | None = None
    schema: str = ""


def reroute_message(
    delivery: Delivery, headers: Headers, received_from: str, to: str, due: int | None, *, lane_waits: bool = False
) -> Outgoing:
    """Makes the message to publish to the topic `to`: with the new `headers`, without the old ones and the old
    signature, and with the version of its schema as a property, if it has one. Payload, keys, event time and all other
    properties are unchanged. It is not signed yet.

    If `headers` have no origin, they get one: the position and publish time of `delivery`, and the topic
    `received_from`. `due` (ms since the epoch) replaces the due time of `headers`; the broker is to keep the message
    until then or, with `lane_waits`, the worker that reads the target waits. None: the broker delivers it at once, and
    a due time in `headers` stays.
    """
    properties = {name: value for name, value in delivery.properties.items() if name not in _REPLACED}
    headers.write_to(properties)
    if due is not None:
        properties[names.DUE] = str(due)
    if headers.origin_id is None:
        properties[names.ORIGIN_ID] = delivery.position
        properties[names.ORIGIN_TOPIC] = received_from
        properties[names.ORIGIN_TIME] = str(delivery.publish_time)
    if delivery.schema:
        properties[names.SCHEMA] = delivery.schema
    return Outgoing(  # by position, as every move makes one
        to,
        delivery.payload,
        properties,
        delivery.key,
        delivery.ordering_key,
        delivery.event_time,
        None if lane_waits else due,
        delivery.schema,
    )


def transfer_message(  # what it is made of
    delivery: Delivery,
    headers: Headers,
    subscription: str,
    to: str,
    payload: bytes | None,
    changes: Mapping[str, str],
    key: str | None,
) -> Outgoing:
    """Makes a new message for the topic `to`: with the event time and the user's properties of the old one, changed by
    `changes`, and of the platform's own properties only the position where the old message was first stored, and a new
    identity. That depends only on the old identity, `subscription` (named in full) and `to`, because a transfer is
    repeated after a crash between receipt and acknowledgement. `payload`: the one to send; None: a tombstone. `key`
    None: both keys stay; else it is the only key, "" for none. The caller has checked that `changes` name none of the
    platform's properties. The message has no schema version, and is not signed yet.
    """
    before, stored_at = delivery.properties, delivery.position
    identity = names.identity(before.get(names.ID), headers.origin_id, stored_at)
    source = f"{identity}\0{subscription}\0{to}".encode(errors="surrogatepass")
    properties = {name: value for name, value in before.items() if not name.startswith(names.PREFIX)}
    properties.update(changes)
    properties[names.PARENT] = headers.origin_id or stored_at
    properties[names.ID] = "t-" + sha256(source).hexdigest()[:32]
    if key is None:
        return Outgoing(to, payload, properties, delivery.key, delivery.ordering_key, delivery.event_time)
    return Outgoing(to, payload, properties, key, "", delivery.event_time)


def message_identity(delivery: Delivery, headers: Headers) -> str:
    """Identity of the message over all its hops: its id (property `kodo-id`), else the position where it was first
    stored. An id of more than 1,024 characters does not count.
    """
    return names.identity(delivery.properties.get(names.ID), headers.origin_id, delivery.position)


def effect_key(delivery: Delivery, headers: Headers) -> str:
    """Idempotency key, by which stores remember that a message is done: its identity; of a dead letter that a recall
    with `--again` sent back, the identity with the recall id, so that it is done once more.
    """
    named = message_identity(delivery, headers)
    return f"{named} again:{headers.recall}" if headers.again and headers.recall else named


def without_error(message: Outgoing) -> Outgoing | None:
    """The message without text and stack of its error; None if it has neither. An old signature is not valid for the
    result, which has to be signed anew.
    """
    if _ERRORS.isdisjoint(message.properties):
        return None
    return message._replace(properties={name: text for name, text in message.properties.items() if name not in _ERRORS})


def sign_message(message: Outgoing, signer: Signer) -> Outgoing:
    """A copy of the message with a signature over its topic, its payload and its `kodo-` properties."""
    return message._replace(properties=signer.signed(message.topic, message.payload, message.properties))


def wire_size(message: Outgoing) -> int:
    """Upper bound of the bytes that the broker counts for the message, without the name of its producer: see
    kodoctl.protocol.wire_size.
    """
    return on_the_way(message.payload, message.properties, message.key, message.ordering_key)
