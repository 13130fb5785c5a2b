"""Clock by which an ingest dated its reading, as its commit records it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class ReadingClock:
    """Clock of an ingest. `ahead`: ms by which the clock of its machine was ahead of the cluster's (negative: behind),
    None: the cluster's clock is unknown. The reading is dated by the cluster's clock, if it is known, else by the
    machine's. `lag`: ms by which the date was moved later, so that it is after that of the ingest before.
    """

    ahead: int | None = 0
    lag: int = 0

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Parses the clock in the facts of the commit with which an ingest began. The cluster's clock is unknown if the
        facts have no clock, as in a commit of an older kodoctl.
        """
        return cls(**facts.get("clock", {"ahead": None}))

    def to_facts(self) -> dict[str, Any]:
        """The clock as facts of a commit, which `of_facts` parses."""
        return {"clock": {"ahead": self.ahead, "lag": self.lag}}
