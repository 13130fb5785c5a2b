"""Commands in the form in which messages show them."""

from __future__ import annotations

from typing import Final

DEFAULT_NAME: Final = "dev"


def dev_command(command: str, name: str) -> str:
    """Text of `kodoctl dev COMMAND` for an instance, between backticks; without `--name` for the default instance."""
    option = "" if name == DEFAULT_NAME else f" --name {name}"
    return f"`kodoctl dev {command}{option}`"
