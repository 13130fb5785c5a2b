# adapter: runs inside Spark
"""`spark.read.format("pulsar")` and `spark.readStream.format("pulsar")`: Spark's public Python API over the source's
core.

    from kodo_pipeline.source.data_source import PulsarSource
    spark.dataSource.register(PulsarSource)
    spark.read.format("pulsar").option("topic", …).option("adminUrl", …).option("serviceUrl", …).load()

Planning runs in a process of Spark's own, reading in its workers: what they share is pickled. Both import this
package.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from kodo_pipeline.landing.tables import MESSAGES
from kodo_pipeline.source import offsets
from kodo_pipeline.source.options import Options, read_options
from kodo_pipeline.source.partition_stats import Part, PartitionMetadata, histories, read_stored, seek_by_time
from kodo_pipeline.source.predicates import Pruning
from kodo_pipeline.source.split_reader import read_split
from kodo_pipeline.source.splits import (
    LedgerRange,
    Split,
    StoredPartition,
    splits_each,
    splits_of,
    trim_ranges,
)
from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.binary.client import BrokerClient
from kodoctl.pulsar.connection.native_border import NATIVE_VARIABLE
from kodoctl.pulsar.connection.secret import text_of_variable
from kodoctl.text.formatting import many
from kodoctl.topology.names import partition_name, partition_number, whole_topic

if TYPE_CHECKING:
    import pyarrow as pa

    from kodoctl.pulsar.connection.connection import Connection


class PulsarSource(DataSource):
    """Spark data source of stored messages, with the columns of kodo_pipeline.landing.tables.MESSAGES.
    docs/how-to/spark-source.md lists the options.
    """

    @classmethod
    def name(cls) -> str:
        """Name of the data source, for `format`."""
        return "pulsar"

    def schema(self) -> StructType:
        """Columns of every read, which do not depend on the options."""
        return MESSAGES.spark()

    def _options(self) -> Options:
        """Returns the parsed options. `self.options` must stay Spark's own dictionary: a plain copy would accept only
        lower-case names.
        """
        return read_options(self.options, os.cpu_count() or 1, text_of_variable(NATIVE_VARIABLE))

    def reader(self, schema: StructType) -> PulsarReader:  # noqa: ARG002 - Spark names it
        """Returns the reader of `spark.read`: messages that are stored when the read is planned. Raises UsageError for
        an invalid option.
        """
        return PulsarReader(self._options())

    def streamReader(self, schema: StructType) -> PulsarStream:  # noqa: ARG002, N802 - Spark's name
        """Returns the reader of `spark.readStream`: all messages, from the beginning of each partition. Raises
        UsageError for an invalid option.
        """
        return PulsarStream(self._options())


@cache
def broker(connection: Connection) -> BrokerClient:
    """The client of this process for a connection, made once and kept, because Spark uses a Python process again, and
    connecting takes as long as reading some thousand messages. It connects at its first use.
    """
    return BrokerClient(connection)


@cache
def _spare_collecting() -> None:
    """Called behind a split, when all that reading needs is loaded. After each task Spark has its Python process look
    for garbage among everything there is: 40 ms for the modules alone, in which some thousand messages are read.
    """
    gc.freeze()


def read_planned(split: Split, options: Options, client: BrokerClient) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a planned split, as read_split does. For a hole (see `Split`) it yields none and only writes
    the coverage record, if the options name a folder for it, because the planner accepted the hole.
    """
    yield from read_split(split, replace(options, strict=False) if split.hole else options, client)


def _read_split(split: Split, options: Options) -> Iterator[pa.RecordBatch]:
    yield from read_planned(split, options, broker(options.connection))
    _spare_collecting()


class _Planner:
    """Common base of batch and stream: statistics of the cluster, and ranges cut into splits."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def ask(self, pruning: Pruning) -> dict[Part, StoredPartition]:
        with closing(HttpAdmin(self.options.connection)) as admin:
            found = read_stored(admin, [one for one in self.options.topics if pruning.has_topic(str(one))])
        return {part: one for part, one in found.items() if pruning.has_partition(part[1])}

    def splits(self, pieces: Mapping[Part, list[LedgerRange]]) -> Iterator[Split]:
        full = {part: one for part, one in pieces.items() if one}
        for (topic, number), one in full.items():
            size = sum(piece.size for piece in one)
            most = self.options.splits or splits_each(self.options.cores, len(full), size)
            yield from splits_of(topic.full, number, one, most)


class PulsarReader(DataSourceReader, _Planner):
    """Reader of a batch query: everything that is stored when the query is planned, and nothing later."""

    def __init__(self, options: Options) -> None:
        _Planner.__init__(self, options)
        self.pruning = Pruning()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Limits the read to the topics, partitions and publish times that `filters` permit. Returns all filters,
        because Spark must still apply them to the rows.
        """
        self.pruning = Pruning.of(filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        """Plans the query by statistics of the cluster: one Spark partition for each split. Raises UsageError (K560)
        for topics that do not exist, unless filters exclude them, and ClusterError if the cluster does not answer for
        a partition.
        """
        pieces = {part: self._pruned_ranges(part, one) for part, one in self.ask(self.pruning).items()}
        return [InputPartition(split) for split in self.splits(pieces)]

    def _pruned_ranges(self, part: Part, there: StoredPartition) -> list[LedgerRange]:
        since, until = self.pruning.moments(self.options.skew)
        if not there.pieces or (since is None and until is None):
            return list(there.pieces)
        with closing(HttpAdmin(self.options.connection)) as admin:
            first = seek_by_time(admin, part, since) if since is not None else None
            last = seek_by_time(admin, part, until) if until is not None else None
        return trim_ranges(there.pieces, (first[0], first[1] - 1) if first else (-1, -1), last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one split, in a Python process of an executor."""
        return _read_split(partition.value, self.options)


class PulsarStream(DataSourceStreamReader, SupportsTriggerAvailableNow, _Planner):
    """Reader of a stream: all messages from the beginning of each partition. Offsets never go back, whatever the
    cluster reports. Planning raises UsageError (K560) if a topic does not exist, and ClusterError if the cluster does
    not answer for a partition.

    A partition or topic that is created later is read from its beginning. `looks`: metadata of partitions, by full
    name, at the beginning of an earlier reading that was completed; {}: unknown. `declared`: topics to read, None: all;
    if a batch is read again, partitions of other topics in it become holes, which are recorded and not read. `left`:
    full names of partitions of which nothing is read, so that their offset stays.
    """

    looks: Mapping[str, PartitionMetadata] = MappingProxyType({})
    declared: Container[str] | None = None
    left: Container[str] = frozenset()

    def __init__(self, options: Options) -> None:
        _Planner.__init__(self, options)
        self.now: dict[str, StoredPartition] | None = None  # fixed when everything that is there now is asked for
        self.parts: dict[str, Part] = {}

    def _stored_partitions(self) -> dict[str, StoredPartition]:
        if self.now is not None:
            return self.now
        found = self.ask(Pruning())
        self.parts = {
            name: (topic, number)
            for topic, number in found
            if (name := partition_name(topic.full, number)) not in self.left
        }
        return {name: found[part] for name, part in self.parts.items()}

    def holes(self, start: Mapping[str, str]) -> dict[str, str]:
        """Partitions, by full name, in which messages after the offset may have been deleted unread, with the reason;
        {} if there are none. Partitions that do not exist any more, are in `left`, or are missing in `start` are not
        looked at. Asks the cluster; if the end of the stream is fixed, only for the metadata of suspected partitions,
        and only if `looks` has one of them.
        """
        return self._gone_partitions(self._stored_partitions(), start)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Returns the offset before the first message of every partition: an empty one, because a partition that an
        offset lacks is unread.
        """
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Returns the limit that the option `maxBytesPerTrigger` sets; no limit without it."""
        return ReadMaxBytes(self.options.max_bytes) if self.options.max_bytes else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fixes the end of the stream, for all of its batches, at the messages that are stored now."""
        self.now = self._stored_partitions()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Returns the end of the next batch: everything that is stored, or what fits into `limit`, whose bytes are
        shared out equally to the partitions; if one needs less, the others get the rest. Raises ClusterError (K574) if
        entries after `start` may have been deleted unread, unless the option `failOnDataLoss` is false.
        """
        now = self._stored_partitions()
        waiting = offsets.wanted_batches(now, start)
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if self.options.strict and (gone := self._gone_partitions(now, start)):
            raise _hole_error(gone)
        return {**start, **offsets.next_offset(waiting, most)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plans the splits of a batch. After a restart the range is planned again, from the entries that are stored
        then. Entries that are gone since the end was fixed raise ClusterError (K574), or become a split that is a hole
        if the option `failOnDataLoss` is false.
        """
        now = self.now or self._stored_partitions()
        gone, left = self._gone_partitions(now, start), {}
        pieces: dict[Part, list[LedgerRange]] = {}
        for part, there in now.items():
            begin, finish = offsets.mark(start, part), offsets.mark(end, part)
            within = pieces[self.parts[part]] = trim_ranges(there.pieces, begin.place, finish.place)
            if lacking := offsets.missing(within, begin, finish):
                entries = many(lacking, "entry", "entries")
                gone[part] = f"{entries} behind {begin.ledger}:{begin.entry} {'is' if lacking == 1 else 'are'} gone"
        for part in end.keys() - now.keys():
            if end[part] != start.get(part):
                if self.declared is not None and _parse_part(part)[0] not in self.declared:
                    left[part] = "it was taken out of the file before its batch was complete, and not read to its end"
                else:
                    gone[part] = "it is not there any more"
        if gone and self.options.strict:
            raise _hole_error(gone)
        holes = [Split(*_parse_part(part), (), why) for part, why in (gone | left).items()]
        return [InputPartition(split) for split in (*holes, *self.splits(pieces))]

    def _gone_partitions(self, now: Mapping[str, StoredPartition], start: Mapping[str, str]) -> dict[str, str]:
        """Partitions in which messages may have been deleted unread, with the reason. Partitions without a deleted ledger
        since an earlier reading are left out, because that reading covered or reported the rest: brokers replace an
        empty ledger when they load it.
        """
        gone = offsets.holes(now, start)
        if not self.looks.keys() & gone.keys():
            return gone
        with closing(HttpAdmin(self.options.connection)) as admin:
            return {part: why for part, why in gone.items() if not self._follows(admin, part)}

    def _follows(self, admin: HttpAdmin, part: str) -> bool:
        topic, number = self.parts[part]
        return histories(admin, topic, [number])[number].follows(self.looks.get(part, PartitionMetadata()))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one split, in a Python process of an executor."""
        return _read_split(partition.value, self.options)


def _parse_part(part: str) -> tuple[str, int]:
    """Topic and number of a partition that may not be there any more."""
    return whole_topic(part), partition_number(part)


def _hole_error(gone: Mapping[str, str]) -> ClusterError:
    return ClusterError(
        *(error("K574", "stored messages could not be read", f"{part}: {why}") for part, why in gone.items())
    )
