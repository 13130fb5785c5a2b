"""Arguments and options that the commands of `kodo-consumer` share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

import typer

from kodo_consumer.runtime.log_output import LogFormat, LogLevel, set_up_logging
from kodo_consumer.sending.environment import ConnectionOptions
from kodoctl.cli.common.console import Environment
from kodoctl.cli.common.options import CONNECTION, gathers
from kodoctl.host.host_facts import working_folder

Topology = Annotated[str, typer.Argument(help="The topology file.", metavar="TOPOLOGY")]
Topic = Annotated[str, typer.Option("--topic", help="Ground topic.", metavar="NAME")]
Subscription = Annotated[str, typer.Option("--subscription", help="Its subscription.", metavar="NAME")]
Port = Annotated[
    int | None,
    typer.Option(
        "--port", min=0, max=65535, metavar="PORT", help="Serve /metrics, /healthz and /readyz here; 0: any free one."
    ),
]

connects = gathers("place", {"env": Environment, **CONNECTION}, ConnectionOptions)
"""Decorator that gives a command `--env` and the connection options: they become its parameter `place`, as
Consumer.load takes them.
"""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Level and format of the log, as a command line gives them; None: as the settings say."""

    log_level: LogLevel | None = None
    log_format: LogFormat | None = None

    def apply(self, *, worker: int | None = None) -> None:
        """Sets up the log of this process. If an option is given, this replaces a log output that the program has set
        up; without an option that output stays. `worker`: number of the worker process, from 1, which each entry has;
        None: there is only one. Raises KodoctlError for settings that cannot be read.
        """
        from kodo_consumer.runtime.settings import read_settings

        settings = read_settings(os.environ, working_folder())
        level, form = self.log_level or settings.log_level, self.log_format or settings.log_format
        set_up_logging(level, form, worker=worker, replace=self != LogOptions())


log_options = gathers(
    "logs",
    {
        "log_level": Annotated[
            LogLevel | None,
            typer.Option("--log-level", help="Lowest level of log entries; debug: each message that is done."),
        ],
        "log_format": Annotated[
            LogFormat | None, typer.Option("--log-format", help="Log entries as text, or as a JSON object a line.")
        ],
    },
    LogOptions,
)
"""Decorator that gives a command the options of its log: they become its parameter `logs`."""
