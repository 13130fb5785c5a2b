"""Code of a finding or an error: its summary and its remedy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """One diagnostic code. `title`: the summary of its findings; `todo`: the action against a finding; `also`:
    other summaries that describe the same finding more closely.
    """

    title: str
    todo: str
    also: tuple[str, ...] = ()
