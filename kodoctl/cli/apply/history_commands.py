"""history, undo, unlock: applies of a namespace, their undo, and the lease that one of them may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.apply.apply_flow import (
    Approval,
    applying,
    approval_of,
    carry_out,
    confirm,
    confirm_changes,
    show_reviewed,
)
from kodoctl.cli.common import command_target, plan_options
from kodoctl.cli.common.cluster_results import (
    finish_problems,
    open_all,
    read_each,
    require_each,
    results_json,
    show_results,
)
from kodoctl.cli.common.command_target import TargetClusters, TargetOptions, connects, reaches
from kodoctl.cli.common.console import command, reading, say, say_json, tell
from kodoctl.cli.common.ledger_option import LedgerOption, ledger_named
from kodoctl.cli.common.options import Format, bundles
from kodoctl.cli.common.protected_contexts import Confirm
from kodoctl.cli.common.terminal import show_lines
from kodoctl.cli.plan.planning_flow import plan_each

if TYPE_CHECKING:
    from kodoctl.plan.history_document import HistoryDocument

Namespace = Annotated[str, typer.Argument(help="The namespace.", metavar="TENANT/NAMESPACE", show_default=False)]


@reading
@reaches
def history(
    reach: TargetClusters,
    namespace: Namespace,
    apply_id: Annotated[
        str | None,
        typer.Option("--id", help="Show the changes of this apply; `last` is the latest.", metavar="ID"),
    ] = None,
    ledger: LedgerOption = None,
    output: Annotated[Format, typer.Option("--format", help="text or json.")] = Format.TEXT,
) -> None:
    """Show the applies, recalls and live orders of a namespace.

    Says when, by whom, at which commit, and how each ended, oldest first. Also shows replays, and releases, moves and
    discards of the ledger. Names what it cannot know, such as orders before the last 20 of a subscription.
    """
    from kodoctl.cli.apply.namespace_history import journal_history, namespace_history
    from kodoctl.plan.history import find_apply, to_json

    space = command_target.parse_namespace(namespace)
    with open_all(reach.by_context) as sessions:

        def read(name: str) -> HistoryDocument:
            session = sessions[name]
            if apply_id:
                found, _ = journal_history(session.admin, session.client, space)
                one = find_apply(found, apply_id, str(space))
                return {"namespace": str(space), "applies": [to_json(one)]}
            document = namespace_history(session.admin, session.client, space, ledger_named(ledger))
            if not document["applies"]:  # the journal of one that was destroyed is there
                command_target.check_namespaces(session, [space])
            return document

        results = read_each(sessions, read)
    if output is Format.JSON:
        say_json(results_json(results, "history", dict))
    else:
        show_results(results, lambda _, one: _show(one, whole=apply_id is not None), "not read")
    finish_problems(results)


def _show(document: HistoryDocument, *, whole: bool) -> None:
    """Prints the history; `whole`: one apply, with its changes."""
    from kodoctl.render.history_text import apply_lines, history_lines

    show_lines(apply_lines(document["applies"][0]) if whole else history_lines(document))


@applying
@reaches
@bundles("approval", approval_of)
def undo(
    reach: TargetClusters,
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
    from kodoctl.plan.live.undo_planner import prepare_undo, refuse_unlike

    space = command_target.parse_namespace(namespace)
    if apply_id != "last":
        reach.only("an apply has an id of its own in each cluster: `undo last` takes several, an id")
    with open_all(reach.by_context) as sessions:
        allowances = Allowances(destroy=frozenset(allow_destroy or ()))
        found = require_each(sessions, lambda name: prepare_undo(sessions[name], space, apply_id, allowances))
        refuse_unlike({name: one.applied for name, one in found.items()})
        fleet = plan_each(sessions, lambda name: found[name].plan)
        show_reviewed(sessions, fleet, approval)
        for name, plan in fleet.plans.items():
            if plan.empty:
                tell(f"Nothing of {found[name].applied.id} is left to take back{f' on {name}' if name else ''}.")
        if fleet.empty:
            carry_out(sessions, fleet, approval, waiting=())
            return
        waiting = confirm_changes(sessions, fleet, approval, question="Take this back?")
        commit = next((f"commit {one.applied.commit[:12]}" for one in found.values() if one.applied.commit), None)
        tell(f"Then revert {commit or 'the change of the file'}: else the next apply does it again.")
        carry_out(sessions, fleet, approval, waiting=waiting, verb="undo")


@command
@connects
def unlock(
    target: TargetOptions,
    namespace: Namespace,
    auto_approve: plan_options.AutoApprove = False,
    confirm_name: Confirm = None,
) -> None:
    """Take the lease of a namespace from an apply that hangs.

    That apply writes nothing more after a few seconds.

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
