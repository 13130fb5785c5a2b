"""Schemas that pass Avro payloads through: a message is sent on with unchanged bytes, under the schema version it was
written with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import pulsar
from pulsar.schema import Schema

from kodoctl.topology.names import whole_topic

_MOST_VERSIONS: Final = 100  # that get producers, of all topics together; none is forgotten


class Key(NamedTuple):
    """Key of a producer: messages that differ in one of these fields need different producers.

    Args:
        topic: name of a partition, or of a topic without partitions.
        version: schema version of the messages, such as `L1:3`; "": the declared schema; None: no schema.
        delayed: the messages have a due time. The client library sends them one by one and at once: a batch of other
            messages that waits in the same producer would come after higher sequence numbers, and a broker that
            deduplicates would drop it. False also with a due time if the topic's producers make no batches.
        again: for messages that are sent again because the broker took them for duplicates; the first producer goes on.
        compression: algorithm of messages that are sent alone, because they are too large with the compression that
            the topic declares; "": the declared one, or none.
    """

    topic: str
    version: str | None = None
    delayed: bool = False
    again: bool = False
    compression: str = ""


class PassThrough(Schema):  # type: ignore[misc]  # the client library has no types
    """Schema that declares an Avro definition to the broker and leaves the bytes of messages unchanged."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        super().__init__(bytes, pulsar._pulsar.SchemaType.AVRO, dict(definition), "AVRO")  # noqa: SLF001  # named nowhere else

    def encode(self, obj: Any) -> Any:
        """The bytes of a message that is sent, unchanged."""
        return obj

    def decode(self, data: Any) -> Any:
        """The bytes of a message that was received, unchanged."""
        return data


class SchemaTopics:
    """Topics whose producers have a schema, by names without `-partition-…`. `versioned`: topics whose messages are
    sent under the schema version with which they came (see `version`). `declared`: the Avro definition by topic, for
    all other messages. `definition`: returns the Avro definition of a version such as `L1:3`, or None if there is none,
    such as for a version that does not exist or is not Avro; it may block and raise ClusterError.
    """

    def __init__(
        self,
        versioned: frozenset[str],
        declared: Mapping[str, Mapping[str, Any]],
        definition: Callable[[str], Mapping[str, Any] | None],
    ) -> None:
        self._versioned, self._declared, self._definition = versioned, declared, definition
        self._versions: set[str] = set()

    def version(self, topic: str, version: str) -> str | None:
        """Value of `Key.version` for a message to `topic`, which may be a partition; "": the topic's declared schema,
        None: the topic declares none. `version`: schema version with which the message came; "": none. The version
        counts only if the topic is `versioned`, and if it is one of the first 100 different versions that this object
        got for such topics, whether they exist or not: each needs a producer, and senders choose versions.
        """
        base = whole_topic(topic)
        if version and base in self._versioned and self._is_one_of_few(version):
            return version
        return "" if base in self._declared else None

    def _is_one_of_few(self, version: str) -> bool:
        if len(self._versions) < _MOST_VERSIONS:
            self._versions.add(version)
        return version in self._versions

    def schema(self, key: Key) -> PassThrough | None:
        """Schema that the producer `key` announces; None: the key has no schema, or `definition` returns None for its
        version. May block and raise ClusterError as `definition` does. `key` must have a version that `version`
        returned for its topic: KeyError for "" with a topic that declares no schema.
        """
        if key.version is None:
            return None
        definition = self._definition(key.version) if key.version else self._declared[whole_topic(key.topic)]
        return None if definition is None else PassThrough(definition)
