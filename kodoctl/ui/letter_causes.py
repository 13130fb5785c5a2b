# pure: every branch is tested
"""Causes of the dead letters of a lane, for the first screen: few groups, however many letters there are."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kodoctl.recall.filter.condition import literal
from kodoctl.recall.message.stored_message import NOBODY
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import PeekDocument

NAMED: Final = 12  # causes of a lane that are named
_TENANTS: Final = 3  # that are named with a cause
_LONGEST: Final = 40  # characters of a tenant's name in a list
_FEW: Final = 10  # letters: fewer say nothing about one of several tenants
_FEWEST: Final = 3  # letters: fewer say nothing about the only tenant
_MOST: Final = 0.5  # of the letters: the share of a tenant that always fails


class CauseCount(NamedTuple):
    """Letters of one cause. `tenants`: (tenant, letters), those with most letters first; empty if the file names no
    tenants.
    """

    cause: str
    letters: int
    tenants: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LetterCauses:
    """Causes of a lane's letters. `read`: number of letters that were read; `complete`: all were; `causes`: the most
    frequent first; `tenants`: (tenant, letters) of all causes likewise; `unlisted`: letters in groups that the document
    leaves out, mostly of further tenants.
    """

    read: int
    complete: bool
    causes: tuple[CauseCount, ...]
    tenants: tuple[tuple[str, int], ...] = ()
    unlisted: int = 0


def letter_causes(document: PeekDocument, *, ended: bool) -> LetterCauses:
    """Causes in a document of `kodoctl peek`. `ended`: the time for reading was over."""
    causes: Counter[str] = Counter()
    tenants: Counter[str] = Counter()
    of_cause: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for group in document["groups"]:
        cause, tenant, count = group["cause"], group["tenant"], group["messages"]
        causes[cause] += count
        if tenant != NOBODY:
            tenants[tenant] += count
            of_cause[cause][tenant] += count
    for cause, count in document.get("by_cause", {}).items():
        if cause in causes:
            causes[cause] = count  # the document leaves out groups if there are many tenants
    counts = (CauseCount(cause, count, tuple(of_cause[cause].most_common())) for cause, count in causes.most_common())
    whole = document["read_all"] and not ended and not document["unread"]
    return LetterCauses(
        document["read"], whole, tuple(counts), tuple(tenants.most_common()), document.get("left_out", 0)
    )


def cause_lines(found: LetterCauses) -> list[tuple[str, str]]:
    """(text, condition) for each cause, at most NAMED; the rest is one text without a condition."""
    lines = [
        (f"{one.letters:,} × {one.cause}{_tenants_text(one)}", f"cause = {literal(one.cause)}")
        for one in found.causes[:NAMED]
    ]
    rest = found.causes[NAMED:]
    if rest:
        lines.append((f"{sum(one.letters for one in rest):,} × {many(len(rest), 'other cause')}", ""))
    if found.unlisted:
        lines.append((f"{found.unlisted:,} of these are of tenants with fewer letters, who are not listed", ""))
    if not found.complete:
        lines.append((f"of the first {many(found.read, 'letter')} that were read", ""))
    return lines


def _tenants_text(one: CauseCount) -> str:
    """Text about the tenants of a cause, in brackets; "" if there are none."""
    names = [(one_line(tenant, _LONGEST), letters) for tenant, letters in one.tenants[:_TENANTS]]
    match names:
        case []:
            return ""
        case [(name, letters)] if letters == one.letters:
            return f" (all of {name})"
        case _:
            rest = len(one.tenants) - len(names)
            others = f" and {many(rest, 'other')}" if rest else ""
            return f" ({', '.join(f'{name} {letters:,}' for name, letters in names)}{others})"


def failing_tenant(found: LetterCauses) -> tuple[str, int] | None:
    """(tenant, letters) of the tenant with half of the letters or more. None: there is none, or there are few letters."""
    if not found.tenants:
        return None
    total = sum(letters for _, letters in found.tenants) + found.unlisted
    tenant, count = found.tenants[0]
    enough = _FEW if len(found.tenants) > 1 else _FEWEST
    return (tenant, count) if total >= enough and count >= total * _MOST else None
