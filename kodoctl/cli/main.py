"""`kodoctl`: one typer application from one file a command group. Imports stay lazy, so that --help is quick."""

from __future__ import annotations

import gc
from typing import Annotated

import typer

from kodoctl import __version__
from kodoctl.cli import (
    apply_command,
    context_commands,
    destroy_command,
    dev_commands,
    drift_command,
    expansion_commands,
    exporter_command,
    history_commands,
    import_command,
    ownership_commands,
    peek_command,
    pipeline_commands,
    plan_command,
    plan_views,
    recall_commands,
    review_commands,
    status_command,
    topology_commands,
    waiting_commands,
)
from kodoctl.console import run_application

app = typer.Typer(
    name="kodoctl",
    help="Message topologies on Apache Pulsar: declared in one YAML file, planned against the live cluster, applied as reviewed.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
topology_commands.register(app)
expansion_commands.register(app)
plan_command.register(app)
apply_command.register(app)
drift_command.register(app)
destroy_command.register(app)
plan_views.register(app)
review_commands.register(app)
import_command.register(app)
ownership_commands.register(app)
history_commands.register(app)
status_command.register(app)
exporter_command.register(app)
recall_commands.register(app)
waiting_commands.register(app)
peek_command.register(app)
pipeline_commands.register(app)
context_commands.register(app)
dev_commands.register(app)


def _version(asked: bool) -> None:  # typer's callback signature
    if asked:
        typer.echo(f"kodoctl {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of kodoctl itself."""


def main() -> None:
    """Entry point of the script."""
    gc.set_threshold(200_000, 20, 100)  # a command builds many objects, drops few and ends: collecting early is waste
    run_application(app)
