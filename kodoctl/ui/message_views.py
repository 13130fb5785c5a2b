# pure: every branch is tested
"""Messages and questions about them, as values for the pages: a lane, a search, the history of one message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kodoctl.protocol import properties
from kodoctl.recall.filter.condition import literal
from kodoctl.recall.message.stored_message import NOBODY
from kodoctl.text.formatting import age_text, lane_meaning, many, time_text
from kodoctl.topology.names import State
from kodoctl.ui.letter_causes import TryCount, cause_text, wait_text

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import PeekDocument, PeekedMessage
    from kodoctl.ui.first_screen import CommandWords
    from kodoctl.ui.letter_causes import LetterCauses, Tries
    from kodoctl.ui.message_search import LaneCopy, SearchHit, SearchResult

SPANS: Final[Mapping[str, int | None]] = {"1h": 3_600_000, "24h": 86_400_000, "7d": 604_800_000, "all": None}
"""Ages of messages that a search reads, in ms; None: all that are stored."""
DEAD_LETTERS: Final = "dead letters"  # place of a hop
_HANDLED: Final = ("done", "repeated")  # ends of a hop
_TENANTS: Final = 6  # that are named with a cause
_CLOCKS: Final = 300_000  # ms by which clocks of two machines may differ, jitter included
_LONGEST_PAYLOAD: Final = 10_000  # characters that are shown


@dataclass(frozen=True, slots=True)
class LaneQuestion:
    """A lane and the condition `where` that its messages have to meet. `topology`: name of its topology; `topic`: the
    lane's topic without tenant and namespace.
    """

    topology: str
    topic: str
    subscription: str
    where: str = "true"


@dataclass(frozen=True, slots=True)
class MessageQuestion:
    """A question about the history of one message. `message`: its `kodo-id` or a position; `ground`, `subscription`:
    ground topic and subscription whose topics are read; `span`: key of SPANS.
    """

    topology: str
    ground: str
    subscription: str
    message: str
    span: str


@dataclass(frozen=True, slots=True)
class LaneMessages:
    """Messages of a lane that its subscription has not acknowledged. `topic`: with tenant and namespace; `level`,
    `state`: of the lane, None for the level of dead letters; `reader`: subscription on Pulsar that keeps the messages;
    `document`: that of `kodoctl peek`; `ended`: reading ended early, by number or time; `longest_wait`: the longest
    single wait, in ms, that the file declares for the subscription, 0 if the file lacks that; `whole`: causes of the
    lane, None if a condition chose some of its messages; `limit`: words for the limit of the file that holds them back,
    "" for none; `tenant_by`: property of the tenants, "" for none; `tries`: those in the lane, None if failures do not
    move messages on.
    """

    topic: str
    ground: str
    level: str | None
    state: str
    reader: str
    document: PeekDocument
    ended: bool
    longest_wait: int
    whole: LetterCauses | None = None
    limit: str = ""
    tenant_by: str = ""
    tries: Tries | None = None

    @property
    def meaning(self) -> str:
        """Meaning of the lane, as in `lane_meaning`."""
        return lane_meaning(self.level, self.state)

    def facts(self, now: int) -> str:
        """Words about the age of its messages at `now` (ms since the epoch), the number that a recall sent before and,
        for waiting messages, their causes and tries; "" if nothing is known, or a condition chose some of the messages.
        """
        if self.whole is None:
            return ""
        parts = [wait_text(self.whole, now, self.limit)] if self.state != State.DEAD else []
        if self.whole.since is not None:
            parts.append(f"the oldest was sent {age_text(max(0, now - self.whole.since))} ago")
        if self.whole.recalled:
            parts.append(f"{many(self.whole.recalled, 'message')} sent again by a recall before")
        return "; ".join(filter(None, parts))


@dataclass(frozen=True, slots=True)
class MessageView:
    """A stored message for a page. `name`: its identity over all hops; `age`: time since it was first sent, and `here`:
    since it came to this topic, "" if that is the same; `due`: sentence about its next attempt, and `moment`: the time
    of it, "" for none; `reason`, `error`: of its last failure, "" for none; `tries`: words about its failures, "" for
    none; `facts`: (name, value, meaning) of its properties, those of the application first; `payload`: lines of the
    payload, a long one cut; `kind`, `note`: as in PayloadContent; `size`: bytes of the payload, None for a tombstone.
    """

    name: str
    topic: str
    position: str
    published: int
    age: str
    here: str
    due: str
    moment: str
    key: str
    reason: str
    error: str
    tries: str
    facts: tuple[tuple[str, str, str], ...]
    payload: tuple[str, ...]
    kind: str
    note: str
    size: int | None
    broken: str


def message_view(message: PeekedMessage, now: int, longest_wait: int, lane: LaneMessages | None = None) -> MessageView:
    """Makes the view of a message at `now` (ms since the epoch). `longest_wait`: the longest single wait, in ms, that
    the file declares for its subscriptions: a due time further than that after the publish time is not believed.
    `lane`: lane of the message, for its limit and its remaining tries; None: the view names neither.
    """
    control = {one["name"]: one["value"] for one in message["control"]}
    content, published = message["content"], message["published"]
    sent = properties.first_sent(control.get(properties.ORIGIN_TIME), published)
    due, moment = _due_text(control.get(properties.DUE, ""), now, published + longest_wait)
    return MessageView(
        properties.identity(control.get(properties.ID), control.get(properties.ORIGIN_ID), message["position"]),
        message["topic"],
        message["position"],
        published,
        age_text(max(0, now - sent)),
        age_text(max(0, now - published)) if sent < published else "",
        due,
        moment,
        message["key"],
        cause_text(control.get(properties.REASON, ""), "" if lane is None else lane.limit),
        control.get(properties.ERROR, ""),
        TryCount.of(control, None if lane is None else lane.tries).text,
        (
            *((name, value, "") for name, value in message["properties"].items()),
            *((one["name"], one["value"], one["means"]) for one in message["control"]),
        ),
        tuple(_shortened(content["text"])),
        content["kind"],
        content["note"],
        message["size"],
        message["broken"],
    )


def _due_text(due: str, now: int, latest: int) -> tuple[str, str]:
    """Sentence about the next attempt by the value of `kodo-due`, and words with its time; both "" if that is no time.
    `latest`: time in ms since the epoch when the longest declared wait has ended. Workers do not wait longer, because
    anybody can write the property.
    """
    if not (due.isascii() and due.isdigit() and len(due) <= 15):
        return "", ""
    forged = int(due) > latest + _CLOCKS
    moment = latest if forged else int(due)
    at = time_text(moment, seconds=True)
    note = " Its kodo-due is later than any wait that the file declares, and does not count." if forged else ""
    if moment > now:
        return f"Tried again in {age_text(moment - now)}, at {at}.{note}", f"due {at}"
    return f"Due since {at}: the next worker tries it.{note}", f"due since {at}"


def _shortened(text: str) -> Iterator[str]:
    """Yields the lines of a payload up to _LONGEST_PAYLOAD characters, and then how many are left out."""
    yield from text[:_LONGEST_PAYLOAD].splitlines()
    if len(text) > _LONGEST_PAYLOAD:
        yield f"… and {len(text) - _LONGEST_PAYLOAD:,} characters more"


@dataclass(frozen=True, slots=True)
class HitView:
    """A message that a search found, for a page. `places`: (copy, words about it) for each copy that waits; `ended`:
    a sentence about each subscription that has acknowledged the message, or one that its topic has no subscription;
    `topics`: number of topics that have a copy.
    """

    hit: SearchHit
    message: MessageView
    places: tuple[tuple[LaneCopy, str], ...]
    ended: tuple[str, ...]
    topics: int


def hit_view(hit: SearchHit, now: int, found: SearchResult) -> HitView:
    """Makes the view of a hit of the search `found`, at `now` (ms since the epoch)."""

    def place(copy: LaneCopy) -> tuple[LaneCopy, str]:
        view = message_view(copy.message, now, hit.longest_wait)
        return copy, ", ".join(filter(None, ("here now", view.moment, view.reason)))

    def end(subscription: str) -> str:
        if (hit.topology, hit.ground, subscription) in found.recorded:
            return f"Not waiting for {subscription} any more: its history says what was done with it."
        return (
            f"Not waiting for {subscription} any more: done, skipped or discarded, of which nothing is recorded"
            " (audit: true in the file records it)."
        )

    return HitView(
        hit,
        message_view(hit.message, now, hit.longest_wait),
        tuple(map(place, hit.places)),
        tuple(map(end, hit.ended)) if hit.copies else ("Stored, and no subscription reads this topic.",),
        len({one.topic for one in hit.copies}),
    )


@dataclass(frozen=True, slots=True)
class CauseGroup:
    """Messages that failed by one cause. `messages`: their number; `where`: condition that chooses them among the shown
    ones, "" for a rest of several causes; `tenants`: (name, number of messages, condition) of up to six tenants, those
    with most first; `others`: number of further tenants; `unlisted`: number of messages of tenants that the document
    leaves out.
    """

    cause: str
    messages: int
    where: str
    tenants: tuple[tuple[str, int, str], ...]
    others: int
    unlisted: int = 0


def cause_groups(question: LaneQuestion, document: PeekDocument) -> list[CauseGroup]:
    """Groups of the messages of a lane by cause and tenant, in the order of the document."""
    by_cause: dict[str, list[tuple[str, int]]] = {}
    for one in document["groups"]:
        by_cause.setdefault(one["cause"], []).append((one["tenant"], one["messages"]))
    given = "" if question.where == "true" else f"({question.where}) AND "

    def group(cause: str, messages: int) -> CauseGroup:
        if cause not in by_cause:
            return CauseGroup(cause, messages, "", (), 0)
        where = f"cause = {literal(cause)}"
        where = where if where == question.where else given + where
        members = [one for one in by_cause[cause] if one[0] != NOBODY]
        tenants = tuple((name, count, f"{where} AND tenant = {literal(name)}") for name, count in members[:_TENANTS])
        unlisted = messages - sum(count for _, count in by_cause[cause]) if document.get("left_out") else 0
        return CauseGroup(cause, messages, where, tenants, len(members) - len(tenants), unlisted)

    return [group(cause, messages) for cause, messages in document["by_cause"].items()]


def hop_places(document: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], str]]:
    """(hop, words) for each hop in the document of `kodo-consumer why`, in its order. The words are `no longer stored`,
    `is here now` for a copy that is not acknowledged, or "".
    """

    def place(hop: Mapping[str, Any]) -> str:
        if not hop["stored"]:
            return "no longer stored"
        return "" if hop["acknowledged"] else "is here now"

    return [(hop, place(hop)) for hop in document["hops"]]


def history_sentence(document: Mapping[str, Any], subscription: str) -> str:
    """Sentence about where the message of a document of `kodo-consumer why` is now, or how it ended; "" if it has no
    hops.
    """
    hops = document["hops"]
    if not hops:
        return ""
    if here := [hop["place"] for hop in hops if hop["stored"] and not hop["acknowledged"]]:
        dead = here == [DEAD_LETTERS]
        return "It is a dead letter: nothing tries it again by itself." if dead else f"It is now in {', '.join(here)}."
    last = hops[-1]
    end = "Handled" if last["ended"] in _HANDLED else "It waits nowhere"
    at = f" at {time_text(last['ended_at'], seconds=True)}" if last["ended"] else ""
    return f"{end}, says the history for {subscription}: {last['left']}{at}."


def lane_commands(words: CommandWords, question: LaneQuestion, found: LaneMessages) -> list[str]:
    """Command lines for the messages of a lane: the first shows them; a second plans to send dead letters again, or an
    action on messages that wait; ready lanes have no second one. Raises KeyError for a topology that `words` does not
    have.
    """
    chosen = ("--topic", found.ground, "--subscription", question.subscription)
    choice = ("--where", question.where)
    peek = words.line_of_cluster("kodoctl peek", *_peeked(words, question, found))
    match found.state:
        case State.DEAD:
            recall = words.line("kodoctl recall plan", question.topology, *chosen, *choice, "--out", "recall.json")
            return [peek, recall]
        case State.READY:
            return [peek]
        case _:
            lane = ("--lane", f"{found.level}/{found.state}")
            waiting = words.line(
                "kodoctl waiting plan", question.topology, *chosen, *lane, *choice, "--out", "waiting.json"
            )
            return [peek, waiting]


def export_command(words: CommandWords, question: LaneQuestion, found: LaneMessages) -> str:
    """Command line that writes the messages of a lane to the file TOPIC.jsonl, as its page does. Raises KeyError for a
    topology that `words` does not have.
    """
    return words.line_of_cluster("kodoctl peek", *_peeked(words, question, found), "--out", f"{question.topic}.jsonl")


def _peeked(words: CommandWords, question: LaneQuestion, found: LaneMessages) -> tuple[str, ...]:
    """Words of `kodoctl peek` that choose these messages, and show them in the same way."""
    file = words.files[question.topology]
    return (
        found.topic, "--subscription", found.reader, "--where", question.where, "--topology", file, *words.environment,
    )  # fmt: skip
