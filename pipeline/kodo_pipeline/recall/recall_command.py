"""Commands `pipeline recall plan` and `apply`: Spark chooses dead or lost messages, and sends letters. Plans, recall
ledger and output are those of `kodoctl recall`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kodo_pipeline.landing.command_line import command_line
from kodo_pipeline.landing.command_options import Conf, Master, landed_place, must_name_broker, new_run, spark_settings
from kodo_pipeline.recall.lost_planning import LostChoice, choose_lost
from kodo_pipeline.spark.spark_progress import STARTS, Bar, tell_folded
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import command
from kodoctl.cli.common.options import Format, bundles
from kodoctl.cli.letters.recall_apply import apply_plan
from kodoctl.cli.letters.recall_commands import prepare_plan, show_plan
from kodoctl.cli.letters.recall_options import ApplyFlags, ChoiceFlags, Output, family_in, signing_keys
from kodoctl.errors import UsageError, error
from kodoctl.host.private_files import LANDING
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from contextlib import ExitStack

    from kodoctl.cli.letters.recall_apply import ApprovedPlan
    from kodoctl.recall.send.sends_in_flight import ParallelSend, SendOptions

Landed = Annotated[
    str | None,
    typer.Option("--landing", help="Choose among what is landed there, instead of reading the topic.", metavar="PATH"),
]


Lost = Annotated[
    bool,
    typer.Option("--lost", help="Choose messages that the audit calls lost, and send them from the landing."),
]
Unproved = Annotated[
    bool,
    typer.Option(
        "--unproved",
        help="Also those that it cannot prove done: what was done without proof is done twice.",
    ),
]
Lane = Annotated[
    str | None,
    typer.Option("--lane", help="Lane that lost them, such as L1/ready, L1/retrying, dead.", metavar="NAME"),
]


@command
@connects
@bundles("asked", ChoiceFlags)
def plan(
    target: TargetOptions,
    asked: ChoiceFlags,
    landing: Landed = None,
    lost: Lost = False,
    unproved: Unproved = False,
    lane: Lane = None,
    master: Master = None,
    conf: Conf = None,
    output: Output = Format.TEXT,
) -> None:
    """Choose dead or lost messages with Spark; makes a plan.

    The plan is as `recall plan` makes it. Sends nothing.
    """
    if lost or unproved:
        choose_lost(target, asked, LostChoice(landing or LANDING, unproved, lane), spark_settings(master, conf), output)
        return
    if lane is not None:
        detail = f"--lane {lane}: dead letters are in one lane; --lost chooses what a lane lost"
        raise UsageError(error("K825", "an option of lost messages", detail))
    if not (asked.topic and asked.subscription):
        detail = "--topic and --subscription name the dead letters; only lost messages are chosen of all at once"
        raise UsageError(error("K825", "an option of lost messages", detail))
    bar = Bar(output)
    run = new_run()
    bar.begin(run, "choosing dead letters")
    settings = spark_settings(master, conf)
    from kodo_pipeline.recall.select_job import DeadLetterSelector
    from kodoctl.recall.plan.recall_plan import RecallAction
    from kodoctl.topology.expand import expand

    with target.session() as session:
        must_name_broker(session.connection)
        loaded, family = family_in(session, asked.topology, asked.env, asked.topic, asked.subscription)
        typed = command_line(asked.topology, loaded.environment, landing or "")
        place = landed_place(expand(loaded), landing, typed) if landing is not None else None
        choosing = DeadLetterSelector(session, lambda: bar.session(settings), place)
        made = prepare_plan(session, RecallAction.SEND, asked, loaded, family, fill=choosing, run=run)
        show_plan(made, session, asked.out, output, "pipeline recall apply")
    if place is not None and choosing.unseen > 0:
        entries = many(choosing.unseen, "entry", "entries")
        is_ = "is" if choosing.unseen == 1 else "are"
        tell_folded(
            f"{entries} of the dead letters held now {is_} not landed, so not in the plan; `kodoctl pipeline ingest` lands them."
        )


@command
@connects
@bundles("asked", ApplyFlags)
def apply(
    target: TargetOptions,
    asked: ApplyFlags,
    master: Master = None,
    conf: Conf = None,
    output: Output = Format.TEXT,
) -> None:
    """Send the letters of a plan, each exactly once.

    Sends in lanes side by side. Killed or repeated, the command continues where it was.
    """
    bar = Bar(output)
    tell_folded(f"Carrying out a recall plan. {STARTS}")
    settings = spark_settings(master, conf)

    def parallel_sender(approved: ApprovedPlan, options: SendOptions, stack: ExitStack) -> ParallelSend:
        from kodo_pipeline.recall.send_job import ParallelSender

        bar.tell(f"Run {approved.plan.run}: the plan's, for every attempt at it.")
        return ParallelSender(
            approved.session.connection,
            approved.ledger,
            approved.edit,
            approved.per_second,
            options,
            lambda: bar.session(settings),
            bar.tell,
            stack,
            signing_keys(),
            approved.largest,
            approved.compression,
        )

    apply_plan(target, asked, output, parallel_sender)
