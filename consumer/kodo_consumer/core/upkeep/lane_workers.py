"""Lane workers: the live workers of a subscription and the lanes that each of them reads, by the latest stats of each
lane.

Workers may read different lanes, so no lane alone names all of them: limits are shared by the workers of all lanes
together. And a lane may be without any worker: its messages wait, which nothing else reports. No I/O, the clock is
passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.limits.live_workers import LiveWorkerCount
from kodo_consumer.core.values.effects import Alarm
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_consumer.core.values.broker import LaneStats
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.policy import Lane, Policy

PATIENCE: Final = 60.0  # seconds that a lane may be without workers: a roll-out ends them and starts others
REPEAT: Final = 600.0  # seconds until an alarm about the same lanes is repeated


class LaneWorkers:
    """A listener of stats of every lane. `share`: called at each reading of the ground topic's lane with the number of
    workers by which limits are divided: the most that were live within the last 30 s (see LiveWorkerCount).
    """

    def __init__(
        self, policy: Policy, clock: Clock, share: Callable[[int], object], alarm: Callable[[Alarm], object]
    ) -> None:
        self._by_lane: dict[int, frozenset[str]] = {}  # names by index of the lane, as last known
        self._policy, self._clock, self._share, self._alarm = policy, clock, share, alarm
        self._sharers = LiveWorkerCount(policy.expected_workers, clock.now())
        # Names that the ground topic's lane has, or had while another lane has them still.
        self._of_ground: frozenset[str] = frozenset()
        self._without: dict[int, tuple[Lane, float]] = {}  # lanes of others known to have no worker, and since when
        self._reported: tuple[tuple[int, ...], float] = ((), float("-inf"))  # lanes, and when

    @property
    def count(self) -> int:
        """Number of live workers of the subscription, whichever lanes they read.

        Stats of other lanes are older than those of the ground topic's lane: a worker that has left the ground topic's
        lane does not count, even if the last stats of another lane still name it.
        """
        return len(self._by_lane.get(self._policy.ground_lane.index, frozenset()) | self.elsewhere)

    def __call__(self, lane: Lane, stats: LaneStats | None) -> None:
        """Takes the present stats of a lane; None: no answer. Stats of a part of its partitions count only if they name
        workers. For the ground topic's lane, even without an answer, calls `share`, and alarms if a lane that this
        worker does not read has had no worker for 60 s (again after 600 s, or if other lanes have none), and when all
        these lanes have one again.
        """
        now, is_ground = self._clock.now(), lane.index == self._policy.ground_lane.index
        known = stats is not None and (stats.whole or bool(stats.workers))
        if stats is not None and known:
            self._by_lane[lane.index] = stats.workers
            if is_ground:
                self._of_ground = stats.workers | (self._of_ground & self._names)
        if not known or self._by_lane[lane.index] or lane.index < len(self._policy.lanes):
            self._without.pop(lane.index, None)
        else:
            self._without.setdefault(lane.index, (lane, now))
        if is_ground:
            self._share(self._sharers.count(self.count if stats else None, now))
            self._report(now)

    @property
    def _names(self) -> frozenset[str]:
        return frozenset().union(*list(self._by_lane.values()))

    @property
    def elsewhere(self) -> frozenset[str]:
        """Names of live workers that do not read the ground topic's lane."""
        return self._names - self._of_ground

    def _report(self, now: float) -> None:
        """One alarm for all lanes that are without workers when the first of them has been for too long."""
        indexes, (reported, at) = tuple(sorted(self._without)), self._reported
        if any(now - since >= PATIENCE for _, since in self._without.values()):
            if indexes != reported or now - at >= REPEAT:
                self._reported = indexes, now
                self._alarm(Alarm("unread", self._text(indexes)))
        elif reported and all(
            self._by_lane[index] for index in reported
        ):  # what cannot be read is not known to have one
            self._reported = (), now
            self._alarm(Alarm("unread", "every lane has a worker again", good=True))

    def _text(self, indexes: tuple[int, ...]) -> str:
        names = ",".join(self._without[index][0].name for index in indexes)
        where = f"{self._policy.ground} {self._policy.subscription}"
        return (
            f"no live worker reads {many(len(indexes), 'lane')} of {where}, what comes there waits: start a worker with"
            f" `--lanes {names}`, or one without `--lanes`"
        )
