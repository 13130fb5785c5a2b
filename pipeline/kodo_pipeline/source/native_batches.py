# adapter: reads the broker
"""Reads of a split by the native border: the optional C++ package kodo-fast, which takes messages from the client
library without the interpreter, and writes them into buffers in Arrow's layout.

If the border is not used, messages are read one by one (kodo_pipeline.source.split_reader), and the log says why.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodo_pipeline.source.coverage import COMPLETE, OVERRUN, TIMEOUT
from kodo_pipeline.source.message_columns import BATCH_BYTES, MessageArrays, record_batch
from kodoctl.pulsar.binary.message_decoding import content
from kodoctl.pulsar.connection.native_border import BorderLoader
from kodoctl.topology.units import LATEST

if TYPE_CHECKING:
    import pyarrow as pa
    from kodo_fast import BatchBorder, Columns

    from kodo_pipeline.source.options import Options
    from kodo_pipeline.source.splits import Split

log = logging.getLogger("kodo.source")
BATCHES: Final[BorderLoader[BatchBorder]] = BorderLoader(
    lambda kodo_fast: kodo_fast.load_batches(), "the option native", log.info
)
"""Border of splits, which are read as columns."""
_STATES: Final = {2: COMPLETE, 3: OVERRUN, 4: TIMEOUT}
"""Of what `BatchReader.read` stopped at (Stop in fast/src/kodo_fast/_arrow.hpp); what is missing does not end a split."""


class EntrySpan(NamedTuple):
    """Consecutive entries of one ledger, both ends included, whose messages were read. For
    `kodo_pipeline.source.split_reader` it stands in for the first of these messages, with its publish time and id.
    Times are ms since the epoch.
    """

    ledger: int
    first: int
    last: int
    published: int
    last_published: int
    id: bytes

    def publish_timestamp(self) -> int:
        """Publish time of the first entry."""
        return self.published

    def message_id(self) -> EntrySpan:
        """Returns the span itself as message id: an object with the method `serialize`."""
        return self

    def serialize(self) -> bytes:
        """Returns the serialised id of the first message."""
        return self.id


class NativeRead(NamedTuple):
    """Result of one read. `batch`: None if no message arrived; `spans`: entries whose first message is in the batch;
    `state`: final state of the split if this read was the last one, else None.
    """

    batch: pa.RecordBatch | None
    spans: list[EntrySpan]
    state: str | None


class NativeBatches:
    """Iterator of the reads of a split, until the split ends, for one iteration. A time without messages ends it with
    the state TIMEOUT; other problems raise pulsar.PulsarException.
    """

    def __init__(self, reader: Any, split: Split, options: Options, border: BatchBorder) -> None:
        self._split = split
        each = split.size // max(1, split.entries)
        limits = options.rows, BATCH_BYTES, each, options.timeout
        self._reader = border.reader(reader._reader, _decode_message, split.last, options.payload, LATEST, *limits)  # noqa: SLF001  # named nowhere else
        self._columns = border.columns

    def __iter__(self) -> Iterator[NativeRead]:
        """Ends behind the read that has a state."""
        import pulsar

        state = None
        while state is None:
            rows, stop, result, spans, columns = self._reader.read()
            if result and result != int(pulsar.Result.Timeout):
                raise pulsar.PulsarException(f"Pulsar error: {str(pulsar.Result(result)).removeprefix('Result.')}")
            state = _STATES.get(stop)
            batch = record_batch(self._split, arrays_of(rows, self._columns(*columns))) if rows else None
            yield NativeRead(batch, [EntrySpan(*span) for span in spans], state)


def native_batches(reader: Any, split: Split, options: Options) -> NativeBatches | None:
    """Reads of `reader` by the native border (the C++ package kodo-fast). None if the options switch the border off, if
    it is not available, or if it refuses the client library, which is logged: the caller then has to read the split
    without it.
    """
    border = BATCHES.choose(native=options.native).border
    if border is None:
        return None
    try:
        return NativeBatches(reader, split, options, border)
    except (RuntimeError, TypeError, AttributeError) as problem:
        log.warning("%s: read without the native border: %s", split.part, problem)
        return None


def arrays_of(rows: int, found: Columns) -> MessageArrays:
    """Makes Arrow arrays over the buffers `found` of the native border, without a copy. `rows`: number of messages in
    them.
    """
    import pyarrow as pa

    text, micros = pa.string(), pa.timestamp("us", tz="UTC")

    def array(kind: Any, length: int, *buffers: Any) -> Any:
        return pa.Array.from_buffers(kind, length, [None if one is None else pa.py_buffer(one) for one in buffers])

    pairs = len(memoryview(found.name_offsets)) // 4 - 1
    return MessageArrays(
        array(pa.int64(), rows, None, found.ledger),
        array(pa.int64(), rows, None, found.entry),
        array(pa.int32(), rows, None, found.batch_index),
        array(text, rows, found.has_key, found.key_offsets, found.keys),
        array(micros, rows, None, found.published),
        array(micros, rows, found.has_event_time, found.event_time),
        pa.MapArray.from_arrays(
            array(pa.int32(), rows + 1, None, found.map_offsets),
            array(text, pairs, None, found.name_offsets, found.names),
            array(text, pairs, None, found.value_offsets, found.values),
        ),
        pa.nulls(rows, text)
        if found.broken_offsets is None
        else array(text, rows, found.has_broken, found.broken_offsets, found.broken),
        None
        if found.payload_offsets is None
        else array(pa.binary(), rows, found.has_payload, found.payload_offsets, found.payloads),
    )


def _decode_message(raw: Any, index: int) -> tuple[bytes | None, dict[str, str], str, str]:
    """Returns (payload, properties, key, unreadable part) of a message that only the Python binding can read."""
    import pulsar

    message = pulsar.Message()
    message._message = raw  # noqa: SLF001  # as the client library's own `read_next` wraps it
    payload, properties, key, _, _, _, broken = content(message, alone=index < 0)
    return payload, properties, key, broken
