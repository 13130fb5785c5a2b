"""Clock skew detector: compares the clock of this worker with the clock of the broker.

A message that waits is sent with a time by the clock of the worker and delivered by the clock of the broker. The
difference is added to every delay, or taken from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.effects import Alarm
from kodoctl.protocol.clock_difference import clock_ahead

if TYPE_CHECKING:
    from kodo_consumer.core.values.broker import LaneStats
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.policy import Lane

_FAR: Final = 5.0  # seconds; machines that keep time are some ms apart
_SURE: Final = 2  # readings in a row


class ClockSkewDetector:
    """A listener of stats. `ahead`: seconds by which this clock is ahead of the broker's for certain; negative:
    behind, 0: they may agree, None: not known yet.
    """

    def __init__(self, clock: Clock, alarm: Callable[[Alarm], None]) -> None:
        self.ahead: float | None = None
        self._clock, self._alarm = clock, alarm
        self._in_a_row = 0
        self._is_reported = False

    def __call__(self, _lane: Lane, stats: LaneStats | None) -> None:
        """Takes the latest stats of a lane; None: the broker did not answer. Alarms once after two readings in a row
        with a difference of 5 s or more, and then once after two in a row with less.
        """
        if stats is None or stats.server_time is None:
            return
        self.ahead = clock_ahead(self._clock.wall(), stats.server_time, stats.took) / 1000
        if (abs(self.ahead) >= _FAR) == self._is_reported:
            self._in_a_row = 0
            return
        self._in_a_row += 1
        if self._in_a_row >= _SURE:
            self._in_a_row, self._is_reported = 0, not self._is_reported
            self._alarm(Alarm("clock", self._text(self.ahead), good=not self._is_reported))

    def _text(self, ahead: float) -> str:
        if not self._is_reported:
            return "this machine's clock agrees with the broker's again"
        side, what = ("ahead of", "waits so much longer") if ahead > 0 else ("behind", "may come so much early")
        return (
            f"this machine's clock is {abs(ahead):,.0f} s {side} the broker's: what this worker sends to wait {what}."
            " One of them is wrong: let NTP keep both"
        )
