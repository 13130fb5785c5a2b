"""import, forget: what is ours begins and ends without touching data."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli import wiring
from kodoctl.cli.apply_flow import carry_out, confirm, lock_seconds
from kodoctl.cli.console import command, say, tell, write_file
from kodoctl.cli.plan_commands import ApplyFormat, ApplyFormatOption, LockTimeout
from kodoctl.cli.plan_views import show_plan
from kodoctl.cli.wiring import Target, connects
from kodoctl.errors import RefusedError, UsageError, Where, error

if TYPE_CHECKING:
    from kodoctl.pulsar.live import Scope
    from kodoctl.topology.names import NamespaceName


def register(app: typer.Typer) -> None:
    """Adds the commands of this file."""
    app.command("import")(import_)
    app.command("forget")(forget)


def parse_namespace(text: str) -> NamespaceName:
    """Raises UsageError for anything but TENANT/NAMESPACE."""
    from kodoctl.topology.names import InvalidNameError, NamespaceName

    try:
        return NamespaceName.parse(text)
    except InvalidNameError as problem:
        raise UsageError(error("K507", "not a namespace", str(problem))) from None


@command
@connects
def import_(
    target: Target,
    namespace: Annotated[str, typer.Argument(help="TENANT/NAMESPACE to import.", metavar="TENANT/NAMESPACE")],
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the topology.", show_default="the namespace's", metavar="NAME")
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", help="Write the file here instead of to standard output.", metavar="FILE")
    ] = None,
) -> None:
    """Write a topology file for what is live in a namespace and nobody owns. Planning it adopts, and changes nothing."""
    from kodoctl.plan.importing import import_namespace
    from kodoctl.pulsar.live import Scope, read_live
    from kodoctl.render.plan_words import many

    space = parse_namespace(namespace)
    if out is not None and Path(out).exists():
        raise UsageError(error("K021", "file exists", "import never overwrites: name another with --out", Where(out)))
    with target.session() as session:
        live = read_live(session.admin, session.client, Scope((space,), everything=True))
        if f"namespace.{space}" not in live.objects:
            raise UsageError(
                error("K509", "no such namespace", f"{space} is not on {wiring.shown_target(session.connection)}")
            )
        found = import_namespace(live, space, name or space.namespace)
    if out is None:
        say(found.text.rstrip("\n"))
    else:
        with contextlib.suppress(OSError):  # writing the file says why it cannot
            Path(out).parent.mkdir(parents=True, exist_ok=True)
        write_file(out, found.text.encode())
    left = f", {len(found.left_out)} left out (listed at the end of the file)" if found.left_out else ""
    tell(f"{many(found.families, 'ground topic')}, {many(found.adopted, 'object')} to adopt{left}.")
    if out is not None:
        tell(f"Next: kodoctl plan {out}")


@command
@connects
def forget(
    target: Target,
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
    auto_approve: wiring.AutoApprove = False,
    confirm_name: wiring.Confirm = None,
    lock_timeout: LockTimeout = "0s",
    output: ApplyFormatOption = ApplyFormat.TEXT,
    verbose: wiring.Verbose = False,
) -> None:
    """Give up ownership of live objects: they stay as they are, and no plan touches them any more."""
    from kodoctl.plan.forget import forget_plan
    from kodoctl.pulsar.live import read_live

    json_output, wait = output is ApplyFormat.JSON, lock_seconds(lock_timeout)
    scope = _forget_scope(addresses or [], name or [], namespace or [])
    with target.session() as session:
        live = read_live(session.admin, session.client, scope)
        planned = forget_plan(live, addresses or (), frozenset(name or ()))
        if not json_output:
            show_plan(planned, wiring.shown_target(session.connection))
        if planned.refused:
            raise RefusedError(*(planned.findings if json_output else ()))
        confirm(session.connection, auto_approve=auto_approve, name=confirm_name, question="Forget these?")
        carry_out(session, planned, wait, json_output=json_output, verbose=verbose, verb="forget")
    if not json_output:
        tell("A file that still declares them would adopt them again.")


def _forget_scope(addresses: list[str], names: list[str], namespaces: list[str]) -> Scope:
    from kodoctl.pulsar.live import Scope

    spaces = {parse_namespace(text) for text in namespaces}
    for address in addresses:
        place = "/".join(address.partition(".")[2].removeprefix("persistent://").split("/")[:2])
        if "/" not in place:
            detail = f"{address!r}: write it as a plan prints it, such as topic.persistent://kodo/trade/orders"
            raise UsageError(error("K507", "not a namespace", detail))
        spaces.add(parse_namespace(place))
    if not spaces or not (addresses or names):
        detail = "name addresses, or --name NAME with --namespace TENANT/NAMESPACE"
        raise UsageError(error("K508", "nothing named", detail))
    return Scope(tuple(sorted(spaces)), names=frozenset(names), everything=True)
