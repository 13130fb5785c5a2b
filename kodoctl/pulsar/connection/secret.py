"""A secret: a text that is never printed, and the file or variable that it is read from.

Into another process it goes by the name of that file or variable, and is read there anew. Tasks of Spark's need this:
their parameters go through plans, broadcasts and disks that others may look at.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kodoctl.errors import UsageError, Where, error
from kodoctl.host.host_facts import expand_home


class Secret:
    """A text that never prints itself. `file`, or `variable` of the environment: where it was read. To another
    process it goes by that name and is read there anew; as text only where it has none.
    """

    __slots__ = ("_value", "file", "variable")

    def __init__(self, value: str, *, file: str | None = None, variable: str | None = None) -> None:
        self._value, self.file, self.variable = value, file, variable

    def reveal(self) -> str:
        """The text itself: for headers and clients, never for output."""
        return self._value

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.file is not None:
            return read_secret, (Path(self.file),)
        return (Secret, (self._value,)) if self.variable is None else (secret_of_variable, (self.variable,))

    def __deepcopy__(self, memo: object) -> Secret:
        return self


def read_secret(file: Path) -> Secret:
    """The one word that a file holds. Raises UsageError (K504)."""
    try:
        text = expand_home(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not a token"
        detail = f"{reason}: name a file that holds the token and nothing else"
        raise UsageError(error("K504", "cannot read token", detail, Where(str(file)))) from None
    return checked_secret(text, str(file), file=str(expand_home(file).absolute()))


def checked_secret(text: str, source: str, *, file: str | None = None, variable: str | None = None) -> Secret:
    """A token travels in a header: one word of printable ASCII.
    Neither a wrong one nor its fault is shown.
    """
    if not text or not text.isascii() or any(not 33 <= ord(character) <= 126 for character in text):
        raise UsageError(
            error("K504", "cannot read token", f"{source}: it is not a token, which is one word on one line")
        )
    return Secret(text, file=file, variable=variable)


def text_of_variable(name: str) -> str:
    """The value of a variable of this process's environment that is no secret; "" where it is not set."""
    return os.environ.get(name, "").strip()


def secret_of_variable(name: str) -> Secret:
    """The value of a variable of this process's environment. Raises UsageError (K504)."""
    text = os.environ.get(name, "").strip()
    if not text:
        detail = (
            f"{name} is not set where it is needed: set it for every executor of Spark's, or name a file that all have"
        )
        raise UsageError(error("K504", "cannot read token", detail))
    return Secret(text, variable=name)
