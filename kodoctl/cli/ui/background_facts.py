"""Facts of the first screen that take time to read: causes of dead letters and of waiting messages, and applies that
stopped. A thread reads them after a reading of the lanes, so that no page waits for them. It sends about as many
requests as that reading.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
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
_SOON_S: Final = 5.0  # the same for a lane of few messages
_FEW: Final = 1_000
_STOPPED_S: Final = 300.0  # after which journals are read again
_Figures = tuple[int, int | None]
"""(entries, publish time of the oldest message in ms since the epoch)."""
_UNKNOWN: Final[_Figures] = (0, None)


class BackgroundFacts:
    """The facts as they were read last, and the thread that reads changed ones again. Facts that cannot be read are
    left out.

    Args:
        read_causes: reads the messages of a lane; may raise KodoctlError.
        read_stopped: reads the journals of all topologies; may raise KodoctlError.
        drift: returns the drift that somebody requested last; must not raise.
        limits: words for the limits, by (topology, ground topic, subscription, state), as in ScreenFacts.
        tenants: property that tells tenants apart, by (topology, ground topic).
    """

    def __init__(
        self,
        read_causes: Callable[[LaneQuestion], LetterCauses],
        read_stopped: Callable[[], tuple[StoppedApply, ...]],
        drift: Callable[[], DriftNews | None],
        limits: Mapping[tuple[str, str, str, str], str] = MappingProxyType({}),
        tenants: Mapping[tuple[str, str], str] = MappingProxyType({}),
    ) -> None:
        self._read_causes, self._read_stopped, self._drift = read_causes, read_stopped, drift
        self._limits, self._tenants, self._last_at = limits, tenants, 0
        self._thread: threading.Thread | None = None
        self._begin = threading.Lock()
        self._causes: dict[LaneKey, LetterCauses] = {}
        self._figures: dict[LaneKey, tuple[_Figures, float]] = {}
        self._stopped: tuple[StoppedApply, ...] = ()
        self._stopped_due = 0.0

    def __call__(self, reading: StatusReading) -> ScreenFacts:
        """Returns the facts as they were read last, without waiting. Also starts a thread that reads the facts that
        `reading` shows as changed, of many only a part: once for each reading, and not while an earlier thread runs.
        """
        with self._begin:
            if reading.at != self._last_at and (self._thread is None or not self._thread.is_alive()):
                self._last_at, due = reading.at, list(self._due(reading))
                if due or time.monotonic() > self._stopped_due:
                    self._thread = threading.Thread(target=self._read, args=(due,), name="kodo-ui-facts", daemon=True)
                    self._thread.start()
        return ScreenFacts(dict(self._causes), self._stopped, self._drift(), self._limits, self._tenants)

    def _due(self, reading: StatusReading) -> Iterator[tuple[TopologyStatus, LaneStatus]]:
        """Yields the lanes to read now, with about as many requests as `reading` has topics: those first that were read
        longest ago, so that dead letters that come all the time do not keep waiting lanes from being read; of equal
        ones dead letters first.
        """
        lanes = [(one, lane) for one in reading.topologies for lane in one.lanes]
        left = len({(one.name, lane.topic) for one, lane in lanes})
        due = [(one, lane) for one, lane in lanes if lane.has_causes and self._is_due(one, lane)]
        for one, lane in sorted(due, key=lambda place: (self._last(*place)[1], place[1].is_read)):
            if left <= 0:
                return
            left -= 1 + max(1, lane.partitions)
            yield one, lane

    def _last(self, topology: TopologyStatus, lane: LaneStatus) -> tuple[_Figures, float]:
        """Figures of the lane when it was read last, and the time; 0 for never."""
        return self._figures.get(lane_key(topology.name, lane), (_UNKNOWN, 0.0))

    def _is_due(self, topology: TopologyStatus, lane: LaneStatus) -> bool:
        """True if the lane holds messages, and others than those that were read."""
        figures, at = self._last(topology, lane)
        found = self._causes.get(lane_key(topology.name, lane))
        rest = _SOON_S if found is not None and found.complete and found.read <= _FEW else _AGAIN_S
        return lane.entries > 0 and figures != (lane.entries, lane.oldest) and (not at or time.monotonic() > at + rest)

    def _read(self, lanes: Iterable[tuple[TopologyStatus, LaneStatus]]) -> None:
        for topology, lane in lanes:
            key, figures = lane_key(topology.name, lane), (lane.entries, lane.oldest)
            try:
                found = self._read_causes(LaneQuestion(topology.name, lane.topic, lane.subscription))
                self._causes[key] = replace(found, entries=lane.entries, oldest=lane.oldest)
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
