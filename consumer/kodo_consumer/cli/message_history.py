# pure: every branch is tested
"""History of one message: all its hops that can be found, and the rule that caused each.

Pure: the caller passes everything in that it read. There are two sources: stored messages, whose control properties
show how they got there, and audit records, which show the decision about a message even if it is not stored any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodoctl.protocol import properties as names
from kodoctl.protocol.audit_records import FORMAT_PROPERTY, BrokenAuditError, Event, Record, decode
from kodoctl.protocol.overrides import Override, OverrideKind
from kodoctl.text.formatting import time_text

if TYPE_CHECKING:
    from kodo_consumer.core.values.policy import Policy
from kodoctl.protocol.error_causes import cause_of

FORMAT_VERSION: Final = 1
DEAD_LETTERS: Final = "dead letters"


@dataclass(frozen=True, slots=True)
class SearchedTopic:
    """A topic that was searched. `name`: its name in the topology's words, such as `L1/ready`."""

    topic: str
    name: str


class FoundMessage(NamedTuple):
    """A stored message of a searched topic. `id`: `ledger:entry:partition:batch index`. `publish_time`: ms since the
    epoch. `acknowledged`: by the subscription, a dead letter by the one that holds dead letters.
    """

    topic: str
    id: str
    payload: bytes | None
    properties: Mapping[str, str]
    publish_time: int
    acknowledged: bool
    key: str = ""


@dataclass(frozen=True, slots=True)
class Hop:
    """Stay of the message in one topic. Times are ms since the epoch. `place`: the topic's name for people; `at`: when
    the message came there. `ended`: the event of the audit record about its end, "" without one; `rule`, `target`,
    `run` and the fields `ended_…` are of the same record. `stored`: the message itself was found. `postponed`:
    times that a handler postponed it, 0: never. `attempts`: times that it had been put back to wait before, by state
    (such as `retrying`). `left`: words for the end of the stay, "" while it lasts.
    """

    place: str
    topic: str
    id: str
    at: int
    hop: int
    reason: str = ""
    cause: str = ""
    error: str = ""
    error_stack: str = ""
    attempts: Mapping[str, int] = field(default_factory=dict)
    postponed: int = 0
    due: int | None = None
    recall: str = ""
    ended: str = ""
    rule: str = ""
    ended_at: int | None = None
    ended_reason: str = ""
    ended_error: str = ""
    target: str = ""
    run: str = ""
    stored: bool = True
    acknowledged: bool = True
    left: str = ""

    @property
    def waits(self) -> str:
        """Words for how often the message had been put back to wait before this stay; "": never."""
        counts = [f"{_times(count)} in {state}" for state, count in self.attempts.items()]
        counts += [f"{_times(self.postponed)} by its handler"] if self.postponed else []
        return f"put back to wait {', '.join(counts)}" if counts else ""


class Search:
    """Search for one message among the messages and the records that the caller passes in.

    `names`: identities of the message, which grow during the search: while `grew` is set, the caller has to reset it
    and pass everything in again. `looked_at`: number of messages passed in. `latest`: returns the latest time at
    which a message of a publish time can be due, both in ms since the epoch, because senders can write any time; the
    default believes all.
    """

    def __init__(
        self, name: str, places: Iterable[SearchedTopic], latest: Callable[[int], int] = lambda _: 10**15
    ) -> None:
        self.names = {name}
        self.looked_at = 0
        self.grew = False
        self._places, self._latest = {place.topic: place.name for place in places}, latest
        self._found: dict[tuple[str, str], FoundMessage] = {}
        self._records: dict[tuple[str, int], Record] = {}

    def message(self, seen: FoundMessage) -> None:
        """Takes a message of a searched topic that is no audit topic, and keeps it if it has one of the names."""
        self.looked_at += 1
        properties = seen.properties
        known = {seen.id, properties.get(names.ID), properties.get(names.ORIGIN_ID)} - {None, ""}
        if not known.isdisjoint(self.names):
            self._found[seen.topic, seen.id] = seen
            self._learn({str(name) for name in known})

    def records(self, seen: FoundMessage) -> None:
        """Takes a message of an audit topic, and keeps its records of the names. Unreadable ones are skipped."""
        self.looked_at += 1
        if FORMAT_PROPERTY not in seen.properties:
            return
        try:
            found = decode(seen.payload or b"")
        except BrokenAuditError:
            return
        for record in found:
            known = {record.id, record.identity, record.target_id} - {""}
            if not known.isdisjoint(self.names):
                self._records[record.run, record.number] = record
                self._learn(known)

    def tenants(self, tenant_of: Callable[[Mapping[str, str], str], str]) -> list[str]:
        """Known tenants of the message, mostly one, sorted. `tenant_of` gets properties and key."""
        stored = {tenant_of(seen.properties, seen.key) for seen in self._found.values()}
        return sorted(stored | {record.tenant for record in self._records.values()})

    def _learn(self, known: set[str]) -> None:
        self.grew = self.grew or not known <= self.names
        self.names |= known

    def hops(self) -> list[Hop]:
        """Hops of the message in the order of their times, from stored messages and from audit records. Between two
        recalls or releases, the hops are in the order of their hop numbers instead, because the clocks of workers may
        differ. The numbers begin anew with each recall.
        """
        # a record of an end replaces that of the same message in the inbox
        in_order = sorted(self._records.values(), key=lambda record: record.event is not Event.STORED)
        ends = {(record.topic, record.id): record for record in in_order}
        came = self._arrivals(ends.values())
        hops = [self._hop_of_message(seen, ends.get(key)) for key, seen in self._found.items()]
        gone = [record for key, record in ends.items() if key not in self._found]
        hops += [self._hop_of_record(record, came) for record in gone]
        lives = self._lives(ends)
        began: dict[tuple[str, ...], int] = {}
        for hop in hops:
            life = lives[hop.topic, hop.id]
            began[life] = min(hop.at, began.get(life, hop.at))
        hops.sort(key=lambda hop: (began[lives[hop.topic, hop.id]], hop.hop, hop.at))
        return [replace(hop, left=self._left(hop, hops[number:], lives)) for number, hop in enumerate(hops, 1)]

    def _left(self, hop: Hop, later: Iterable[Hop], lives: Mapping[tuple[str, str], tuple[str, ...]]) -> str:
        """Words for the end of a stay. A record says how it ended; without one, a stored later copy shows that the
        message went on.
        """
        if hop.ended:
            return _recorded_end(hop)
        if not hop.acknowledged:
            return ""
        life = lives[hop.topic, hop.id]
        for one in later:
            other = lives[one.topic, one.id]
            if other == life and one.hop > hop.hop:
                return _moved(hop, one.place)
            if other != life and (one.topic, one.id) in self._found:
                return f"{'released' if other[0] == life[0] else 'sent again'} to {one.place}"
        ends = "sent again or discarded" if hop.place == DEAD_LETTERS else "done, skipped or discarded"
        return f"acknowledged; {ends}: no audit record says which"

    def _arrivals(self, ends: Collection[Record]) -> dict[tuple[str, str], int]:
        """Times when the message came to the places where records show it, by (topic, id). A recalled message is as old
        as it was before, so that only the earliest record says when the message was first sent.
        """
        came = {(record.target, record.target_id): record.at for record in ends}
        first = min((record for record in ends if not record.hop), key=lambda record: record.at, default=None)
        if first is not None:
            sent = first.at - first.age
            if all(seen.publish_time > sent for seen in self._found.values()):
                came[first.topic, first.id] = sent
        return came

    def _lives(self, ends: Mapping[tuple[str, str], Record]) -> dict[tuple[str, str], tuple[str, ...]]:
        """Key of the life of each hop, by (topic, id) of the hop. A life lasts from one recall or release to the next.
        A message that is no longer stored has the life of the hop that it went to, or came from; one of its own if
        neither is known.
        """
        marks = (names.RECALL, names.RELEASE)
        lives: dict[tuple[str, str], tuple[str, ...]] = {
            key: tuple(seen.properties.get(name, "") for name in marks) for key, seen in self._found.items()
        }
        by_hop = sorted(ends, key=lambda key: ends[key].hop)
        for key in reversed(by_hop):
            if (life := lives.get((ends[key].target, ends[key].target_id))) is not None:
                lives.setdefault(key, life)
        for key in by_hop:
            life = lives.setdefault(key, key)
            target = (ends[key].target, ends[key].target_id)
            if target in ends:
                lives.setdefault(target, life)
        return lives

    @property
    def sent(self) -> int | None:
        """Time when the message was first sent, in ms since the epoch, as its copies say or its hops; None: no hop is
        known.
        """
        stored = [
            names.first_sent(seen.properties.get(names.ORIGIN_TIME), seen.publish_time) for seen in self._found.values()
        ]
        return min(stored or [record.at - record.age for record in self._records.values()], default=None)

    def _hop_of_message(self, seen: FoundMessage, end: Record | None) -> Hop:
        properties = seen.properties
        counts = {state: _number(properties.get(name)) for state, name in _ATTEMPTS.items()}
        due = _number(properties.get(names.DUE))
        return Hop(
            place=self._places[seen.topic],
            topic=seen.topic,
            id=seen.id,
            at=seen.publish_time,
            hop=_number(properties.get(names.HOP)) or 0,
            reason=properties.get(names.REASON, "")[:200],
            cause=cause_of(properties.get(names.REASON), properties.get(names.ERROR)) or "",
            error=properties.get(names.ERROR, "")[: names.MAX_ERROR],
            error_stack=properties.get(names.ERROR_STACK, "")[: names.MAX_ERROR],
            attempts={state: count for state, count in counts.items() if count},
            postponed=_number(properties.get(names.POSTPONED)) or 0,
            due=None if due is None else min(due, self._latest(seen.publish_time)),
            recall=properties.get(names.RECALL, "")[:200],
            acknowledged=seen.acknowledged,
            **self._end(end),
        )

    def _hop_of_record(self, record: Record, came: Mapping[tuple[str, str], int]) -> Hop:
        """Hop of a message that is no longer stored. `came`: see `_arrivals`; where it is unknown, the time of the end
        stands for it.
        """
        place = self._places.get(record.topic, record.topic)
        at = came.get((record.topic, record.id), record.at)
        return Hop(place, record.topic, record.id, at, record.hop, stored=False, **self._end(record))

    def _end(self, end: Record | None) -> dict[str, Any]:
        if end is None:
            return {}
        return {
            "ended": end.event.value,
            "rule": end.rule,
            "ended_at": end.at,
            "ended_reason": end.reason,
            "ended_error": end.error,
            "target": self._places.get(end.target, end.target),
            "run": end.run,
        }


_ATTEMPTS: Final = {
    "retrying": names.ATTEMPTS_RETRYING,
    "pending": names.ATTEMPTS_PENDING,
    "blocking": names.ATTEMPTS_BLOCKING,
    "backup": names.ATTEMPTS_BACKUP,
}


_RULES: Final = {"escalated": " because its tries were used up"}
"""Words for rules whose name does not explain them."""


def _recorded_end(hop: Hop) -> str:
    """Words for the end of a stay by its audit record."""
    if hop.ended == Event.MOVED:
        end = _moved(hop, hop.target)
    elif hop.ended == Event.DEAD:
        end = "died"
    else:
        end = f"{hop.ended}{f' to {hop.target}' if hop.target else ''}"
    rule = "" if hop.rule == hop.ended else _RULES.get(hop.rule, f" by rule {hop.rule}")
    return f"{end}{rule}{f': {hop.ended_reason}' if hop.ended_reason else ''}"


def _moved(hop: Hop, place: str) -> str:
    return f"put back into {place}" if place == hop.place else f"moved on to {place}"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 18 else None


def to_json(name: str, search: Search, places: Iterable[SearchedTopic], missing: Iterable[str] = ()) -> dict[str, Any]:
    """JSON document of the search, from which `lines` makes the text for people. `name`: the identity that was
    searched; `missing`: topics that the cluster does not have.
    """
    hops = search.hops()
    return {
        "format_version": FORMAT_VERSION,
        "message": name,
        "also": sorted(search.names - {name}),
        "sent": search.sent,
        "hops": [{**asdict(hop), "attempts": dict(hop.attempts), "waits": hop.waits} for hop in hops],
        "looked_at": search.looked_at,
        "searched": [place.topic for place in places],
        "missing": list(missing),
    }


def lines(document: Mapping[str, Any], clock: Callable[[int], str]) -> Iterator[str]:
    """Lines for people from the document of `to_json`, one for each fact. `clock` formats ms since the epoch."""
    if document["also"]:
        yield f"also known as {', '.join(document['also'])}"
    if document["hops"] and document["sent"] < document["hops"][0]["at"]:
        yield f"first sent {clock(document['sent'])}"
    for hop in document["hops"]:
        here = "no longer stored" if not hop["stored"] else "" if hop["acknowledged"] else "is here now"
        yield f"{clock(hop['at'])}  {hop['place']}  {hop['id']}{_in_brackets([here] if here else [])}"
        came = [hop["waits"]] if hop["waits"] else []
        came += [f"due {clock(hop['due'])}"] if hop["due"] else []
        came += [f"recall {hop['recall']}"] if hop["recall"] else []
        if hop["reason"] or came:
            yield f"  because: {hop['reason'] or 'no reason given'}{_in_brackets(came)}"
        if hop["error"]:
            yield f"  error: {hop['error']}"
        if hop["error_stack"]:
            yield f"  raised at: {hop['error_stack']}"
        if hop["cause"] and hop["stored"] and not hop["ended"]:
            yield f"  cause, of all that failed like it: {hop['cause']}"
        if hop["left"]:
            yield f"  {clock(hop['ended_at'])}  {hop['left']}" if hop["ended"] else f"  {hop['left']}"
        if hop["ended_error"]:
            yield f"    {hop['ended_error']}"
    for topic in document["missing"]:
        yield f"not on the cluster: {topic}"


def level_lines(levels: Mapping[str, Any]) -> Iterator[str]:
    """Lines for people about the level of the message's tenants: who moved them, and until when; often none. `levels`:
    result of `tenant_levels`.
    """
    if levels["unknown"]:
        yield f"live orders cannot be read: {levels['unknown']}"
    for tenant, level in levels["exclusive"].items():
        yield f"tenant {tenant} has level {level} by exclusive_levels of the file, before its routes"
    for move in levels["moves"]:
        why = f": {move['why']}" if move["why"] else ""
        until = f"until {time_text(move['until'])}, by {move['who']}{why}"
        stays = "; what waits stays" if move["waiting"] else ""
        yield f"tenant {move['tenant']} moved to {move['to']} {until}; this counts before routes of the file{stays}"


def tenant_levels(
    policy: Policy, tenants: Iterable[str], orders: Iterable[Override], unknown: str = ""
) -> dict[str, Any]:
    """Levels that tenants have now, as JSON: `exclusive` (level by tenant, of exclusive levels in the file), `moves`
    (the moves of these tenants among `orders`, the live orders in force) and `unknown` (the argument: why the live
    orders cannot be read; "" if they could be).
    """
    names = list(tenants)
    own = {tenant: level.value for tenant in names if (level := policy.exclusive.own_level(tenant)) is not None}
    moves = [asdict(order) for order in orders if order.what is OverrideKind.MOVE and order.tenant in names]
    kept = ("tenant", "to", "since", "until", "who", "why", "waiting")
    return {"exclusive": own, "moves": [{name: move[name] for name in kept} for move in moves], "unknown": unknown}


def _in_brackets(texts: list[str]) -> str:
    return f" ({', '.join(texts)})" if texts else ""
