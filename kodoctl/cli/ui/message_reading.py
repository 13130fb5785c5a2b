"""Reading of messages for the console, bounded in number and time; nothing is consumed."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kodoctl.cli.common.extension_points import MESSAGE_HISTORY, load
from kodoctl.cli.letters.payload_forms import payload_form
from kodoctl.cli.letters.peek_command import chosen_row, is_mark, look
from kodoctl.cli.ui.page_names import lane_reader, lane_topic, of_topology
from kodoctl.errors import ClusterError, UsageError, error
from kodoctl.protocol import properties
from kodoctl.pulsar.admin.admin_http import CONNECTIONS
from kodoctl.pulsar.binary.client import BrokerClient
from kodoctl.pulsar.binary.message_reader import (
    Cursor,
    Unread,
    partitions_of,
    read_all,
    read_facts,
    read_stored,
    read_unacknowledged,
)
from kodoctl.recall.cluster import letter_of
from kodoctl.recall.filter.condition import parse
from kodoctl.recall.message.message_json import as_json
from kodoctl.recall.message.message_rows import encoder_of
from kodoctl.recall.message.payload_view import shown_member
from kodoctl.recall.message.stored_message import DeadLetter, Position
from kodoctl.text.formatting import lane_text
from kodoctl.topology import defaults
from kodoctl.topology.names import Level, State
from kodoctl.ui.letter_causes import LetterCauses, LetterCount, Tries, letter_causes
from kodoctl.ui.message_search import MOST_HITS, LaneCopy, SearchHit, SearchResult, SearchText
from kodoctl.ui.message_views import (
    SPANS,
    LaneMessages,
    LaneQuestion,
    MessageQuestion,
)

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import PeekDocument, PeekedMessage
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.recall.message.payload_view import PayloadForm
    from kodoctl.topology.expand import Expansion, FamilyTopic
    from kodoctl.topology.model.topology import GroundTopic, Subscription

T = TypeVar("T")
_LIMITS: Final[Mapping[State | None, str]] = {State.PENDING: "rate", State.BLOCKING: "quota"}
_SHOWN: Final = 50
_MOST: Final = 50_000  # messages that one page reads
_SECONDS: Final = 20.0  # that one page reads them for
_MOST_COUNTED: Final = 20_000  # letters of a lane that are counted by cause
_MOST_WAITING: Final = 2_000  # messages of another lane: many come and go
_MOST_EXPORTED: Final = 200_000
_EXPORT_S: Final = 120.0


class _Budget:
    """Number of messages and time that one page may read, on several threads. `ended`: it was used up before the end of
    the messages.
    """

    def __init__(self, most: int = _MOST, seconds: float = _SECONDS) -> None:
        self.read, self.ended = 0, False
        self._most, self._end = most, time.monotonic() + seconds

    def is_used_up(self) -> bool:
        """True if nothing more may be read; the result of the page is then a part."""
        self.ended = self.ended or self.read >= self._most or time.monotonic() > self._end
        return self.ended

    def take(self, messages: Iterable[T]) -> Iterator[T]:
        """Yields messages until the budget is used up."""
        for one in messages:
            if self.is_used_up():
                return
            self.read += 1
            yield one

    def check(self) -> None:
        """Counts one message. Raises ClusterError (K561) if the budget is used up."""
        if self.is_used_up():
            detail = f"{self.read:,} messages were read, which is not all of them: choose a shorter time, or use the command line"
            raise ClusterError(error("K561", "messages cannot be read", detail))
        self.read += 1


@dataclass(frozen=True, slots=True)
class _Reader:
    """Clients of one page, with the entries that they could not read."""

    admin: Admin
    client: BrokerClient
    unread: Unread

    def stored(
        self, topic: FamilyTopic, fair_by: str | None, begin: int | None
    ) -> Generator[tuple[DeadLetter, Mapping[str, Cursor]]]:
        """Yields the stored messages of a topic that are no marks, from the publish time `begin` on, None: all; each
        with the acknowledgements of the subscriptions of its partition.
        """
        for part in partitions_of(self.admin, topic.name):
            facts = read_facts(self.admin, part)
            for stored in read_all(self.client, facts, self.unread, since=begin):
                letter = letter_of(stored, topic.name.full, fair_by)
                if not is_mark(letter):
                    yield letter, facts.cursors

    def waiting(self, topic: FamilyTopic, subscription: str, form: PayloadForm) -> Generator[DeadLetter]:
        """Yields the messages of a lane that its subscription has not acknowledged."""
        reader = lane_reader(topic, subscription)
        for part in partitions_of(self.admin, topic.name):
            facts = read_facts(self.admin, part)
            for stored in read_unacknowledged(self.client, facts, self.unread, reader):
                yield letter_of(stored, topic.name.full, form.tenant_by)

    def message(self, expansion: Expansion, name: str, position: str) -> PeekedMessage | None:
        """The message at a position of a topic; None if it is no longer stored or cannot be read."""
        topic, place = next(one for one in expansion.topics if one.name.full == name), Position.parse(position)
        form, entry = payload_form(self.admin, expansion, topic), (place.ledger, place.entry)
        before, part = (place.ledger, place.entry - 1), topic.name.partition(place.partition)
        with suppress(ClusterError):
            found = list(read_stored(self.client, part, entry, after=before, only={place}))
            return as_json(letter_of(found[0], name, form.tenant_by), form) if found else None
        return None


_Match = tuple[DeadLetter, Mapping[str, Cursor], str]
"""A message, the acknowledgements of its partition, and the name of the fact that was searched."""


class _Searched:
    """A topic to search, and the comparison of its messages with the text of the search."""

    def __init__(self, admin: Admin, wanted: SearchText, expansion: Expansion, topic: FamilyTopic) -> None:
        self.expansion, self.topic, self._wanted = expansion, topic, wanted
        self.spec: GroundTopic = expansion.topology.spec.topics[topic.ground]
        self.readers = [topic.subscription] if topic.subscription else [*self.spec.subscriptions]
        self._form = payload_form(admin, expansion, topic)
        self._names = [*self.spec.message_properties, *filter(None, [self.spec.fair_by])]

    def match(self, messages: Iterable[tuple[DeadLetter, Mapping[str, Cursor]]]) -> list[deque[_Match]]:
        """The last messages that match each of the texts of the search, or that meet its condition."""
        found = [deque[_Match](maxlen=MOST_HITS) for _ in self._wanted.texts]
        for letter, cursors in messages:
            for text, matches in zip(self._wanted.texts, found, strict=True):
                if (fact := self._fact_of(text, letter)) is not None:
                    matches.append((letter, cursors, fact))
                    break
        return found

    def _fact_of(self, text: str, letter: DeadLetter) -> str | None:
        """Name of the fact of a message that is equal to the text, "" if it meets the condition; None for others."""
        if self._wanted.condition is not None:
            return "" if self._wanted.condition.chooses(letter) else None
        if fact := self._wanted.fact_of(text, letter, self._names, self.spec.fair_by):
            return fact
        member = shown_member(letter, self._form, text)
        return None if member is None else f"payload.{member}"

    def shown(self, letter: DeadLetter) -> PeekedMessage:
        """A stored message as the pages show it."""
        return as_json(letter, self._form)

    def copies(self, letter: DeadLetter, message: PeekedMessage, cursors: Mapping[str, Cursor]) -> list[LaneCopy]:
        """A stored message as each subscription of the topic sees it: its lane, and whether it waits there (None: not
        known). `message`: as `shown` returns it.
        """
        entry = letter.position.ledger, letter.position.entry
        lane, topic = lane_text(self.topic.level, self.topic.state), self.topic.name.local

        def waits(subscription: str) -> bool | None:
            cursor = cursors.get(lane_reader(self.topic, subscription))
            return None if cursor is None else not cursor.has(entry)

        return [LaneCopy(name, topic, lane, waits(name), message) for name in self.readers]


def _hits(found: Iterable[tuple[_Searched, Iterable[_Match]]]) -> list[SearchHit]:
    """The messages of all lanes that match a text, each with all of its copies that do."""
    hits: dict[tuple[str, str, str], SearchHit] = {}
    for place, letters in found:
        for letter, cursors, fact in letters:
            key = place.expansion.name, place.topic.ground, letter.identity
            message = place.shown(letter)
            wait = longest_wait(place.expansion, place.topic.ground, *place.readers)
            hit = hits.setdefault(key, SearchHit(place.expansion.name, place.topic.ground, message, wait))
            hit.add(fact, message, place.copies(letter, message, cursors))
    return list(hits.values())


def longest_wait(expansion: Expansion, ground: str, *subscriptions: str) -> int:
    """The longest single wait, in ms, of a message in a lane of these subscriptions until it is due, by the file (not
    the sum of its waits). Subscriptions that the file lacks are ignored; 0 if it has none of them.
    """
    topic = expansion.topology.spec.topics[ground]
    declared = (topic.subscriptions[name] for name in subscriptions if name in topic.subscriptions)
    return max((int(defaults.horizon(topic, one)) for one in declared), default=0)


def limit_text(subscription: Subscription, state: State | None) -> str:
    """Words for the limits of the file that hold messages back in a lane of a state, "" for none."""
    kind = _LIMITS.get(state)
    limits = [f"{one.limit}{f' by {one.by}' if one.by else ''}" for one in subscription.limits if one.kind == kind]
    return f"over its {kind} {' or '.join(limits)}" if limits else ""


def lane_tries(spec: GroundTopic, topic: FamilyTopic, subscription: str) -> Tries | None:
    """Tries that a message has in a lane. None if failures do not use them up, or if the file has no place for the
    message after the last one: workers then try it again and again.
    """
    if topic.level is None or subscription not in spec.subscriptions:
        return None
    declared = spec.subscriptions[subscription]
    if topic.level.is_backup:
        state, counter = None, properties.ATTEMPTS_BACKUP
    elif topic.state is State.RETRYING:
        state, counter = State.RETRYING, properties.ATTEMPTS_RETRYING
    else:
        return None
    attempts = defaults.waits(declared, state).attempts
    if topic.level.rank < Level.B1.rank and Level.B1 in defaults.active_levels(spec):
        return Tries(counter, attempts, "the backup level")
    return None if defaults.dead_letter(declared) is None else Tries(counter, attempts, "dead letters")


class MessageReading:
    """Reader of messages of the topologies of the command. Its methods block.

    `lane`, `find` and `history` read one at a time, so that many windows cannot load the broker. Each method uses a new
    client, because a client that once got no answer gives up at once.
    """

    def __init__(self, connection: Connection, admin: Admin, desired: Desired) -> None:
        self._connection, self._admin = connection, admin
        self._expansions = {one.name: one for one in desired.expansions}
        self._lock, self._exports = threading.Lock(), threading.Lock()

    def lane(self, question: LaneQuestion) -> LaneMessages:
        """Reads the messages of a lane that its subscription has not acknowledged, oldest first, and returns their
        counts and the first 50 that meet the condition. `ended` in the result: the limit of a page (50,000 messages or
        20 s) came first. Raises UsageError for an unknown lane or an invalid condition, ClusterError.
        """
        expansion, topic = self._lane(question)
        condition, budget = parse(question.where, _now()), _Budget()
        form, spec = payload_form(self._admin, expansion, topic), expansion.topology.spec.topics[topic.ground]
        count, declared = self._count(expansion, topic, question.subscription), spec.subscriptions
        with self._reader() as reader, closing(reader.waiting(topic, question.subscription, form)) as letters:
            taken = count.take(budget.take(letters))
            looked = look(taken, condition, _SHOWN, _MOST, {topic.name.full: form})
            document: PeekDocument = {**looked, "unread": reader.unread.lines()}
        kept = lane_reader(topic, question.subscription)
        whole = letter_causes(document, ended=budget.ended, count=count) if question.where == "true" else None
        limit = limit_text(declared[question.subscription], topic.state) if question.subscription in declared else ""
        return LaneMessages(
            str(topic.name), topic.ground, topic.level, str(topic.state), kept, document, budget.ended,
            longest_wait(expansion, topic.ground, question.subscription), whole, limit, spec.fair_by or "",
            lane_tries(spec, topic, question.subscription),
        )  # fmt: skip

    @staticmethod
    def _count(expansion: Expansion, topic: FamilyTopic, subscription: str) -> LetterCount:
        if topic.state is State.DEAD:
            return LetterCount(None)
        spec, wait = expansion.topology.spec.topics[topic.ground], longest_wait(expansion, topic.ground, subscription)
        return LetterCount(subscription, wait, lane_tries(spec, topic, subscription))

    def lane_title(self, question: LaneQuestion) -> str:
        """Names a lane by its file: `orders / billing: L1 retrying`. Raises UsageError for an unknown lane."""
        _, topic = self._lane(question)
        return f"{topic.ground} / {question.subscription}: {lane_text(topic.level, topic.state)}"

    def causes(self, question: LaneQuestion) -> LetterCauses:
        """Reads and counts the causes of the dead letters of a lane, or of its waiting messages, for the first screen.
        Reads at most 20,000 dead letters or 2,000 waiting messages, and for at most 20 s. Raises UsageError,
        ClusterError.
        """
        expansion, topic = self._lane(question)
        form, reader_name = payload_form(self._admin, expansion, topic), question.subscription
        count = self._count(expansion, topic, reader_name)
        budget = _Budget(_MOST_COUNTED if topic.state is State.DEAD else _MOST_WAITING)
        with self._new_reader() as reader, closing(reader.waiting(topic, reader_name, form)) as letters:
            looked = look(count.take(budget.take(letters)), parse("true", _now()), 0, _MOST_COUNTED)
            document: PeekDocument = {**looked, "unread": reader.unread.lines()}
        return letter_causes(document, ended=budget.ended, count=count)

    def export(self, question: LaneQuestion, suffix: str) -> Generator[bytes]:
        """Returns a generator of the bytes of a file with all messages of a lane that its subscription has not
        acknowledged and that meet the condition, as `peek --out` writes it. `suffix`: format of the file, `jsonl` or
        `parquet`.

        Raises UsageError at once for an unknown lane, an invalid condition or another format. The generator raises
        ClusterError if messages cannot be read, if the lane has more than 200,000 messages or reading takes longer than
        120 s, or if another file is being written: the file is then incomplete.
        """
        expansion, topic = self._lane(question)
        condition, encoder = parse(question.where, _now()), encoder_of(suffix)
        form, budget = payload_form(self._admin, expansion, topic), _Budget(_MOST_EXPORTED, _EXPORT_S)

        def parts() -> Generator[bytes]:
            if not self._exports.acquire(blocking=False):
                detail = "another file is being written for this console: wait until it is there"
                raise ClusterError(error("K561", "messages cannot be read", detail))
            try:
                yield from written()
            finally:
                self._exports.release()

        def written() -> Iterator[bytes]:
            with self._new_reader() as reader, closing(reader.waiting(topic, question.subscription, form)) as letters:
                rows = (chosen_row(one, condition, {topic.name.full: form}) for one in budget.take(letters))
                yield from encoder(row for row in rows if row is not None)
                reader.unread.check()
            if budget.ended:
                budget.check()

        return parts()

    def _lane(self, question: LaneQuestion) -> tuple[Expansion, FamilyTopic]:
        expansion = self._expansion(question.topology)
        return expansion, lane_topic(expansion, question.topic)

    def find(self, wanted: SearchText, span: str, topology: str) -> SearchResult:
        """Searches all lanes of a topology ("": of all topologies) for messages that meet the condition of `wanted`,
        or, if its text is no condition, of which a fact or a top-level value of the payload is equal to the text (or,
        if none is, to its last word). Returns the found messages (MOST_HITS at most), each once with its copies in
        lanes, and the topics that the cluster lacks or that could not be read; a result after 50,000 messages or 20 s
        is a part. `span`: a key of SPANS, the greatest age. Raises UsageError, ClusterError.
        """
        chosen = [self._expansion(topology)] if topology else list(self._expansions.values())
        begin, budget = _begin(span), _Budget()
        places = [_Searched(self._admin, wanted, one, topic) for one in chosen for topic in one.topics if topic.state]
        with self._reader() as reader:

            def matches(place: _Searched) -> list[deque[_Match]] | None:
                """Matching messages of a topic, by text; None if the cluster does not have it."""
                try:
                    if budget.is_used_up():
                        return []
                    return place.match(budget.take(reader.stored(place.topic, place.spec.fair_by, begin)))
                except UsageError:
                    return None

            with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="search") as pool:
                found = list(zip(places, pool.map(matches, places), strict=True))
            unread = tuple(reader.unread.lines())
        missing = tuple(place.topic.name.local for place, letters in found if letters is None)
        by_text = [
            _hits((place, letters[number]) for place, letters in found if letters)
            for number in range(len(wanted.texts))
        ]
        counted, hits = wanted.best(by_text)
        recorded = frozenset(
            (one.name, ground, name)
            for one in chosen
            for ground, spec in one.topology.spec.topics.items()
            for name, subscription in spec.subscriptions.items()
            if defaults.audit(subscription) is not None
        )
        return SearchResult(hits[:MOST_HITS], budget.read, not budget.ended, missing, unread, recorded, counted)

    def history(self, question: MessageQuestion) -> dict[str, Any]:
        """Reads the history of one message, and returns the document of `kodo-consumer why` with two keys more:
        `stored`, the message at its last place (None: no longer stored, or it cannot be read), and `longest_wait`, the
        longest single wait, in ms, that the file declares for the subscription of the question, 0 if the file lacks
        that. Raises UsageError, ClusterError; the latter also if 50,000 messages or 20 s were not enough.
        """
        expansion, begin, budget = self._expansion(question.topology), _begin(question.span), _Budget()
        with self._reader() as one:
            reader = load(MESSAGE_HISTORY)(one.admin, one.client, one.unread, begin, budget.check)
            ground, subscription = question.ground, question.subscription
            found: dict[str, Any] = reader.read(expansion.topology, ground, subscription, question.message)
            hop = next((hop for hop in reversed(found["hops"]) if hop["stored"]), None)
            stored = None if hop is None else one.message(expansion, hop["topic"], hop["id"])
            return {**found, "stored": stored, "longest_wait": longest_wait(expansion, ground, subscription)}

    @contextmanager
    def _reader(self) -> Iterator[_Reader]:
        with self._lock, self._new_reader() as reader:
            yield reader

    @contextmanager
    def _new_reader(self) -> Iterator[_Reader]:
        """Reader that waits for no page: a browser may take its time with a file."""
        with BrokerClient(self._connection) as client:
            yield _Reader(self._admin, client, Unread(self._admin, client))

    def _expansion(self, topology: str) -> Expansion:
        return of_topology(self._expansions, topology)


def _begin(span: str) -> int | None:
    """Publish time in ms since the epoch at which a search begins, None for all messages. Raises UsageError (K005)."""
    if span not in SPANS:
        raise UsageError(error("K005", "wrong unit", f"{span!r} is none of {', '.join(SPANS)}"))
    age = SPANS[span]
    return None if age is None else _now() - age


def _now() -> int:
    return int(time.time() * 1000)
