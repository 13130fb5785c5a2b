"""forget: ownership ends without touching data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.apply.apply_flow import Approval, applying, approval_of, carry_out, confirm_all, show_reviewed
from kodoctl.cli.common import command_target
from kodoctl.cli.common.cluster_results import open_all
from kodoctl.cli.common.command_target import TargetClusters, reaches
from kodoctl.cli.common.console import tell
from kodoctl.cli.common.options import bundles
from kodoctl.cli.plan.planning_flow import plan_each
from kodoctl.errors import UsageError, error

if TYPE_CHECKING:
    from kodoctl.plan.plan import Plan
    from kodoctl.pulsar.inventory.read_scope import ReadScope


@applying
@reaches
@bundles("approval", approval_of)
def forget(
    reach: TargetClusters,
    addresses: Annotated[
        list[str] | None,
        typer.Argument(help="Objects to give up, such as topic.persistent://kodo/trade/old.", metavar="ADDRESS"),
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="Everything of this topology (repeatable).", metavar="NAME")
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            help="TENANT/NAMESPACE to look in, with --name or objects of the whole cluster (repeatable).",
            metavar="TENANT/NAMESPACE",
        ),
    ] = None,
    *,
    approval: Approval,
) -> None:
    """Give up ownership of live objects, which stay as they are.

    No plan touches them any more, unless a file still declares them.
    """
    from kodoctl.plan.forget import forget_plan
    from kodoctl.pulsar.inventory.live_inventory import read_live

    scope = _forget_scope(addresses or [], name or [], namespace or [])
    with open_all(reach.by_context) as sessions:

        def planned(context: str) -> Plan:
            live = read_live(sessions[context].admin, sessions[context].client, scope)
            return forget_plan(live, addresses or (), frozenset(name or ()))

        fleet = plan_each(sessions, planned)
        show_reviewed(sessions, fleet, approval)
        confirm_all(sessions.values(), approval, question="Forget these?")
        carry_out(sessions, fleet, approval, verb="forget")
    if not approval.json_output:
        tell("A file that still declares them would adopt them again.")


def _forget_scope(addresses: list[str], names: list[str], namespaces: list[str]) -> ReadScope:
    from kodoctl.pulsar.inventory.read_scope import ReadScope
    from kodoctl.topology.names import InvalidNameError
    from kodoctl.topology.resources import is_of_platform, namespace_of_address

    spaces = {command_target.parse_namespace(text) for text in namespaces}
    for address in addresses:
        if is_of_platform(address):
            continue  # it is in no namespace: --namespace names its home
        try:
            spaces.add(namespace_of_address(address))
        except InvalidNameError:
            detail = f"{address!r}: write it as a plan prints it, such as topic.persistent://kodo/trade/orders"
            raise UsageError(error("K507", "not a namespace", detail)) from None
    if not spaces or not (addresses or names):
        detail = "name addresses, or --name NAME with --namespace TENANT/NAMESPACE"
        if addresses:
            detail = (
                f"{addresses[0]}: name the namespace of the topology that owns it with --namespace TENANT/NAMESPACE"
            )
        raise UsageError(error("K508", "nothing named", detail))
    return ReadScope(tuple(sorted(spaces)), names=frozenset(names), everything=True)
