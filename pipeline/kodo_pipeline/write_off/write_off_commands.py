# adapter: a command line
"""Commands `pipeline write-off plan` and `apply`: accept losses and doubts by name, after a review, and book them in
the landing.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from kodo_pipeline.landing.command_options import LandedFlags, Output, lightly, new_run, one_expansion, spark_settings
from kodo_pipeline.spark.spark_progress import Bar, tell_folded
from kodoctl.cli.apply.apply_flow import ask
from kodoctl.cli.common import command_target
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import command, is_terminal, say, tell_wait
from kodoctl.cli.common.ledger_option import LedgerOption, ledger_named
from kodoctl.cli.common.options import Format, bundles
from kodoctl.cli.common.plan_files import read_plan_text, write_plan_text
from kodoctl.cli.common.terminal import say_folded
from kodoctl.cli.letters.recall_options import signing_keys
from kodoctl.errors import RefusedError, UsageError, error
from kodoctl.host.host_facts import user_name
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_pipeline.audit.job import AuditResult
    from kodo_pipeline.write_off.write_off_plan import WriteOffPlan
    from kodoctl.topology.expand import Expansion

Reason = Annotated[
    str, typer.Option("--reason", help="Why, for the record and for the notes of audits.", metavar="TEXT")
]
Topic = Annotated[str | None, typer.Option("--topic", help="Of one ground topic; without it of all.", metavar="TOPIC")]
Subscription = Annotated[
    str | None, typer.Option("--subscription", help="Of one subscription; without it of all.", metavar="NAME")
]
Out = Annotated[
    str | None, typer.Option("-o", "--out", help="Write the plan to this file, for `write-off apply`.", metavar="FILE")
]
PlanFile = Annotated[str, typer.Argument(help="A file of `pipeline write-off plan`.", metavar="PLAN")]
Hash = Annotated[str | None, typer.Option("--hash", help="The plan's hash, which confirms it.", metavar="HASH")]


@command
@connects
@bundles("asked", LandedFlags)
def plan(
    target: TargetOptions,
    asked: LandedFlags,
    reason: Reason,
    topic: Topic = None,
    subscription: Subscription = None,
    out: Out = None,
    ledger: LedgerOption = None,
    output: Output = Format.TEXT,
) -> None:
    """Choose losses and doubts to settle; makes a plan.

    For losses and doubts that cannot be cured. The plan names each of them, and has a hash. Books nothing.
    """
    if not reason.strip():
        raise UsageError(
            error("K828", "a write-off that cannot be meant", "--reason is empty: say why nobody has to look again")
        )
    settings, keys = asked.settings(), signing_keys()
    connection = target.connection()
    expansion = one_expansion(asked.topology, command_target.environment_of(connection, asked.env))
    if topic is not None and topic not in (known := expansion.topology.spec.topics):
        detail = f"--topic {topic}: the file has {', '.join(known)}"
        raise UsageError(error("K828", "a write-off that cannot be meant", detail))
    run = new_run()
    bar = Bar(output)
    bar.begin(run, "choosing what is written off")
    from kodo_pipeline.audit.audit_inputs import load_inputs
    from kodo_pipeline.audit.job import classify_inputs
    from kodoctl.pulsar.admin.admin_http import HttpAdmin
    from kodoctl.pulsar.connection.wait_monitor import WaitMonitor

    place = asked.place(expansion)
    with (
        closing(HttpAdmin(connection, waits=WaitMonitor(tell_wait))) as admin,
        bar.session(lightly(settings, place)) as spark,
    ):
        inputs = load_inputs(spark, place, expansion, admin, ledger_named(ledger, asked.landing), keys)
        with classify_inputs(spark, inputs) as audited:
            made = _plan(audited, expansion, (topic, subscription), run, asked.landing, reason)
    _show(made, out, output)


def _plan(
    audited: AuditResult,
    expansion: Expansion,
    chosen_of: tuple[str | None, str | None],
    run: str,
    landing: str,
    reason: str,
) -> WriteOffPlan:
    from kodo_pipeline.audit.verdict import decide_verdict
    from kodo_pipeline.audit.write_offs import MESSAGE, WriteOffs, WrittenOff, standing, without_messages
    from kodo_pipeline.recall.lost_planning import choice_uri
    from kodo_pipeline.write_off.write_off_plan import MORE, MOST, WriteOffPlan, choose_items

    evidence = audited.evidence()
    known = audited.bookings.write_offs
    places = audited.places(*chosen_of, MOST + 1)
    messages = [WrittenOff(MESSAGE, of, int(name.split(":")[2]), reader, name) for of, reader, name in places[:MOST]]
    grounds = {one.name.full: one.ground for one in expansion.topics}
    doubts = choose_items(standing(evidence, known), *chosen_of, grounds)
    items = (*messages, *doubts)
    settled = WriteOffs({**known.counts, **{one._replace(number=0): one.number for one in items}})
    left = decide_verdict(settled.applied(without_messages(evidence, *chosen_of)))
    return WriteOffPlan(
        run,
        int(time.time() * 1000),
        expansion.name,
        expansion.topology.environment,
        choice_uri(landing),
        reason,
        decide_verdict(known.applied(evidence)).outcome.value,
        items,
        (*[MORE] * (len(places) > MOST), *(one.text for one in left.reasons)),
    )


def _show(made: WriteOffPlan, out: str | None, output: Format) -> None:
    from kodo_pipeline.audit.write_offs import describe_items

    document = made.document()
    if out is not None:
        write_plan_text(json.dumps(document, indent=1) + "\n", out)
    if output is Format.JSON:
        say(json.dumps(document, indent=2))
        return
    say_folded(f"Write-off in {made.topology}: {made.reason}")
    for line in describe_items(made.items):
        say_folded(f"  {line}", 4)
    if not made.items:
        say_folded("  nothing: no loss and no doubt that a write-off settles")
    for text in made.stays:
        say_folded(f"  stays: {text}", 4)
    say(f"hash: {document['hash']}")
    if out is not None:
        tell_folded(f"Plan written to {out}; book it with: kodoctl pipeline write-off apply {out}")


@command
def apply(plan: PlanFile, hash_: Hash = None, output: Output = Format.TEXT) -> None:
    """Book a plan: verdicts then leave out what it names.

    They say so in a note. A plan that is applied twice is booked once.
    """
    from kodo_pipeline.write_off.write_off_plan import loads

    made = loads(read_plan_text(plan, "kodoctl pipeline write-off plan …"), plan)
    spark_settings(None, None)  # the same extra has what it needs
    _confirm(made, hash_)
    from kodo_pipeline.landing.landing_commits import LandingCommit
    from kodo_pipeline.landing.landing_store import Landing, must_hold
    from kodo_pipeline.landing.recorded_tables import WRITE_OFFS

    place = Landing(made.landing, made.topology, made.environment)
    must_hold(place, f"… --landing {made.landing}")
    name, now = f"write-off-{made.run}", int(time.time() * 1000)
    with place.alone():
        place.recover()
        # The rows tell, and not the commits: old ones are merged, and lose their runs.
        if is_new := bool(made.items) and not place.rows(WRITE_OFFS, "run", made.run):
            booked = place.write_rows(WRITE_OFFS, name, made.rows(user_name(), now))
            place.commit(LandingCommit(name, now, tables={WRITE_OFFS.name: booked}))
    count = len(made.items) if is_new else 0
    if output is Format.JSON:
        say(json.dumps({"format_version": 1, "run": made.run, "booked": count}))
        return
    say_folded(
        f"{many(count, 'loss or doubt', 'losses and doubts')} written off; the table `write_offs` has the record."
    )


def _confirm(made: WriteOffPlan, answer: str | None) -> None:
    found = made.document()["hash"]
    if answer is None:
        if not is_terminal():
            detail = f"verdicts will go without what it names: say --hash {found} to confirm it"
            raise UsageError(error("K539", "confirmation needs a terminal", detail))
        answer = ask(f"Verdicts will go without what it names. Type the plan's hash ({found}) to go on")
    if answer != found:
        detail = f"{answer!r} is not the plan's hash; nothing was written"
        raise RefusedError(error("K538", "confirmation declined", detail))
