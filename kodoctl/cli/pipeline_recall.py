"""pipeline recall plan|apply: dead letters chosen and sent by Spark. The same plans, ledger and words as `kodoctl recall`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli import plan_options
from kodoctl.cli.command_target import TargetOptions, connects
from kodoctl.cli.options import Format
from kodoctl.cli.pipeline_options import Conf, Master, new_run, spark_settings
from kodoctl.cli.recall_apply import (
    MAX_AGE,
    ApplyFlags,
    Attempt,
    HashOption,
    MaxAge,
    PlanFile,
    RateOption,
    TopologyFile,
    apply_plan,
)
from kodoctl.cli.recall_commands import level_named, patch_in, prepare_plan, remembered, show_plan
from kodoctl.cli.recall_options import (
    LEDGER,
    Again,
    Because,
    File,
    LedgerOption,
    Limit,
    Out,
    Output,
    Patch,
    Store,
    Subscription,
    To,
    Topic,
    Where_,
    family_in,
    signing_keys,
)
from kodoctl.cli.spark_progress import STARTS, Bar, tell_folded
from kodoctl.console import Environment, command
from kodoctl.errors import ClusterError, error
from kodoctl.formatting import many
from kodoctl.pipeline.command_hint import command_line

if TYPE_CHECKING:
    from kodoctl.pulsar.connection import Connection
    from kodoctl.recall.sends_in_flight import ParallelSend

app = typer.Typer(
    name="recall",
    help="Dead letters, chosen and sent again by Spark.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Landed = Annotated[
    str | None,
    typer.Option("--landing", help="Choose among what is landed there, instead of reading the topic.", metavar="PATH"),
]


@app.command("plan")
@command
@connects
def plan(
    target: TargetOptions,
    topology: File,
    topic: Topic,
    subscription: Subscription,
    where: Where_,
    to: To = None,
    limit: Limit = 10_000,
    again: Again = False,
    edit: Patch = None,
    because: Because = "",
    out: Out = None,
    landing: Landed = None,
    ledger: LedgerOption = LEDGER,
    store: Store = None,
    env: Environment = None,
    master: Master = None,
    conf: Conf = None,
    output: Output = Format.TEXT,
) -> None:
    """Choose dead letters with Spark and freeze the choice: the same plan as `recall plan` makes. Sends nothing."""
    bar = Bar(output)
    run = new_run()
    bar.begin(run, "choosing dead letters")
    settings = spark_settings(master, conf)
    from kodoctl.pipeline.ingest.landing_store import Landing, must_hold
    from kodoctl.pipeline.recall.select_job import DeadLetterSelector
    from kodoctl.recall.recall_plan import RecallAction

    with target.session() as session:
        _check_address(session.connection)
        loaded, family = family_in(session, topology, env, topic, subscription)
        patch = patch_in(edit, loaded, topic) if edit else None
        place = Landing(landing, loaded.spec.name, loaded.environment) if landing is not None else None
        if place is not None:
            must_hold(place, command_line(topology, loaded.environment, landing or ""))
        choosing = DeadLetterSelector(session, lambda: bar.session(settings), place)
        with remembered(store, family, again=again) as done:
            made = prepare_plan(
                session, RecallAction.SEND, loaded, family, where, ledger, to=level_named(to), limit=limit, again=again,
                because=because, edit=patch, done=done, fill=choosing, run=run,
            )  # fmt: skip
        show_plan(made, session, out, output, "pipeline recall apply")
    if choosing.unseen > 0:
        entries = many(choosing.unseen, "entry", "entries")
        is_ = "is" if choosing.unseen == 1 else "are"
        tell_folded(
            f"{entries} of the dead letters held now {is_} not landed, so not in the plan; `kodoctl pipeline ingest` lands them."
        )


@app.command("apply")
@command
@connects
def apply(
    target: TargetOptions,
    plan: PlanFile,
    rate: RateOption = "200/s",
    ledger: LedgerOption = LEDGER,
    topology: TopologyFile = None,
    hash_: HashOption = None,
    max_age: MaxAge = MAX_AGE,
    confirm_name: plan_options.Confirm = None,
    master: Master = None,
    conf: Conf = None,
    output: Output = Format.TEXT,
) -> None:
    """Send the letters of a plan in lanes side by side, each exactly once; killed or repeated, it goes on where it was."""
    bar = Bar(output)
    tell_folded(f"Carrying out a recall plan. {STARTS}")
    settings = spark_settings(master, conf)

    def helped(attempt: Attempt) -> ParallelSend:
        from kodoctl.pipeline.recall.send_job import ParallelSender

        bar.tell(f"Run {attempt.plan.run}: the plan's, for every attempt at it.")
        return ParallelSender(
            attempt.plan,
            attempt.session.connection,
            attempt.ledger,
            attempt.edit,
            attempt.per_second,
            attempt.orders,
            lambda: bar.session(settings),
            bar.tell,
            signing_keys(),
            attempt.largest,
        )

    apply_plan(target, ApplyFlags(plan, rate, ledger, topology, hash_, max_age, confirm_name, output), helped)


def _check_address(connection: Connection) -> None:
    if connection.broker_url is None:
        detail = "name it with --broker-url, KODOCTL_BROKER_URL or the context's broker_url"
        raise ClusterError(error("K516", "no address of the broker's binary port", detail))
