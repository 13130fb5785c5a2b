"""Lane status as metrics for Prometheus. One table of all metrics, for export, documentation
(docs/reference/metrics.md) and tests.

Unknown is never zero: a value that could not be read has no sample, and a counter of failures shows that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from kodoctl.status.lane_status import LaneStatus, StatusReading

TOPIC: Final = ("namespace", "topic")
LANE_LABELS: Final = (*TOPIC, "subscription", "level", "state")
_KEPT: Final = 3  # intervals after which a reading says nothing of the present


@dataclass(frozen=True, slots=True)
class ExportedMetric:
    """A metric: name, `help` text, kind (`gauge` or `counter`) and names of its labels."""

    name: str
    help: str
    kind: str = "gauge"
    labels: tuple[str, ...] = LANE_LABELS

    def family(self) -> GaugeMetricFamily | CounterMetricFamily:
        """A new family of the Prometheus client for this metric, without samples."""
        if self.kind == "counter":
            return CounterMetricFamily(self.name.removesuffix("_total"), self.help, labels=self.labels)
        return GaugeMetricFamily(self.name, self.help, labels=self.labels)


def _of_present(read: Callable[[LaneStatus], float | None]) -> Callable[[LaneStatus, int], float | None]:
    """Returns a reader that gives None for a lane that does not exist, too: its value is unknown, not zero."""
    return lambda lane, _now: read(lane) if lane.there else None


def _unacknowledged_count(lane: LaneStatus, _now: int) -> float | None:
    """Number of unacknowledged messages; None if the broker does not count them, or if its count is negative, after
    consumers died (kodo_consumer.adapters.pulsar.cluster_admin).
    """
    count = lane.unacknowledged
    return count if lane.there and count is not None and count >= 0 else None


def _age(lane: LaneStatus, now: int) -> float | None:
    if not lane.there or (lane.entries and lane.oldest is None):
        return None
    return max(0.0, (now - lane.oldest) / 1000) if lane.oldest is not None else 0.0


LANE_METRICS: Final[tuple[tuple[ExportedMetric, Callable[[LaneStatus, int], float | None]], ...]] = (
    (ExportedMetric("kodo_lane_there", "1 where topic and subscription of a lane are there, else 0."),
     lambda lane, _now: float(lane.there)),
    (ExportedMetric("kodo_lane_entries", "Entries (batches) of a lane that are not acknowledged: its depth."),
     _of_present(lambda lane: lane.entries)),
    (ExportedMetric("kodo_lane_oldest_seconds", "Age of the oldest message of a lane that is not acknowledged; 0 without any."),
     _age),
    (ExportedMetric("kodo_lane_delayed_messages", "Messages of a lane that are not due yet, as far as consumers are connected."),
     _of_present(lambda lane: lane.delayed)),
    (ExportedMetric("kodo_lane_unacknowledged_messages", "Messages of a lane that consumers have. Not of `failover` and `exclusive`: the broker does not count them there."), _unacknowledged_count),
    (ExportedMetric("kodo_lane_in_per_second", "Messages a second that come to a lane's topic, by the broker's last minute."),
     _of_present(lambda lane: lane.rate_in)),
    (ExportedMetric("kodo_lane_acked_per_second", "Messages of a lane that are acknowledged a second: handled, or moved on. Not of `failover` and `exclusive`: the broker does not count them there."),
     _of_present(lambda lane: lane.rate_acked)),
    (ExportedMetric("kodo_lane_consumers", "Consumers connected to a lane."), _of_present(lambda lane: lane.consumers)),
)  # fmt: skip
"""Metrics of a lane. The function gets the lane and the time in ms since the epoch, and returns the value, None if it
is unknown.
"""
FAILURES: Final = ExportedMetric(
    "kodo_status_failures_total", "Readings in which a topic could not be read: its lanes have no samples then.",
    "counter", TOPIC,
)  # fmt: skip
LAST_READ: Final = ExportedMetric(
    "kodo_status_last_read_timestamp_seconds",
    "When the lanes were last read, in seconds since the epoch.",
    labels=(),
)
FILES_VALID: Final = ExportedMetric(
    "kodo_status_files_valid",
    "1 where the topology files are valid; else 0: the lanes are those that they declared before.",
    labels=(),
)
STATUS_METRICS: Final = (*(metric for metric, _ in LANE_METRICS), FAILURES, LAST_READ, FILES_VALID)


class StatusCollector(Collector):
    """Prometheus collector of the last reading. A scrape reads nothing from the cluster. A reading counts for three
    intervals. `every`: seconds between two readings (the interval); `now`: returns ms since the epoch; `files_problem`:
    returns the errors of the topology files, "" if they are valid. One thread may call `update` while others collect.
    """

    def __init__(self, every: float, now: Callable[[], int], files_problem: Callable[[], str] = lambda: "") -> None:
        self._kept = _KEPT * every * 1000
        self._now, self._start = now, now()
        self._files_problem = files_problem
        self._state: tuple[StatusReading | None, dict[tuple[str, str], int]] = (None, {})

    def update(self, reading: StatusReading) -> None:
        """Makes `reading` the last one, and adds its unread topics to the counter of failures, by ground topic."""
        failures = Counter(self._state[1])
        for topology in reading.topologies:
            failures.update({(topology.namespace, lane.ground): 0 for lane in topology.lanes})
        failures.update({(topic.namespace, topic.ground): 0 for topic in reading.unread})
        failures.update((topic.namespace, topic.ground) for topic in reading.unread)
        self._state = (reading, dict(failures))

    def health(self) -> tuple[bool, object]:
        """Answer for /healthz: (True, document) if a reading ended in the last three intervals, or this object is not
        older; else (False, document), and the process should be restarted. The document has `ok` and `problems`.
        """
        reading = self._state[0]
        silent = self._now() - (reading.at if reading else self._start)
        problems = [f"no reading ended for {silent // 1000} s"] if silent > self._kept else []
        return not problems, {"ok": not problems, "problems": problems}

    def readiness(self) -> tuple[bool, object]:
        """Answer for /readyz: (True, document) if the last reading is of the last three intervals, unless it could read
        no topic; else (False, document). The document has `ok` and `problems`, also with True: topics that could not be
        read, and invalid files.
        """
        reading = self._fresh()
        unread = [f"{topic.namespace}/{topic.topic} cannot be read" for topic in reading.unread] if reading else []
        problems = unread if reading else ["the lanes have not been read yet, or not for three intervals"]
        problems = [*problems, *(["the topology files are invalid"] if self._files_problem() else [])]
        well = reading is not None and (not unread or any(topology.lanes for topology in reading.topologies))
        return well, {"ok": well, "problems": problems}

    def _fresh(self) -> StatusReading | None:
        reading = self._state[0]
        return reading if reading is not None and self._now() - reading.at <= self._kept else None

    def describe(self) -> Iterator[Metric]:
        """Yields the metrics without any samples, for their registration."""
        return (metric.family() for metric in STATUS_METRICS)

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics of the last reading for a scrape. If the reading is older than three intervals, lanes have
        no samples. Ages are computed at the time of the scrape.
        """
        (reading, failures), now, fresh = self._state, self._now(), self._fresh()
        for metric, read in LANE_METRICS:
            family = metric.family()
            for topology in fresh.topologies if fresh is not None else ():
                for lane in topology.lanes:
                    if lane.state != "audit" and (value := read(lane, now)) is not None:
                        labels = [topology.namespace, lane.ground, lane.subscription, lane.level, lane.state]
                        family.add_metric(labels, value)
            yield family
        failed = FAILURES.family()
        for names, count in sorted(failures.items()):
            failed.add_metric(names, count)
        yield failed
        yield GaugeMetricFamily(LAST_READ.name, LAST_READ.help, value=reading.at / 1000 if reading else None)
        yield GaugeMetricFamily(
            FILES_VALID.name, FILES_VALID.help, value=float(not self._files_problem()) if reading else None
        )
