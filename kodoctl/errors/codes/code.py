"""Code of a finding or an error: its summary and its remedy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """One diagnostic code. `title`: the usual summary of its findings; `todo`: advice to the user; `also`: other
    summaries of findings with this code, which are more precise.
    """

    title: str
    todo: str
    also: tuple[str, ...] = ()
