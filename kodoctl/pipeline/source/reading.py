"""One split, read by Pulsar's public reader into Arrow batches. Knows no Spark.

The loop costs a few microseconds a message; nothing in it may be done that an entry or a batch could do instead.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kodoctl.errors import ClusterError, error
from kodoctl.pipeline.schema import MESSAGES
from kodoctl.pipeline.source.asking import internal_stats
from kodoctl.pipeline.source.coverage import COMPLETE, HOLE, OVERRUN, Coverage
from kodoctl.pipeline.source.options import Options
from kodoctl.pipeline.source.ranges import Split
from kodoctl.pipeline.source.storage import Storage
from kodoctl.pulsar.admin_http import HttpAdmin
from kodoctl.pulsar.client import BrokerClient
from kodoctl.pulsar.legible import legible
from kodoctl.topology.names import TopicName

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_SIZE_FIELD: Final = 6  # of the serialised id: the Python client tells it nowhere else
_MEMORY: Final = 256 * 1024 * 1024  # bytes that a reader may fetch ahead


def read_split(split: Split, options: Options) -> Iterator[pa.RecordBatch]:
    """Its messages in order, as batches of kodoctl.pipeline.schema.MESSAGES. Raises ClusterError behind the last of them when
    entries are missing and the options are strict; writes the coverage record first.
    """
    coverage = Coverage(split)
    began = time.monotonic()
    if split.hole:
        coverage.state = HOLE
    else:
        yield from _messages(split, options, coverage)
    coverage.seconds = time.monotonic() - began
    if not coverage.full and split.pieces:
        coverage.ledgers_after = _ledgers(split, options)
    if options.coverage:
        Storage(options.coverage).write(coverage.file, coverage.record())
    if options.strict and not coverage.full:
        raise ClusterError(error("K574", "stored messages could not be read", coverage.problem))


def _messages(split: Split, options: Options, coverage: Coverage) -> Iterator[pa.RecordBatch]:
    import pulsar

    with BrokerClient(options.connection) as client:
        start = pulsar.MessageId(split.partition, *split.first, -1)
        try:
            reader = client.get().create_reader(
                split.part, start, receiver_queue_size=queue_size(split), start_message_id_inclusive=True
            )
            yield from _loop(reader, split, options, coverage)
        except pulsar.Timeout:
            pass  # the state of a coverage that nobody completed
        except pulsar.PulsarException as problem:
            raise ClusterError(error("K561", "messages cannot be read", f"{split.part}: {problem}")) from None


def queue_size(split: Split) -> int:
    """Messages to fetch ahead: as many as help, within memory, and few behind the end of a short split."""
    each = max(1, split.size // max(1, split.entries))
    return max(16, min(10_000, _MEMORY // each, max(1_000, split.entries)))


def _loop(reader: Any, split: Split, options: Options, coverage: Coverage) -> Iterator[pa.RecordBatch]:
    import pulsar

    columns, last, timeout, rows = Columns(split, payload=options.payload), split.last, options.timeout, options.rows
    last_ledger, last_entry = last
    read, at_ledger, at_entry, gathered = reader.read_next, -1, -1, 0
    add = columns.add
    try:
        while True:
            message = read(timeout)
            token = message.message_id()
            ledger, entry, index = token.ledger_id(), token.entry_id(), token.batch_index()
            if entry != at_entry or ledger != at_ledger:
                if (ledger, entry) > last:
                    coverage.state = OVERRUN
                    break
                coverage.entry(ledger, entry)
                at_ledger, at_entry = ledger, entry
            add(ledger, entry, index, message)
            gathered += 1
            if gathered == rows:
                coverage.rows += gathered
                gathered = 0
                yield columns.batch()
            if entry == last_entry and ledger == last_ledger and (index < 0 or index + 1 >= batch_size(token)):
                coverage.state = COMPLETE
                break
    except pulsar.Timeout:
        pass
    if gathered:
        coverage.rows += gathered
        yield columns.batch()


class Columns:
    """Gathers messages column by column."""

    def __init__(self, split: Split, *, payload: bool) -> None:
        self._split, self._payload = split, payload
        self._schema = MESSAGES.arrow()
        self._begin()

    def _begin(self) -> None:
        self.ledgers: list[int] = []
        self.entries: list[int] = []
        self.indexes: list[int] = []
        self.keys: list[str | None] = []
        self.published: list[int] = []
        self.events: list[int | None] = []
        self.names: list[str] = []
        self.values: list[str] = []
        self.ends: list[int] = [0]
        self.broken: dict[int, str] = {}
        self.payloads: list[bytes | None] = []

    def add(self, ledger: int, entry: int, index: int, message: Any) -> None:
        """One message."""
        self.ledgers.append(ledger)
        self.entries.append(entry)
        self.indexes.append(index)
        try:
            properties, key = message.properties(), message.partition_key()
        except UnicodeDecodeError:
            properties, key, _, self.broken[len(self.ledgers) - 1] = legible(message)
        self.keys.append(key or None)
        self.published.append(message.publish_timestamp())
        self.events.append(message.event_timestamp() or None)
        if properties:
            self.names.extend(properties)
            self.values.extend(properties.values())
        self.ends.append(len(self.names))
        if self._payload:
            payload = message.data()
            self.payloads.append(payload if payload or not message.has_null_value() else None)

    def batch(self) -> pa.RecordBatch:
        """What was gathered; begins anew."""
        import pyarrow as pa

        number, split = len(self.ledgers), self._split
        millis = pa.timestamp("ms", tz="UTC")
        strings = pa.string()
        properties = pa.MapArray.from_arrays(
            pa.array(self.ends, pa.int32()), pa.array(self.names, strings), pa.array(self.values, strings)
        )
        broken = [self.broken.get(row) for row in range(number)] if self.broken else None
        payload = pa.array(self.payloads, pa.binary()) if self._payload else pa.nulls(number, pa.binary())
        sizes = [len(one or b"") for one in self.payloads] if self._payload else None
        made = pa.RecordBatch.from_arrays(
            [
                _repeated(split.topic, strings, number),
                _repeated(split.partition, pa.int32(), number),
                pa.array(self.ledgers, pa.int64()),
                pa.array(self.entries, pa.int64()),
                pa.array(self.indexes, pa.int32()),
                pa.array(self.keys, strings),
                pa.array(self.published, millis).cast(self._schema.field("publish_ts").type),
                pa.array(self.events, millis).cast(self._schema.field("event_ts").type),
                properties,
                pa.array(broken, strings) if broken else pa.nulls(number, strings),
                pa.array(sizes, pa.int64()) if sizes else pa.nulls(number, pa.int64()),
                payload,
                _repeated(split.id, strings, number),
            ],
            schema=self._schema,
        )
        self._begin()
        return made


def _repeated(value: object, kind: Any, number: int) -> Any:
    import pyarrow as pa

    return pa.repeat(pa.scalar(value, kind), number)


def batch_size(token: Any) -> int:
    """How many messages the entry of an id holds: field 6 of the serialised id, a sequence of protobuf numbers."""
    raw: bytes = token.serialize()
    fields: dict[int, int] = {}
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        if tag & 7:  # nothing but numbers stands before what we look for
            break
        fields[tag >> 3], at = _varint(raw, at)
    return fields.get(_BATCH_SIZE_FIELD, 1)


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _ledgers(split: Split, options: Options) -> tuple[int, ...] | None:
    """What is there now, for the explanation of what was not full; None when nobody answers."""
    admin = HttpAdmin(options.connection)
    try:
        found = (internal_stats(admin, TopicName.parse(split.topic)) or {}).get(split.partition) or {}
        return tuple(int(one["ledgerId"]) for one in found.get("ledgers") or ())
    except ClusterError:
        return None
    finally:
        admin.close()
