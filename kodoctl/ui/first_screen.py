# pure: every branch is tested
"""First screen of the console, as values: one row for each subscription, and a list of the facts that need a person."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from kodoctl.recall.filter.condition import literal
from kodoctl.recall.message.stored_message import NOBODY
from kodoctl.status.backlog_pace import backlog_text, growth_reasons, is_growing
from kodoctl.text.escaping import one_line, shell_line
from kodoctl.text.formatting import (
    age_text,
    duration_text,
    entries_text,
    lane_meaning,
    lane_text,
    many,
    time_text,
)
from kodoctl.ui.letter_causes import (
    LetterCauses,
    cause_lines,
    exact_count,
    failing_tenants,
    least_count,
    tenant_share,
    wait_text,
)
from kodoctl.ui.order_badges import order_badges, paused_tenants
from kodoctl.ui.rate_history import RateHistory, Sparkline, lane_key, sparkline

if TYPE_CHECKING:
    from kodoctl.status.lane_status import LaneStatus, StatusReading, TopologyStatus
    from kodoctl.ui.rate_history import LaneKey


@dataclass(frozen=True, slots=True)
class Need:
    """A fact that needs a person. `style`: `bad` or `open`; `means`: sentence about its consequence; `command`: command
    line that repairs or explains it, "" for none; `link`: query of the page `/lane` about it, None if no such page
    helps; `lines`: (text, query of `/lane` or None) of each group of messages that it is about; `orders`: query of
    `/orders` if it advises to pause the tenant in that query, else None; `urgent`: it comes before facts that are not.
    """

    style: str
    text: str
    means: str
    command: str
    link: Mapping[str, str] | None = None
    lines: tuple[tuple[str, Mapping[str, str] | None], ...] = ()
    orders: Mapping[str, str] | None = None
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class StoppedApply:
    """An apply that did not complete and holds no lease. `topology`: name of the topology whose page shows it;
    `namespace`: namespace that it changed; `text`: its id, state and number of done changes; `undo`: it was to take
    another apply back.
    """

    topology: str
    namespace: str
    text: str
    undo: bool = False

    @property
    def means(self) -> str:
        """Sentence about the next step, for people."""
        if self.undo:
            return (
                "The rest is not taken back. Revert the change of the file: then its apply finishes that. An apply of the"
                " file as it is does the change again."
            )
        return "The rest is not done. A new apply of the file plans it and finishes it; the history says what was done."

    @property
    def command(self) -> str:
        """Command to run next on the topology's file: `kodoctl plan` for an undo, else `kodoctl apply`."""
        return "kodoctl plan" if self.undo else "kodoctl apply"


@dataclass(frozen=True, slots=True)
class DriftNews:
    """Result of the last reading of drift, at `at` (ms since the epoch). `text`: its verdict; `drifted`: something was
    changed by hand, or could not be compared.
    """

    at: int
    text: str
    drifted: bool


@dataclass(frozen=True, slots=True)
class ScreenFacts:
    """Facts beside the lanes' figures, each as it was read last. `causes`: by lane (`LaneKey`) of dead letters or of
    messages that wait; `stopped`: applies; `drift`: None if nobody asked for it; `limits`: words for the limits of the
    file by (topology, ground topic, subscription, state), of the states whose messages they hold back; `tenants`:
    property by which the file tells tenants apart, by (topology, ground topic).
    """

    causes: Mapping[LaneKey, LetterCauses] = field(default_factory=dict)
    stopped: tuple[StoppedApply, ...] = ()
    drift: DriftNews | None = None
    limits: Mapping[tuple[str, str, str, str], str] = field(default_factory=dict)
    tenants: Mapping[tuple[str, str], str] = field(default_factory=dict)


NO_FACTS: Final = ScreenFacts()


@dataclass(frozen=True, slots=True)
class LaneCell:
    """A lane in the row of its subscription. `name`: its name for people; `entries`: number of entries in its backlog;
    `oldest`: words about the age of its oldest message, "" if unknown or empty; `note`: text about a fault of the lane,
    "" for none; `link`: query of its page; `cause`: the most frequent cause of dead letters, or the reason why its
    messages wait, "" if unknown; `is_late`: the cause is not read yet; `messages`: number of messages in the entries,
    None if it is unknown; `meaning`: why messages are there, "" if the cause says it, or for a lane that workers read
    first; `least`: lower bound for the number of messages, 0 if it is unknown.
    """

    name: str
    entries: int
    oldest: str
    note: str
    link: Mapping[str, str]
    cause: str = ""
    is_late: bool = False
    messages: int | None = None
    meaning: str = ""
    least: int = 0

    @property
    def number(self) -> str:
        """Number of messages in the lane; else a lower bound with `≥`; else the number of entries."""
        if self.messages is None and self.least:
            return f"≥ {self.least:,}"
        return f"{self.entries if self.messages is None else self.messages:,}"

    @property
    def title(self) -> str:
        """Number of messages in the lane, its lower bound, or the number of messages and batches, with the noun."""
        if self.messages is None and self.least:
            return f"at least {many(self.least, 'message')}"
        return entries_text(self.entries) if self.messages is None else many(self.messages, "message")


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """A subscription in the table of its topology. `lanes`: lanes other than the dead letters that hold messages or
    have a note; `empty`: number of the others; `dead`: lane of the dead letters, None if it declares none or if that
    lane was not read; `workers`: the largest number of consumers of one lane; `badges`: texts about live orders;
    `pace`: text about the growth of the backlog, "" for none; `rates`: drawing of its rates, None without a reading of
    them; `is_partial`: a topic of this ground topic was not read, so that lanes may be missing here.
    """

    ground: str
    subscription: str
    lanes: tuple[LaneCell, ...]
    empty: int
    dead: LaneCell | None
    workers: int
    badges: tuple[str, ...]
    pace: str
    rates: Sparkline | None
    is_partial: bool = False

    @property
    def lacks_workers(self) -> bool:
        """True if messages wait in a lane other than the dead letters, and no worker is connected to any lane. False if
        lanes were not read: workers may be there.
        """
        return not self.workers and not self.is_partial and any(cell.entries for cell in self.lanes)

    @property
    def is_quiet(self) -> bool:
        """True if the row has nothing to show but names: no message waits, no dead letter is there, no lane has a note
        such as `missing`, there are no live orders, and nothing is said of the backlog's pace.
        """
        has_letters = self.dead is not None and bool(self.dead.entries or self.dead.note)
        return not (self.lanes or self.badges or self.pace or has_letters)


_NOBODY_TRIES: Final = "No worker tries them again by itself: a recall sends them again or discards them."
_RECALLED: Final = "{} had been sent again by a recall and failed again. "
MAX_ROWS: Final = 200  # of a topology: a browser cannot show 20,000 every few seconds
MAX_NEEDS: Final = 100


@dataclass(frozen=True, slots=True)
class TopologySection:
    """A topology with its rows. If there are more than 200 (MAX_ROWS), `left_out` are left out: first quiet ones, then
    those with the fewest messages; `left_busy` of them are not quiet. `command`: command line that lists all.
    """

    name: str
    namespace: str
    rows: tuple[SubscriptionRow, ...]
    left_out: int = 0
    left_busy: int = 0
    command: str = ""


@dataclass(frozen=True, slots=True)
class FirstScreen:
    """Values of the first screen by one reading, which ended at `at` (ms since the epoch). `needs`: urgent ones first,
    then `bad` ones; `more_needs`: number of needs beyond the MAX_NEEDS most urgent ones. `silence`: None if the cluster
    answers, else (headline, reason); `at` and `sections` are then those of the last reading to which it answered, if
    there was one.
    """

    at: int
    sections: tuple[TopologySection, ...]
    needs: tuple[Need, ...]
    silence: tuple[str, str] | None = None
    more_needs: int = 0


@dataclass(frozen=True, slots=True)
class CommandWords:
    """Words with which commands name files and cluster. `files`: topology file by the name of the topology; `cluster`,
    `environment`: options of the console's own command line; `paths`: files and folders as they are named there.
    """

    files: Mapping[str, str]
    cluster: Sequence[str]
    environment: Sequence[str] = ()
    paths: Sequence[str] = ()

    def line(self, command: str, topology: str, *words: str) -> str:
        """Command line of `command` (such as `kodoctl status`, which is not quoted) about the file of a topology, with
        `words`, the environment and the cluster, quoted for a shell. Raises KeyError for an unknown topology.
        """
        return f"{command} {shell_line([self.files[topology], *words, *self.environment, *self.cluster])}"

    def line_of_files(self, command: str) -> str:
        """Command line that begins with `command` (such as `kodoctl drift`, which is not quoted) and has the files and
        folders, the environment and the cluster of the console's own command line, quoted for a shell.
        """
        return " ".join(filter(None, (command, shell_line([*self.paths, *self.environment, *self.cluster]))))

    def line_of_cluster(self, command: str, *words: str) -> str:
        """Command line that begins with `command` (such as `kodoctl peek`, which is not quoted) and has `words` and the
        options of the cluster, quoted for a shell. It adds neither a topology file nor the environment.
        """
        return f"{command} {shell_line([*words, *self.cluster])}"


def first_screen(
    reading: StatusReading,
    words: CommandWords,
    history: RateHistory,
    facts: ScreenFacts = NO_FACTS,
    known: StatusReading | None = None,
) -> FirstScreen:
    """Makes the first screen from one reading of all lanes. `history`: earlier readings, and this one; `facts`: facts
    beside the lanes; `known`: the last reading to which the cluster answered, None if it never answered; the screen of
    a cluster that does not answer shows that reading. Raises KeyError for a topology that `words` does not have.
    """
    if reading.unread and not answers(reading):
        return _silent_screen(reading, words, history, facts, known)
    sections = tuple(_section(one, tuple(_rows(one, reading, history, facts)), words) for one in reading.topologies)
    needs = [need for one in reading.topologies for need in _needs(one, reading, words, history, facts)]
    unread = [
        Need(
            "bad", f"{many(len(topics), 'topic')} not read: {one_line(', '.join(topics), 120)}", reason, "", urgent=True
        )
        for reason, topics in _unread_topics(reading).items()
    ]
    found = (*unread, *_plan_needs(reading.at, words, facts), *needs)
    urgent = tuple(sorted(found, key=lambda need: (not need.urgent, need.style != "bad")))
    return FirstScreen(reading.at, sections, urgent[:MAX_NEEDS], more_needs=max(0, len(urgent) - MAX_NEEDS))


def answers(reading: StatusReading) -> bool:
    """True if the reading has a lane: the cluster answered for at least one topic."""
    return any(one.lanes for one in reading.topologies)


def _silent_screen(
    reading: StatusReading, words: CommandWords, history: RateHistory, facts: ScreenFacts, known: StatusReading | None
) -> FirstScreen:
    """Screen of a cluster that does not answer: one headline, and the figures of its last answer."""
    reasons = "; ".join(one_line(reason, 200).replace("`", "") for reason in _unread_topics(reading))
    needs = tuple(_plan_needs(reading.at, words, facts))
    if known is None:
        return FirstScreen(reading.at, (), needs, ("The cluster does not answer", reasons))
    sections = first_screen(known, words, history, facts).sections
    text = f"The cluster has not answered since {time_text(known.at, seconds=True)}"
    return FirstScreen(known.at, sections, needs, (text, reasons))


def _section(topology: TopologyStatus, rows: Sequence[SubscriptionRow], words: CommandWords) -> TopologySection:
    busiest = sorted(range(len(rows)), key=lambda number: (rows[number].is_quiet, -_entries(rows[number])))
    shown, left = sorted(busiest[:MAX_ROWS]), busiest[MAX_ROWS:]
    busy = sum(not rows[number].is_quiet for number in left)
    command = words.line("kodoctl status", topology.name, "--all")
    return TopologySection(
        topology.name, topology.namespace, tuple(rows[number] for number in shown), len(left), busy, command
    )


def _entries(row: SubscriptionRow) -> int:
    """Entries in all lanes of a subscription, dead letters included."""
    return sum(cell.entries for cell in (*row.lanes, *((row.dead,) if row.dead is not None else ())))


def _plan_needs(now: int, words: CommandWords, facts: ScreenFacts) -> Iterator[Need]:
    """Needs of plans: applies that stopped, and drift as it was read last."""
    for one in facts.stopped:
        yield Need("bad", f"{one.namespace}: {one.text}", one.means, words.line(one.command, one.topology))
    if facts.drift is not None and facts.drift.drifted:
        text = f"{facts.drift.text} Read {age_text(max(0, now - facts.drift.at))} ago."
        means = "The cluster is not what the last apply left: the next one puts it back, or cannot."
        yield Need("open", text, means, words.line_of_files("kodoctl drift"))


def _unread_topics(reading: StatusReading) -> dict[str, list[str]]:
    """Topics that could not be read, by the reason."""
    topics: dict[str, list[str]] = {}
    for one in reading.unread:
        topics.setdefault(one.reason, []).append(one.topic)
    return topics


def _partial(topology: TopologyStatus, reading: StatusReading) -> Collection[str]:
    """Ground topics of the topology of which a topic could not be read: lanes of their subscriptions may be missing."""
    return {one.ground for one in reading.unread if one.namespace == topology.namespace}


def _rows(
    topology: TopologyStatus, reading: StatusReading, history: RateHistory, facts: ScreenFacts
) -> Iterator[SubscriptionRow]:
    now, partial_grounds = reading.at, _partial(topology, reading)
    for (ground, subscription), lanes in topology.by_reader.items():
        cells = [(lane, _cell(topology, lane, now, facts)) for lane in lanes]
        shown = tuple(cell for lane, cell in cells if lane.is_read and (cell.entries or cell.note))
        points = history.rates(topology.name, (ground, subscription))
        yield SubscriptionRow(
            ground,
            subscription,
            shown,
            sum(lane.is_read for lane in lanes) - len(shown),
            next((cell for lane, cell in cells if not lane.is_read), None),
            max((lane.consumers for lane in lanes if lane.is_read), default=0),
            tuple(order_badges(lanes, now)),
            backlog_text(lanes),
            sparkline(points) if points else None,
            ground in partial_grounds,
        )


def _cell(topology: TopologyStatus, lane: LaneStatus, now: int, facts: ScreenFacts) -> LaneCell:
    note = ""
    if not lane.there:
        note = "missing"
    elif topology.is_unread(lane):
        note = "no worker reads it"
    elif lane.blocked:
        note = f"{lane.blocked:,} of {many(lane.consumers, 'consumer')} blocked"
    found, cause = facts.causes.get(lane_key(topology.name, lane)), ""
    meaning = lane_meaning(lane.level, lane.state) if lane.has_causes and lane.is_read else ""
    limit = facts.limits.get((topology.name, *lane.reader, lane.state), "")
    if found is not None and lane.entries:
        dead = one_line(found.causes[0].cause, 80) if found.causes else ""
        current = found.is_of(lane.entries, lane.oldest)
        cause = wait_text(found, now, limit, is_current=current) if lane.is_read else dead
    is_late = found is None and lane.entries > 0 and lane.has_causes
    return LaneCell(
        lane_text(lane.level, lane.state),
        lane.entries,
        _oldest(lane, found, now),
        note,
        _link(topology, lane),
        cause,
        is_late,
        exact_count(found, lane.entries, lane.oldest),
        "" if limit and cause.startswith(limit) else meaning,
        0 if found is None or lane.is_backup else least_count(found, lane.entries, lane.oldest),
    )


def _oldest(lane: LaneStatus, found: LetterCauses | None, now: int) -> str:
    """Words about the age of the oldest message in a lane; "" if it is unknown. `found`: causes, None if not read. A
    message that was moved to the lane is older than its time there.
    """
    if not lane.oldest or not lane.entries:
        return ""
    if found is not None and found.since is not None:
        return f"sent {age_text(max(0, now - min(found.since, lane.oldest)))} ago"
    age = age_text(max(0, now - lane.oldest))
    return f"here for {age}" if lane.has_causes else f"sent {age} ago"


def _link(topology: TopologyStatus, lane: LaneStatus) -> dict[str, str]:
    return {"topology": topology.name, "topic": lane.topic, "subscription": lane.subscription}


def _needs(
    topology: TopologyStatus, reading: StatusReading, words: CommandWords, history: RateHistory, facts: ScreenFacts
) -> Iterator[Need]:
    now, partial_grounds = reading.at, _partial(topology, reading)
    if topology.missing:
        yield Need(
            "bad",
            f"{many(topology.missing, 'lane')} of {topology.name} missing",
            "The cluster does not have what the file declares: producers and workers of these lanes fail.",
            words.line("kodoctl plan", topology.name),
        )
    readers = [
        (
            f"{ground} / {subscription}",
            partial(_line, words, topology.name, ("--topic", ground, "--subscription", subscription)),
            lanes,
        )
        for (ground, subscription), lanes in topology.by_reader.items()
    ]
    for name, line, lanes in readers:
        yield from _failing(topology, lanes, name, now, line, facts)
    for name, line, lanes in readers:
        yield from _letters(topology, lanes, name, now, line, facts)
        yield from _workers(topology, lanes, name, line, is_partial=lanes[0].ground in partial_grounds)
        yield from _changes(topology, lanes, name, now, line, history)
        if is_growing(lanes):
            reasons = growth_reasons(lanes, now, history.earlier(topology.name, lanes[0].reader))
            means = f"Messages wait longer and longer: {'; '.join(reasons).replace('`', '')}."
            yield Need("open", f"{name}: {backlog_text(lanes)}", means, line("kodo-consumer steer"))


def _line(words: CommandWords, topology: str, chosen: tuple[str, ...], command: str, *more: str) -> str:
    return words.line(command, topology, *chosen, *more)


def _failing(
    topology: TopologyStatus,
    lanes: list[LaneStatus],
    name: str,
    now: int,
    line: Callable[..., str],
    facts: ScreenFacts,
) -> Iterator[Need]:
    """Needs of tenants whose messages keep failing in lanes where they wait for the next attempt."""
    read = [
        (lane, found)
        for lane in lanes
        if lane.entries and lane.is_read and (found := facts.causes.get(lane_key(topology.name, lane))) is not None
    ]
    paused = paused_tenants(lanes, now)
    if "" in paused:  # a lane
        return
    by = facts.tenants.get((topology.name, lanes[0].ground), "")
    current = ((found, found.is_of(lane.entries, lane.oldest)) for lane, found in read)
    for one in failing_tenants(current, now, by, paused):
        lane, tenant = read[one.place][0], one.tenant
        text, link = f"{name}: {one.text}", _link(topology, lane)
        means = f"{one.since}. Each {'; '.join(filter(None, (one.tries, one.due)))}."
        if tenant == NOBODY:
            yield Need("bad", text, means, "", link)
            continue
        means += (
            f" A pause holds back all messages of this {one_line(by, 40) or 'tenant'}, good ones too, until it ends."
        )
        pause = line("kodo-consumer pause", "--tenant", tenant, "--for", "1h")
        where = {**link, "where": f"tenant = {literal(tenant)}"}
        yield Need("bad", text, means, pause, where, orders=_pause(topology, lane, tenant))


def _letters(
    topology: TopologyStatus,
    lanes: list[LaneStatus],
    name: str,
    now: int,
    line: Callable[..., str],
    facts: ScreenFacts,
) -> Iterator[Need]:
    for lane in lanes:
        if lane.state != "dead" or not lane.entries:
            continue
        link, found = _link(topology, lane), facts.causes.get(lane_key(topology.name, lane))
        age = _oldest(lane, found, now)
        exact = exact_count(found, lane.entries, lane.oldest)
        letters = "dead letters, not counted yet" if exact is None else many(exact, "dead letter")
        if found is not None and exact is None:
            letters = f"at least {many(least_count(found, lane.entries, lane.oldest), 'dead letter')}"
        groups = [] if found is None else cause_lines(found)
        if found is not None and not found.is_of(lane.entries, lane.oldest):
            groups.append(("these causes are of an earlier count: they are counted again within seconds", ""))
        if found is not None and (share := tenant_share(found, facts.tenants.get((topology.name, lane.ground), ""))):
            groups.append(share)
        lines = tuple((one, {**link, "where": where} if where else None) for one, where in groups)
        again = "" if found is None or not found.recalled else _RECALLED.format(many(found.recalled, "letter"))
        command = line("kodoctl recall plan", "--where", "true", "--out", "recall.json")
        text = f"{name}: {letters}{f', the oldest {age}' if age else ''}"
        yield Need("bad", text, f"{again}{_NOBODY_TRIES}", command, link, lines)


def _pause(topology: TopologyStatus, lane: LaneStatus, tenant: str) -> dict[str, str]:
    """Query of the page with the form that pauses a tenant."""
    return {"topology": topology.name, "ground": lane.ground, "subscription": lane.subscription, "tenant": tenant}


def _changes(
    topology: TopologyStatus,
    lanes: list[LaneStatus],
    name: str,
    now: int,
    line: Callable[..., str],
    history: RateHistory,
) -> Iterator[Need]:
    """Needs that several readings show: lanes that grow, and messages that no worker takes although it could."""
    for lane in lanes:
        entries, span = history.growth(topology.name, lane)
        if entries and lane.state != "ready":
            text = (
                f"{name}: {lane_text(lane.level, lane.state)} grew by {entries_text(entries)} in {duration_text(span)}"
            )
            means = "More messages come here than leave: look at their causes."
            yield Need("open", text, means, line("kodo-consumer steer"), _link(topology, lane))
    still = history.standstill(topology.name, lanes[0].reader)
    if still and not paused_tenants(lanes, now):
        text = f"{name}: workers are connected, messages are due, and none was delivered for {duration_text(still)}"
        means = "A circuit breaker is open, or handlers hang: the log and the metrics of a worker say which."
        yield Need("open", text, means, line("kodo-consumer steer"))


def _workers(
    topology: TopologyStatus, lanes: list[LaneStatus], name: str, line: Callable[..., str], *, is_partial: bool
) -> Iterator[Need]:
    run = ("kodo-consumer run", "--handler", "MODULE:FUNCTION")
    read = [lane for lane in lanes if lane.is_read and lane.there]
    waiting = sum(lane.entries for lane in read)
    if waiting and not any(lane.consumers for lane in read):
        where = " in the lanes that could be read" if is_partial else ""
        text = f"{name}: {entries_text(waiting)} and no worker{where}"
        yield Need("bad", text, "They wait until a worker starts.", line(*run), urgent=True)
    for lane in read:
        if topology.is_unread(lane):
            text = f"{name}: no worker reads {lane_text(lane.level, lane.state)}"
            means = "Other lanes of the subscription have workers. Its messages wait until a worker reads this lane."
            command = line(*run, "--lanes", f"{lane.level}/{lane.state}")
            yield Need("bad", text, means, command, _link(topology, lane))
        elif lane.blocked:
            text = f"{name}: {lane.blocked:,} of {many(lane.consumers, 'consumer')} of {lane_text(lane.level, lane.state)} blocked"
            means = "The broker sends them nothing more until they acknowledge: handlers hang, or take too long."
            yield Need("open", text, means, "", _link(topology, lane))
