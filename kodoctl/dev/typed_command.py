"""Commands in the form in which messages show them."""

from __future__ import annotations

from typing import Final

DEFAULT_NAME: Final = "dev"


def dev_command(command: str, name: str) -> str:
    """`kodoctl dev COMMAND` for an instance, in quotes, short for the one that needs no name."""
    option = "" if name == DEFAULT_NAME else f" --name {name}"
    return f"`kodoctl dev {command}{option}`"
