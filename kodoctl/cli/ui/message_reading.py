"""Reading of messages for the console, bounded in number and time; nothing is consumed."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kodoctl.cli.common.extension_points import MESSAGE_HISTORY, load
from kodoctl.cli.letters.peek_command import is_mark, look
from kodoctl.errors import ClusterError, UsageError, error
from kodoctl.pulsar.binary.message_reader import Unread, partitions_of, read_all, read_facts
from kodoctl.recall.cluster import letter_of
from kodoctl.recall.filter.condition import parse
from kodoctl.recall.message.message_json import as_json
from kodoctl.topology.names import HOLDER, State
from kodoctl.ui.message_views import (
    LONGEST,
    SPANS,
    LaneMessages,
    LaneQuestion,
    MessageQuestion,
    SearchHit,
    SearchResult,
    search_condition,
)

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.session import Session
    from kodoctl.recall.message.stored_message import DeadLetter
    from kodoctl.topology.expand import Expansion, FamilyTopic

T = TypeVar("T")
_SHOWN: Final = 50
_MOST: Final = 50_000  # messages that one page reads
_SECONDS: Final = 20.0  # that one page reads them for


class _Budget:
    """Number of messages and time that one page may read. `ended`: it was used up before the end of the messages."""

    def __init__(self) -> None:
        self.read, self.ended, self._end = 0, False, time.monotonic() + _SECONDS

    def take(self, messages: Iterable[T]) -> Iterator[T]:
        """Yields messages until the budget is used up."""
        for one in messages:
            if self.read >= _MOST or time.monotonic() > self._end:
                self.ended = True
                return
            self.read += 1
            yield one

    def check(self) -> None:
        """Counts one message. Raises ClusterError (K561) if the budget is used up."""
        for _ in self.take([None]):
            return
        detail = f"{self.read:,} messages were read, which is not all of them: choose a shorter time, or use the command line"
        raise ClusterError(error("K561", "messages cannot be read", detail))


class MessageReading:
    """Reads messages of the topologies of the command. One page reads at a time, so that many windows cannot load the
    broker.
    """

    def __init__(self, session: Session, desired: Desired) -> None:
        self._session, self._expansions = session, {one.name: one for one in desired.expansions}
        self._lock = threading.Lock()

    def lane(self, question: LaneQuestion) -> LaneMessages:
        """Reads the messages of a lane that its subscription has not acknowledged, oldest first. Raises UsageError for
        an unknown lane or an invalid condition, ClusterError.
        """
        expansion = self._expansion(question.topology)
        topic = next((one for one in expansion.topics if one.name.local == question.topic), None)
        if topic is None:
            raise UsageError(error("K022", "unknown topic", f"{question.topic} is no lane of {expansion.name}"))
        condition, budget = parse(question.where[:LONGEST], _now()), _Budget()
        unread = Unread(self._session.admin, self._session.client)
        with self._lock, closing(self._waiting(topic, question.subscription, unread)) as letters:
            found = look(budget.take(letters), condition, _SHOWN, _MOST)
        return LaneMessages(
            str(topic.name),
            topic.ground,
            topic.level,
            str(topic.state),
            {**found, "unread": unread.lines()},
            budget.ended,
        )

    def find(self, text: str, span: str, topology: str) -> SearchResult:
        """Searches all lanes of the topology, "" for all topologies, for messages that `text` names: see
        `search_condition`. `span`: one of SPANS. Raises UsageError, ClusterError.
        """
        chosen = [self._expansion(topology)] if topology else list(self._expansions.values())
        begin, budget = _begin(span), _Budget()
        unread = Unread(self._session.admin, self._session.client)
        hits: dict[tuple[str, str, str], SearchHit] = {}
        missing: list[str] = []
        with self._lock:
            for expansion in chosen:
                for topic in expansion.topics:
                    if topic.state is None:
                        continue
                    spec = expansion.topology.spec.topics[topic.ground]
                    names = [*spec.message_properties, *filter(None, [spec.fair_by])]
                    condition = parse(search_condition(text, names), _now())
                    try:
                        for letter in budget.take(self._stored(topic, begin, unread)):
                            if not condition.chooses(letter):
                                continue
                            key, message = (expansion.name, topic.ground, letter.identity), as_json(letter)
                            if key in hits or len(hits) < _SHOWN:
                                hit = hits.setdefault(key, SearchHit(expansion.name, topic.ground, message))
                                hit.add(message, [topic.subscription] if topic.subscription else spec.subscriptions)
                    except UsageError:
                        missing.append(topic.name.local)
        return SearchResult(tuple(hits.values()), budget.read, not budget.ended, tuple(missing), tuple(unread.lines()))

    def history(self, question: MessageQuestion) -> dict[str, Any]:
        """The document of `kodo-consumer why`. Raises UsageError, ClusterError; also if time is over."""
        topology, budget = self._expansion(question.topology).topology, _Budget()
        unread = Unread(self._session.admin, self._session.client)
        with self._lock:
            reader = load(MESSAGE_HISTORY)(
                self._session.admin, self._session.client, unread, _begin(question.span), budget.check
            )
            found: dict[str, Any] = reader.read(topology, question.ground, question.subscription, question.message)
        return found

    def _expansion(self, topology: str) -> Expansion:
        if (found := self._expansions.get(topology)) is None:
            raise UsageError(error("K022", "unknown topic", f"there is no topology {topology!r} here"))
        return found

    def _stored(self, topic: FamilyTopic, begin: int | None, unread: Unread) -> Iterator[DeadLetter]:
        for part in partitions_of(self._session.admin, topic.name):
            facts = read_facts(self._session.admin, part)
            for stored in read_all(self._session.client, facts, unread, since=begin):
                letter = letter_of(stored, topic.name.full, None)
                if not is_mark(letter):
                    yield letter

    def _waiting(self, topic: FamilyTopic, subscription: str, unread: Unread) -> Generator[DeadLetter]:
        reader = HOLDER if topic.state is State.DEAD else subscription
        for part in partitions_of(self._session.admin, topic.name):
            facts = read_facts(self._session.admin, part)
            if (cursor := facts.cursors.get(reader)) is None:
                raise UsageError(
                    error("K560", "topic not found on the cluster", f"{part} has no subscription {reader}")
                )
            for stored in read_all(self._session.client, facts, unread, after=cursor.mark):
                if not cursor.has((stored.ledger, stored.entry)):
                    yield letter_of(stored, topic.name.full, None)


def _begin(span: str) -> int | None:
    """Publish time in ms since the epoch at which a search begins, None for all messages. Raises UsageError (K005)."""
    if span not in SPANS:
        raise UsageError(error("K005", "wrong unit", f"{span!r} is none of {', '.join(SPANS)}"))
    age = SPANS[span]
    return None if age is None else _now() - age


def _now() -> int:
    return int(time.time() * 1000)
