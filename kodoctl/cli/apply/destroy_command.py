"""destroy: deletes everything that a topology created."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.apply.apply_flow import Approval, applying, approval_of, carry_out, confirm_changes, show_reviewed
from kodoctl.cli.common import command_target, plan_options
from kodoctl.cli.common.cluster_results import load_by_context, open_all
from kodoctl.cli.common.command_target import TargetClusters, reaches
from kodoctl.cli.common.console import Environment, tell
from kodoctl.cli.common.options import bundles
from kodoctl.cli.plan.planning_flow import plan_each
from kodoctl.errors import UsageError, error

if TYPE_CHECKING:
    from kodoctl.plan.diff import Allowances
    from kodoctl.plan.inventory import Desired
    from kodoctl.plan.plan import Plan
    from kodoctl.pulsar.session import Session
    from kodoctl.topology.names import NamespaceName


@applying
@reaches
@bundles("approval", approval_of)
def destroy(
    reach: TargetClusters,
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
    excludes: plan_options.Excludes = None,
    *,
    approval: Approval,
) -> None:
    """Delete everything a topology created. Adopted objects are forgotten, unless --allow-destroy names them."""
    with open_all(reach.by_context) as sessions:
        chosen = _doomed(sessions, paths, name, namespace, env, allow_destroy)
        fleet = plan_each(sessions, lambda context: _destroy_plan(sessions[context], chosen[context], excludes))
        for context, plan in fleet.plans.items():
            if not plan.owners:
                place = f"on {context}" if context else "on this cluster"
                tell(f"Nothing of {', '.join(sorted(chosen[context].desired.destroyed))} is {place}.")
        show_reviewed(sessions, fleet, approval)
        if fleet.empty:
            for session in sessions.values() if approval.verbose else ():
                command_target.tell_total(session)
            carry_out(sessions, fleet, approval, waiting=())
            return
        waiting = confirm_changes(sessions, fleet, approval, question="Destroy all of this?")
        carry_out(sessions, fleet, approval, waiting=waiting, verb="destroy")


@dataclass(frozen=True, slots=True)
class _Doomed:
    """The topologies to destroy on a cluster, the namespaces in which their objects are, and the allowances."""

    desired: Desired
    spaces: frozenset[NamespaceName]
    allowances: Allowances


def _doomed(  # one for each flag
    sessions: Mapping[str, Session],
    paths: list[str] | None,
    names: list[str] | None,
    namespaces: list[str] | None,
    env: str | None,
    allow_destroy: list[str] | None,
) -> Mapping[str, _Doomed]:
    """Returns by context the topologies that files or names give. Raises UsageError if nothing is named."""
    from kodoctl.plan.diff import Allowances
    from kodoctl.plan.inventory import Desired

    spaces = frozenset(map(command_target.parse_namespace, namespaces or ()))

    def choose(environment: str | None) -> _Doomed:
        if not paths:
            desired = Desired((), None, {}, destroyed=frozenset(names or ()))
            return _Doomed(desired, spaces, Allowances(destroy=frozenset(allow_destroy or ())))
        wanted = command_target.load_desired(paths, environment)
        doomed = frozenset(names or ()) | wanted.names
        desired = Desired((), wanted.environment, {}, wanted.sources, destroyed=doomed)
        allowances = plan_options.allowances_of(wanted, None, allow_destroy, take_over=False)
        return _Doomed(desired, spaces | set(wanted.namespaces), allowances)

    chosen = load_by_context(sessions, env, choose)
    if not all(one.desired.destroyed and one.spaces for one in chosen.values()):
        detail = "name files, or --name NAME with --namespace TENANT/NAMESPACE"
        raise UsageError(error("K508", "nothing named", detail))
    return chosen


def _destroy_plan(session: Session, chosen: _Doomed, excludes: list[str] | None) -> Plan:
    """Returns the plan that deletes or forgets all objects of the chosen topologies, but for the excluded ones."""
    from kodoctl.plan.live.planner import plan_live
    from kodoctl.topology.target_flags import TargetFlags

    selection = TargetFlags(excludes=tuple(excludes or ()))
    return plan_live(session, chosen.desired, chosen.allowances, namespaces=chosen.spaces, selection=selection).plan
