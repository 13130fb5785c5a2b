"""Option that names the recall ledger, and the location of the ledger without it."""

from __future__ import annotations

from typing import Annotated

import typer

from kodoctl.host.host_facts import absolute_uri
from kodoctl.host.private_files import LANDING, LEDGER

LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        help="Recall ledger: a Delta table in a folder or an object store.",
        show_default="`recall` beside the landing; .kodoctl/recall",
        metavar="PATH",
    ),
]


def ledger_named(given: str | None, landing: str = "") -> str:
    """Location of the recall ledger: `given`, the value of --ledger; without it, the folder `recall` next to the
    landing (`.recall` inside of a landing that is a whole bucket); `.kodoctl/recall` if there is no landing or it is
    the default one.
    """
    if given is not None:
        return given
    if landing in ("", LANDING):
        return LEDGER
    uri = absolute_uri(landing)
    scheme, separator, path = uri.rpartition("://")
    folder, _, name = path.rpartition("/")
    return f"{scheme}{separator}{folder}/recall" if folder or (name and not separator) else f"{uri}/.recall"
