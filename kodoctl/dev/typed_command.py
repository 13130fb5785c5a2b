"""Commands as messages show them, for users to type."""

from __future__ import annotations

from typing import Final

DEFAULT_NAME: Final = "dev"


def dev_command(command: str, name: str) -> str:
    """`kodoctl dev COMMAND` for the instance `name`, in backticks; `--name` is omitted for the default instance."""
    option = "" if name == DEFAULT_NAME else f" --name {name}"
    return f"`kodoctl dev {command}{option}`"
