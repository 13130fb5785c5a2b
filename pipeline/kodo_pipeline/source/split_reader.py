# adapter: reads the broker
"""Reader of one split by Pulsar's public reader, into Arrow batches. Knows no Spark.

The loop takes a few microseconds per message. Work that can be done once per entry or batch must not be in it.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import chain, repeat
from math import inf
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
    first_chunk,
    ledgers_of,
    outside,
    place_ahead_of,
    stored_of,
    varint,
)
from kodoctl.topology.names import TopicName

if TYPE_CHECKING:
    import pyarrow as pa

    from kodo_pipeline.source.options import Options

_LOOK_MS: Final = 3_000  # without a message, at the end of a partition
_BATCH_SIZE_FIELD: Final = 6  # of the serialised id: the Python client tells it nowhere else
_MEMORY: Final = 256 * 1024 * 1024  # bytes that a reader may fetch ahead
_AROUND: Final = (
    100,
    10_000,
)  # least and most entries that a second reading begins before what is missing, and ends after
_AROUND_BYTES: Final = 64 * 1024 * 1024  # bytes that these entries have at most, unless they are the least


def read_split(split: Split, options: Options, client: BrokerClient | None = None) -> Iterator[pa.RecordBatch]:
    """Yields the messages of a split in order, as batches of kodo_pipeline.landing.tables.MESSAGES. After them come the
    messages in chunks whose first chunk is before the split, and a row for each entry of which the client library is
    proved to return no message, if no entry is missing for another reason. A message in chunks belongs to the split
    that has its last chunk. After the last batch it writes the coverage record, if the options name a folder for it;
    then, if entries are missing and the options are strict, it raises ClusterError (K574). An error of the client
    raises ClusterError (K561, or that of `BrokerClient.get`) whatever the options are, and leaves no record; so does a
    broker that opens no reader in time, because that proves nothing about the entries, and a message that comes in one
    of two readings. A time without messages is no error of the client.

    `client`: client for the options' connection, which may be used for many splits, one after another; it is closed
    unless the split was read in full, and its next use opens it again. None: a client for this split alone.
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
            with suppress(pulsar.PulsarException):  # what it read stays read
                reader.close()
        if not coverage.full and missing.explained(split, options, broker):
            yield from _without_message(split, options, coverage, missing)
    except pulsar.PulsarException as problem:
        raise ClusterError(error("K561", "messages cannot be read", f"{split.part}: {problem}")) from None


def queue_size(split: Split) -> int:
    """Number of messages that the reader fetches ahead: as many as the split has entries, but 1,000 to 10,000, so that
    little is fetched beyond the end of a short split; fewer, 16 at least, if they would take too much memory.
    """
    each = max(1, split.size // max(1, split.entries))
    return max(16, min(10_000, _MEMORY // each, max(1_000, split.entries)))


class _Missing:
    """Entries of a split that did not come. `late`: messages that came only to a reader that began before the split, by
    position.
    """

    def __init__(self, split: Split) -> None:
        self.expected = Expected(EntryRun(piece.ledger, piece.first, piece.last) for piece in split.pieces)
        self.late: dict[Place, Any] = {}
        self._left: list[EntryRun] | None = None
        self._times: dict[Place, int] = {}
        self._published = int(time.time() * 1000)
        self._last = START

    def met(self, place: Place, message: Any) -> None:
        """Records that an entry came, with its first message."""
        before = len(self.expected.gaps)
        self.expected.met(place, message)
        self._published, self._last = message.publish_timestamp(), place
        self._note_time(self.expected.gaps[before:])

    def met_span(self, span: EntrySpan) -> None:
        """Records that consecutive entries came."""
        self.met((span.ledger, span.first), span)
        self.expected.met_through(span.ledger, span.last)
        self._published, self._last = span.last_published, (span.ledger, span.last)

    def explained(self, split: Split, options: Options, broker: BrokerClient) -> bool:
        """True if it is proved of each missing entry that it is stored, and that the client library gives out no
        message of it. An entry that a broker trimmed, or moved a reader past, is not explained: it would be lost for
        good if it were taken for unreadable.
        """
        self._note_time(self.expected.rest())
        runs = self.runs()
        if not runs and not self.expected.chunks:
            return True
        there = ledgers_of(_stats(split, options) or {})
        if not (there and self._look_again(split, runs, there, broker)):
            return False
        # asked again behind the look: a reader that begins with what is gone goes on behind it
        return stored_of(runs, ledgers_of(_stats(split, options) or {})) == runs

    def runs(self) -> list[EntryRun]:
        """The missing entries, in order; when they are explained, without chunks of messages that came."""
        return [*self.expected.gaps, *self.expected.rest()] if self._left is None else self._left

    def count(self) -> int:
        """Number of entries that have no message, came late, or are chunks of a message that has a later entry."""
        return sum(run.entries for run in (*self.expected.chunks, *self.expected.gaps, *self.expected.rest()))

    def time_of(self, run: EntryRun) -> int:
        """Publish time, in ms, of a message next to a run of missing entries, or to the run of which it is a part."""
        return self._times[max(place for place in self._times if place <= (run.ledger, run.first))]

    def _look_again(self, split: Split, runs: list[EntryRun], there: Sequence[EntryRun], broker: BrokerClient) -> bool:
        """Reads the messages around the missing entries `runs` once more, and around the begin of the split if it has
        chunks: a reader does not return a message in chunks if it begins behind the first of them, and the end of the
        split may be before the last. Returns False if `runs` has entries and no message comes at all, which proves
        nothing. Raises ClusterError (K561), so that nobody accepts a hole, if one of the readings was not complete: a
        message in one piece comes of a missing entry, or the last entry that came before does not. `there`: the stored
        entries.
        """
        import pulsar

        least, most = _AROUND
        around = max(least, min(most, _AROUND_BYTES // max(1, split.size // max(1, split.entries))))
        chunks, left, late = sorted(self.expected.chunks), runs, dict[Place, Any]()
        begin = EntryRun(*split.first, split.first[1]) if chunks else runs[0]
        if not runs and begin[:2] == there[0][:2]:
            return True
        start = pulsar.MessageId(split.partition, *place_ahead_of(begin, around, there), -1)
        end = (runs[-1].ledger, runs[-1].last) if runs else START
        at, inside, beyond = START, 0, 0
        with (
            broker.reader(
                split.part, start, split.part, start_message_id_inclusive=True, receiver_queue_size=queue_size(split)
            ) as reader,
            suppress(pulsar.Timeout),
        ):
            while at < there[-1][::2] and ((left and beyond <= around) or (chunks and inside <= around)):
                message = reader.next(_LOOK_MS / 1000)
                token = message.message_id()
                place = token.ledger_id(), token.entry_id()
                if place == at:
                    continue
                at, first = place, first_chunk(token)
                inside, beyond = inside + (at >= split.first), beyond + (at > end)
                if _has(left, at) or _has(chunks, at):
                    if first is None:
                        raise _paused(split, at)
                    late[at] = message
                if first is not None:
                    left = outside(left, first, at)
        self.late, self._left = late, left
        if left and START < at < min(self._last, end):
            raise _paused(split, self._last)
        return not left or at > START

    def _note_time(self, runs: list[EntryRun]) -> None:
        self._times |= {(run.ledger, run.first): self._published for run in runs}


def _paused(split: Split, at: Place) -> ClusterError:
    why = "the broker paused, or messages expired under the reader; run it again"
    detail = f"{split.part}: the entry {at[0]}:{at[1]} came in one of two readings: {why}"
    return ClusterError(error("K561", "messages cannot be read", detail))


def _has(runs: Sequence[EntryRun], place: Place) -> bool:
    """True if one of the runs, which must be in order, has the entry."""
    at = bisect_right(runs, (*place, inf))
    return at > 0 and runs[at - 1].ledger == place[0] and place[1] <= runs[at - 1].last


def _without_message(split: Split, options: Options, coverage: Coverage, missing: _Missing) -> Iterator[pa.RecordBatch]:
    """Yields the messages that came late, and a row for each entry that has no message. A split whose last entry did not
    come is complete with them: its reading could not end by itself.
    """
    columns = Columns(split, options.rows, payload=options.payload)
    late = ((*place, message) for place, message in missing.late.items())
    none = (
        (run.ledger, entry, message)
        for run in missing.runs()
        for message in [NoMessage(missing.time_of(run))]
        for entry in range(run.first, run.last + 1)
    )
    for ledger, entry, message in chain(late, none):
        columns.add(ledger, entry, -1, [message])
        if columns.full:
            coverage.rows += columns.rows
            yield columns.batch()
    if columns.rows:
        coverage.rows += columns.rows
        yield columns.batch()
    coverage.empty = missing.count()
    if coverage.last_seen != split.last:
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
