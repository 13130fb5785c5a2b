"""Spark data source of `pipeline ingest`: the Pulsar source, but its rows are those of the table `events`. The tasks
that read messages also convert them, as Arrow batches, so that Spark only has to write them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, cast

from pyspark.sql.datasource import CaseInsensitiveDict, DataSource, InputPartition
from pyspark.sql.types import StructType

from kodo_pipeline.ingest.events import TopicRole, events, of_text
from kodo_pipeline.landing.payload_policy import PayloadPolicy, apply_policy, policies_of_text
from kodo_pipeline.landing.table_writer import PartitionDays
from kodo_pipeline.landing.tables import DATE, EVENTS
from kodo_pipeline.source import partition_stats
from kodo_pipeline.source.data_source import PulsarStream, read_planned
from kodo_pipeline.source.options import Options, read_options
from kodoctl.pulsar.connection.native_border import NATIVE_VARIABLE
from kodoctl.pulsar.connection.secret import text_of_variable

if TYPE_CHECKING:
    import pyarrow as pa

    from kodo_pipeline.source.splits import Split
    from kodoctl.pulsar.binary.client import BrokerClient

_OWN: Final = ("roles", "run", "looks", "payloads", "left")


class EventSource(DataSource):
    """Spark data source with rows of the table `events`.

    Options: those of the Pulsar source; `roles`: result of kodo_pipeline.ingest.events.to_text; `run`: id of the
    ingest; `looks`: result of kodo_pipeline.source.partition_stats.to_text; `payloads`: result of
    kodo_pipeline.landing.payload_policy.policies_to_text; `left`: names of the partitions that are not read, as a JSON
    list.
    """

    @classmethod
    def name(cls) -> str:
        """Name of the data source, for `format`."""
        return "kodoctl-events"

    def schema(self) -> StructType:
        """Schema of the table `events`, with the column `date`."""
        return EVENTS.spark(dated=True)

    def streamReader(self, schema: StructType) -> EventStream:  # noqa: ARG002, N802 - Spark's name
        """Returns the reader of a stream. Raises UsageError for an invalid option. There is no reader for batch
        queries, because ingest needs none.
        """
        given = CaseInsensitiveDict({name: text for name, text in self.options.items() if name.lower() not in _OWN})
        options = read_options(given, os.cpu_count() or 1, text_of_variable(NATIVE_VARIABLE))
        roles, policies = of_text(self.options["roles"]), policies_of_text(self.options["payloads"])
        made = EventStream(options, roles, self.options["run"], self.options["looks"], policies)
        made.left = frozenset(json.loads(self.options.get("left", "[]")))
        return made

    @classmethod
    def stream(cls, options: Mapping[str, str]) -> EventStream:
        """Makes, in this process, the same reader that Spark makes for a stream with these options."""
        made = cls(cast("dict[str, str]", CaseInsensitiveDict(options)))
        return made.streamReader(made.schema())


class EventStream(PulsarStream):
    """Stream of events, with the offsets and splits of the Pulsar source. `roles`: by full name of the topic; `run`: id
    of the ingest; `looks`: text of the option `looks` (see EventSource); `policies`: payload policies by ground topic.
    """

    def __init__(
        self,
        options: Options,
        roles: Mapping[str, TopicRole],
        run: str,
        looks: str,
        policies: Mapping[str, PayloadPolicy],
    ) -> None:
        super().__init__(options)
        self.roles, self.run, self.policies = roles, run, policies
        self.declared, self.looks = roles, partition_stats.of_text(looks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one split with their day (`date`). Runs in a Python process of an executor."""
        days = PartitionDays(EVENTS)
        for found in self._events(super().read(partition), partition.value.topic):
            yield found.append_column(DATE, days(found.column("publish_ts")))

    def read_with(self, split: Split, client: BrokerClient) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one split without their day. Runs in any process. `client`: see
        kodo_pipeline.source.split_reader.read_split.
        """
        return self._events(read_planned(split, self.options, client), split.topic)

    def _events(self, batches: Iterable[pa.RecordBatch], topic: str) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            role = self.roles[topic]
            yield apply_policy(events(batch, role, self.run), self.policies.get(role.topic))
