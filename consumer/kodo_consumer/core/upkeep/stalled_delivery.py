"""Stalled delivery: messages are due, consumers have room, and the broker sends none.

Measured causes: more than 50,000 waiting messages with equal delays make the broker pause the whole topic until they
are due, also for messages that are due before; a topic policy with a tick of its own stops delivery for good; so does,
on a shared subscription, a part of a chunked message whose first part is gone or was never sent. All end, the last one
for about a hundred messages, when for a moment the subscription has no consumer: the broker then forgets which messages
it took for delayed, and reads the topic anew. So all workers leave at one moment, on which they need not agree: the
next full ten seconds of the clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.effects import Alarm
from kodo_consumer.core.values.policy import Lane

if TYPE_CHECKING:
    from kodo_consumer.core.values.broker import LaneStats
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.due_times import DueTimes

_SURE: Final = 2  # looks in a row that saw nothing come
_SURER: Final = 6  # the same where nothing is delayed: a dispatch rate, say, is no stand still
_SLACK: Final = 2.0  # seconds a message may be early or late: a tick, and clocks that differ
_ROUND: Final = 10.0  # seconds
_AWAY: Final = 2.0
_PATIENCE: Final = 60.0  # seconds: a large topic takes the broker a while to read
Reconnect = Callable[[Lane, float, float], None]
"""Disconnects a lane in so many seconds, for so many seconds; not while it has messages in flight, because others would
get them as well.
"""


class StalledDeliveryDetector:
    """Listener of stats that notices when the broker sends no messages although some are due. `lanes`: indices of
    stalled lanes. `closely`: a set of the caller, to which the detector adds the indices of lanes whose stats should be
    read each time, and from which it removes them. `unread`: indices of lanes that only other workers read, and can
    reconnect. `dues`: due times of messages that this worker sent.
    """

    def __init__(
        self,
        clock: Clock,
        dues: DueTimes,
        closely: set[int],
        reconnect: Reconnect,
        alarm: Callable[[Alarm], None],
        unread: AbstractSet[int] = frozenset(),
    ) -> None:
        self.lanes: set[int] = set()
        self._clock, self._dues, self._closely = clock, dues, closely
        self._reconnect, self._alarm, self._unread = reconnect, alarm, unread
        self._before: dict[int, LaneStats] = {}
        self._since: dict[int, float] = {}  # by the clock: nothing was seen to come from then on
        self._in_a_row: Counter[int] = Counter()

    def __call__(self, lane: Lane, stats: LaneStats | None) -> None:
        """Takes the present stats of a lane; None: no answer. Nothing follows from stats of a part of its partitions.
        If no message came in two readings in a row (six if the broker delays none) although messages were due, gives
        an alarm and, unless the lane is an `unread` one, plans to disconnect it at the next full ten seconds for 2 s.
        """
        index = lane.index
        if stats is None or not stats.whole:
            self._before.pop(index, None)
            return
        now = self._clock.wall() / 1000
        before, self._before[index] = self._before.get(index), stats
        if before is None or stats.dispatched != before.dispatched or not (stats.delayed or _waits(lane, stats)):
            self._since[index] = now
            self._in_a_row[index] = 0
            self._closely.discard(index)
            self.lanes.discard(index)
        elif not self._should_have_come(lane, before, stats, now):
            self._in_a_row[index] = 0
        else:
            self._closely.add(index)
            self._in_a_row[index] += 1
            if self._in_a_row[index] >= (_SURE if stats.delayed else _SURER):
                self._mend(lane, stats, now)

    def _should_have_come(self, lane: Lane, before: LaneStats, stats: LaneStats, now: float) -> bool:
        """True if messages should have come between both stats, unless the broker's count of delayed ones changes: then
        it reads the topic anew.
        """
        if not (stats.permits and before.permits):
            return False
        due = min(_due_entries(before), _due_entries(stats))
        if due > 0 and stats.delayed == before.delayed:
            return True
        return self._dues.any_between(lane.topic, self._since[lane.index] + _SLACK, now - _SLACK)

    def _mend(self, lane: Lane, stats: LaneStats, wall: float) -> None:
        self.lanes.add(lane.index)
        self._in_a_row[lane.index] = 0  # time to see what comes of it
        self._since[lane.index] = wall + _PATIENCE
        is_unread = lane.index in self._unread
        remedy = "unload the topic, its lane is another worker's" if is_unread else "the lane is connected anew"
        why = (
            f", with {stats.delayed} delayed ones; {remedy}. Equal delays of more than 50,000 messages, or a"
            " delayed-delivery policy of the topic, do this"
            if stats.delayed
            else f"; {remedy}. A part of a chunked message without its first part does this: `pulsar-admin"
            " topics peek-messages` shows the oldest unacknowledged entries, `skip` passes over them"
        )
        text = f"{lane.topic}: messages are due and the broker delivers none{why}"
        self._alarm(Alarm("standstill", text))
        if not is_unread:
            self._reconnect(lane, _ROUND - wall % _ROUND, _AWAY)


def _waits(lane: Lane, stats: LaneStats) -> bool:
    """True if a consumer with room should get messages, delays aside; not where messages of a key wait for others."""
    return not lane.ordered and not stats.blocked and _due_entries(stats) > 0


def _due_entries(stats: LaneStats) -> int:
    """Entries that are due and that no consumer has; 0 where the broker has lost count of its consumers' messages."""
    return 0 if stats.unacknowledged is None else stats.backlog - stats.delayed - stats.unacknowledged
