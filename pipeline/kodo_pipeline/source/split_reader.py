# adapter: reads the broker
"""Reader of one split by Pulsar's public reader, into Arrow batches. Knows no Spark.

The loop takes a few microseconds per message. Work that can be done once per entry or batch must not be in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from kodo_pipeline.landing.file_store import Storage
from kodo_pipeline.source.coverage import COMPLETE, HOLE, OVERRUN, Coverage
from kodo_pipeline.source.message_columns import Columns, NoMessage
from kodo_pipeline.source.native_batches import EntrySpan, NativeBatches, native_batches
from kodo_pipeline.source.partition_stats import internal_stats
from kodo_pipeline.source.splits import START, Place, Split
from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.binary.client import BrokerClient
from kodoctl.pulsar.binary.message_decoding import as_they_are
from kodoctl.pulsar.binary.undeliverable_entries import (
    EntryRun,
    Expected,
    ledgers_of,
    stored_of,
    varint,
    without_message,
)
from kodoctl.topology.names import TopicName

if TYPE_CHECKING:
    import pyarrow as pa

    from kodo_pipeline.source.options import Options

_LOOK_MS: Final = 3_000  # without a message, at the end of a partition
_BATCH_SIZE_FIELD: Final = 6  # of the serialised id: the Python client tells it nowhere else
_MEMORY: Final = 256 * 1024 * 1024  # bytes that a reader may fetch ahead


def read_split(split: Split, options: Options, client: BrokerClient | None = None) -> Iterator[pa.RecordBatch]:
    """Yields the messages of a split in order, as batches of kodo_pipeline.landing.tables.MESSAGES, and after them a
    row for each entry of which the client library is proved to return no message, if no entry is missing for another
    reason. After the last batch it writes the coverage record, if the options name a folder for it; then, if entries
    are missing and the options are strict, it raises ClusterError (K574). An error of the client other than a timeout
    raises ClusterError (K561) whatever the options are, and leaves no record.

    `client`: client for the options' connection, which may be used for many splits, and stays open unless something
    failed; None: a client for this split alone.
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
            native = native_batches(reader, split, options)
            if native is None:
                yield from _loop(reader, split, options, coverage, missing)
            else:
                yield from _native_loop(native, coverage, missing)
        finally:
            reader.close()
        if not coverage.full and missing.explained(split, options, broker):
            yield from _without_message(split, options, coverage, missing)
    except pulsar.Timeout:
        pass  # the state of a coverage that nobody completed
    except pulsar.PulsarException as problem:
        raise ClusterError(error("K561", "messages cannot be read", f"{split.part}: {problem}")) from None


def queue_size(split: Split) -> int:
    """Number of messages that the reader fetches ahead: as many as the split has entries, but 1,000 to 10,000, so that
    little is fetched beyond the end of a short split; fewer, 16 at least, if they would take too much memory.
    """
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

    def met_span(self, span: EntrySpan) -> None:
        """Consecutive entries that came."""
        self.met((span.ledger, span.first), span)
        self.expected.met_through(span.ledger, span.last)
        self._published = span.last_published

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


def _without_message(split: Split, options: Options, coverage: Coverage, missing: _Missing) -> Iterator[pa.RecordBatch]:
    """A row for each entry that has no message. The last one of a split is where the
    reading could not end by itself.
    """
    columns = Columns(split, options.rows, payload=options.payload)
    for run, published in sorted(missing.times.items()):
        for entry in range(run.first, run.last + 1):
            columns.add(run.ledger, entry, -1, [NoMessage(published)])
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


def _native_loop(native: NativeBatches, coverage: Coverage, missing: _Missing) -> Iterator[pa.RecordBatch]:
    """The same with batches that come whole, and with them the entries that they begin."""
    for read in native:
        for span in read.spans:
            coverage.entries(span.ledger, span.first, span.last)
            missing.met_span(span)
        if read.state is not None:
            coverage.end(read.state)
        if read.batch is not None:
            coverage.rows += read.batch.num_rows
            yield read.batch


def runs(read: Callable[[int], Any], timeout: int) -> Iterator[tuple[int, int, int, list[Any]]]:
    """Yields messages in order, grouped: (ledger, entry, batch index of the first message, consecutive messages of that
    entry). `read`: returns the next message within `timeout` ms; its exceptions, by which alone the iteration ends, are
    raised after the last message.

    To read the position of each message would cost a sixth of reading the message. A producer's batch is one entry, and
    its id contains its number of messages: if that many were read between its first and its last message, the positions
    of those between are known.
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


def batch_size(token: Any) -> int:
    """Number of messages in the entry of a message id: field 6 of the serialised id, which is a protobuf message. 1 if
    the id has no such field.
    """
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
