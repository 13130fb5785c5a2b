"""Schemas that pass Avro payloads through: a message is sent on with unchanged bytes, under the schema version it was
written with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import pulsar
from pulsar.schema import Schema

from kodoctl.topology.names import whole_topic

_MOST_VERSIONS: Final = 100  # that have producers at a time


class Key(NamedTuple):
    """Key of a producer. `topic`: a partition as a rule. `version`: schema version of its messages; "": the declared
    schema, None: no schema. `delayed`: its messages have a due time and are sent one by one, because a batch that waits
    for more messages would be sent after higher numbers, and a broker that deduplicates would drop it. `again`: for
    messages that the broker took for duplicates of another producer's, which continues. `compression`: algorithm of
    messages that are sent alone, because they are too large in their topic's own way; "": that way.
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
    """Topics whose producers have a schema. `versioned`: topics that use the version with which a message came.
    `declared`: the Avro definition by topic, for messages without a version. `definition` reads a version; None: it is
    not Avro.
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
        """`Key.version` for a message to `topic`; None: the topic has no schema. `version`: schema version with which
        the message came; "": none. Each version needs a producer, and senders choose versions: those after the first
        100 count as none.
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
        """Schema that the producer `key` announces; None: no schema, or a version that does not exist or is not Avro. A
        version that is new here is requested from the cluster, which blocks. Raises ClusterError if it cannot be read.
        """
        if key.version is None:
            return None
        definition = self._definition(key.version) if key.version else self._declared[whole_topic(key.topic)]
        return None if definition is None else PassThrough(definition)
