"""Bounds of handler slots as a live order writes them: `max 8`, `min 2` or `max 8 min 2`."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MOST: Final = 100_000  # slots
_FORM: Final = re.compile(r"(?:max (\d{1,6}))?(?: ?min (\d{1,6}))?", re.ASCII)


class SlotBounds(NamedTuple):
    """Bounds of the slots of some lanes: at most `most` slots run their messages, and `least` slots are kept
    for them. None: the value in the file applies.
    """

    most: int | None
    least: int | None

    @classmethod
    def parse(cls, text: str) -> SlotBounds | None:
        """None: it is nothing of the kind, or a bound is out of range. A maximum is at least 1."""
        found = _FORM.fullmatch(text)
        if found is None or text.startswith(" ") or not text:
            return None
        most, least = (None if number is None else int(number) for number in found.groups())
        fits = (most is None or 1 <= most <= MOST) and (least is None or least <= MOST)
        return cls(most, least) if fits else None

    def __str__(self) -> str:
        given = (("max", self.most), ("min", self.least))
        return " ".join(f"{name} {number}" for name, number in given if number is not None)
