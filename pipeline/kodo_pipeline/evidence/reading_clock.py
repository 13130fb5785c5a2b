"""Clock by which an ingest dates its reading, as its commit records it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class ReadingClock:
    """Clock of the last reading. `ahead`: ms by which the clock of the machine that read was ahead of the cluster's,
    which dates the reading; negative: behind; None: the cluster's clock is unknown, and the machine's dates the
    reading. `lag`: ms by which the reading is dated later than its clock said, because an earlier reading has so late a
    date.
    """

    ahead: int | None = 0
    lag: int = 0

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Returns the clock that the commit of a reading recorded. The clock is unknown if an older kodoctl, which did
        not read the cluster's clock, made the commit.
        """
        return cls(**facts.get("clock", {"ahead": None}))

    def to_facts(self) -> dict[str, Any]:
        """Returns the clock as facts of a commit; `of_facts` reads them."""
        return {"clock": {"ahead": self.ahead, "lag": self.lag}}
