"""Options of the commands that plan: typer parameters, and the allowances that they and the files give."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.common.options import Format

if TYPE_CHECKING:
    from kodoctl.plan.diff import Allowances
    from kodoctl.plan.inventory import Desired

Verbose = Annotated[
    bool,
    typer.Option("-v", "--verbose", help="Name each of many alike topics; requests and time to standard error."),
]
Adopt = Annotated[
    list[str] | None,
    typer.Option("--adopt", help="Adopt this object although the file changes it (repeatable).", metavar="ADDRESS"),
]
AllowDestroy = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-destroy",
        help="The data of this object may go (repeatable; there is no blanket force).",
        metavar="ADDRESS",
    ),
]
AllowShare = Annotated[
    float | None,
    typer.Option(
        "--allow-share",
        min=0.0,
        max=1.0,
        help="Allow deleting or weakening up to this share of the owned objects, e.g. 0.5.",
        show_default="0.2",
        metavar="SHARE",
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        help="Only this object and what it needs (repeatable); * in it stands for any text.",
        metavar="ADDRESS",
    ),
]
Excludes = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        help="Not this object, nor what needs it (repeatable); * in it stands for any text.",
        metavar="ADDRESS",
    ),
]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Take objects and ledger entries over from other topologies.")
]
AutoApprove = Annotated[bool, typer.Option("--auto-approve", help="Do not ask. Never implies --allow-destroy.")]
LockTimeout = Annotated[
    str, typer.Option("--lock-timeout", help="How long to wait for another apply, such as 10m.", metavar="DURATION")
]
StreamFormat = Annotated[Format, typer.Option("--format", help="text, or a stream of JSON lines.")]


def allowances_of(
    desired: Desired,
    adopt: Iterable[str] | None,
    destroy: Iterable[str] | None,
    *,
    take_over: bool,
    share: float | None = None,
) -> Allowances:
    """Allowances of a plan: changes that are allowed although they are dangerous. `adopt`, `destroy`: addresses from
    flags, None: the flag was not given; the lists `allow_destroy` and `forget` of the files are added. `share`: part of
    the owned objects that may be deleted or weakened at once, 0 to 1, None: the default, 0.2.
    """
    from kodoctl.plan.diff import Allowances

    specs = [expansion.topology.spec for expansion in desired.expansions]
    return Allowances(
        adopt=frozenset(adopt or ()),
        destroy=frozenset(destroy or ()) | {address for spec in specs for address in spec.allow_destroy},
        forget=frozenset(address for spec in specs for address in spec.forget),
        take_over=take_over,
        share=share,
    )
