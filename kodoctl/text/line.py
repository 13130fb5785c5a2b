"""A line of text that a view prints: harmless on every terminal, styled on those that can."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kodoctl.text.escaping import one_line

_LONGEST: Final = 4_000  # characters of a line; a change's fields take a line each


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text; the style is used on terminals only. Folded, it goes on at column `hang` (None: where it
    begins).
    """

    text: str = ""
    style: str = ""
    hang: int | None = None

    def __post_init__(self) -> None:
        """Escaping of the text: for any input one readable line that no terminal takes for a command."""
        object.__setattr__(self, "text", one_line(self.text, _LONGEST))
