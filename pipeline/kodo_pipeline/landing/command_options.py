"""Options that the pipeline commands share, settings of a Spark session, and output of progress."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kodo_pipeline.landing.command_line import command_line
from kodo_pipeline.spark.spark_progress import STARTS, Bar
from kodoctl.cli.common import command_target
from kodoctl.cli.common.console import Environment, say, tell
from kodoctl.cli.common.options import Format
from kodoctl.errors import ClusterError, UsageError, error
from kodoctl.host.private_files import LANDING
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kodo_pipeline.landing.landing_store import Landing
    from kodo_pipeline.spark.spark_session import SparkSettings
    from kodoctl.errors import Diagnostic
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.topology.expand import Expansion

File = Annotated[str, typer.Argument(help="The topology file.", metavar="TOPOLOGY")]
LandingOption = Annotated[
    str,
    typer.Option(
        "--landing", help="Where tables live: a folder or an object store that Spark can write.", metavar="PATH"
    ),
]
Master = Annotated[
    str | None,
    typer.Option("--master", help="Spark's master; without it every core of this machine.", metavar="ADDRESS"),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", help="Spark setting, as for spark-submit; may be repeated.", metavar="KEY=VALUE"),
]
Output = Annotated[Format, typer.Option("--format", help="How progress and result are printed.")]


def spark_settings(master: str | None, conf: list[str] | None) -> SparkSettings:
    """Settings of this process's Spark session. An environment variable shows whether `spark-submit` started the
    process. Raises UsageError for an invalid setting, for any `conf` in a process of `spark-submit`, and if the extra
    `spark` is not installed.
    """
    from kodo_pipeline.spark.spark_session import SparkSettings, check_installed, configuration_of

    check_installed()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if submitted and conf:
        raise UsageError(error("K578", "settings of Spark", "--conf belongs before the program: spark-submit has it"))
    return SparkSettings(master, configuration_of(conf or ()), submitted, environ=dict(os.environ))


@dataclass(frozen=True, slots=True)
class LandedFlags:
    """Arguments and options that the commands on a landing share."""

    topology: File
    landing: LandingOption = LANDING
    env: Environment = None
    master: Master = None
    conf: Conf = None

    @property
    def typed(self) -> str:
        """The topology file, and `--env` and `--landing` if they differ from their defaults, as text for a shell, for
        hints that name another command.
        """
        return command_line(self.topology, self.env, self.landing)

    def settings(self) -> SparkSettings:
        """Settings of the Spark session; see spark_settings."""
        return spark_settings(self.master, self.conf)

    def place(self, expansion: Expansion, *, messages: bool = False) -> Landing:
        """Opens the landing of a topology; see `landed_place`."""
        return landed_place(expansion, self.landing, self.typed, messages=messages)


def landed_place(expansion: Expansion, landing: str, typed: str, *, messages: bool = False) -> Landing:
    """Opens the landing of a topology below the folder or object store `landing`. `typed`: arguments of the command, as
    kodo_pipeline.landing.command_line.command_line makes them, for hints.

    Raises UsageError (K801) if no ingest was completed there; with `messages`, if no message has landed, whether or not
    an ingest was completed. Raises KodoctlError if the landing cannot be read (K573, K584) or has topics of another
    namespace (K590).
    """
    from kodo_pipeline.landing.landing_store import Landing, must_be_same_namespace, must_hold

    place = Landing(landing, expansion.name, expansion.topology.environment)
    must_hold(place, typed, messages=messages)
    must_be_same_namespace(place, expansion, place.commits())
    return place


def must_name_broker(connection: Connection) -> None:
    """Raises ClusterError if the connection has no address of the broker's binary port."""
    if connection.broker_url is None:
        detail = "name it with --broker-url, KODOCTL_BROKER_URL or the context's broker_url"
        raise ClusterError(error("K516", "no address of the broker's binary port", detail))


def page_stem(expansion: Expansion) -> str:
    """Beginning of the names of a topology's files: its name, and its environment if it has one, because reports of two
    environments may be written to one folder.
    """
    return "-".join(filter(None, (expansion.name, expansion.topology.environment)))


def lightly(settings: SparkSettings, place: Landing) -> SparkSettings:
    """The settings with `light` set if the landing `place` is small (`Landing.is_small`), else cleared. Reads the
    commits.
    """
    return replace(settings, light=place.is_small())


def new_run() -> str:
    """Makes the id of a run, such as `20260131-120000-1a2b3c4d`. Ids sort by the second (UTC) in which runs began."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


def one_expansion(path: str, environment: str | None) -> Expansion:
    """Expands the one topology that a file, or a folder with one file, declares. Prints the number of its warnings, if
    any, on standard error. Raises UsageError if `path` declares none or several, InvalidFileError if it has errors.
    """
    expansions = command_target.load_desired([path], environment, partial(tell_warnings, [path])).expansions
    if len(expansions) != 1:
        detail = f"{path} holds {', '.join(one.topology.source.name for one in expansions) or 'none'}: name one file"
        raise UsageError(error("K701", "one topology file needed", detail))
    return next(iter(expansions))


def tell_warnings(paths: Sequence[str], warnings: Sequence[Diagnostic]) -> None:
    """Prints on standard error how many warnings the topology files have, and the command that shows them; prints
    nothing without warnings. The warnings themselves are not printed, because a user of this command did not ask about
    the files.
    """
    if warnings:
        tell(f"{many(len(warnings), 'warning')} about the file: {shlex.join(['kodoctl', 'lint', *paths])}")


class PipelineProgress:
    """Progress of a command: lines on standard error for people, or JSON lines with the run's id on standard output.
    Subclasses add the events of a command.
    """

    def __init__(self, output: Format, run: str, bar: Bar | None = None) -> None:
        self.json, self.run, self._began = output is Format.JSON, run, time.monotonic()
        self.bar = bar or Bar(output)

    def line(self, event: str, text: str, **facts: Any) -> None:
        """Prints one event: for people `text` on standard error, else a JSON line on standard output with `event`, the
        run's id and `facts`.
        """
        if self.json:
            say(json.dumps({"event": event, "run": self.run, **facts}))
        else:
            self.bar.tell(text)

    def begin(self, what: str) -> None:
        """Prints the first line of a command: the run's id, `what` it does, and for people how long Spark takes to
        start. Call it before anything slow.
        """
        self.line("begin", f"Run {self.run}: {what}. {STARTS}", command=what)

    @property
    def seconds(self) -> float:
        """Seconds since this object was made."""
        return time.monotonic() - self._began
