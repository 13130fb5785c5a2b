"""Avro payloads go on as the bytes they came in, under the schema version they were written with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pulsar
from pulsar.schema import Schema

from kodoctl.topology.names import whole_topic

Key = str | tuple[str, str]
"""A producer: its topic, and where it publishes with a schema the version of that (empty: the declared one)."""


class PassThrough(Schema):  # type: ignore[misc]  # the client library has no types
    """Tells the broker what the bytes are, and leaves them alone."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        super().__init__(bytes, pulsar._pulsar.SchemaType.AVRO, dict(definition), "AVRO")  # noqa: SLF001  # named nowhere else

    def encode(self, obj: Any) -> Any:
        """The bytes."""
        return obj

    def decode(self, data: Any) -> Any:
        """The bytes."""
        return data


class Outlets:
    """Which topics are published to with a schema. `versioned`: with the one the message came with; `declared`: with their
    own, where a message brings none.
    """

    def __init__(
        self,
        versioned: frozenset[str],
        declared: Mapping[str, Mapping[str, Any]],
        definition: Callable[[str], Mapping[str, Any] | None],
    ) -> None:
        self._versioned, self._declared, self._definition = versioned, declared, definition

    def key(self, topic: str, version: str) -> Key:
        """The producer for a message."""
        base = whole_topic(topic)
        if version and base in self._versioned:
            return topic, version
        return (topic, "") if base in self._declared else topic

    def schema(self, key: Key) -> PassThrough | None:
        """What the producer says of its messages. Raises ClusterError when a version cannot be read."""
        if isinstance(key, str):
            return None
        topic, version = key
        definition = self._definition(version) if version else self._declared[whole_topic(topic)]
        return None if definition is None else PassThrough(definition)
