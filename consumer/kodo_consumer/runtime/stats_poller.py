"""Stats poller: reads the topic stats of the lanes of a subscription, at one place for all who need them.

It sends one request or a few every five seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from typing import Final

from kodo_consumer.core.values.broker import Cluster, LaneStats
from kodo_consumer.core.values.policy import Lane, Policy

log = logging.getLogger("kodo.consumer")
LOOK_EVERY: Final = 5.0  # seconds
ROUND: Final = 6  # looks in which every lane is read once: each is at most half a minute old

Listener = Callable[[Lane, LaneStats | None], None]


class StatsReader:
    """The ground topic's lane at every look, the others in turn: reading them all would cost an idle worker a percent
    of a core. Every lane of the subscription is, also those that other workers read.

    `listeners` are called with every reading, on the thread that looks; None: it could not be read. `last` has by lane
    index what was read last, and nothing of a lane that could not be read. `closely`: indices of lanes that are
    to be read at every look. What concerns the subscription as a whole (live workers, its properties) is in the ground
    topic's reading.
    """

    def __init__(self, policy: Policy, cluster: Cluster, listeners: list[Listener], closely: set[int]) -> None:
        self.listeners, self.closely = listeners, closely
        self.last: dict[int, LaneStats] = {}
        self.all_next = False  # the next look reads every lane
        self._subscription, self._cluster = policy.subscription, cluster
        self._first = policy.ground_lane
        self._others = tuple(lane for lane in policy.every_lane if lane is not self._first)
        self._at = 0
        self._ended = False

    def end(self) -> None:
        """Calls no listener any more, also not with an answer that is still awaited."""
        self._ended = True

    def look(self) -> None:
        """Reads the statistics of the lanes whose turn it is, and calls the listeners."""
        count = -(-len(self._others) // ROUND)
        turn = self._others if self.all_next else islice(self._others * 2, self._at, self._at + count)
        self.all_next = False
        closely = (lane for lane in self._others if lane.index in self.closely)
        for lane in dict.fromkeys((self._first, *turn, *closely)):
            if not self._ended:
                self._read(lane)
        self._at = (self._at + count) % max(1, len(self._others))

    def _read(self, lane: Lane) -> None:
        try:
            stats = self._cluster.stats(lane.topic, self._subscription)
        except Exception as problem:  # noqa: BLE001  # whatever it is: limits must not stay as they were for ever
            log.debug("stats of %s cannot be read: %s", lane.topic, problem)
            stats = None
        if self._ended:
            return
        if stats is None:
            self.last.pop(lane.index, None)
        else:
            self.last[lane.index] = stats
        for listener in self.listeners:
            try:
                listener(lane, stats)
            except Exception:  # a failure of ours in one must not keep the others from being called
                log.exception("stats of %s could not be used", lane.topic)
