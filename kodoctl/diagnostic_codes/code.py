"""Code of a finding or an error: its summary, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """`title` is the summary of its findings, `todo` what to do about one; `also` are summaries that tell the same more
    closely.
    """

    title: str
    todo: str
    also: tuple[str, ...] = ()
