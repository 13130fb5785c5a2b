# pure: every branch is tested
"""Causes of the dead letters of a lane, for the first screen: few groups, however many letters there are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kodoctl.recall.filter.condition import literal
from kodoctl.recall.message.stored_message import NOBODY
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import PeekDocument

NAMED: Final = 12  # causes of a lane that are named
_FEW: Final = 10  # letters: fewer say nothing about a tenant
_MOST: Final = 0.5  # of the letters: the share of a tenant that always fails


@dataclass(frozen=True, slots=True)
class LetterCauses:
    """Causes of a lane's letters. `read`: number of letters that were read; `complete`: all were; `causes`: (cause,
    letters), the most frequent first; `tenants`: (tenant, letters) likewise, empty if the file names no tenants.
    """

    read: int
    complete: bool
    causes: tuple[tuple[str, int], ...]
    tenants: tuple[tuple[str, int], ...] = ()


def letter_causes(document: PeekDocument, *, ended: bool) -> LetterCauses:
    """Causes in a document of `kodoctl peek`. `ended`: the time for reading was over."""
    causes: Counter[str] = Counter()
    tenants: Counter[str] = Counter()
    for group in document["groups"]:
        causes[group["cause"]] += group["messages"]
        if group["tenant"] != NOBODY:
            tenants[group["tenant"]] += group["messages"]
    whole = document["read_all"] and not ended and not document["unread"]
    return LetterCauses(document["read"], whole, tuple(causes.most_common()), tuple(tenants.most_common()))


def cause_lines(found: LetterCauses) -> list[tuple[str, str]]:
    """(text, condition) for each cause, at most NAMED; the rest is one text without a condition."""
    lines = [(f"{count:,} × {cause}", f"cause = {literal(cause)}") for cause, count in found.causes[:NAMED]]
    rest = found.causes[NAMED:]
    if rest:
        lines.append((f"{sum(count for _, count in rest):,} × {many(len(rest), 'other cause')}", ""))
    if not found.complete:
        lines.append((f"of the first {many(found.read, 'letter')} that were read", ""))
    return lines


def failing_tenant(found: LetterCauses) -> tuple[str, int] | None:
    """(tenant, letters) of the tenant with half of the letters or more, while others have some as well. None: there is
    none, or there are few letters.
    """
    total = sum(letters for _, letters in found.tenants)
    if len(found.tenants) < 2 or total < _FEW:
        return None
    tenant, count = found.tenants[0]
    return (tenant, count) if count >= total * _MOST else None
