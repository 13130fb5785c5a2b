"""Wire format of the pipe between a worker and its processes: bytes of plain values, never pickled objects.

Both ends are the same interpreter and the same version of this package, so `marshal` can be used: it is fast, and reads
data only. Data of users are bytes and text inside, and are never interpreted.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Callable, Iterator
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.core.values.envelope import FRESH, Delivery, Headers, Level, State
from kodo_consumer.core.values.outcomes import (
    DeadLettered,
    DependencyUnavailable,
    Discarded,
    ErrorDetails,
    Failed,
    MoveAsked,
    Outcome,
    PostponeAsked,
    Repeated,
    RetryAsked,
    StateAsked,
    TransferAsked,
)
from kodo_consumer.message import Check, Message, parts_of

if TYPE_CHECKING:
    from kodo_consumer.core.values.policy import Lane

_LENGTH: Final = struct.Struct(">I")
_HEADERS: Final = attrgetter(*(one.name for one in fields(Headers)))
_KINDS: Final[dict[str, Callable[..., Outcome]]] = {
    "failed": lambda reason, error: Failed(reason, _error(error)),
    "retry": lambda after, reason, code, error: RetryAsked(after, reason, code, _error(error)),
    "state": lambda state, reason, error: StateAsked(State(state), reason, _error(error)),
    "died": lambda reason, error: DeadLettered(reason, _error(error)),
    "discarded": Discarded,
    "move": lambda level: MoveAsked(Level(level)),
    "postpone": PostponeAsked,
    "transfer": TransferAsked,
    "down": DependencyUnavailable,
    "repeated": Repeated,
}


def _pack_error(error: ErrorDetails | None) -> tuple[str, ...] | None:
    return None if error is None else tuple(error)


def _error(values: tuple[str, str] | None) -> ErrorDetails | None:
    return None if values is None else ErrorDetails(*values)


def pack_frame(value: Any) -> bytes:
    """Bytes of a plain value, after their length (4 bytes). Raises ValueError for values that marshal does not write,
    such as members of a StrEnum.
    """
    data = marshal.dumps(value)
    return _LENGTH.pack(len(data)) + data


def read_frame(read: Callable[[int], bytes]) -> Any | None:
    """The next value of a blocking stream; None at the end of the stream, also within a value. `read` returns as many
    bytes as it is called for, fewer only at the end.
    """
    head = read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    data = read(size)
    return marshal.loads(data) if len(data) == size else None  # noqa: S302  # written by the other end


class Frames:
    """Decoder of frames that arrive in pieces."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yields every value that is complete with these bytes; keeps the rest for the next call. Iterate to the end:
        values may come again otherwise.
        """
        pending = self._pending
        pending += data
        begin = 0
        while len(pending) - begin >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(pending, begin)
            end = begin + _LENGTH.size + size
            if end > len(pending):
                break
            yield marshal.loads(memoryview(pending)[begin + _LENGTH.size : end])  # noqa: S302
            begin = end
        del pending[:begin]


def pack_message(message: Message) -> tuple[Any, ...]:
    """A message as plain values, with all that a handler can read of it. Its position is left empty if its headers name
    the place where it was first stored.
    """
    delivery, lane, headers = parts_of(message)
    position = "" if headers.origin_id else delivery.position
    return (
        lane.index,
        delivery.payload,
        dict(delivery.properties),
        delivery.key,
        delivery.ordering_key,
        delivery.event_time,
        delivery.publish_time,
        position,
        message.tenant,
        None if headers is FRESH else _HEADERS(headers),
        delivery.schema,
    )


def unpack_message(values: tuple[Any, ...], lanes: tuple[Lane, ...], check: Check | None) -> Message:
    """The message from values of `pack_message`, for a handler; it is not in flight here, and cannot be deferred."""
    index, payload, properties, key, ordering_key, event_time, publish_time, position, tenant, headers, schema = values
    times = event_time, publish_time
    delivery = Delivery(position, position, payload, properties, key, ordering_key, *times, schema=schema)
    return Message(delivery, lanes[index], FRESH if headers is None else Headers(*headers), tenant, check)


def pack_outcome(outcome: Outcome) -> tuple[Any, ...]:
    """Outcome of a handler as a tuple. Values of a user's own types stay as they are: `pack_frame` may refuse them.
    Raises AssertionError for Done, which is not sent, and for outcomes that handlers cannot have.
    """
    match outcome:
        case Failed(reason, error):
            return "failed", reason, _pack_error(error)
        case RetryAsked(after, reason, code, error):
            return "retry", after, reason, code, _pack_error(error)
        case StateAsked(state, reason, error):
            return "state", state.value, reason, _pack_error(error)
        case DeadLettered(reason, error):
            return "died", reason, _pack_error(error)
        case Discarded(reason):
            return "discarded", reason
        case MoveAsked(level):
            return "move", level.value
        case PostponeAsked(after, until, reason):
            return "postpone", after, until, reason
        case TransferAsked(topic, payload, changes, key):
            return "transfer", topic, payload, dict(changes), key
        case DependencyUnavailable(dependency):
            return "down", dependency
        case Repeated():
            return ("repeated",)
        case _:
            raise AssertionError(outcome)


def unpack_outcome(values: tuple[Any, ...]) -> Outcome:
    """The outcome from values of `pack_outcome`."""
    return _KINDS[values[0]](*values[1:])
