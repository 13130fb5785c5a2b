# pure: every branch is tested
"""Causes of the dead letters of a lane, or of messages that wait in it, for the first screen: few groups, however many
messages there are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kodoctl.protocol import properties
from kodoctl.protocol.sequence_numbers import NOBODY as MARK
from kodoctl.recall.filter.condition import literal
from kodoctl.recall.message.stored_message import NOBODY
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import age_text, many, time_text

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import PeekDocument
    from kodoctl.recall.message.stored_message import DeadLetter

NAMED: Final = 12  # causes of a lane that are named
_TENANTS: Final = 3  # that are named with a cause
_LONGEST: Final = 40  # characters of a tenant's name in a list
_FEW: Final = 10  # letters: fewer say nothing about one of several tenants
_SEVERAL: Final = 2  # tenants: of one alone the causes say that all letters are its own
_FEWEST: Final = 3  # messages: fewer say nothing about their tenant
_DIGITS: Final = 9  # of a count of failures: longer ones are no count of a worker
_MANY: Final = 10**9
_AGAIN: Final = 2  # attempts that failed: one alone says nothing
_FAILURES: Final = (properties.ATTEMPTS_RETRYING, properties.ATTEMPTS_BACKUP)
_MOST: Final = 0.5  # of the letters: the share of a tenant that always fails


class Tries(NamedTuple):
    """Tries that the file gives a message in a lane. `counter`: property that counts the failures there; `most`: number
    of counted failures with which a message is still tried: it leaves after the next one; `then`: words for its next
    place.
    """

    counter: str
    most: int
    then: str

    def left(self, failures: int) -> int:
        """Number of tries that are left after this number of counted failures, the next one included; at least 0."""
        return max(0, self.most - failures + 1)


class TryCount(NamedTuple):
    """Tries of one or more messages. `failed`: failures that every one of them has at least; `left`: fewest tries that
    one has left, None if it is unknown; `then`: as in Tries.
    """

    failed: int
    left: int | None = None
    then: str = ""

    @classmethod
    def of(cls, headers: Mapping[str, str], tries: Tries | None) -> TryCount:
        """Tries of a message by its headers. `tries`: those in its lane, None if they are unknown."""
        failed = failures_of(headers)
        if tries is None:
            return cls(failed)
        return cls(failed, tries.left(failures_of(headers, tries.counter)), tries.then)

    @property
    def text(self) -> str:
        """Words about these tries; "" without a failure. "At least", because headers count neither tries at once nor
        the last one before a backup level.
        """
        if not self.failed:
            return ""
        text = f"failed at least {many(self.failed, 'time')}"
        return text if self.left is None else f"{text}, {many(self.left, 'try', 'tries')} left, then {self.then}"

    def merge(self, other: TryCount) -> TryCount:
        """Returns the tries of the messages of both."""
        last = min((self, other), key=lambda one: _MANY if one.left is None else one.left)
        return last._replace(failed=min(self.failed, other.failed))


class FailingGroup(NamedTuple):
    """Messages of a tenant that failed with one cause twice or more. `since`: time in ms since the epoch when the first
    of them was sent.
    """

    tenant: str
    cause: str
    messages: int
    since: int
    tries: TryCount


class CauseCount(NamedTuple):
    """Letters of one cause. `letters`: their number; `tenants`: (tenant, number of letters), those with most letters
    first, without letters that have no tenant; empty if the file names no tenants.
    """

    cause: str
    letters: int
    tenants: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LetterCauses:
    """Causes of a lane's letters. `read`: number of letters that were read; `complete`: all were; `causes`: the most
    frequent first; `tenants`: (tenant, letters) of all causes likewise, without letters that have no tenant;
    `unlisted`: letters in groups that the document leaves out, mostly of further tenants. `entries`, `oldest`: figures
    of the lane when it was read, None: unknown. `dues`: time of the next attempt by tenant, ms since the epoch;
    `failing`: groups of those that failed twice or more; the tenant of both is `(none)` for messages without one.
    `since`: time in ms since the epoch when the first letter was sent, None: unknown; `recalled`: letters that a recall
    sent before.
    """

    read: int
    complete: bool
    causes: tuple[CauseCount, ...]
    tenants: tuple[tuple[str, int], ...] = ()
    unlisted: int = 0
    entries: int | None = None
    dues: Mapping[str, int] = field(default_factory=dict)
    failing: tuple[FailingGroup, ...] = ()
    since: int | None = None
    recalled: int = 0
    oldest: int | None = None

    def is_of(self, entries: int, oldest: int | None) -> bool:
        """True unless the lane's figures differ from those when it was read: a next attempt may then be over. True if
        the figures were not known when it was read.
        """
        return self.entries is None or (self.entries, self.oldest) == (entries, oldest)


class LetterCount:
    """Count of letters (dead or waiting messages) while they are read. `subscription`: whose messages wait, None for
    dead letters; `longest_wait`: the longest single wait, in ms, that the file declares for the subscription; `tries`:
    those in the lane, None if failures do not move messages on. A sender can write any time into `kodo-due`: as workers
    do, the count takes no later one than `longest_wait` after the publish time.
    """

    def __init__(self, subscription: str | None, longest_wait: int = 0, tries: Tries | None = None) -> None:
        self._subscription, self._longest_wait, self._tries = subscription, longest_wait, tries
        self.dues: dict[str, int] = {}
        self.since: int | None = None
        self.recalled = 0
        self._failing: dict[tuple[str, str], FailingGroup] = {}

    def take(self, messages: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
        """Yields the waiting messages that are meant for the subscription, or all dead letters, in their order, and
        counts each as it is taken; kodoctl's own marks among dead letters are yielded and not counted.
        """
        for one in messages:
            if self._subscription is not None:
                if one.properties.get(properties.FOR, self._subscription) != self._subscription:
                    continue
                self._add_waiting(one)
            if one.properties.get(properties.FOR) != MARK:
                sent = properties.first_sent(one.properties.get(properties.ORIGIN_TIME), one.publish_time)
                self.since = sent if self.since is None else min(sent, self.since)
                self.recalled += properties.RECALL in one.properties
            yield one

    def _add_waiting(self, one: DeadLetter) -> None:
        if due := one.number(properties.DUE):
            due = min(due, one.publish_time + self._longest_wait)
            self.dues[one.tenant] = min(due, self.dues.get(one.tenant, due))
        tries = TryCount.of(one.properties, self._tries)
        if tries.failed < _AGAIN or one.cause is None:
            return
        sent = properties.first_sent(one.properties.get(properties.ORIGIN_TIME), one.publish_time)
        key = one.tenant, one.cause
        self._failing[key] = _joined(self._failing.get(key), FailingGroup(*key, 1, sent, tries))

    @property
    def failing(self) -> tuple[FailingGroup, ...]:
        """The field `failing` of `LetterCauses`: groups with most messages first."""
        return tuple(sorted(self._failing.values(), key=lambda one: -one.messages))


def failures_of(headers: Mapping[str, str], *names: str) -> int:
    """Number of failed runs by the headers of a message. `names`: the headers that count them; without names, the
    headers of retrying and of backup levels. A header that is no number of up to 9 digits counts as 0.
    """
    values = (headers.get(name, "") for name in names or _FAILURES)
    return sum(int(one) for one in values if one.isascii() and one.isdigit() and len(one) <= _DIGITS)


def _joined(first: FailingGroup | None, second: FailingGroup) -> FailingGroup:
    """Both groups as one with the tenant and the cause of the second."""
    if first is None:
        return second
    messages, since = first.messages + second.messages, min(first.since, second.since)
    return FailingGroup(second.tenant, second.cause, messages, since, first.tries.merge(second.tries))


def letter_causes(document: PeekDocument, *, ended: bool, count: LetterCount) -> LetterCauses:
    """Causes in a document of `kodoctl peek`. `ended`: reading ended early, by number or time; `count`: of the same
    messages, all of them taken. The result lacks the figures of the lane, `entries` and `oldest`.
    """
    causes: Counter[str] = Counter()
    tenants: Counter[str] = Counter()
    of_cause: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for group in document["groups"]:
        cause, tenant, number = group["cause"], group["tenant"], group["messages"]
        causes[cause] += number
        if tenant != NOBODY:
            tenants[tenant] += number
            of_cause[cause][tenant] += number
    for cause, number in document.get("by_cause", {}).items():
        if cause in causes:
            causes[cause] = number  # the document leaves out groups if there are many tenants
    counts = (CauseCount(one, number, tuple(of_cause[one].most_common())) for one, number in causes.most_common())
    whole = document["read_all"] and not ended and not document["unread"]
    return LetterCauses(
        document["read"], whole, tuple(counts), tuple(tenants.most_common()), document.get("left_out", 0),
        dues=count.dues, failing=count.failing, since=count.since, recalled=count.recalled,
    )  # fmt: skip


def cause_lines(found: LetterCauses) -> list[tuple[str, str]]:
    """Returns (text, condition) for each of the most frequent causes, at most 12 (NAMED). Texts with the condition ""
    follow, each only if it applies: the number of letters with other causes; the number of letters in groups that the
    document leaves out (`unlisted`), of further tenants or of rarer causes; and, if not all letters were read, how many
    were.
    """
    lines = [
        (f"{one.letters:,} × {one.cause}{_tenants_text(one)}", f"cause = {literal(one.cause)}")
        for one in found.causes[:NAMED]
    ]
    rest = found.causes[NAMED:]
    if rest:
        lines.append((f"{sum(one.letters for one in rest):,} × {many(len(rest), 'other cause')}", ""))
    if found.unlisted:
        text = "of these are of tenants with fewer letters, who" if found.tenants else "more have rarer causes, which"
        lines.append((f"{found.unlisted:,} {text} are not listed", ""))
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


def exact_count(found: LetterCauses | None, entries: int, oldest: int | None) -> int | None:
    """Number of messages in a lane with these figures now. None if it is unknown: nothing or not all of the lane was
    read, or the lane had other figures then.
    """
    if found is None or not found.complete or not found.read or found.entries is None:
        return None
    return found.read if found.is_of(entries, oldest) else None


def least_count(found: LetterCauses, entries: int, oldest: int | None) -> int:
    """Lower bound for the number of messages in a lane with these figures now: each entry holds one or more."""
    return max(entries, found.read) if found.is_of(entries, oldest) else entries


def tenant_share(found: LetterCauses, by: str) -> tuple[str, str] | None:
    """(text, condition) about the tenant that has at least half of the letters with a tenant. None: there is no such
    tenant, only one tenant, or fewer than 10 such letters. `by`: property of the tenants, "" if it is unknown.
    """
    total = sum(letters for _, letters in found.tenants) + found.unlisted
    if len(found.tenants) < _SEVERAL or total < _FEW or found.tenants[0][1] < total * _MOST:
        return None
    tenant, count = found.tenants[0]
    return f"{count:,} of these are of {tenant_text(by, tenant)}", f"tenant = {literal(tenant)}"


def wait_text(found: LetterCauses, now: int, limit: str, *, is_current: bool = True) -> str:
    """Text that says why the messages of a lane wait: the most frequent cause with its tenants, the tries that were
    made (if `failing` is a single group), and the time of the next one. "" if none of these is known. `now`: ms since
    the epoch; `limit`: words for the limit of the file that holds the messages back, "" for none; `is_current`: the
    lane has not changed since it was read.
    """
    parts = []
    if found.causes:
        first = found.causes[0]
        cause = cause_text(one_line(first.cause, 80), limit)
        parts.append(f"{cause}{_tenants_text(first)}{_others_text(len(found.causes) - 1)}")
    parts += [found.failing[0].tries.text] if len(found.failing) == 1 else []
    return "; ".join([*parts, *_next_text(found.dues.values(), now, is_current=is_current)])


def cause_text(cause: str, limit: str) -> str:
    """A cause or reason for people. `limit`: words for the limit of the file in place of "over its limit", "" for none."""
    return limit if limit and cause == properties.OVER_LIMIT_REASON else cause


def _others_text(number: int) -> str:
    return f" and {many(number, 'other cause')}" if number else ""


def _next_text(dues: Iterable[int], now: int, *, is_current: bool = True) -> list[str]:
    """Text about the next attempt, in a list; none if no time is known, or if a time has come and the lane has
    changed.
    """
    due = min(dues, default=None)
    if due is None or (due <= now and not is_current):
        return []
    return ["due now" if due <= now else f"next try at {_clock(due, now)}"]


def _clock(at: int, now: int) -> str:
    """A time as text: with seconds if it is within an hour, without its day if that is today."""
    text, (today, _, _) = time_text(at, seconds=at - now < 3_600_000), time_text(now).partition(" ")
    return text.removeprefix(f"{today} ")


@dataclass(frozen=True, slots=True)
class FailingTenant:
    """A tenant whose waiting messages keep failing; `tenant`: `(none)` for messages without one. `text`: their number
    and cause in words; `since`, `tries`, `due`: words about their age, their tries and the next one, "" for none;
    `place`: index of the lane that has most of them.
    """

    tenant: str
    messages: int
    text: str
    since: str
    tries: str
    due: str
    place: int


def failing_tenants(
    lanes: Iterable[tuple[LetterCauses, bool]], now: int, by: str, paused: Collection[str] = ()
) -> list[FailingTenant]:
    """Returns the tenants (at most three) with the most waiting messages that failed twice or more, most first. Tenants
    with fewer than three such messages, and those in `paused`, are left out. `lanes`: lanes of a subscription, each
    with True if it has not changed since it was read; `now`: ms since the epoch; `by`: property of the tenants, "" if
    it is unknown.
    """
    read = list(lanes)
    groups: defaultdict[str, list[tuple[int, FailingGroup]]] = defaultdict(list)
    for place, (one, _) in enumerate(read):
        for group in one.failing:
            if group.tenant not in paused:
                groups[group.tenant].append((place, group))
    least = "" if all(one.complete for one, _ in read) else "at least "

    def failing(tenant: str) -> FailingTenant:
        causes: Counter[str] = Counter()
        places: Counter[int] = Counter()
        whole: FailingGroup | None = None
        for place, group in groups[tenant]:
            causes[group.cause] += group.messages
            places[place] += group.messages
            whole = _joined(whole, group)
        assert whole is not None
        (cause, _), *others = causes.most_common()
        why = f"{one_line(cause, 80)}{_others_text(len(others))}"
        of = "" if tenant == NOBODY else f" of {tenant_text(by, tenant)}"
        dues = [(one.dues[tenant], is_current) for one, is_current in read if tenant in one.dues]
        due, is_current = min(dues, default=(None, True))
        return FailingTenant(
            tenant, whole.messages, f"{least}{many(whole.messages, 'message')}{of} keep failing with {why}",
            f"The first of them was sent {age_text(max(0, now - whole.since))} ago", whole.tries.text,
            "".join(_next_text([] if due is None else [due], now, is_current=is_current)), places.most_common(1)[0][0],
        )  # fmt: skip

    found = (failing(tenant) for tenant, own in groups.items() if sum(one.messages for _, one in own) >= _FEWEST)
    return sorted(found, key=lambda one: -one.messages)[:_TENANTS]


def tenant_text(by: str, tenant: str) -> str:
    """A tenant after the name of its property, such as `uid u7`. `by`: property by which the file tells tenants apart,
    "" if it is unknown: the text is then such as `tenant u7`.
    """
    return f"{one_line(by, _LONGEST) or 'tenant'} {one_line(tenant, 80)}"
