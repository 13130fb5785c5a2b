"""Producer factory: creates the producers of one client, with the options that their topics need."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pulsar

from kodo_consumer.adapters.pulsar.client_close import close_client
from kodo_consumer.adapters.pulsar.schema_passthrough import Key, SchemaTopics
from kodo_consumer.core.engine.publishing import SEND_TIMEOUT
from kodoctl.pulsar.binary.compression_types import compression_type
from kodoctl.topology.names import whole_topic

_BATCH_BYTES: Final = 1 << 20
_BATCH_DELAY: Final = 5  # ms
_BATCHING: Final = {True: pulsar.BatchingType.KeyBased, False: pulsar.BatchingType.Default}


@dataclass(frozen=True, kw_only=True)
class ProducerOptions:
    """Options of producers by topic (names without `-partition-…`). `by_key`: topics whose batches have messages of one
    key each. `ordered`: topics that keep the order of each key, whatever happens to their brokers. `outlets`: the
    topics whose producers have schemas; None: no topic has one.

    `largest`: size limit in bytes by topic. If a message or a whole batch is larger, the broker cuts the connection,
    and the client sends it again, for ever and with everything else behind it: so such topics get no batches, and a
    larger message is rejected, unless it may be compressed and is small enough then (kodoctl.protocol.compression).

    `compression`: algorithm by topic, as the file declares. A topic that is not in it has none.

    `moves`: the messages are a worker's reroutes. They stay in this cluster if a topic is replicated, because the
    workers of each cluster handle and reroute every message by themselves. And a message that is too large goes
    compressed, if that makes it small enough, and may overtake others.
    """

    by_key: Collection[str] = ()
    ordered: Collection[str] = ()
    outlets: SchemaTopics | None = None
    largest: Mapping[str, int] = field(default_factory=dict)
    compression: Mapping[str, str] = field(default_factory=dict)
    moves: bool = False

    def declared(self, topic: str) -> str:
        """Compression algorithm that the topology file declares for a topic or for the topic of a partition; "": none."""
        return self.compression.get(whole_topic(topic), "")

    def is_free(self, topic: str) -> bool:
        """True if a message that is too large in the topic's own way may be sent alone with another compression, and so
        overtake others: always for a worker's moves, else if the topic declares a compression and does not keep the
        order of keys.
        """
        return self.moves or (bool(self.declared(topic)) and whole_topic(topic) not in self.ordered)


class ProducerFactory:
    """Factory of the producers of one client. The broker chooses each producer's name, which is new. Sequence numbers
    begin at 2: if `create` set no first number, the client library would take the broker's number at each connection
    until the first receipt, and could give a later message the number of one that is under way; a topic that
    deduplicates would drop the later one.
    """

    def __init__(self, client: Any, options: ProducerOptions) -> None:
        self.options = options
        self._client = client

    def partitions(self, topic: str) -> Sequence[str]:
        """Names of the partitions of a topic; the topic itself if it is not partitioned or is a partition. Blocks until
        the broker answers, which is not asked about a partition. Raises pulsar.PulsarException.
        """
        if whole_topic(topic) != topic:
            return [topic]
        found: list[str] = self._client.get_topic_partitions(topic)
        return found

    def key(self, partition: str, version: str, *, delayed: bool = False) -> Key:
        """Key of the producer for a message, by its schema version ("": none) and by whether it has a due time
        (`delayed`). A topic in `largest` has one producer for messages with and without a due time.
        """
        outlets = self.options.outlets
        delayed = delayed and whole_topic(partition) not in self.options.largest
        return Key(partition, None if outlets is None else outlets.version(partition, version), delayed)

    def create(self, key: Key) -> Any:
        """Opens a producer, which blocks until the broker answers, and for a new schema version the admin API. Raises
        pulsar.PulsarException; ClusterError if the schema version cannot be read.
        """
        options, whole = self.options, whole_topic(key.topic)
        schema = options.outlets.schema(key) if options.outlets else None
        algorithm = key.compression or options.declared(whole)
        return self._client.create_producer(
            key.topic,
            **({} if schema is None else {"schema": schema}),
            **({"compression_type": compression_type(algorithm)} if algorithm else {}),
            initial_sequence_id=1,  # the library takes 0 for none
            send_timeout_millis=int(SEND_TIMEOUT * 1000),
            max_pending_messages=0,  # any number: who sends has a limit of its own, and a full queue would hold up others
            batching_enabled=not (key.delayed or key.compression) and whole not in options.largest,
            batching_max_messages=1000,
            batching_max_allowed_size_in_bytes=_BATCH_BYTES,
            batching_max_publish_delay_ms=_BATCH_DELAY,
            batching_type=_BATCHING[whole in options.by_key],
        )

    def close(self) -> None:
        """Closes the client with all its producers, or leaves it open after about 5 s; never raises (see close_client).
        Sends without a receipt are given up.
        """
        close_client(self._client, "a publisher")
