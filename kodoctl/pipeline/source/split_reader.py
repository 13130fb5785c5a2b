"""One split, read by Pulsar's public reader into Arrow batches. Knows no Spark.

The loop costs a few microseconds a message; nothing in it may be done that an entry or a batch could do instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, Any, Final

from kodoctl.errors import ClusterError, error
from kodoctl.pipeline.ingest.file_store import Storage
from kodoctl.pipeline.ingest.tables import MESSAGES
from kodoctl.pipeline.source.coverage import COMPLETE, HOLE, OVERRUN, Coverage
from kodoctl.pipeline.source.partition_stats import internal_stats
from kodoctl.pipeline.source.splits import START, Place, Split
from kodoctl.pulsar.admin_http import HttpAdmin
from kodoctl.pulsar.client import BrokerClient
from kodoctl.pulsar.message_decoding import Content, as_they_are, content
from kodoctl.pulsar.undeliverable_entries import (
    UNREAD,
    EntryRun,
    Expected,
    ledgers_of,
    stored_of,
    varint,
    without_message,
)
from kodoctl.topology.names import TopicName
from kodoctl.topology.units import LATEST

if TYPE_CHECKING:
    import pyarrow as pa

    from kodoctl.pipeline.source.options import Options

_LOOK_MS: Final = 3_000  # without a message, at the end of a partition
_NO_CONTENT: Final[Content] = (None, {}, "", "", 0, 0, UNREAD)
_BATCH_SIZE_FIELD: Final = 6  # of the serialised id: the Python client tells it nowhere else
_MEMORY: Final = 256 * 1024 * 1024  # bytes that a reader may fetch ahead
_BATCH: Final = 32 * 1024 * 1024  # bytes of an Arrow batch; Arrow itself ends at 2 GiB of payloads


def read_split(split: Split, options: Options, client: BrokerClient | None = None) -> Iterator[pa.RecordBatch]:
    """Its messages in order, as batches of kodoctl.pipeline.ingest.tables.MESSAGES, behind them a row for each entry
    of which the client library is shown to give out no message. Raises ClusterError behind the last of them when
    entries are missing and the options are strict; writes the coverage record first. `client`: of the options'
    connection, for many splits; left open unless something was wrong. None: one for this split alone.
    """
    coverage = Coverage(split)
    began = time.monotonic()
    if split.hole:
        coverage.state = HOLE
    else:
        broker = client or BrokerClient(options.connection)
        try:
            yield from _messages(split, options, coverage, broker)
        finally:
            if client is None or not coverage.full:
                broker.close()
    coverage.seconds = time.monotonic() - began
    if not coverage.full and split.pieces and (now := _stats(split, options)) is not None:
        coverage.ledgers_after = tuple(int(one["ledgerId"]) for one in now.get("ledgers") or ())
    if options.coverage:
        Storage(options.coverage).write(coverage.file, coverage.record())
    if options.strict and not coverage.full:
        raise ClusterError(error("K574", "stored messages could not be read", coverage.problem))


def _messages(split: Split, options: Options, coverage: Coverage, broker: BrokerClient) -> Iterator[pa.RecordBatch]:
    import pulsar

    start = pulsar.MessageId(split.partition, *split.first, -1)
    missing = _Missing(split)
    try:
        reader = broker.get().create_reader(
            split.part,
            start,
            receiver_queue_size=queue_size(split),
            start_message_id_inclusive=True,
            **as_they_are(),
        )
        try:
            yield from _loop(reader, split, options, coverage, missing)
        finally:
            reader.close()
        if not coverage.full and missing.explained(split, options, broker):
            yield from _without_message(split, options, coverage, missing)
    except pulsar.Timeout:
        pass  # the state of a coverage that nobody completed
    except pulsar.PulsarException as problem:
        raise ClusterError(error("K561", "messages cannot be read", f"{split.part}: {problem}")) from None


def queue_size(split: Split) -> int:
    """Messages to fetch ahead: as many as help, within memory, and few behind the end of a short split."""
    each = max(1, split.size // max(1, split.entries))
    return max(16, min(10_000, _MEMORY // each, max(1_000, split.entries)))


class _Missing:
    """Entries of a split that did not come, each with the publish time of a message beside it, in ms."""

    def __init__(self, split: Split) -> None:
        self.expected = Expected(EntryRun(piece.ledger, piece.first, piece.last) for piece in split.pieces)
        self.times: dict[EntryRun, int] = {}
        self._published = int(time.time() * 1000)

    def met(self, place: Place, message: Any) -> None:
        """An entry that came, with its first message."""
        before = len(self.expected.gaps)
        self.expected.met(place, message)
        self._published = message.publish_timestamp()
        self.times |= dict.fromkeys(self.expected.gaps[before:], self._published)

    def explained(self, split: Split, options: Options, broker: BrokerClient) -> bool:
        """True if it is proved of each missing entry that it is stored, and that the client library gives out no
        message of it. An entry that a broker trimmed, or moved a reader past, is not explained: it would be lost for
        good if it were taken for unreadable.
        """
        rest = self.expected.rest()
        self.times |= dict.fromkeys(rest, self._published)
        runs = [*rest, *self.expected.gaps]
        if not runs:
            return True
        there = ledgers_of(_stats(split, options) or {})
        if not all(without_message(broker, split.part, split.partition, run, there, _LOOK_MS) for run in runs):
            return False
        # asked again behind the looks: a reader that begins with what is gone goes on behind it
        return stored_of(runs, ledgers_of(_stats(split, options) or {})) == runs


@dataclass(frozen=True, slots=True)
class _Nothing:
    """Stands for the message of an entry that has none."""

    published: int

    def data(self) -> bytes:
        return b""

    def has_null_value(self) -> bool:
        return True

    def publish_timestamp(self) -> int:
        return self.published

    def event_timestamp(self) -> int:
        return 0

    def properties(self) -> dict[str, str]:
        return {}

    def partition_key(self) -> str:
        return ""

    def encryption_context(self) -> str:
        return UNREAD


def _without_message(split: Split, options: Options, coverage: Coverage, missing: _Missing) -> Iterator[pa.RecordBatch]:
    """A row for each entry that has no message. The last one of a split is where the
    reading could not end by itself.
    """
    columns = Columns(split, options.rows, payload=options.payload)
    for run, published in sorted(missing.times.items()):
        for entry in range(run.first, run.last + 1):
            columns.add(run.ledger, entry, -1, [_Nothing(published)])
            if columns.full:
                coverage.rows += columns.rows
                yield columns.batch()
    if columns.rows:
        coverage.rows += columns.rows
        yield columns.batch()
    coverage.empty = sum(run.entries for run in missing.times) + missing.expected.parts
    if missing.expected.rest():
        coverage.state = COMPLETE


def _loop(
    reader: Any, split: Split, options: Options, coverage: Coverage, missing: _Missing
) -> Iterator[pa.RecordBatch]:
    import pulsar

    columns, last, at = Columns(split, options.rows, payload=options.payload), split.last, START
    try:
        for ledger, entry, index, messages in runs(reader.read_next, options.timeout):
            if (ledger, entry) != at:
                at = ledger, entry
                if at > last:
                    coverage.state = OVERRUN
                    break
                coverage.entry(ledger, entry)
                missing.met(at, messages[0])
            columns.add(ledger, entry, index, messages)
            if columns.full:
                coverage.rows += columns.rows
                yield columns.batch()
            if at == last and (index < 0 or index + len(messages) >= batch_size(messages[-1].message_id())):
                coverage.state = COMPLETE
                break
    except pulsar.Timeout:
        pass
    if columns.rows:
        coverage.rows += columns.rows
        yield columns.batch()


def runs(read: Callable[[int], Any], timeout: int) -> Iterator[tuple[int, int, int, list[Any]]]:
    """Messages in their order as (ledger, entry, batch index of the first, consecutive messages of that entry).
    `read` gives the next one within `timeout` ms; its exceptions are raised after the last message.

    Reading the position of each message costs a sixth of reading it. A producer's batch is one entry and has its number
    of messages: once that many were read, from its first to its last, the positions of those between are known.
    """
    while True:
        first = read(timeout)
        token = first.message_id()
        ledger, entry, index = token.ledger_id(), token.entry_id(), token.batch_index()
        size = batch_size(token) if index == 0 else 1
        if size == 1:
            yield ledger, entry, index, [first]
            continue
        messages, problem = [first], None
        try:
            messages.extend(map(read, repeat(timeout, size - 1)))
        except Exception as late:  # noqa: BLE001 - raised when what came before it is told
            problem = late
        end = messages[-1].message_id()
        if (end.ledger_id(), end.entry_id(), end.batch_index() + 1) == (ledger, entry, size) and len(messages) == size:
            yield ledger, entry, 0, messages
        else:
            for one in messages:
                token = one.message_id()
                yield token.ledger_id(), token.entry_id(), token.batch_index(), [one]
        if problem is not None:
            raise problem


class Columns:
    """Gathers messages, and turns them into Arrow column by column: `most` of them, fewer where they are large."""

    def __init__(self, split: Split, most: int, *, payload: bool) -> None:
        self._split, self._most, self._payload = split, most, payload
        self._each = split.size // max(1, split.entries)
        self._schema = MESSAGES.arrow()
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
        """Messages gathered since the last Arrow batch."""
        return len(self._messages)

    @property
    def full(self) -> bool:
        """True if the gathered messages are enough for a batch."""
        return len(self._messages) >= self._most or self._size >= _BATCH

    def add(self, ledger: int, entry: int, index: int, messages: list[Any]) -> None:
        """Consecutive messages of an entry, the first of them at `index`."""
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
        """Gathered messages as an Arrow batch; gathering begins anew."""
        import pyarrow as pa
        import pyarrow.compute as pc

        messages, split, broken = self._messages, self._split, None
        number, millis, strings = len(messages), pa.timestamp("ms", tz="UTC"), pa.string()
        happened = [at if 0 < (at := one.event_timestamp()) <= LATEST else None for one in messages]
        try:
            told: list[dict[str, str]] = [one.properties() for one in messages]
            keys = [one.partition_key() or None for one in messages]
            as_usual = not any(
                index < 0 and one.encryption_context() is not None
                for one, index in zip(messages, self._indexes, strict=True)
            )
        except UnicodeDecodeError:
            as_usual = False
        if not as_usual:
            told, keys, broken = _one_by_one(messages, self._indexes)
        properties = pa.MapArray.from_arrays(
            pa.array(list(accumulate(map(len, told), initial=0)), pa.int32()),
            pa.array(list(chain.from_iterable(told)), strings),
            pa.array(list(chain.from_iterable(map(dict.values, told))), strings),
        )
        payload = (
            pa.array(_nullable(self._payloads, messages), pa.binary())
            if self._payload
            else pa.nulls(number, pa.binary())
        )
        sizes = pc.binary_length(payload).cast(pa.int64())
        made = pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(split.topic, strings), number),
                pa.repeat(pa.scalar(split.partition, pa.int32()), number),
                pa.array(self._ledgers, pa.int64()),
                pa.array(self._entries, pa.int64()),
                pa.array(self._indexes, pa.int32()),
                pa.array(keys, strings),
                pa.array(self._published, millis).cast(self._schema.field("publish_ts").type),
                pa.array(happened, millis).cast(self._schema.field("event_ts").type),
                properties,
                pa.array(broken, strings) if broken else pa.nulls(number, strings),
                sizes.fill_null(0) if self._payload else sizes,
                payload,
                pa.repeat(pa.scalar(split.id, strings), number),
            ],
            schema=self._schema,
        )
        self._begin()
        return made


def _nullable(found: list[bytes], messages: list[Any]) -> Sequence[bytes | None]:
    """Payloads, None for those of messages that have none."""
    if all(found):
        return found
    return [one if one or not message.has_null_value() else None for one, message in zip(found, messages, strict=True)]


def _one_by_one(
    messages: list[Any], indexes: list[int]
) -> tuple[list[dict[str, str]], list[str | None], list[str | None]]:
    """Properties, keys, and what cannot be read, of messages some of which are encrypted or have other bytes than
    text.
    """
    found = [
        _NO_CONTENT if isinstance(message, _Nothing) else content(message, alone=index < 0)
        for message, index in zip(messages, indexes, strict=True)
    ]
    told = [properties for _, properties, *_ in found]
    return told, [key or None for _, _, key, *_ in found], [broken or None for *_, broken in found]


def batch_size(token: Any) -> int:
    """Number of messages in the entry of an id: field 6 of the serialised id, a sequence of protobuf numbers."""
    raw: bytes = token.serialize()
    fields: dict[int, int] = {}
    at = 0
    while at < len(raw):
        tag, at = varint(raw, at)
        if tag & 7:  # nothing but numbers stands before what we look for
            break
        fields[tag >> 3], at = varint(raw, at)
    return fields.get(_BATCH_SIZE_FIELD, 1)


def _stats(split: Split, options: Options) -> dict[str, Any] | None:
    """Current statistics of the partition, to explain a split that is not full; None if the
    cluster does not answer.
    """
    with closing(HttpAdmin(options.connection)) as admin, suppress(ClusterError):
        return (internal_stats(admin, TopicName.parse(split.topic)) or {}).get(split.partition) or {}
    return None
