"""Bounds of handler slots as a live order writes them: `max 8`, `min 2` or `max 8 min 2`."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MOST: Final = 100_000  # slots
_FORM: Final = re.compile(r"(?:max (\d{1,6}))?(?: ?min (\d{1,6}))?", re.ASCII)


class SlotBounds(NamedTuple):
    """Bounds of the handler slots that some lanes of a worker use, in slots as the topology file counts them: at most
    `most` are used at a time, and `least` are kept free. A worker of processes or batches converts them to its own
    slots (kodo_consumer.core.values.slot_overrides). None: the bound in the topology file applies.
    """

    most: int | None
    least: int | None

    @classmethod
    def parse(cls, text: str) -> SlotBounds | None:
        """Parses `max 8 min 2`, or one of its halves. Returns None if the text has another form, or if the maximum is
        not from 1 to 100,000, or the minimum above 100,000. The minimum may be above the maximum.
        """
        found = _FORM.fullmatch(text)
        if found is None or text.startswith(" ") or not text:
            return None
        most, least = (None if number is None else int(number) for number in found.groups())
        fits = (most is None or 1 <= most <= MOST) and (least is None or least <= MOST)
        return cls(most, least) if fits else None

    def __str__(self) -> str:
        given = (("max", self.most), ("min", self.least))
        return " ".join(f"{name} {number}" for name, number in given if number is not None)
