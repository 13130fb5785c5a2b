"""Versions of Avro schemas. A version belongs to the ready topic that gave it: `L1:3` is version 3 of L1's topic.

Messages carry it (`kodo-schema`) where their topic keeps none: state topics and dead letters have no schema.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kodo_consumer.core.envelope import State

if TYPE_CHECKING:
    from kodo_consumer.core.broker import Cluster
    from kodo_consumer.core.policy import Policy


class SchemaVersions:
    """Definitions by version, each asked for once. Thread-safe."""

    def __init__(self, policy: Policy, cluster: Cluster) -> None:
        self._topics = {lane.level.value: lane.topic for lane in policy.every_lane if lane.state is State.READY}
        self._cluster = cluster
        self._lock = threading.Lock()
        self._known: dict[str, Mapping[str, Any] | None] = {}

    def definition(self, version: str) -> Mapping[str, Any] | None:
        """None: there is no such version, or what names it is nothing a worker wrote. Raises ClusterError."""
        with self._lock:
            if version not in self._known:
                level, _, number = version.partition(":")
                topic = self._topics.get(level)
                is_one = topic is not None and number.isascii() and number.isdigit() and len(number) < 10
                self._known[version] = self._cluster.schema(topic, int(number)) if topic and is_one else None
            return self._known[version]
