# adapter: a command line
"""Command `pipeline audit`: reports whether a message was lost or handled twice. It reads landed tables, and from the
cluster only statistics, no messages.
"""

from __future__ import annotations

import json
from contextlib import closing
from typing import Annotated

import typer

from kodo_pipeline.audit.audit_document import AuditDocument
from kodo_pipeline.audit.command_hint import resend_commands
from kodo_pipeline.landing.command_options import (
    LandedFlags,
    Output,
    lightly,
    new_run,
    one_expansion,
)
from kodo_pipeline.spark.spark_progress import Bar
from kodoctl.cli.common import command_target
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import command, say, tell_wait
from kodoctl.cli.common.ledger_option import LedgerOption, ledger_named
from kodoctl.cli.common.options import Format, bundles
from kodoctl.cli.common.terminal import say_folded
from kodoctl.cli.letters.recall_options import signing_keys
from kodoctl.host.private_files import LEDGER

Full = Annotated[bool, typer.Option("--full", help="Judge all that landed, also what earlier audits have settled.")]


@command
@connects
@bundles("asked", LandedFlags)
def audit(
    target: TargetOptions,
    asked: LandedFlags,
    ledger: LedgerOption = None,
    full: Full = False,
    output: Output = Format.TEXT,
) -> None:
    """Tell from landed tables whether a message was lost.

    Exits 0 for no loss, 5 for a loss, 6 for inconclusive.
    """
    run = new_run()
    bar = Bar(output)
    bar.begin(run, "audit of what was landed")
    settings, keys = asked.settings(), signing_keys()
    connection = target.connection()
    expansion = one_expansion(asked.topology, command_target.environment_of(connection, asked.env))
    from kodo_pipeline.audit.audit_inputs import load_inputs
    from kodo_pipeline.audit.audit_text import WHOLE, lines
    from kodo_pipeline.audit.incremental_audit import AuditOptions, judge_landing
    from kodo_pipeline.audit.report import EXIT_CODES
    from kodo_pipeline.audit.verdict import Outcome
    from kodo_pipeline.landing.landing_commits import read_at
    from kodoctl.pulsar.admin.admin_http import HttpAdmin
    from kodoctl.pulsar.connection.wait_monitor import WaitMonitor

    place = asked.place(expansion)
    book = ledger_named(ledger, asked.landing)
    with (
        closing(HttpAdmin(connection, waits=WaitMonitor(tell_wait))) as admin,
        bar.session(lightly(settings, place)) as spark,
    ):
        inputs = load_inputs(spark, place, expansion, admin, book, keys)
        judged = judge_landing(spark, place, inputs, AuditOptions(run, full))
    at = read_at(inputs.snapshot.commits)
    commands = resend_commands(judged["lost"], asked.typed, "" if book == LEDGER else book)
    found: AuditDocument = {"run": run, "read_at": at, **judged, "commands": commands}
    if output is Format.JSON:
        say(json.dumps(found, indent=2))
    else:
        for line in lines(found):
            (say if line.startswith(WHOLE) else say_folded)(line)  # what is to be copied stays in one piece
    raise typer.Exit(EXIT_CODES[Outcome(found["verdict"])])
