"""Arguments and options that the commands of `kodo-consumer` share."""

from __future__ import annotations

from typing import Annotated

import typer

from consumer.wiring import Place
from kodoctl.cli.console import Environment
from kodoctl.cli.options import CONNECTION, gathers

Topology = Annotated[str, typer.Argument(help="The topology file.", metavar="TOPOLOGY")]

connects = gathers("place", {"env": Environment, **CONNECTION}, Place)
"""Gives a command --env and the connection options: its parameter `place` becomes them, as Consumer.load takes them."""
