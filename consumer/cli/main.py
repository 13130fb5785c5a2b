"""`kodo-consumer`: one typer application from one file a command group. Imports stay lazy, so that --help is quick."""

from __future__ import annotations

import typer

from consumer.cli import dashboard_commands, outbox_commands, steer_commands, why_command, worker_commands
from kodoctl.cli.console import run_application

app = typer.Typer(
    name="kodo-consumer",
    help="The reference consumer of a kodoctl topology.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
worker_commands.register(app)
steer_commands.register(app)
why_command.register(app)
outbox_commands.register(app)
dashboard_commands.register(app)


def main() -> None:
    """Entry point of the script."""
    run_application(app)
