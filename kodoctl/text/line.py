"""A line of text that a view prints: safe on every terminal, and styled on those that can."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kodoctl.text.escaping import one_line

_LONGEST: Final = 4_000  # characters of a line; a change's fields take a line each


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text, escaped, and cut to 4,000 characters, when it is made. `style`: words such as `bold` and `red`,
    of those that kodoctl.cli.common.terminal knows, used on terminals only; `hang`: column at which continuation lines
    begin if the line is folded, None: the column of the first character.
    """

    text: str = ""
    style: str = ""
    hang: int | None = None

    def __post_init__(self) -> None:
        """Escapes and shortens the text, so that whatever it contains is one readable line without terminal commands."""
        object.__setattr__(self, "text", one_line(self.text, _LONGEST))
