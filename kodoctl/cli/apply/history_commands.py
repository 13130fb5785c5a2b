"""history, undo, unlock: applies of a namespace, their undo, and the lease that one of them may hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.apply.apply_flow import Approval, applying, approval_of, carry_out, confirm, of_one, show_reviewed
from kodoctl.cli.common import command_target, plan_options
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import command, one_line, reading, say, tell
from kodoctl.cli.common.options import Format, bundles
from kodoctl.cli.common.protected_contexts import Confirm
from kodoctl.cli.common.terminal import show_lines

if TYPE_CHECKING:
    from kodoctl.plan.history_document import HistoryDocument

Namespace = Annotated[str, typer.Argument(help="The namespace.", metavar="TENANT/NAMESPACE", show_default=False)]


@reading
@connects
def history(
    target: TargetOptions,
    namespace: Namespace,
    apply_id: Annotated[
        str | None,
        typer.Option("--id", help="Show the changes of this apply; `last` is the latest.", metavar="ID"),
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="text or json.")] = Format.TEXT,
) -> None:
    """Show the applies of a namespace: changes, time and user.

    Says at which commit, and how each apply ended. Oldest first.
    """
    from kodoctl.plan.history import find_apply, parse, read_history, to_json
    from kodoctl.pulsar.control.journal import read_journal
    from kodoctl.render.history_text import apply_lines, history_lines

    space = command_target.parse_namespace(namespace)
    with target.session() as session:
        found = read_history(map(parse, read_journal(session.admin, session.client, space)))
        if not found.applies:  # the journal of one that was destroyed is there
            command_target.check_namespaces(session, [space])
    for one in found.foreign:
        tell(f"Note: {one_line(one, 300)}")
    applies = [find_apply(found.applies, apply_id, str(space))] if apply_id else found.applies
    shown = [to_json(one) for one in applies]
    if output is Format.JSON:
        document: HistoryDocument = {"namespace": str(space), "applies": shown}
        say(json.dumps(document, indent=2))
    elif apply_id:
        show_lines(apply_lines(shown[0]))
    else:
        show_lines(history_lines(shown, str(space)))


@applying
@connects
@bundles("approval", approval_of)
def undo(
    target: TargetOptions,
    apply_id: Annotated[
        str,
        typer.Argument(help="The apply, as history shows it; `last` is the latest.", metavar="ID", show_default=False),
    ],
    namespace: Namespace,
    allow_destroy: plan_options.AllowDestroy = None,
    *,
    approval: Approval,
) -> None:
    """Take an apply back: plan it backwards, show, ask, carry out.

    Refuses objects that changed since then, and lists what cannot be undone.
    """
    from kodoctl.plan.diff import Allowances
    from kodoctl.plan.live.undo_planner import prepare_undo

    space = command_target.parse_namespace(namespace)
    with target.session() as session:
        found = prepare_undo(session, space, apply_id, Allowances(destroy=frozenset(allow_destroy or ())))
        applied = found.applied
        sessions, fleet = of_one(session, found.plan)
        show_reviewed(sessions, fleet, approval)
        if fleet.empty:
            tell(f"Nothing of {applied.id} is left to take back.")
            return
        confirm(session.connection, approval, question="Take this back?")
        commit = f"commit {applied.commit[:12]}" if applied.commit else "the change of the file"
        tell(f"Then revert {commit}: else the next apply does it again.")
        carry_out(sessions, fleet, approval, verb="undo")


@command
@connects
def unlock(
    target: TargetOptions,
    namespace: Namespace,
    auto_approve: plan_options.AutoApprove = False,
    confirm_name: Confirm = None,
) -> None:
    """Take the lease of a namespace from an apply that hangs.

    That apply writes nothing more.

    An apply that died holds no lease; only one without the broker's binary port leaves a lock.
    """
    from kodoctl.pulsar.control.lease import break_lease, held_by

    space = command_target.parse_namespace(namespace)
    with target.session() as session:
        holder = held_by(session.admin, space)
        if holder is None:
            command_target.check_namespaces(session, [space])
            say(f"Nobody holds the lease of {space}.")
            return
        tell(f"{space} is being applied by {holder}")
        confirm(session.connection, Approval(auto_approve, confirm_name), question="Take the lease away?")
        broken = break_lease(session.admin, session.client, space, command_target.who())
    say(f"Unlocked {space}." if broken else f"Nobody holds the lease of {space} any more.")
    tell(f"What was done until then: kodoctl history {space} --id last")
