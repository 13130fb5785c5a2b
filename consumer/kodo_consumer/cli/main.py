"""`kodo-consumer`: one typer application from one file a command group. Imports stay lazy, so that --help is quick."""

from __future__ import annotations

import typer

from kodo_consumer.cli import dashboard_commands, outbox_commands, override_commands, why_command, worker_commands
from kodo_consumer.runtime.threads import any_left_behind
from kodoctl.console import end_process, run_application

app = typer.Typer(
    name="kodo-consumer",
    help="The reference consumer of a kodoctl topology.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
worker_commands.register(app)
override_commands.register(app)
why_command.register(app)
outbox_commands.register(app)
dashboard_commands.register(app)


def main() -> None:
    """Entry point of the script. Where a thread was left behind the process ends as it is asked to, but without the
    interpreter's own end, which that thread would turn into SIGABRT.
    """
    try:
        run_application(app)
    except SystemExit as end:
        if any_left_behind():
            end_process(end.code if isinstance(end.code, int) else 1, at_once=True)
        raise
