"""Stream of `pipeline ingest`: the Pulsar source's stream, but its rows are those of the table `events`. The tasks that
read messages also convert them, as Arrow batches, so that Spark only has to write them.

The ingest plans in its own process. Spark's streams plan in another one, which Spark ends if it has not started within
10 s, whatever the settings say: on a busy machine no stream would begin.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from kodo_pipeline.ingest.events import TopicRole, events
from kodo_pipeline.landing.payload_policy import PayloadPolicy, apply_policy
from kodo_pipeline.landing.table_writer import PartitionDays
from kodo_pipeline.landing.tables import DATE, EVENTS
from kodo_pipeline.source.data_source import PulsarStream, read_planned

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from kodo_pipeline.source.options import Options
    from kodo_pipeline.source.partition_stats import PartitionMetadata
    from kodo_pipeline.source.splits import Split
    from kodoctl.pulsar.binary.client import BrokerClient


class EventStream(PulsarStream):
    """Stream of events, with the offsets and splits of the Pulsar source. `roles`: by full name of the topic, of all
    topics to read (PulsarStream.declared); `run`: id of the ingest; `policies`: payload policies by ground topic, of
    those that have one; `looks`, `left`: see PulsarStream.
    """

    def __init__(
        self,
        options: Options,
        roles: Mapping[str, TopicRole],
        run: str,
        policies: Mapping[str, PayloadPolicy],
        looks: Mapping[str, PartitionMetadata] = MappingProxyType({}),
        left: Container[str] = frozenset(),
    ) -> None:
        super().__init__(options)
        self.roles, self.run, self.policies = roles, run, policies
        self.declared, self.looks, self.left = roles, looks, left

    def frame(self, spark: SparkSession, splits: Sequence[Split]) -> DataFrame:
        """The rows of the splits as a frame with a partition for each split, of which there is one at least. Nothing is
        read before a query.
        """
        reader = EventStream(self.options, self.roles, self.run, self.policies)  # goes to tasks: without the plan

        def rows(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    yield from reader.read(InputPartition(splits[number]))

        return spark.range(0, len(splits), 1, len(splits)).mapInArrow(rows, EVENTS.spark(dated=True))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one split with their day (`date`, null for days that
        kodo_pipeline.landing.table_writer.PartitionDays does not permit). Runs in a Python process of an executor.
        Raises the errors of kodo_pipeline.source.split_reader.read_split.
        """
        days = PartitionDays(EVENTS)
        for found in self._events(super().read(partition), partition.value.topic):
            yield found.append_column(DATE, days(found.column("publish_ts")))

    def read_with(self, split: Split, client: BrokerClient) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one split without their day. Runs in any process. `client`, and errors: see
        kodo_pipeline.source.split_reader.read_split.
        """
        return self._events(read_planned(split, self.options, client), split.topic)

    def _events(self, batches: Iterable[pa.RecordBatch], topic: str) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            role = self.roles[topic]
            yield apply_policy(events(batch, role, self.run), self.policies.get(role.topic))
