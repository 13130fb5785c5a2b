"""Notice that a producer sends messages in chunks, before the first of them fails: workers send no message on in chunks
(kodoctl.protocol.compression says why), so a large one may have nowhere to go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kodo_consumer.core.values.effects import Alarm

if TYPE_CHECKING:
    from kodo_consumer.core.values.broker import LaneStats
    from kodo_consumer.core.values.policy import Lane


class ChunkNotice:
    """Listener of stats that raises one alarm for each topic to which a producer sends messages in chunks."""

    def __init__(self, alarm: Callable[[Alarm], None]) -> None:
        self._alarm = alarm
        self._known: set[str] = set()

    def __call__(self, lane: Lane, stats: LaneStats | None) -> None:
        """Reads the present stats of a lane, None: no answer. Calls `alarm` the first time that they report chunks of
        the lane's topic.
        """
        if stats is None or not stats.chunks or lane.topic in self._known:
            return
        self._known.add(lane.topic)
        text = (
            f"{lane.topic}: a producer sends it messages in chunks. Workers send no message on in chunks: one that is larger"
            " than the broker takes in one piece, compressed as well, can be neither retried nor a dead letter, and is parked"
            " when its handler fails"
        )
        self._alarm(Alarm("chunks", text, severe=False))
