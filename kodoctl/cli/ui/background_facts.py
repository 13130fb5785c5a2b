"""Facts of the first screen that take time to read: causes of dead letters, and applies that stopped. A thread reads
them after a reading of the lanes, so that no page waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kodoctl.errors import KodoctlError
from kodoctl.ui.first_screen import ScreenFacts, StoppedApply
from kodoctl.ui.message_views import LaneQuestion
from kodoctl.ui.rate_history import lane_key

if TYPE_CHECKING:
    from kodoctl.status.lane_status import LaneStatus, StatusReading, TopologyStatus
    from kodoctl.ui.first_screen import DriftNews
    from kodoctl.ui.letter_causes import LetterCauses
    from kodoctl.ui.rate_history import LaneKey

_AGAIN_S: Final = 30.0  # after which letters of a lane that changed are read again
_STOPPED_S: Final = 300.0  # after which journals are read again
_Figures = tuple[int, int | None]
"""(entries, publish time of the oldest message in ms since the epoch)."""
_UNKNOWN: Final[_Figures] = (0, None)


class BackgroundFacts:
    """The facts as they were read last, and the thread that reads those that may have changed. `read_causes`: reads the
    letters of a lane; `read_stopped`: reads the journals of all topologies; `drift`: returns the drift that somebody
    asked for last. These raise KodoctlError; what cannot be read has no facts.
    """

    def __init__(
        self,
        read_causes: Callable[[LaneQuestion], LetterCauses],
        read_stopped: Callable[[], tuple[StoppedApply, ...]],
        drift: Callable[[], DriftNews | None],
    ) -> None:
        self._read_causes, self._read_stopped, self._drift = read_causes, read_stopped, drift
        self._thread: threading.Thread | None = None
        self._begin = threading.Lock()
        self._causes: dict[LaneKey, LetterCauses] = {}
        self._figures: dict[LaneKey, tuple[_Figures, float]] = {}
        self._stopped: tuple[StoppedApply, ...] = ()
        self._stopped_due = 0.0

    def __call__(self, reading: StatusReading) -> ScreenFacts:
        """Returns the facts, and begins to read changed ones, unless a reading is under way."""
        lanes = [(one, lane) for one in reading.topologies for lane in one.lanes if lane.state == "dead"]
        with self._begin:
            if self._thread is None or not self._thread.is_alive():
                due = [(topology, lane) for topology, lane in lanes if self._is_due(topology, lane)]
                if due or time.monotonic() > self._stopped_due:
                    self._thread = threading.Thread(target=self._read, args=(due,), name="kodo-ui-facts", daemon=True)
                    self._thread.start()
        return ScreenFacts(dict(self._causes), self._stopped, self._drift())

    def _is_due(self, topology: TopologyStatus, lane: LaneStatus) -> bool:
        """True if the lane holds letters, and others than those that were read."""
        figures, at = self._figures.get(lane_key(topology.name, lane), (_UNKNOWN, 0.0))
        return (
            lane.entries > 0 and figures != (lane.entries, lane.oldest) and (not at or time.monotonic() > at + _AGAIN_S)
        )

    def _read(self, lanes: Iterable[tuple[TopologyStatus, LaneStatus]]) -> None:
        for topology, lane in lanes:
            key, figures = lane_key(topology.name, lane), (lane.entries, lane.oldest)
            try:
                self._causes[key] = self._read_causes(LaneQuestion(topology.name, lane.topic, lane.subscription))
            except KodoctlError:
                self._causes.pop(key, None)
                figures = _UNKNOWN  # it is tried again
            except Exception:  # noqa: BLE001  # of a defect the lane's own page tells; the other facts are read
                self._causes.pop(key, None)
            self._figures[key] = figures, time.monotonic()
        if time.monotonic() > self._stopped_due:
            try:
                self._stopped = self._read_stopped()
            except Exception:  # noqa: BLE001  # the page of plans tells of it
                self._stopped = ()
            self._stopped_due = time.monotonic() + _STOPPED_S
