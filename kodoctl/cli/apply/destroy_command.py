"""destroy: deletes everything that a topology created."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.apply.apply_flow import Approval, applying, approval_of, carry_out, confirm, of_one, show_reviewed
from kodoctl.cli.common import command_target, plan_options
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import Environment, tell
from kodoctl.cli.common.options import bundles
from kodoctl.errors import UsageError, error

if TYPE_CHECKING:
    from kodoctl.plan.plan import Plan
    from kodoctl.pulsar.session import Session


@applying
@connects
@bundles("approval", approval_of)
def destroy(
    target: TargetOptions,
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Topology files whose objects go.", show_default=False, metavar="PATH"),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="A topology by name, its file may be gone (repeatable).", metavar="NAME"),
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            help="TENANT/NAMESPACE to look in, with --name and without a file (repeatable).",
            metavar="TENANT/NAMESPACE",
        ),
    ] = None,
    env: Environment = None,
    allow_destroy: plan_options.AllowDestroy = None,
    *,
    approval: Approval,
) -> None:
    """Delete everything a topology created. Adopted objects are forgotten, not deleted."""
    with target.session() as session:
        planned = _destroy_plan(session, paths, name, namespace, env, allow_destroy)
        sessions, fleet = of_one(session, planned)
        show_reviewed(sessions, fleet, approval)
        if planned.empty:
            if approval.verbose:
                command_target.tell_total(session)
            return
        confirm(session.connection, approval, question="Destroy all of this?")
        carry_out(sessions, fleet, approval, verb="destroy")


def _destroy_plan(  # one for each flag
    session: Session,
    paths: list[str] | None,
    names: list[str] | None,
    namespaces: list[str] | None,
    env: str | None,
    allow_destroy: list[str] | None,
) -> Plan:
    """Returns the plan that deletes or forgets all objects of the topologies, which files or names give. Prints a note
    if the cluster has none.
    """
    from kodoctl.plan.diff import Allowances
    from kodoctl.plan.inventory import Desired
    from kodoctl.plan.live.planner import plan_live
    from kodoctl.topology.names import InvalidNameError, NamespaceName

    try:
        spaces = {NamespaceName.parse(text) for text in namespaces or ()}
    except InvalidNameError as problem:
        raise UsageError(error("K507", "not a namespace", str(problem))) from None
    doomed = set(names or ())
    desired = Desired((), None, {})
    allowances = Allowances(destroy=frozenset(allow_destroy or ()))
    if paths:
        wanted = command_target.load_desired(paths, command_target.environment_of(session.connection, env))
        doomed |= wanted.names
        spaces |= set(wanted.namespaces)
        desired = Desired((), wanted.environment, {}, wanted.sources)
        allowances = plan_options.allowances_of(wanted, None, allow_destroy, take_over=False)
    if not doomed or not spaces:
        detail = "name files, or --name NAME with --namespace TENANT/NAMESPACE"
        raise UsageError(error("K508", "nothing named", detail))
    desired = replace(desired, destroyed=frozenset(doomed))
    plan = plan_live(session, desired, allowances, namespaces=spaces).plan
    if not plan.owners:
        tell(f"Nothing of {', '.join(sorted(doomed))} is on this cluster.")
    return plan
