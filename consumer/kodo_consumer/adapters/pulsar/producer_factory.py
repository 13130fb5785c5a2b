"""Producer factory: makes the producers of one client, by what their topics ask of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pulsar

from kodo_consumer.adapters.pulsar.client_close import close_client
from kodo_consumer.adapters.pulsar.schema_passthrough import Key, SchemaTopics
from kodo_consumer.core.engine.publishing import SEND_TIMEOUT
from kodoctl.pulsar.binary.compressed_moves import compression
from kodoctl.topology.names import whole_topic

_BATCH_BYTES: Final = 1 << 20
_BATCH_DELAY: Final = 5  # ms
_BATCHING: Final = {True: pulsar.BatchingType.KeyBased, False: pulsar.BatchingType.Default}


@dataclass(frozen=True, kw_only=True)
class ProducerOptions:
    """Options of producers that depend on their topics. `by_key`: topics whose batches hold one key each. `ordered`: topics
    that keep the order of each key, whatever happens to their brokers. `outlets`: those that have schemas.

    `largest`: what topics take at most, in bytes. More than that, a message or a whole batch, has the broker cut the
    connection and the client send it again, for ever and with everything else behind it: such topics get no batches.

    `moves`: messages are a worker's moves. They stay in this cluster where a topic is replicated: the workers of each
    cluster handle what was sent to any of them, and move it by themselves. And one that is too large as it is goes
    compressed (kodoctl.pulsar.binary.compressed_moves).
    """

    by_key: Collection[str] = ()
    ordered: Collection[str] = ()
    outlets: SchemaTopics | None = None
    largest: Mapping[str, int] = field(default_factory=dict)
    moves: bool = False


class ProducerFactory:
    """Asks the broker by one client. Numbers and names: the broker chooses a producer's name, which nobody had before, and
    numbers begin at 2. Without a first number of our own the client takes it from the broker once more with each
    connection until a receipt has come, and so gives the numbers of messages on the way to later ones: where a topic
    deduplicates, the broker drops these.
    """

    def __init__(self, client: Any, options: ProducerOptions) -> None:
        self.options = options
        self._client = client

    def partitions(self, topic: str) -> Sequence[str]:
        """The topics that a topic consists of, as the broker says now."""
        if whole_topic(topic) != topic:
            return [topic]
        found: list[str] = self._client.get_topic_partitions(topic)
        return found

    def key(self, partition: str, version: str, *, delayed: bool = False) -> Key:
        """The producer that a message needs, by its schema version and whether it has a due time."""
        outlets = self.options.outlets
        delayed = delayed and whole_topic(partition) not in self.options.largest
        return Key(partition, None if outlets is None else outlets.version(partition, version), delayed)

    def create(self, key: Key) -> Any:
        """Opens a producer. Raises pulsar.PulsarException, ClusterError."""
        options, whole = self.options, whole_topic(key.topic)
        schema = options.outlets.schema(key) if options.outlets else None
        return self._client.create_producer(
            key.topic,
            **({} if schema is None else {"schema": schema}),
            **({"compression_type": compression(options.largest.get(whole, 0))} if key.compressed else {}),
            initial_sequence_id=1,  # the library takes 0 for none
            send_timeout_millis=int(SEND_TIMEOUT * 1000),
            max_pending_messages=0,  # any number: who sends has a limit of its own, and a full queue would hold up others
            batching_enabled=not (key.delayed or key.compressed) and whole not in options.largest,
            batching_max_messages=1000,
            batching_max_allowed_size_in_bytes=_BATCH_BYTES,
            batching_max_publish_delay_ms=_BATCH_DELAY,
            batching_type=_BATCHING[whole in options.by_key],
        )

    def close(self) -> None:
        """Closes the client, and with it all that it made."""
        close_client(self._client, "a publisher")
