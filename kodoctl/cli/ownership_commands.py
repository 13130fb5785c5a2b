"""forget: ownership ends without touching data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli import command_target, plan_options
from kodoctl.cli.apply_flow import Approval, carry_out, confirm, lock_seconds
from kodoctl.cli.command_target import TargetOptions, connects
from kodoctl.cli.options import Format
from kodoctl.cli.plan_views import show_plan
from kodoctl.console import command, tell
from kodoctl.errors import RefusedError, UsageError, error

if TYPE_CHECKING:
    from kodoctl.pulsar.live_inventory import ReadScope


def register(app: typer.Typer) -> None:
    """Adds the commands of this file."""
    app.command("forget")(forget)


@command
@connects
def forget(
    target: TargetOptions,
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
            "--namespace", help="TENANT/NAMESPACE to look in, with --name (repeatable).", metavar="TENANT/NAMESPACE"
        ),
    ] = None,
    auto_approve: plan_options.AutoApprove = False,
    confirm_name: plan_options.Confirm = None,
    lock_timeout: plan_options.LockTimeout = "0s",
    output: plan_options.StreamFormat = Format.TEXT,
    verbose: plan_options.Verbose = False,
) -> None:
    """Give up ownership of live objects: they stay as they are, and no plan touches them any more."""
    from kodoctl.plan.forget import forget_plan
    from kodoctl.pulsar.live_inventory import read_live

    json_output, wait = output is Format.JSON, lock_seconds(lock_timeout)
    scope = _forget_scope(addresses or [], name or [], namespace or [])
    with target.session() as session:
        live = read_live(session.admin, session.client, scope)
        planned = forget_plan(live, addresses or (), frozenset(name or ()))
        if not json_output:
            show_plan(planned, command_target.shown_target(session.connection))
        if planned.refused:
            raise RefusedError(*(planned.findings if json_output else ()))
        approval = Approval(auto_approve, confirm_name, wait, json_output, verbose)
        confirm(session.connection, approval, question="Forget these?")
        carry_out(session, planned, approval, verb="forget")
    if not json_output:
        tell("A file that still declares them would adopt them again.")


def _forget_scope(addresses: list[str], names: list[str], namespaces: list[str]) -> ReadScope:
    from kodoctl.pulsar.live_inventory import ReadScope

    spaces = {command_target.parse_namespace(text) for text in namespaces}
    for address in addresses:
        place = "/".join(address.partition(".")[2].removeprefix("persistent://").split("/")[:2])
        if "/" not in place:
            detail = f"{address!r}: write it as a plan prints it, such as topic.persistent://kodo/trade/orders"
            raise UsageError(error("K507", "not a namespace", detail))
        spaces.add(command_target.parse_namespace(place))
    if not spaces or not (addresses or names):
        detail = "name addresses, or --name NAME with --namespace TENANT/NAMESPACE"
        raise UsageError(error("K508", "nothing named", detail))
    return ReadScope(tuple(sorted(spaces)), names=frozenset(names), everything=True)
