# pure: every branch is tested
"""First screen of the console, as values: one row for each subscription, and a list of the facts that need a person."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from kodoctl.recall.filter.condition import literal
from kodoctl.recall.message.stored_message import NOBODY
from kodoctl.status.backlog_pace import backlog_text, growth_reasons, is_growing
from kodoctl.text.escaping import one_line, shell_line
from kodoctl.text.formatting import age_text, duration_text, lane_text, many, time_text
from kodoctl.ui.letter_causes import LetterCauses, cause_lines, exact_count, failing_tenant, failing_tenants, wait_text
from kodoctl.ui.order_badges import is_paused, order_badges
from kodoctl.ui.rate_history import RateHistory, Sparkline, lane_key, sparkline

if TYPE_CHECKING:
    from kodoctl.status.lane_status import LaneStatus, StatusReading, TopologyStatus
    from kodoctl.ui.rate_history import LaneKey


@dataclass(frozen=True, slots=True)
class Need:
    """A fact that needs a person. `style`: `bad` or `open`; `means`: sentence about its consequence; `command`: command
    line that repairs or explains it, "" for none; `link`: query of the page `/lane` about it, None for none; `lines`:
    (text, query of `/lane` or None) of each group of messages that it is about; `orders`: query of `/orders` if it
    advises to pause the tenant in that query, else None; `urgent`: it comes before facts that are not.
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
    """Facts beside the lanes' figures, each as it was read last. `causes`: causes of the messages in a lane of dead
    letters or of a waiting state; `stopped`: applies that did not complete; `drift`: None if nobody asked for it;
    `limits`: words for the limits of the file by (topology, ground topic, subscription, state), for the states in which
    messages wait because of limits.
    """

    causes: Mapping[LaneKey, LetterCauses] = field(default_factory=dict)
    stopped: tuple[StoppedApply, ...] = ()
    drift: DriftNews | None = None
    limits: Mapping[tuple[str, str, str, str], str] = field(default_factory=dict)


NO_FACTS: Final = ScreenFacts()


@dataclass(frozen=True, slots=True)
class LaneCell:
    """A lane in the row of its subscription. `name`: its name for people; `entries`: number of entries in its backlog;
    `oldest`: age of its oldest message in words, "" if unknown or empty; `note`: text about a fault of the lane, "" for
    none; `link`: query of its page; `cause`: the most frequent cause of dead letters, or the reason why its messages
    wait, "" if unknown; `is_late`: the cause is not read yet; `messages`: number of messages in the entries, None if it
    is unknown.
    """

    name: str
    entries: int
    oldest: str
    note: str
    link: Mapping[str, str]
    cause: str = ""
    is_late: bool = False
    messages: int | None = None

    @property
    def title(self) -> str:
        """Numbers of messages and entries in the lane, with their nouns."""
        entries = many(self.entries, "entry (batch)", "entries (batches)")
        return entries if self.messages is None else f"{many(self.messages, 'message')} in {entries}"


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """A subscription in the table of its topology. `lanes`: lanes other than the dead letters that hold messages or
    have a note; `empty`: number of the others; `dead`: lane of the dead letters, None if it declares none; `workers`:
    the largest number of consumers of one lane; `badges`: texts about live orders; `pace`: text about the growth of the
    backlog, "" for none; `rates`: drawing of its rates, None without a reading of them.
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

    @property
    def lacks_workers(self) -> bool:
        """True if messages wait and no worker is connected."""
        return not self.workers and any(cell.entries for cell in self.lanes)

    @property
    def is_quiet(self) -> bool:
        """True if no message waits, there are no live orders and nothing is wrong."""
        has_letters = self.dead is not None and bool(self.dead.entries or self.dead.note)
        return not (self.lanes or self.badges or self.pace or has_letters)


MAX_ROWS: Final = 200  # of a topology, if the others are quiet: a browser cannot show 20,000 every few seconds


@dataclass(frozen=True, slots=True)
class TopologySection:
    """A topology with its rows. If there are more than 200 (MAX_ROWS), quiet ones are left out. `left_out`: their
    number; `command`: command line that lists all.
    """

    name: str
    namespace: str
    rows: tuple[SubscriptionRow, ...]
    left_out: int = 0
    command: str = ""


@dataclass(frozen=True, slots=True)
class FirstScreen:
    """Values of the first screen by one reading, which ended at `at` (ms since the epoch). `needs`: urgent ones first,
    then `bad` ones. `silence`: None if the cluster answers, else (headline, reason); `at` and `sections` are then those
    of the last reading to which it answered, if there was one.
    """

    at: int
    sections: tuple[TopologySection, ...]
    needs: tuple[Need, ...]
    silence: tuple[str, str] | None = None


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
    beside the lanes; `known`: the last reading to which the cluster answered, None for none, for a screen of a cluster
    that does not answer. Raises KeyError for a topology that `words` does not have.
    """
    if reading.unread and not answers(reading):
        return _silent_screen(reading, words, history, facts, known)
    sections = tuple(_section(one, tuple(_rows(one, reading.at, history, facts)), words) for one in reading.topologies)
    needs = [need for one in reading.topologies for need in _needs(one, reading.at, words, history, facts)]
    unread = [
        Need(
            "bad", f"{many(len(topics), 'topic')} not read: {one_line(', '.join(topics), 120)}", reason, "", urgent=True
        )
        for reason, topics in _unread_topics(reading).items()
    ]
    found = (*unread, *_plan_needs(reading.at, words, facts), *needs)
    return FirstScreen(
        reading.at, sections, tuple(sorted(found, key=lambda need: (not need.urgent, need.style != "bad")))
    )


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
    room = max(0, MAX_ROWS - sum(not row.is_quiet for row in rows))
    quiet = count(1)
    shown = tuple(row for row in rows if not row.is_quiet or next(quiet) <= room)
    command = words.line("kodoctl status", topology.name)
    return TopologySection(topology.name, topology.namespace, shown, len(rows) - len(shown), command)


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


def _rows(topology: TopologyStatus, now: int, history: RateHistory, facts: ScreenFacts) -> Iterator[SubscriptionRow]:
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
        )


def _cell(topology: TopologyStatus, lane: LaneStatus, now: int, facts: ScreenFacts) -> LaneCell:
    note = ""
    if not lane.there:
        note = "missing"
    elif topology.is_unread(lane):
        note = "no worker reads it"
    elif lane.blocked:
        note = f"{lane.blocked:,} of {many(lane.consumers, 'consumer')} blocked"
    oldest = age_text(max(0, now - lane.oldest)) if lane.oldest and lane.entries else ""
    found, cause = facts.causes.get(lane_key(topology.name, lane)), ""
    if found is not None and lane.entries:
        limit = facts.limits.get((topology.name, *lane.reader, lane.state), "")
        dead = one_line(found.causes[0].cause, 80) if found.causes else ""
        cause = wait_text(found, now, limit) if lane.is_read else dead
    is_late = found is None and lane.entries > 0 and has_causes(lane)
    return LaneCell(
        lane_text(lane.level, lane.state),
        lane.entries,
        oldest,
        note,
        _link(topology, lane),
        cause,
        is_late,
        exact_count(found, lane.entries),
    )


def has_causes(lane: LaneStatus) -> bool:
    """True for a lane whose messages carry a reason why they are there: dead letters, lanes in which messages wait, and
    backup levels. False for the ready lanes of other levels.
    """
    return lane.state != "ready" or lane.level.startswith("B")


def _link(topology: TopologyStatus, lane: LaneStatus) -> dict[str, str]:
    return {"topology": topology.name, "topic": lane.topic, "subscription": lane.subscription}


def _needs(
    topology: TopologyStatus, now: int, words: CommandWords, history: RateHistory, facts: ScreenFacts
) -> Iterator[Need]:
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
        yield from _workers(topology, lanes, name, line)
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
    if is_paused(lanes, now):
        return
    for one in failing_tenants((found for _, found in read), now):
        lane, tenant = read[one.place][0], one.tenant
        text, link = f"{name}: {one.text}", _link(topology, lane)
        means = "They failed twice or more; those that have no attempts left become dead letters."
        if tenant == NOBODY:
            yield Need("bad", text, means, "", link)
            continue
        means = f"{means} A pause keeps the tenant's messages until the cause is repaired."
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
        oldest = f", the oldest here for {age_text(max(0, now - lane.oldest))}" if lane.oldest else ""
        means = "No worker takes them again by itself: a recall sends them again or discards them."
        command = line("kodoctl recall plan", "--where", "true", "--out", "recall.json")
        link, found = _link(topology, lane), facts.causes.get(lane_key(topology.name, lane))
        exact = exact_count(found, lane.entries)
        entries = f"{many(lane.entries, 'entry (batch)', 'entries (batches)')} of dead letters"
        text = f"{name}: {entries if exact is None else many(exact, 'dead letter')}{oldest}"
        groups = [] if found is None else cause_lines(found)
        lines = tuple((one, {**link, "where": where} if where else None) for one, where in groups)
        yield Need("bad", text, means, command, link, lines)
        if found is not None and (tenant := failing_tenant(found)) is not None:
            who, count = tenant
            of = (
                f"all {count:,} dead letters"
                if found.complete and count == found.read
                else f"{count:,} of {many(found.read, 'dead letter')}"
            )
            text = f"{name}: {of} are of tenant {one_line(who, 80)}"
            alone = "No other tenant has any" if found.complete else "No letter that was read is of another tenant"
            share = alone if len(found.tenants) == 1 else "It has as many as all other tenants together, or more"
            means = f"{share}. A pause keeps its messages until its cause is repaired."
            pause = line("kodo-consumer pause", "--tenant", who, "--for", "1h")
            yield Need(
                "open",
                text,
                means,
                pause,
                {**link, "where": f"tenant = {literal(who)}"},
                orders=_pause(topology, lane, who),
            )


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
            text = f"{name}: {lane_text(lane.level, lane.state)} grew by {entries:,} entries (batches) in {duration_text(span)}"
            means = "More messages come here than leave: look at their causes."
            yield Need("open", text, means, line("kodo-consumer steer"), _link(topology, lane))
    still = history.standstill(topology.name, lanes[0].reader)
    if still and not is_paused(lanes, now):
        text = f"{name}: workers are connected, messages are due, and none was delivered for {duration_text(still)}"
        means = "A circuit breaker is open, or handlers hang: the log and the metrics of a worker say which."
        yield Need("open", text, means, line("kodo-consumer steer"))


def _workers(topology: TopologyStatus, lanes: list[LaneStatus], name: str, line: Callable[..., str]) -> Iterator[Need]:
    run = ("kodo-consumer run", "--handler", "MODULE:FUNCTION")
    read = [lane for lane in lanes if lane.is_read and lane.there]
    waiting = sum(lane.entries for lane in read)
    if waiting and not any(lane.consumers for lane in read):
        text = f"{name}: {many(waiting, 'entry (batch)', 'entries (batches)')} and no worker"
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
