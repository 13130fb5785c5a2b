# adapter: a command line
"""Service of `pipeline run --every`: runs at equal intervals in one Spark session, with metrics and health over HTTP,
until SIGTERM.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from kodo_pipeline.landing.command_options import new_run
from kodo_pipeline.run.pipeline_metrics import Labels, PipelineCollector, RunRecord
from kodo_pipeline.run.run_deadline import RunDeadline
from kodo_pipeline.run.runner import Runner, RunProgressView, problem_json
from kodo_pipeline.spark.spark_progress import tell_folded
from kodoctl.cli.common.console import defect, one_line, report
from kodoctl.cli.common.options import Format
from kodoctl.errors import ExitCode, KodoctlError, StoppedError, UsageError, error
from kodoctl.host.end_signals import ending_on_signals
from kodoctl.topology.units import Duration

if TYPE_CHECKING:
    import threading

    from kodo_pipeline.run.job import RunResult
    from kodo_pipeline.spark.spark_session import Session, SparkSettings
    from kodoctl.topology.expand import Expansion

RUN_TIMEOUT: Final = 3_600_000  # ms of a run without any progress: a batch or a stage takes minutes
_GRACE: Final = 60.0  # seconds that a cancelled run has to end


def serve(
    runner: Runner,
    expansions: list[Expansion],
    interval: int,
    address: tuple[str, int | None],
    timeout: int = RUN_TIMEOUT,
) -> None:
    """Runs the topologies repeatedly until a signal, and blocks until then. `interval`: ms between the starts of two
    runs; `timeout`: ms without progress after which a run is cancelled; `address`: host and port, port None: no HTTP.
    Raises KodoctlError for errors before the first run; a later run that fails is reported, and the next one tries
    again.
    """
    from kodo_pipeline.evidence.audit_evidence import MessageStatus

    names = {_labels(one): one.name for one in expansions}
    collector = PipelineCollector(
        list(names), [one.value for one in MessageStatus], interval / 1000, _now, timeout / 1000
    )
    with _serve(collector, *address):
        PipelineService(runner, collector, interval / 1000, names, expansions, timeout / 1000).run()


@dataclass(slots=True)
class PipelineService:
    """Repeated runs of topologies. `interval`: seconds between the starts of two runs; `names`: names of the topologies
    whose landings this process has locked; `expansions`: topologies as their files were last read; `timeout`: seconds
    without progress after which a run is cancelled; `grace`: seconds in which it then has to end, else this process
    ends (exit 1).
    """

    runner: Runner
    collector: PipelineCollector
    interval: float
    names: dict[Labels, str]
    expansions: list[Expansion]
    timeout: float = RUN_TIMEOUT / 1000
    grace: float = _GRACE
    _reasons: dict[Labels, object] = field(default_factory=dict)  # of the last verdict, as it was printed in full

    def run(self) -> None:
        """Runs the topologies in a loop until a signal. Replaces a session whose Java process ended, and a light
        session for which a landing has become too large.
        """
        is_stopped, has_begun = False, False
        while not is_stopped:
            try:
                settings = self.runner.settings_for(self.expansions)
                with self.runner.bar.session(settings) as spark, ending_on_signals() as stop:
                    has_begun = True
                    try:
                        self._runs(spark, stop, settings)
                    finally:
                        is_stopped = stop.is_set()
            except KodoctlError as problem:
                if not has_begun:
                    raise
                if is_stopped:
                    break
                self._report_failure(list(self.names), problem)
                with ending_on_signals() as stop:
                    is_stopped = stop.wait(self.interval)
        tell_folded("Stopped; what is complete stays, and the next run goes on behind it.")

    def _runs(self, spark: Session, stop: threading.Event, settings: SparkSettings) -> None:
        """Runs the topologies in one session until a signal, or until Spark ended, or until a light session is
        too small.
        """
        from kodo_pipeline.spark.spark_session import has_ended

        while not stop.is_set():
            began = time.monotonic()
            self.collector.progress()
            self._cycle(spark, stop)
            self.collector.rest()
            gc.collect()  # Java keeps a plan as long as its Python object is there, which is part of a cycle
            stop.wait(max(0.0, began + self.interval - time.monotonic()))
            if has_ended(spark) or (settings.light and not self._are_small()):
                return

    def _are_small(self) -> bool:
        """True if the landings are small, or if their size cannot be read now."""
        try:
            return self.runner.settings_for(self.expansions).light
        except KodoctlError:
            return True

    def _cycle(self, spark: Session, stop: threading.Event) -> None:
        """Runs each topology once, as its file is now. Errors are reported."""
        try:
            self.expansions = self.runner.expansions()
        except KodoctlError as problem:
            self._report_failure(list(self.names), problem)
            return
        known = {_labels(one): one for one in self.expansions}
        for labels, name in self.names.items():
            if stop.is_set():
                return
            if labels in known:
                self._one(spark, known[labels], stop)
            else:
                detail = f"no file declares {name} any more: end this process, or bring the file back"
                self._report_failure([labels], UsageError(error("K701", "one topology file needed", detail)))

    def _one(self, spark: Session, expansion: Expansion, stop: threading.Event) -> None:
        from kodo_pipeline.spark.spark_session import cancel_jobs

        labels = _labels(expansion)
        deadline = RunDeadline(
            self.timeout, self.grace, partial(cancel_jobs, spark), partial(self._end_process, labels)
        )
        view = self._view(labels, expansion.name, deadline)
        result, page = None, None
        try:
            with deadline.watch():
                result = self.runner.result(spark, expansion, view, stop.is_set)
            self.collector.update(_record(labels, result))
            if result.holes is not None:
                self.runner.failure(result.holes, view)
            page = self.runner.page(result, expansion)
        except StoppedError:
            return
        except KodoctlError as problem:
            if not stop.is_set():  # else Java may have had the signal as well
                self._report_failure([labels], self._root_cause(deadline, problem), view)
        except Exception as problem:  # noqa: BLE001 - a process that is to go on for months reports a defect, and goes on
            self._report_failure([labels], self._root_cause(deadline, KodoctlError(defect(problem))), view)
        if result is None:
            return
        why = (result.audit["verdict"], [one["text"] for one in result.audit["reasons"]])
        whole = self._reasons.get(labels) != why
        view.verdict(result, page, expansion.name, whole=whole, pictures=self.runner.pictures(expansion))
        self._reasons[labels] = why

    def _view(self, labels: Labels, name: str, deadline: RunDeadline) -> RunProgressView:
        """The view of one run. It reports each step of progress to the metrics and to `deadline`."""

        def on_landed(messages: int) -> None:
            self.collector.landed(labels, messages)
            deadline.progress("a batch")

        def got_on(stage: str) -> None:
            self.collector.progress()
            deadline.progress(f"the beginning of {stage}")

        runner = self.runner
        return RunProgressView(runner.output, new_run(), runner.bar, name, brief=True, landed=on_landed, got_on=got_on)

    def _root_cause(self, deadline: RunDeadline, problem: KodoctlError) -> KodoctlError:
        """The error to report: that of the deadline if it cancelled the run, whose own error is then in Spark's words."""
        if deadline.exceeded is None:
            return problem
        return self._timed_out(
            deadline.exceeded, "its Spark jobs were cancelled, and the next run goes on behind what is complete"
        )

    def _timed_out(self, last: str, what: str) -> KodoctlError:
        limit = Duration(round(self.timeout * 1000))
        return KodoctlError(
            error("K816", "the run made no progress", f"nothing for {limit} since {last} (--run-timeout): {what}")
        )

    def _end_process(self, labels: Labels, last: str) -> None:
        """Ends this process, because a hanging run cannot be ended otherwise. A supervisor starts another
        process.
        """
        self._report_failure(
            [labels],
            self._timed_out(last, "cancelling its Spark jobs did not end it, so this process ends: start it again"),
        )
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(ExitCode.ERROR)

    def _report_failure(
        self, topologies: list[Labels], problem: KodoctlError, view: RunProgressView | None = None
    ) -> None:
        """Reports a run that came to no verdict, in the log and in the metrics."""
        text = one_line("; ".join(str(one) for one in problem.diagnostics), 300)
        for labels in topologies:
            self.collector.fail(labels, text)
        report(problem.diagnostics)
        if self.runner.output is Format.JSON:
            shown = view or RunProgressView(self.runner.output, new_run(), self.runner.bar)
            shown.line("failed", "", problems=[problem_json(one) for one in problem.diagnostics])


def _record(labels: Labels, result: RunResult) -> RunRecord:
    audit = result.audit
    return RunRecord(
        labels=labels,
        ended=_now(),
        read_at=result.audit["read_at"],
        verdict=audit["verdict"],
        messages={(one["topic"], one["subscription"]): one["messages"] for one in audit["subscriptions"]},
        hole_entries=sum(max(0, one["entries_planned"] - one["entries_seen"]) for one in audit["coverage"]),
        seconds=result.seconds,
        landed=sum(one.events for one in result.landed),
    )


def _labels(expansion: Expansion) -> Labels:
    return str(expansion.namespace), expansion.name, expansion.topology.environment or "base"


@contextmanager
def _serve(collector: PipelineCollector, host: str, port: int | None) -> Iterator[None]:
    """Context with an HTTP server for metrics and probes; without one if `port` is None. Raises UsageError if the
    address cannot be listened on.
    """
    if port is None:
        yield
        return
    from prometheus_client import CollectorRegistry, make_wsgi_app

    from kodoctl.host.metrics_server import MetricsServer, probes

    registry = CollectorRegistry()
    registry.register(collector)
    server = MetricsServer(host, port, probes(make_wsgi_app(registry), collector.health, collector.readiness))
    tell_folded(f"Metrics and health are on http://{server.address}/metrics, /healthz, /readyz")
    try:
        yield
    finally:
        server.close()


def _now() -> int:
    return int(time.time() * 1000)
