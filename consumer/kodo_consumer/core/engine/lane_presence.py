"""Presence of the worker at its lanes: it leaves a waiting lane that an order pauses, so that others may take its
messages (such as the command `kodoctl waiting`), and a ready lane whose cursor a command moves (`kodoctl replay`). It
joins the lane again when the pause ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.state.in_flight import UNSTARTED, Stage

if TYPE_CHECKING:
    from kodo_consumer.core.engine.hand_over import HandOver
    from kodo_consumer.core.state.engine_context import EngineContext
    from kodo_consumer.core.state.in_flight import LaneState

_HARMLESS: Final = UNSTARTED | {Stage.UNDELIVERABLE}


class LanePresence:
    """Leaves (disconnects from) a lane that an order pauses, once none of its messages runs, is deferred, is being
    published or waits for its audit record; joins it again when the pause ends. Ready lanes, except those of a backup
    level, are left only while a command moves their cursor, because their readers count as live workers. `rewound`:
    indices of the paused lanes whose cursor moves; `away`: indices of the lanes that are left. All calls need the
    engine's lock.
    """

    def __init__(self, context: EngineContext, lanes: Sequence[LaneState], handover: HandOver) -> None:
        self._context, self._handover = context, handover
        self.rewound: AbstractSet[int] = frozenset()
        self.away: set[int] = set()
        self._lanes = lanes

    @property
    def leaving(self) -> bool:
        """True if a paused lane that is to be left is not left yet."""
        return any(self._is_to_leave(lane) and lane.lane.index not in self.away for lane in self._lanes)

    def update(self) -> None:
        """Adds effects to leave paused lanes and to join lanes whose pause is over. Unstarted messages of a lane that
        is left are released; Engine.deliver drops later deliveries, which the broker repeats, to this worker or
        another. Messages that a moved cursor brings again are not taken for copies of those that were acknowledged
        before, except messages of an entry (batch) in which another one is parked.
        """
        for lane in self._lanes:
            index = lane.lane.index
            if self._is_to_leave(lane) is (index in self.away):
                continue
            if index in self.away:
                self.away.discard(index)
                self._context.effects.join(index)
            elif all(in_flight.stage in _HARMLESS for in_flight in lane):
                self.away.add(index)
                if index in self.rewound:
                    self._handover.on_disconnect(lane)
                    lane.forget_acknowledged()
                else:
                    self._handover.drop_unstarted(lane)
                self._context.effects.leave(index)

    def _is_to_leave(self, lane: LaneState) -> bool:
        return lane.paused_by_override and (lane.lane.is_waiting or lane.lane.index in self.rewound)
