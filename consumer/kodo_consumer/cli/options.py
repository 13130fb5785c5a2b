"""Arguments and options that the commands of `kodo-consumer` share."""

from __future__ import annotations

from typing import Annotated

import typer

from kodo_consumer.sending.environment import ConnectionOptions
from kodoctl.cli.common.console import Environment
from kodoctl.cli.common.options import CONNECTION, gathers

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
