"""Avro payloads go on as the bytes they came in, under the schema version they were written with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import pulsar
from pulsar.schema import Schema

from kodoctl.topology.names import whole_topic

_MOST_VERSIONS: Final = 100  # that have producers at a time


class Key(NamedTuple):
    """A producer: its topic, a partition as a rule. `version`: of the schema that its messages have, "": the declared
    one, None: they have none. `delayed`: its messages have a due time and go out one by one. A batch that waits for
    more beside them would go out after messages with higher numbers, and the broker drops such a batch where it
    deduplicates. `again`: for messages that the broker called duplicates of what another producer had sent; that one
    goes on. `compressed`: for messages that are too large as they are.
    """

    topic: str
    version: str | None = None
    delayed: bool = False
    again: bool = False
    compressed: bool = False


class PassThrough(Schema):  # type: ignore[misc]  # the client library has no types
    """Schema that declares the type of the bytes to the broker, and leaves the bytes unchanged."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        super().__init__(bytes, pulsar._pulsar.SchemaType.AVRO, dict(definition), "AVRO")  # noqa: SLF001  # named nowhere else

    def encode(self, obj: Any) -> Any:
        """The bytes of a message that is sent, unchanged."""
        return obj

    def decode(self, data: Any) -> Any:
        """The bytes of a message that was received, unchanged."""
        return data


class SchemaTopics:
    """Topics that are published to with a schema. `versioned`: with the one the message came with; `declared`: with their
    own, where a message brings none.
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
        """`Key.version` for a message that came with this version, "" where it has none. Each has a producer, and senders
        choose versions: those beyond `_MOST_VERSIONS` count as none.
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
        """Schema that the producer announces; None: without one. Raises ClusterError when a version cannot be read."""
        if key.version is None:
            return None
        definition = self._definition(key.version) if key.version else self._declared[whole_topic(key.topic)]
        return None if definition is None else PassThrough(definition)
