# adapter: reads messages of the client library
"""Conversion of messages to Arrow batches with the source's columns, from objects of the client library or from buffers
of the native border.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodo_pipeline.landing.tables import MESSAGES
from kodoctl.pulsar.binary.message_decoding import content
from kodoctl.pulsar.binary.undeliverable_entries import UNREAD
from kodoctl.topology.units import LATEST

if TYPE_CHECKING:
    import pyarrow as pa

    from kodo_pipeline.source.splits import Split

BATCH_BYTES: Final = 32 * 1024 * 1024  # of an Arrow batch; Arrow itself ends at 2 GiB of payloads
ReadableContent = tuple[dict[str, str], str | None, str | None]
"""(properties, key or None, text about the parts that cannot be read or None)."""


@dataclass(frozen=True, slots=True)
class NoMessage:
    """Takes the place of a message in `Columns`, for an entry of which the client library returns none. It has those
    methods of the library's messages that `Columns` calls. `published`: publish time of a readable message next to it,
    in ms since the epoch.
    """

    published: int

    def data(self) -> bytes:
        """Returns an empty payload."""
        return b""

    def has_null_value(self) -> bool:
        """Returns True, so that the payload becomes null."""
        return True

    def publish_timestamp(self) -> int:
        """Returns the publish time of a readable message next to it, in ms since the epoch."""
        return self.published

    def event_timestamp(self) -> int:
        """Returns 0: no event time."""
        return 0

    def properties(self) -> dict[str, str]:
        """No properties."""
        return {}

    def partition_key(self) -> str:
        """An empty key."""
        return ""

    def encryption_context(self) -> str:
        """Returns a text in place of an encryption context, by which the row shows that the message cannot be read."""
        return UNREAD


class Columns:
    """Collector of the messages of one split, for Arrow batches of about `most` messages, fewer if they are large: the
    caller takes a batch when the collector is `full`, which is known only after a whole batch of a producer was added.
    `payload`: False leaves payloads and sizes null. All messages of an entry get the publish time of its first. After
    the latest time that a table can have, a publish time becomes that time, and an event time null, as one of 0 does.
    """

    def __init__(self, split: Split, most: int, *, payload: bool) -> None:
        self._split, self._most, self._payload = split, most, payload
        self._each = split.size // max(1, split.entries)
        self._begin()

    def _begin(self) -> None:
        self._messages: list[Any] = []
        self._ledgers: list[int] = []
        self._entries: list[int] = []
        self._indexes: list[int] = []
        self._published: list[int] = []
        self._payloads: list[bytes] = []
        self._size = 0

    @property
    def rows(self) -> int:
        """Number of messages collected since the last batch."""
        return len(self._messages)

    @property
    def full(self) -> bool:
        """True if there are enough messages, or enough bytes (BATCH_BYTES), for a batch."""
        return len(self._messages) >= self._most or self._size >= BATCH_BYTES

    def add(self, ledger: int, entry: int, index: int, messages: list[Any]) -> None:
        """Adds consecutive messages of an entry. `index`: batch index of the first one, -1 for a message that is alone
        in its entry.
        """
        number = len(messages)
        if self._payload:
            found = [one.data() for one in messages]
            self._payloads += found
            self._size += max(sum(map(len, found)), self._each)
        else:
            self._size += self._each
        self._messages += messages
        self._ledgers += [ledger] * number
        self._entries += [entry] * number
        self._indexes += range(index, index + number)
        # Pulsar stores one for each entry, and takes any number for it
        self._published += [min(messages[0].publish_timestamp(), LATEST)] * number

    def batch(self) -> pa.RecordBatch:
        """Returns the collected messages as an Arrow batch, and removes them from the collector."""
        import pyarrow as pa

        messages, broken = self._messages, None
        number, millis, strings = len(messages), pa.timestamp("ms", tz="UTC"), pa.string()
        happened = [at if 0 < (at := one.event_timestamp()) <= LATEST else None for one in messages]
        try:
            properties: list[dict[str, str]] = [one.properties() for one in messages]
            keys = [one.partition_key() or None for one in messages]
            as_usual = not any(
                index < 0 and one.encryption_context() is not None
                for one, index in zip(messages, self._indexes, strict=True)
            )
        except UnicodeDecodeError:
            as_usual = False
        if not as_usual:
            found = [_content(one, index) for one, index in zip(messages, self._indexes, strict=True)]
            properties, keys, broken = map(list, zip(*found, strict=True))
        made = record_batch(
            self._split,
            MessageArrays(
                pa.array(self._ledgers, pa.int64()),
                pa.array(self._entries, pa.int64()),
                pa.array(self._indexes, pa.int32()),
                pa.array(keys, strings),
                pa.array(self._published, millis),
                pa.array(happened, millis),
                pa.MapArray.from_arrays(
                    pa.array(list(accumulate(map(len, properties), initial=0)), pa.int32()),
                    pa.array(list(chain.from_iterable(properties)), strings),
                    pa.array(list(chain.from_iterable(map(dict.values, properties))), strings),
                ),
                pa.array(broken, strings) if broken else pa.nulls(number, strings),
                pa.array(_nullable(self._payloads, messages), pa.binary()) if self._payload else None,
            ),
        )
        self._begin()
        return made


class MessageArrays(NamedTuple):
    """Columns whose values differ from message to message, as Arrow arrays. `payload`: None if payloads are not wanted."""

    ledger: Any
    entry: Any
    batch_index: Any
    key: Any
    published: Any
    happened: Any
    properties: Any
    broken: Any
    payload: Any


def record_batch(split: Split, arrays: MessageArrays) -> pa.RecordBatch:
    """Makes an Arrow batch with all columns of kodo_pipeline.landing.tables.MESSAGES."""
    import pyarrow as pa
    import pyarrow.compute as pc

    number, schema, strings = len(arrays.ledger), MESSAGES.arrow(), pa.string()
    payload = pa.nulls(number, pa.binary()) if arrays.payload is None else arrays.payload
    sizes = pc.binary_length(payload).cast(pa.int64())
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(split.topic, strings), number),
            pa.repeat(pa.scalar(split.partition, pa.int32()), number),
            arrays.ledger,
            arrays.entry,
            arrays.batch_index,
            arrays.key,
            arrays.published.cast(schema.field("publish_ts").type),
            arrays.happened.cast(schema.field("event_ts").type),
            arrays.properties,
            arrays.broken,
            sizes if arrays.payload is None else sizes.fill_null(0),
            payload,
            pa.repeat(pa.scalar(split.id, strings), number),
        ],
        schema=schema,
    )


def _nullable(found: list[bytes], messages: list[Any]) -> Sequence[bytes | None]:
    """Payloads, with None for messages that have a null value."""
    if all(found):
        return found
    return [one if one or not message.has_null_value() else None for one, message in zip(found, messages, strict=True)]


def _content(message: Any, index: int) -> ReadableContent:
    """Returns (properties, key, problem) of a message. `problem` is None unless the message is encrypted or has bytes
    that are not text.
    """
    if isinstance(message, NoMessage):
        return {}, None, UNREAD
    with suppress(Exception):  # whatever the client makes of bytes that a stranger chose
        if index >= 0 or message.encryption_context() is None:
            return message.properties(), message.partition_key() or None, None
    _, properties, key, *_, broken = content(message, alone=index < 0)
    return properties, key or None, broken or None
