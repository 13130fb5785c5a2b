"""Lane overflow: isolated messages that reached the lane where they wait, but are more than may wait in memory. They
are published to the end of that lane once more, with a due time until which the broker keeps them. No I/O, no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kodo_consumer.core.state.in_flight import Stage
from kodo_consumer.core.values.outcomes import LaneFull

if TYPE_CHECKING:
    from kodo_consumer.core.engine.message_flow import MessageFlow

_FIRST: Final = 60.0  # seconds in which a flood that is still moved aside goes first
_BESIDE: Final = 1_000  # receipts awaited beyond those of a flood that is moved aside, and all of them beside one
_MOST: Final = 1_000  # messages that wait to be put back before their lane is read on
_PAUSE: Final = 0.25  # seconds that a lane is paused at a time


class LaneOverflow:
    """Publishes the isolated messages in `MessageFlow.too_early`, which came before they are due while early messages
    used up their share of memory, to the end of their lanes, so few at a time that other moves do not queue behind
    them.

    Such a move costs the broker an entry of its own, as it has a due time. So during a flood (isolated messages leave a
    ready lane, and others wait until it is read) these moves are put off, for a minute at most, because other messages
    of their lane wait as well. From then on both proceed, and the flood has the larger part.
    """

    def __init__(self, flow: MessageFlow) -> None:
        self._flow = flow
        self._waits_since: float | None = None

    def __len__(self) -> int:
        return sum(1 for in_flight in self._flow.too_early if in_flight.stage is Stage.EVACUATING)

    @property
    def has_work(self) -> bool:
        """True if `publish_pending` must be called: messages are to be put back, or its last call was in a flood."""
        return bool(self._flow.too_early) or self._waits_since is not None

    def publish_pending(self, now: float, most: int, *, is_flooded: bool) -> None:
        """Publishes waiting messages to the end of their lanes, while fewer than `most` + 1,000 messages in all
        (`PendingPublishes.waiting`) have no receipt. During a flood (`is_flooded`: isolated messages are leaving a
        ready lane) it publishes none for a minute from its first call in the flood on, then only while fewer than 1,000
        of its own have no receipt. If 1,000 or more still wait, the lane of the last one is paused for 0.25 s.
        """
        waiting, publishes = self._flow.too_early, self._flow.publishes
        if not self._must_wait(now, is_flooded=is_flooded):
            most_of_these = _BESIDE if is_flooded else most + _BESIDE
            while waiting and publishes.waiting < most + _BESIDE and publishes.put_back < most_of_these:
                in_flight = waiting.popleft()
                if in_flight.stage is Stage.EVACUATING:  # else it was released
                    assert in_flight.headers.due is not None
                    self._flow.apply_decision(in_flight, LaneFull(in_flight.headers.due), now)
        if len(waiting) >= _MOST:
            waiting[-1].lane.paused_until = now + _PAUSE

    def _must_wait(self, now: float, *, is_flooded: bool) -> bool:
        if not is_flooded:
            self._waits_since = None
            return False
        if self._waits_since is None:
            self._waits_since = now
        return now - self._waits_since < _FIRST
