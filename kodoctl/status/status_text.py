"""Status of lanes as JSON and as text: a table of levels and states with their waiting messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kodoctl.protocol.overrides import steered_text
from kodoctl.status.backlog_pace import backlog_text, growth_reasons, is_growing
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import age_text, lane_meaning, many
from kodoctl.text.line import Line

if TYPE_CHECKING:
    from kodoctl.status.backlog_pace import EarlierRates
    from kodoctl.status.lane_status import (
        LaneStatus,
        OtherReaders,
        Replication,
        StatusReading,
        TopologyStatus,
        UnreadTopic,
    )

Earlier = Callable[[str, tuple[str, str]], "EarlierRates | None"]
"""Rates of a subscription in an earlier reading, by topology, ground topic and subscription; None: there is none."""
_F = TypeVar("_F")
FORMAT_VERSION = 1
MAX_SHOWN: Final = 25  # subscriptions of a topology with a table each; of more, those that need a person come first
_HEADS = ("lane", "backlog", "delayed", "unacked", "in/s", "out/s", "oldest", "consumers")


def status_json(reading: StatusReading) -> dict[str, Any]:
    """The JSON of `kodoctl status`: fields as in kodoctl.status.lane_status, and in addition `missing` of each topology
    and `unread` of each lane (no consumers, although other lanes have some). `backlogs` of each topology: for each
    subscription whose backlog grows or drains, the sentence about that (`text`), and the `reasons` of a growth. The
    list `unread` has the topics that could not be read, whose lanes are in no other list.
    """
    topologies = [
        {
            **asdict(status),
            "lanes": [{**asdict(lane), "unread": status.is_unread(lane)} for lane in status.lanes],
            "backlogs": [
                {"ground": ground, "subscription": name, "text": text, "reasons": [*growth_reasons(lanes, reading.at)]}
                for (ground, name), lanes in status.by_reader.items()
                if (text := backlog_text(lanes))
            ],
            "missing": status.missing,
        }
        for status in reading.topologies
    ]
    unread = [asdict(topic) for topic in reading.unread]
    return {"format_version": FORMAT_VERSION, "now": reading.at, "topologies": topologies, "unread": unread}


def status_lines(
    reading: StatusReading, earlier: Earlier = lambda *_: None, *, everything: bool = False
) -> Iterator[Line]:
    """Yields the text of a status: for each topology a table and notes of each subscription, then other readers,
    replication and missing lanes; then meanings of the lanes with messages, except usual ready ones; topics that could
    not be read; at last whether backlogs count messages, as in a reading with exact numbers, or entries (batches).
    `earlier`: returns earlier rates of a subscription, given topology and (ground topic, subscription), or None. Unless
    `everything` is true, only MAX_SHOWN subscriptions of a topology have a table, the ones that need a person most, and
    a line counts the others; likewise for other readers and replications.
    """
    exact = any(lane.messages is not None for topology in reading.topologies for lane in topology.lanes)
    for topology in reading.topologies:
        yield Line(f"{one_line(topology.name)} in {topology.namespace}", "bold")
        most = None if everything else MAX_SHOWN
        shown = topology.by_reader if everything else _most_urgent(topology)
        for (ground, subscription), lanes in shown.items():
            yield Line()
            yield Line(f"{one_line(ground)} / {one_line(subscription)}", "bold")
            yield from _table(lanes, reading.at)
            yield from _notes(topology, lanes, reading.at, earlier(topology.name, (ground, subscription)))
        yield from _rest(topology, shown.keys())
        others = _worst(topology.others, most, lambda other: -other.entries)
        yield from map(_other_line, others)
        yield from _rest_line(topology.others, others, "topic is read", "topics are read", "by unmanaged subscriptions")
        copies = _worst(topology.replications, most, lambda there: (there.connected, -there.entries))
        yield from map(_replication_line, copies)
        yield from _rest_line(topology.replications, copies, "replication is", "replications are", "no worse")
        if topology.missing:
            yield Line()
            are = "is" if topology.missing == 1 else "are"
            advice = "`kodoctl plan` shows what apply would create."
            yield Line(f"{many(topology.missing, 'lane')} {are} MISSING: {advice}", "bold red")
        yield Line()
    yield from _meanings(reading)
    yield from _unread_lines(reading.unread)
    counted = (
        "messages; of a batch that is partly acknowledged, all"
        if exact
        else "entries, a batch of messages each; --exact counts messages"
    )
    yield Line(f"backlog counts {counted}.", "dim")
    if any(lane.messages_at_least for topology in reading.topologies for lane in topology.lanes):
        yield Line("≥: at least as many; the broker stopped counting at its limit of entries or time.", "dim")


def _meanings(reading: StatusReading) -> Iterator[Line]:
    """Lines about the lanes that hold messages and that workers do not take first: why messages are there."""
    lanes = [lane for topology in reading.topologies for lane in topology.lanes if lane.entries and lane.has_causes]
    meanings = {
        lane.state if lane.state in ("retrying", "pending", "blocking") else _name(lane): lane_meaning(
            lane.level, lane.state
        )
        for lane in lanes
    }
    for name, meaning in meanings.items():
        yield Line(f"{name}: {meaning}.", "dim", hang=2)


def _unread_lines(unread: Iterable[UnreadTopic]) -> Iterator[Line]:
    """Lines about the topics that could not be read: those of a namespace with the same reason together."""
    topics: dict[tuple[str, str], list[str]] = {}
    for topic in unread:
        topics.setdefault((topic.namespace, topic.reason), []).append(one_line(topic.topic))
    for (namespace, reason), names in topics.items():
        if len(names) == 1:
            yield Line(f"persistent://{namespace}/{names[0]}: NOT READ", "bold red")
        else:
            more = f" and {len(names) - MAX_SHOWN:,} more" if len(names) > MAX_SHOWN else ""
            yield Line(f"{len(names):,} topics of {namespace}: NOT READ", "bold red")
            yield Line(f"  {', '.join(names[:MAX_SHOWN])}{more}")
        yield Line(f"  {one_line(reason, 1_000)}")
        yield Line()


def _most_urgent(topology: TopologyStatus) -> dict[tuple[str, str], list[LaneStatus]]:
    """The MAX_SHOWN subscriptions that need a person most, in the order of the file."""
    everyone = topology.by_reader
    if len(everyone) <= MAX_SHOWN:
        return everyone
    chosen = sorted(everyone, key=lambda reader: _urgency(topology, everyone[reader]), reverse=True)[:MAX_SHOWN]
    return {reader: lanes for reader, lanes in everyone.items() if reader in chosen}


def _urgency(topology: TopologyStatus, lanes: list[LaneStatus]) -> tuple[int, int, int, int]:
    """Rank of a subscription: lanes that are missing or without a worker, dead letters, blocked or steered lanes, then
    entries in the backlog.
    """
    return (
        sum(not lane.there or topology.is_unread(lane) for lane in lanes),
        sum(lane.entries for lane in lanes if lane.state == "dead"),
        sum(bool(lane.blocked or lane.steered) for lane in lanes),
        sum(lane.entries for lane in lanes),
    )


def _rest(topology: TopologyStatus, shown: Collection[tuple[str, str]]) -> Iterator[Line]:
    """The line about the subscriptions without a table, if there are any."""
    rest = [lanes for reader, lanes in topology.by_reader.items() if reader not in shown]
    if not rest:
        return
    waiting = [entries for lanes in rest if (entries := sum(lane.entries for lane in lanes))]
    idle = sum(not any(lane.consumers for lane in lanes) for lanes in rest)
    backlogs = (
        f"{len(waiting):,} with a backlog, {max(waiting):,} entries at most" if waiting else "none with a backlog"
    )
    workers = f", {idle:,} without a worker" if idle else ""
    yield Line()
    yield Line(f"{many(len(rest), 'more subscription')}: {backlogs}{workers}. --all shows them.", "dim")


def _other_line(other: OtherReaders) -> Line:
    names = ", ".join(one_line(name) for name in other.names)
    entries = many(other.entries, "entry", "entries")
    return Line(f"{one_line(other.ground)}: read by {names} too, unmanaged ({entries})", "dim")


def _replication_line(there: Replication) -> Line:
    where = f"{one_line(there.ground)}: replicated to {one_line(there.cluster)}"
    far = f"{many(there.entries, 'entry', 'entries')} behind" if there.entries else "up to date"
    if there.connected:
        return Line(f"{where}, {far}", "dim")
    return Line(f"{where}, {far}, NOT CONNECTED", "bold red")


def _worst(facts: Sequence[_F], most: int | None, rank: Callable[[_F], Any]) -> Sequence[_F]:
    """The facts in their order; of more than `most` (None: no limit), the first by `rank`."""
    return facts if most is None or len(facts) <= most else sorted(facts, key=rank)[:most]


def _rest_line(facts: Sequence[_F], shown: Sequence[_F], one: str, several: str, end: str) -> Iterator[Line]:
    """The line about the facts that are not shown, if there are any."""
    if more := len(facts) - len(shown):
        yield Line(f"{many(more, f'more {one}', f'more {several}')} {end}. --all shows them.", "dim")


def _table(lanes: list[LaneStatus], now: int) -> Iterator[Line]:
    rows = [_row(lane, now) for lane in lanes]
    widths = [max(len(row[i]) for row in [_HEADS, *rows]) for i in range(len(_HEADS))]
    yield Line("  " + _join(_HEADS, widths), "dim")
    for lane, row in zip(lanes, rows, strict=True):
        style = "bold red" if not lane.there else "yellow" if lane.state == "dead" and lane.entries else ""
        yield Line("  " + _join(row, widths), style)


def _notes(topology: TopologyStatus, lanes: list[LaneStatus], now: int, earlier: EarlierRates | None) -> Iterator[Line]:
    """Lines of facts that a number does not show: whether and why the backlog grows, lanes without workers, consumers
    that are blocked or have no partition, and live orders.
    """
    waiting = sum(lane.waiting for lane in lanes if lane.is_read)
    if waiting and not is_growing(lanes) and not any(lane.consumers for lane in lanes if lane.is_read):
        yield Line("  no worker is connected: messages wait until one starts", "yellow", hang=4)
    if pace := backlog_text(lanes):
        yield Line(f"  {pace}", "dim", hang=4)
    for reason in growth_reasons(lanes, now, earlier):
        yield Line(f"    {reason}", "dim", hang=6)
    for lane in lanes:
        if topology.is_unread(lane):
            yield Line(f"  {_name(lane)}: NO LIVE WORKER READS IT, only other lanes", "bold red", hang=4)
        if lane.blocked:
            get = "gets" if lane.blocked == 1 else "get"
            of = f"{lane.blocked:,} of {many(lane.consumers, 'consumer')}"
            held_back = f"{of} {get} nothing more: too much is unacknowledged"
            yield Line(f"  {_name(lane)}: {held_back}", "bold yellow", hang=4)
        if lane.idle:
            some = f"{lane.idle:,} of {many(lane.consumers, 'consumer')} {'has' if lane.idle == 1 else 'have'} no partition"
            yield Line(f"  {_name(lane)}: {some}; where order is kept, only more partitions help", "yellow", hang=4)
        if lane.steered and (text := steered_text(lane.steered, now)):
            yield Line(f"  {_name(lane)}: {text}", "bold cyan", hang=4)


def _name(lane: LaneStatus) -> str:
    return f"{lane.level} {lane.state}" if lane.level else f"{lane.state} letters"


def _join(cells: tuple[str, ...], widths: list[int]) -> str:
    first, *rest = (
        f"{cell:<{w}}" if i == 0 else f"{cell:>{w}}" for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join([first, *rest]).rstrip()


def _row(lane: LaneStatus, now: int) -> tuple[str, ...]:
    name = _name(lane)
    if not lane.there:
        return (name, "MISSING", "", "", "", "", "", "")
    waiting = lane.entries if lane.messages is None else lane.messages
    age = age_text(now - lane.oldest, short=True) if lane.oldest else "-"
    return (
        name,
        f"{'≥ ' if lane.messages_at_least else ''}{waiting:,}",
        f"{lane.delayed:,}",
        "-" if lane.unacknowledged is None else f"{lane.unacknowledged:,}",
        f"{lane.rate_in:,.0f}",
        f"{lane.rate_out:,.0f}",
        age,
        str(lane.consumers) if lane.state != "dead" else "held",
    )
