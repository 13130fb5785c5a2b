"""exporter: depth and age of every lane as metrics, independent of running workers."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.common import command_target
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import Environment, Paths, command, finish, one_line, replace_file, report, say, tell
from kodoctl.cli.common.followed_files import FollowedFiles
from kodoctl.errors import ExitCode, KodoctlError, UsageError, error
from kodoctl.host.end_signals import ending_on_signals
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.status.lane_status import StatusReading, UnreadTopic
    from kodoctl.status.status_metrics import StatusCollector


@command
@connects
def exporter(
    target: TargetOptions,
    paths: Paths = None,
    env: Environment = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="Serve metrics over HTTP; 0: any free port.")
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; there is no password.")] = "127.0.0.1",
    textfile: Annotated[
        Path | None,
        typer.Option("--textfile", help="Write metrics to this file, for node_exporter.", metavar="FILE"),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Read once, print or write, exit 1 if a topic was unread.")
    ] = False,
    every: Annotated[
        float, typer.Option("--every", min=1, max=86_400, help="Seconds between two readings.", metavar="SECONDS")
    ] = 30.0,
) -> None:
    """Export depth and age of all lanes as Prometheus metrics.

    Dead letters are among them. Ends at SIGTERM.

    The cluster is read every 30 s (--every), however often it is scraped: one GET a topic, and some for each backlog of
    a ready topic. Changed files are read again before; while they are invalid, those from before count.
    """
    from prometheus_client import CollectorRegistry

    from kodoctl.status.status_metrics import StatusCollector

    if once and port is not None:
        raise UsageError(
            error("K029", "nothing to export to", "--once ends at once, so that nobody can scrape --port: name one")
        )
    if port is None and textfile is None and not once:
        raise UsageError(error("K029", "nothing to export to", "name --port, --textfile or both, or --once to print"))
    connection = target.connection()
    files = FollowedFiles(paths, command_target.environment_of(connection, env), report)
    declared = DeclaredTopics(files, command_target.shown_target(connection))
    declared.latest()
    collector = StatusCollector(every, _now, lambda: declared.problem)
    registry = CollectorRegistry()
    registry.register(collector)
    with ending_on_signals() as stopped, _reader(connection, declared, every, stopped) as read:
        if once:
            collector.update(reading := read())
            _publish(registry, textfile)
            _tell_unread(reading.unread, ())
            finish(ExitCode.ERROR if reading.unread else ExitCode.OK)
        with _serve_metrics(registry, collector, host, port):
            _run(collector.update, read, registry, textfile, every, stopped)


def _run(
    update: Callable[[StatusReading], None],
    read: Callable[[], StatusReading],
    registry: CollectorRegistry,
    textfile: Path | None,
    every: float,
    stopped: threading.Event,
) -> None:
    """Reads the lanes every `every` seconds and publishes the metrics, until `stopped` is set. A file that cannot be
    written is reported and tried again.
    """
    before: tuple[UnreadTopic, ...] = ()
    while not stopped.is_set():
        began = time.monotonic()
        reading = read()
        if stopped.is_set():
            return
        update(reading)
        _tell_unread(reading.unread, before)
        before = reading.unread
        if textfile is not None:
            try:
                _publish(registry, textfile)
            except KodoctlError as problem:  # a disk that is full now may have room at the next
                report(problem.diagnostics)
        gc.collect()  # main has it collect rarely, for commands that end
        stopped.wait(max(0.0, began + every - time.monotonic()))


@contextmanager
def _reader(
    connection: Connection, declared: DeclaredTopics, every: float, stopped: threading.Event
) -> Iterator[Callable[[], StatusReading]]:
    """Context with a function that reads all lanes of the files as they are then. A reading that takes longer than
    `every` seconds, or is stopped, leaves the rest of the topics unread.
    """
    from kodoctl.pulsar.admin.admin_http import HttpAdmin
    from kodoctl.status.lane_status import StatusReading
    from kodoctl.status.status_reader import read_lanes

    admin = HttpAdmin(connection, limit=0.0)

    def read() -> StatusReading:
        desired = declared.latest()
        end = time.monotonic() + every

        def over() -> bool:
            return stopped.is_set() or time.monotonic() > end

        statuses, unread = read_lanes(admin, desired.expansions, over)
        return StatusReading(_now(), statuses, unread)

    try:
        yield read
    finally:
        admin.close()


class DeclaredTopics:
    """Topology files of the exporter, which are read again while it runs. `latest` prints the number of topics at first
    and after each new reading of the files (`target`: text about the cluster), and errors of invalid files once.
    `problem`: text of these errors, by the last call of `latest`; "" for valid files.
    """

    def __init__(self, files: FollowedFiles, target: str) -> None:
        self._files, self._target = files, target
        self._known: Desired | None = None
        self.problem = ""

    def latest(self) -> Desired:
        """Returns the objects that the files declare, or declared when they were last valid. Raises InvalidFileError,
        UsageError if they never were.
        """
        found, failure = self._files.latest(), self._files.problem
        before, self.problem = self.problem, str(failure) if failure is not None else ""
        if failure is not None and self.problem != before:
            report(failure.diagnostics)
            tell("The files are invalid now: the lanes are those that they declared before.")
        if found is not self._known:
            self._known = found
            topics = sum(len(expansion.topics) for expansion in found.expansions)
            tell(f"Reading {many(topics, 'topic')} of {self._target}")
        return found


@contextmanager
def _serve_metrics(
    registry: CollectorRegistry, collector: StatusCollector, host: str, port: int | None
) -> Iterator[None]:
    """Context that serves metrics and probes over HTTP; without a port it does nothing. Raises UsageError if the port
    cannot be used.
    """
    if port is None:
        yield
        return
    from prometheus_client import make_wsgi_app

    from kodoctl.host.metrics_server import MetricsServer, probes

    server = MetricsServer(host, port, probes(make_wsgi_app(registry), collector.health, collector.readiness))
    tell(f"Metrics are on http://{server.address}/metrics")
    try:
        yield
    finally:
        server.close()


def _publish(registry: CollectorRegistry, textfile: Path | None) -> None:
    """Writes the metrics to the file in one step, so that no reader sees a part; without a file prints them."""
    from prometheus_client import generate_latest

    text = generate_latest(registry)
    if textfile is None:
        say(text.decode(), newline=False)
        return
    replace_file(textfile, text)


def _tell_unread(unread: tuple[UnreadTopic, ...], before: tuple[UnreadTopic, ...]) -> None:
    """Prints only changes: one line for each topic that can no longer be read, and one line when all topics can
    be read again.
    """
    known = {(topic.namespace, topic.topic) for topic in before}
    for topic in unread:
        if (topic.namespace, topic.topic) not in known:
            tell(f"{topic.namespace}/{topic.topic} cannot be read: {one_line(topic.reason, 200)}")
    if before and not unread:
        tell("All topics can be read again.")


def _now() -> int:
    return int(time.time() * 1000)
