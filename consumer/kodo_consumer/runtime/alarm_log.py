"""Alarm log: alarms of one worker as lines of the log, one line for each kind in a while."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.effects import Alarm

log = logging.getLogger("kodo.consumer")
_QUIET: Final = 30.0  # seconds between two alarms of one kind


class AlarmLog:
    """Written to from any thread. `counts`: alarms by kind, those kept back among them."""

    def __init__(self, clock: Clock) -> None:
        self.counts: Counter[str] = Counter()
        self._clock = clock
        self._written: dict[str, tuple[float, int]] = {}  # by kind: when last, and how many were kept back since

    def write(self, alarm: Alarm) -> None:
        """Tells a person; a line has the number of those kept back before it."""
        now = self._clock.now()
        self.counts[alarm.kind] += 1
        last, kept_back = self._written.get(alarm.kind, (float("-inf"), 0))
        if now - last < _QUIET:
            self._written[alarm.kind] = (last, kept_back + 1)
            return
        self._written[alarm.kind] = (now, 0)
        more = f" (and {kept_back} more since the last line)" if kept_back else ""
        level = logging.INFO if alarm.good else logging.ERROR if alarm.severe else logging.WARNING
        log.log(level, "%s: %s%s", alarm.kind, alarm.text, more)
