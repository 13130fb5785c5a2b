# pure: every branch is tested
"""Causes of the dead letters of a lane, or of messages that wait in it, for the first screen: few groups, however many
messages there are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kodoctl.protocol import properties
from kodoctl.recall.filter.condition import literal
from kodoctl.recall.message.stored_message import NOBODY
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import many, time_text

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import PeekDocument
    from kodoctl.recall.message.stored_message import DeadLetter

NAMED: Final = 12  # causes of a lane that are named
_TENANTS: Final = 3  # that are named with a cause
_LONGEST: Final = 40  # characters of a tenant's name in a list
_FEW: Final = 10  # letters: fewer say nothing about one of several tenants
_FEWEST: Final = 3  # letters: fewer say nothing about the only tenant
_AGAIN: Final = 2  # attempts that failed: one alone says nothing
_FAILURES: Final = (properties.ATTEMPTS_RETRYING, properties.ATTEMPTS_BACKUP)
_MOST: Final = 0.5  # of the letters: the share of a tenant that always fails


class CauseCount(NamedTuple):
    """Letters of one cause. `letters`: their number; `tenants`: (tenant, number of letters), those with most letters
    first; empty if the file names no tenants.
    """

    cause: str
    letters: int
    tenants: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LetterCauses:
    """Causes of the letters, or of the waiting messages, in a lane. `read`: number of letters that were read;
    `complete`: all of the lane were read; `causes`: the most frequent first; `tenants`: (tenant, number of letters)
    over all causes, most letters first; `unlisted`: number of letters in groups that the document leaves out, mostly of
    further tenants; `entries`: number of entries in the lane when it was read, None: unknown. Two more of a lane whose
    messages wait: `dues`: time of the earliest next attempt by tenant, ms since the epoch; `failing`: (tenant, cause,
    number) of messages that failed twice or more. The tenant is `(none)` for messages without one.
    """

    read: int
    complete: bool
    causes: tuple[CauseCount, ...]
    tenants: tuple[tuple[str, int], ...] = ()
    unlisted: int = 0
    entries: int | None = None
    dues: Mapping[str, int] = field(default_factory=dict)
    failing: tuple[tuple[str, str, int], ...] = ()


class WaitCount:
    """Count of waiting messages while they are read. `subscription`: name of the subscription for which they wait;
    `longest_wait`: the longest wait that the file declares, in ms: senders can write any `kodo-due`, and neither
    workers nor this count wait longer. `dues`: as in `LetterCauses`.
    """

    def __init__(self, subscription: str, longest_wait: int) -> None:
        self._subscription, self._longest_wait = subscription, longest_wait
        self.dues: dict[str, int] = {}
        self._failing: Counter[tuple[str, str]] = Counter()

    def take(self, messages: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
        """Yields the messages that are meant for the subscription, in their order, and counts each as it is taken."""
        for one in messages:
            if one.properties.get(properties.FOR, self._subscription) != self._subscription:
                continue
            if due := one.number(properties.DUE):
                due = min(due, one.publish_time + self._longest_wait)
                self.dues[one.tenant] = min(due, self.dues.get(one.tenant, due))
            failures = sum(one.number(name) or 0 for name in _FAILURES)
            if failures >= _AGAIN and one.cause is not None:
                self._failing[one.tenant, one.cause] += 1
            yield one

    @property
    def failing(self) -> tuple[tuple[str, str, int], ...]:
        """The field `failing` of `LetterCauses`: groups with most messages first."""
        return tuple((*group, count) for group, count in self._failing.most_common())


def letter_causes(document: PeekDocument, *, ended: bool, waits: WaitCount | None = None) -> LetterCauses:
    """Causes in a document of `kodoctl peek`, with `entries` None. `ended`: the time for reading was over before all
    was read; `waits`: count of the same messages, None for dead letters.
    """
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
        document["read"], whole, tuple(counts), tuple(tenants.most_common()), document.get("left_out", 0),
        dues=waits.dues if waits else {}, failing=waits.failing if waits else (),
    )  # fmt: skip


def cause_lines(found: LetterCauses) -> list[tuple[str, str]]:
    """(text, condition) for each of the 12 most frequent causes (NAMED); then texts with the condition "" about the
    other causes, about tenants that are not listed, and about letters that were not read, each if there are any.
    """
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


def exact_count(found: LetterCauses | None, entries: int) -> int | None:
    """Number of messages in a lane that has `entries` entries now. None if it is unknown: nothing or not all of the
    lane was read, or the lane had another number of entries then.
    """
    return found.read if found is not None and found.complete and found.read and found.entries == entries else None


def failing_tenant(found: LetterCauses) -> tuple[str, int] | None:
    """(tenant, number of letters) of the tenant with half of the letters of all tenants or more. None if there is no
    such tenant, or fewer than 10 letters (fewer than 3 of a single tenant).
    """
    if not found.tenants:
        return None
    total = sum(letters for _, letters in found.tenants) + found.unlisted
    tenant, count = found.tenants[0]
    enough = _FEW if len(found.tenants) > 1 else _FEWEST
    return (tenant, count) if total >= enough and count >= total * _MOST else None


def wait_text(found: LetterCauses, now: int, limit: str) -> str:
    """Text that says why the messages of a lane wait: the most frequent cause with its tenants, and the time of the
    next attempt; "" if both are unknown. `now`: ms since the epoch; `limit`: words for the limit of the file that holds
    the messages back, which replace the cause "over limit"; "" for none.
    """
    parts = []
    if found.causes:
        first = found.causes[0]
        cause = limit if limit and first.cause == properties.OVER_LIMIT_REASON else one_line(first.cause, 80)
        parts.append(f"{cause}{_tenants_text(first)}{_others_text(len(found.causes) - 1)}")
    return "; ".join([*parts, *_next_text(found.dues.values(), now)])


def _others_text(number: int) -> str:
    return f" and {many(number, 'other cause')}" if number else ""


def _next_text(dues: Iterable[int], now: int) -> list[str]:
    """Text about the next attempt, in a list; none if no time is known."""
    due = min(dues, default=None)
    return [] if due is None else ["due now" if due <= now else f"next try at {_clock(due, now)}"]


def _clock(at: int, now: int) -> str:
    """A time as text: without its day if that is today."""
    text, (today, _, _) = time_text(at), time_text(now).partition(" ")
    return text.removeprefix(f"{today} ")


@dataclass(frozen=True, slots=True)
class FailingTenant:
    """A tenant whose waiting messages keep failing; `tenant`: `(none)` for messages without one. `text`: their number,
    cause and next attempt in words; `place`: index of the lane that has most of them.
    """

    tenant: str
    messages: int
    text: str
    place: int


def failing_tenants(lanes: Iterable[LetterCauses], now: int) -> list[FailingTenant]:
    """The three tenants with most messages that failed twice or more, over the lanes of a subscription; those with most
    messages first, and none with fewer than 3. `now`: ms since the epoch.
    """
    read = list(lanes)
    causes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    places: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for place, one in enumerate(read):
        for tenant, cause, count in one.failing:
            causes[tenant][cause] += count
            places[tenant][place] += count
    least = "" if all(one.complete for one in read) else "at least "

    def failing(tenant: str) -> FailingTenant:
        total, (cause, *others) = causes[tenant].total(), [name for name, _ in causes[tenant].most_common()]
        why = f"{one_line(cause, 80)}{_others_text(len(others))}"
        of = "" if tenant == NOBODY else f" of tenant {one_line(tenant, 80)}"
        dues = [one.dues[tenant] for one in read if tenant in one.dues]
        text = "; ".join([f"{least}{many(total, 'message')}{of} keep failing with {why}", *_next_text(dues, now)])
        return FailingTenant(tenant, total, text, places[tenant].most_common(1)[0][0])

    found = (failing(tenant) for tenant in causes if causes[tenant].total() >= _FEWEST)
    return sorted(found, key=lambda one: -one.messages)[:_TENANTS]
