"""Versions of Avro schemas. A version belongs to the ready topic that gave it: `L1:3` is version 3 of L1's topic.

Messages carry it (`kodo-schema`) in topics without a schema: state topics and dead letters. Any sender may write any
text there. So nothing is remembered of a version that does not exist: it would take memory, and hide the next schema of
the topic, which gets that number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.core.values.envelope import State

if TYPE_CHECKING:
    from kodo_consumer.core.values.broker import Cluster
    from kodo_consumer.core.values.policy import Policy

_AHEAD: Final = 8  # versions after the newest known one that are looked up at once: they may be new
_LOOK: Final = 0.1  # seconds between two requests for later ones


class SchemaVersions:
    """Definitions of Avro schema versions, each fetched from the cluster once, while other callers wait. Thread-safe."""

    def __init__(self, policy: Policy, cluster: Cluster, now: Callable[[], float] = time.monotonic) -> None:
        self._topics = {lane.level.value: lane.topic for lane in policy.every_lane if lane.state is State.READY}
        self._cluster, self._now = cluster, now
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int], Mapping[str, Any] | None] = {}  # of versions that there are
        self._newest: dict[str, int] = {}
        self._looked: dict[str, float] = {}

    def definition(self, version: str) -> Mapping[str, Any] | None:
        """Definition of a version such as `L1:3`; None: there is no such version, it is not Avro, or the text has
        another form. A version that is new here is requested from the cluster, which blocks. A version more than 8
        beyond the newest known one is not requested if the cluster was asked in the last 0.1 s: the result is None.
        Raises ClusterError.
        """
        level, _, text = version.partition(":")
        topic = self._topics.get(level)
        if topic is None or not (text.isascii() and text.isdigit() and len(text) < 10):
            return None
        number = int(text)
        with self._lock:
            if (topic, number) not in self._known:
                if not self._exists(topic, number):
                    return None
                self._known[topic, number] = self._cluster.schema(topic, number)
            return self._known[topic, number]

    def _exists(self, topic: str, number: int) -> bool:
        newest = self._newest.get(topic, -1)
        if number > newest:
            now = self._now()
            if number > newest + _AHEAD and now - self._looked.get(topic, float("-inf")) < _LOOK:
                return False
            newest = self._newest[topic] = self._cluster.latest_schema(topic)
            self._looked[topic] = now
        return number <= newest
