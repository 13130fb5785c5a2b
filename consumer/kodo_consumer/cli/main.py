"""`kodo-consumer`: one typer application over the table of its commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import typer

from kodo_consumer.runtime.threads import any_left_behind
from kodoctl import __version__
from kodoctl.cli.common.console import end_process, run_application
from kodoctl.cli.lazy_commands import LazyCommand, LazyGroup, group


class Commands(LazyGroup):
    """Table of all commands: name, function, and first sentence of the help."""

    sections: ClassVar[Mapping[str, Sequence[str]]] = {
        "Run": ("run", "check", "outbox", "inbox", "source"),
        "Steer running workers": ("steer", "pause", "resume", "limit", "weight", "concurrency", "move"),
        "Look": ("why", "dashboards"),
    }
    table = (
        LazyCommand("run", "kodo_consumer.cli.worker_commands:run", "Run consumers until SIGTERM; then drain and exit 0."),
        LazyCommand("check", "kodo_consumer.cli.worker_commands:check", "Compare the topology with the live cluster."),
        LazyCommand("pause", "kodo_consumer.cli.override_commands:pause", "Let a lane or a tenant rest."),
        LazyCommand("resume", "kodo_consumer.cli.override_commands:resume", "End a pause, or (--all) every live order."),
        LazyCommand("weight", "kodo_consumer.cli.override_commands:weight", "Give a tenant more turns for a while."),
        LazyCommand("limit", "kodo_consumer.cli.override_commands:limit", "Change one of the file's limits for a while."),
        LazyCommand("concurrency", "kodo_consumer.cli.override_commands:concurrency", "Change for a while how many slots some lanes may take."),
        LazyCommand("move", "kodo_consumer.cli.override_commands:move", "Send a tenant's messages to another level for a while."),
        LazyCommand("steer", "kodo_consumer.cli.override_commands:steer", "Show the live orders in force, who gave them and until when."),
        LazyCommand("why", "kodo_consumer.cli.why_command:why", "Show every hop of one message and the rule that caused it."),
        LazyCommand("dashboards", "kodo_consumer.cli.dashboard_commands:dashboards", "Write the Grafana dashboard and the Prometheus alert rules."),
        group("outbox", "Messages of an application's own transaction; their relay.", (
            LazyCommand("run", "kodo_consumer.cli.outbox_commands:run", "Send committed messages until SIGTERM."),
            LazyCommand("schema", "kodo_consumer.cli.outbox_commands:schema", "Print the SQL that makes the table and its indexes."),
            LazyCommand("list", "kodo_consumer.cli.outbox_commands:list_rows", "Count rows by status, and show the oldest."),
            LazyCommand("push", "kodo_consumer.cli.outbox_commands:push", "Send rows anew, now, with fresh counters."),
            LazyCommand("hold", "kodo_consumer.cli.outbox_commands:hold", "Keep rows from being sent until they are pushed."),
        )),
        group("inbox", "Messages that workers store before they handle them.", (
            LazyCommand("schema", "kodo_consumer.cli.inbox_commands:schema", "Print the SQL that makes the table and its indexes."),
            LazyCommand("status", "kodo_consumer.cli.inbox_commands:status", "Show depth, age, workers and causes of each subscription."),
            LazyCommand("list", "kodo_consumer.cli.inbox_commands:list_rows", "Count rows by status, and show the oldest."),
            LazyCommand("retry", "kodo_consumer.cli.inbox_commands:retry", "Have rows handled again, now."),
            LazyCommand("discard", "kodo_consumer.cli.inbox_commands:discard", "End waiting rows unhandled, with a reason."),
        )),
        group("source", "Rows that a database commits, sent as messages.", (
            LazyCommand("run", "kodo_consumer.cli.source_commands:run", "Send the rows that a database commits until SIGTERM."),
            LazyCommand("verify", "kodo_consumer.cli.source_commands:verify", "Prove that each commit is stored as messages."),
        )),
    )  # fmt: skip


app = typer.Typer(
    name="kodo-consumer",
    cls=Commands,
    help="The reference consumer of a kodoctl topology.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(asked: bool) -> None:  # typer's callback signature
    if asked:
        typer.echo(f"kodo-consumer {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of kodo-consumer itself."""


def main() -> None:
    """Entry point of the script. If a thread is still inside the client library, the process ends without the
    interpreter's own shutdown, because that would turn the exit code into SIGABRT.
    """
    try:
        run_application(app)
    except SystemExit as end:
        if any_left_behind():
            end_process(end.code if isinstance(end.code, int) else 1, at_once=True)
        raise
