# adapter: draws for people
"""Metrics for Prometheus and health of the pipeline's runs. One table of all metrics, for export, documentation and
tests.

Unknown is never zero: before the first verdict of a topology it has no samples, and a value that a failed run did not
determine has none. The last verdict stays while runs fail, and the lag shows its age.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from kodoctl.status.status_metrics import ExportedMetric

LABELS: Final = ("namespace", "topology", "environment")
VERDICTS: Final = ("no loss", "inconclusive", "loss")
RESULTS: Final = ("verdict", "failed")
_SILENT: Final = 3_600.0  # seconds

Labels = tuple[str, str, str]
"""Namespace, topology, environment."""


@dataclass(frozen=True, slots=True)
class PipelineMetric(ExportedMetric):
    """A metric of the pipeline's runs."""

    labels: tuple[str, ...] = LABELS


VERDICT: Final = PipelineMetric(
    "kodo_pipeline_verdict", "1 for the verdict of the last run that came to one, 0 for the others.", labels=(*LABELS, "verdict")
)  # fmt: skip
MESSAGES: Final = PipelineMetric(
    "kodo_pipeline_messages",
    "Messages of a subscription by status, by the last verdict: lost, done twice, unproved and all others that there are.",
    labels=(*LABELS, "topic", "subscription", "status"),
)
HOLES: Final = PipelineMetric(
    "kodo_pipeline_hole_entries", "Entries that were stored and could not be read, of all that was ever read."
)
LAG: Final = PipelineMetric("kodo_pipeline_lag_seconds", "Time since the last complete reading began: what came later is not judged.")  # fmt: skip
INTERVAL: Final = PipelineMetric("kodo_pipeline_interval_seconds", "Time between two runs, as it was asked for.", labels=())  # fmt: skip
LAST_RUN: Final = PipelineMetric("kodo_pipeline_last_run_timestamp_seconds", "When the last run ended that came to a verdict.")  # fmt: skip
STAGE: Final = PipelineMetric(
    "kodo_pipeline_stage_seconds", "How long a stage of the last run took.", labels=(*LABELS, "stage")
)
LANDED: Final = PipelineMetric("kodo_pipeline_landed_messages_total", "Messages landed by this process.", "counter")
RUNS: Final = PipelineMetric(
    "kodo_pipeline_runs_total", "Runs of this process that came to a verdict, or failed.", "counter", (*LABELS, "result")
)  # fmt: skip
PIPELINE_METRICS: Final = (VERDICT, MESSAGES, HOLES, LAG, INTERVAL, LAST_RUN, STAGE, LANDED, RUNS)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Results of one run, for the metrics. Times are ms since the epoch.

    Args:
        ended: time at which the run came to its verdict.
        read_at: start of the last complete ingest; 0 if no ingest was complete yet.
        verdict: verdict of the run's audit.
        messages: number of messages by status, for each (topic, subscription). All messages that were ever read count,
            not only those of this run.
        hole_entries: number of entries that should have been read and could not be, of all readings.
        seconds: duration of each stage of this run, in seconds.
        landed: number of messages that this run landed.
    """

    labels: Labels
    ended: int
    read_at: int
    verdict: str
    messages: Mapping[tuple[str, str], Mapping[str, int]]
    hole_entries: int
    seconds: Mapping[str, float]
    landed: int


@dataclass(slots=True)
class _Topology:
    record: RunRecord | None = None
    problem: str = "no run has ended yet"
    landed: int = 0
    runs: Counter[str] = field(default_factory=Counter)


class PipelineCollector(Collector):
    """Prometheus collector of the last run of each topology, which also answers probes. `statuses`: statuses of
    messages, which have a sample even at 0; `interval`: seconds between runs; `now`: returns ms since the epoch;
    `silent`: seconds without progress after which a run makes the process unhealthy; `monotonic`: returns seconds of a
    clock that nobody sets, by which progress is timed. For any number of threads.
    """

    def __init__(
        self,
        topologies: Sequence[Labels],
        statuses: Sequence[str],
        interval: float,
        now: Callable[[], int],
        silent: float = _SILENT,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval, self._now, self._statuses, self._silent = interval, now, statuses, silent
        self._lock = threading.Lock()
        self._topologies = {labels: _Topology() for labels in topologies}
        self._monotonic = monotonic
        self._progress_at: float | None = None  # of the run under way

    def progress(self) -> None:
        """Reports that a run begins or makes progress."""
        self._progress_at = self._monotonic()

    def rest(self) -> None:
        """Reports that no run is active."""
        self._progress_at = None

    def landed(self, labels: Labels, messages: int) -> None:
        """Reports a committed batch with this number of messages, which is also progress."""
        with self._lock:
            self._topologies[labels].landed += messages
        self.progress()

    def update(self, record: RunRecord) -> None:
        """Reports a run that came to a verdict."""
        with self._lock:
            found = self._topologies[record.labels]
            found.record, found.problem = record, ""
            found.runs["verdict"] += 1

    def fail(self, labels: Labels, problem: str) -> None:
        """Reports a run that failed, also one whose rollup or report failed after its verdict, which was reported by
        `update`. `problem`: reason, on one line.
        """
        with self._lock:
            found = self._topologies[labels]
            found.problem = problem
            found.runs["failed"] += 1

    def health(self) -> tuple[bool, object]:
        """Answer for /healthz: (is healthy, JSON document). Unhealthy: the active run has made no progress for too
        long, and the process should be restarted.
        """
        at = self._progress_at
        silent = 0.0 if at is None else self._monotonic() - at
        problems = [f"the run under way has made no progress for {silent:.0f} s"] if silent > self._silent else []
        return not problems, {"ok": not problems, "problems": problems, **self._runs()}

    def readiness(self) -> tuple[bool, object]:
        """Answer for /readyz: (is ready, JSON document). Ready: of each topology a run has ended, and the last one did
        not fail, neither before its verdict nor after.
        """
        runs = self._runs()
        well = not any(one["problems"] for one in runs["topologies"])
        return well, {"ok": well, **runs}

    def _runs(self) -> dict[str, list[dict[str, object]]]:
        with self._lock:
            return {
                "topologies": [
                    {
                        **dict(zip(LABELS, labels, strict=True)),
                        "verdict": one.record.verdict if one.record else None,
                        "problems": [one.problem] if one.problem else [],
                    }
                    for labels, one in self._topologies.items()
                ]
            }

    def describe(self) -> Iterator[Metric]:
        """Yields the metrics without any samples, for their registration."""
        return (metric.family() for metric in PIPELINE_METRICS)

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics of the last runs for a scrape. The lag is computed at the time of the scrape."""
        families = {metric.name: metric.family() for metric in PIPELINE_METRICS}
        now = self._now()
        families[INTERVAL.name].add_metric([], self._interval)
        with self._lock:
            for labels, one in self._topologies.items():
                families[LANDED.name].add_metric(labels, one.landed)
                for result in RESULTS:
                    families[RUNS.name].add_metric([*labels, result], one.runs[result])
                if one.record is not None:
                    for name, more, value in _samples(one.record, self._statuses, now):
                        families[name].add_metric([*labels, *more], value)
        yield from families.values()


def _samples(record: RunRecord, statuses: Sequence[str], now: int) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Yields (name of the metric, values of the labels after those of the topology, value)."""
    for verdict in VERDICTS:
        yield VERDICT.name, (verdict,), float(record.verdict == verdict)
    for names, counts in record.messages.items():
        for status in statuses:
            yield MESSAGES.name, (*names, status), counts.get(status, 0)
    yield HOLES.name, (), record.hole_entries
    yield LAST_RUN.name, (), record.ended / 1000
    if record.read_at:
        yield LAG.name, (), max(0.0, (now - record.read_at) / 1000)
    for stage, seconds in record.seconds.items():
        yield STAGE.name, (stage,), seconds
