"""history, unlock: what was applied in a namespace, and who may write there now."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from kodoctl.cli import wiring
from kodoctl.cli.apply_flow import confirm
from kodoctl.cli.console import command, say, tell
from kodoctl.cli.ownership_commands import parse_namespace
from kodoctl.cli.plan_commands import ApplyFormat
from kodoctl.cli.show import show_lines
from kodoctl.cli.wiring import Target, connects

Namespace = Annotated[str, typer.Argument(help="The namespace.", metavar="TENANT/NAMESPACE", show_default=False)]


def register(app: typer.Typer) -> None:
    """Adds the commands of this file."""
    app.command("history")(history)
    app.command("unlock")(unlock)


@command
@connects
def history(
    target: Target,
    namespace: Namespace,
    apply_id: Annotated[
        str | None,
        typer.Option("--id", help="Show the changes of this apply; `last` is the latest.", metavar="ID"),
    ] = None,
    output: Annotated[ApplyFormat, typer.Option("--format", help="text or json.")] = ApplyFormat.TEXT,
) -> None:
    """Show what was applied in a namespace: when, by whom, at which commit, and how it ended. Oldest first."""
    from kodoctl.plan.history import applies, chosen, to_json
    from kodoctl.pulsar.journal import read_journal
    from kodoctl.render.history import apply_lines, history_lines

    space = parse_namespace(namespace)
    with target.session() as session:
        found = applies(read_journal(session.admin, session.client, space))
    shown = [to_json(one) for one in ([chosen(found, apply_id)] if apply_id else found)]
    if output is ApplyFormat.JSON:
        say(json.dumps({"namespace": str(space), "applies": shown}, indent=2))
    elif apply_id:
        show_lines(apply_lines(shown[0]))
    else:
        show_lines(history_lines(shown, str(space)))


@command
@connects
def unlock(
    target: Target,
    namespace: Namespace,
    auto_approve: wiring.AutoApprove = False,
    confirm_name: wiring.Confirm = None,
) -> None:
    """Take the lease of a namespace away from an apply that hangs: it writes nothing more. One that died has none."""
    from kodoctl.pulsar.control import lease_topic
    from kodoctl.pulsar.lease import break_lease, read_holder

    space = parse_namespace(namespace)
    with target.session() as session:
        holder = read_holder(session.admin, lease_topic(space))
        if not holder.since:
            say(f"Nobody holds the lease of {space}.")
            return
        tell(f"{space} is being applied by {holder}")
        confirm(session.connection, auto_approve=auto_approve, name=confirm_name, question="Take the lease away?")
        broken = break_lease(session.admin, session.client, space, wiring.who())
    say(f"Unlocked {space}." if broken else f"Nobody holds the lease of {space} any more.")
    tell(f"What was done until then: kodoctl history {space} --id last")
