"""A secret: a text that is never printed, and the file or variable that it is read from.

A pickled secret contains only the name of that file or variable, which the other process reads again. Tasks of Spark
need this: their parameters are stored in plans, broadcasts and on disks that others may read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kodoctl.errors import UsageError, Where, error
from kodoctl.host.host_facts import absolute_path, expand_home


class Secret:
    """A text whose `repr` and `str` hide it. `file`, or `variable` of the environment: its origin. A pickled secret
    contains only the origin, from which the other process reads the text again, or raises UsageError if it cannot;
    without an origin it contains the text.
    """

    __slots__ = ("_value", "file", "variable")

    def __init__(self, value: str, *, file: str | None = None, variable: str | None = None) -> None:
        self._value, self.file, self.variable = value, file, variable

    def reveal(self) -> str:
        """Returns the text itself: for headers and clients, never for output."""
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
    """Reads a file that contains one word of printable ASCII, such as a token, perhaps with white space around it.
    Raises UsageError if the file cannot be read or contains something else, and for a relative name if the working
    folder was deleted, because another process could not read the secret again.
    """
    try:
        text = expand_home(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not a token"
        detail = f"{reason}: name a file that holds the token and nothing else"
        raise UsageError(error("K504", "cannot read token", detail, Where(str(file)))) from None
    return checked_secret(text, str(file), file=str(absolute_path(file)))


def checked_secret(text: str, source: str, *, file: str | None = None, variable: str | None = None) -> Secret:
    """Makes a Secret of one word of printable ASCII, as a token in a header must be. `source`: name of its origin, for
    the error; `file`, `variable`: as in Secret. Raises UsageError (K504), whose text shows nothing of the secret, for
    any other text, also for one that is empty or has white space around the word.
    """
    if not text or not text.isascii() or any(not 33 <= ord(character) <= 126 for character in text):
        raise UsageError(
            error("K504", "cannot read token", f"{source}: it is not a token, which is one word on one line")
        )
    return Secret(text, file=file, variable=variable)


def text_of_variable(name: str) -> str:
    """Value of a variable of this process's environment without white space around it, for values that are not secret;
    "" if it is not set.
    """
    return os.environ.get(name, "").strip()


def secret_of_variable(name: str) -> Secret:
    """Reads a secret from a variable of this process's environment, without white space around it. Its form is not
    checked (`checked_secret`). Raises UsageError (K504) if the variable is not set, or blank.
    """
    text = os.environ.get(name, "").strip()
    if not text:
        detail = (
            f"{name} is not set where it is needed: set it for every executor of Spark's, or name a file that all have"
        )
        raise UsageError(error("K504", "cannot read token", detail))
    return Secret(text, variable=name)
