"""Outcome of an action of the console, read from the lanes of its messages; nothing is consumed.

A sent message is recognised by its recall id, which its copy has as a header, and is followed by its identity, which
stays the same over all hops. Each move by a worker adds a hop.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kodoctl.cli.ui.page_names import lane_reader
from kodoctl.errors import UsageError
from kodoctl.protocol import properties
from kodoctl.pulsar.binary.message_reader import Unread, partitions_of, read_all, read_facts, read_unacknowledged
from kodoctl.recall.cluster import letter_of
from kodoctl.recall.plan.recall_plan import RecallAction
from kodoctl.text.formatting import lane_text
from kodoctl.topology.names import State
from kodoctl.ui.sent_outcome import SentOutcome, SentPlace, SentStage

if TYPE_CHECKING:
    from kodoctl.cli.common.command_target import TargetOptions
    from kodoctl.pulsar.session import Session
    from kodoctl.recall.message.stored_message import DeadLetter
    from kodoctl.recall.plan.recall_plan import RecallPlan
    from kodoctl.topology.expand import Expansion, FamilyTopic

_MOST: Final = 50_000  # messages that one reading reads
_SECONDS: Final = 10.0  # that one reading takes
_CLOCKS: Final = 60_000  # ms by which the clock of another sender may be behind
_FRESH_S: Final = 2.0
_ORDER: Final = (State.READY, State.RETRYING, State.PENDING, State.BLOCKING, State.DEAD)
"""States in the order in which messages mostly move through them: one that moves meanwhile is not missed."""


class OutcomeReading:
    """Reader of the outcome of a plan that was carried out since `began` (ms since the epoch). `sent`: number of
    messages that were sent; `last`: the outcome that was read last, None before the first one was read.
    """

    def __init__(self, target: TargetOptions, expansion: Expansion, plan: RecallPlan, sent: int, began: int) -> None:
        self._target, self._plan, self._sent, self._since = target, plan, sent, began - _CLOCKS
        self._ids = {one.recall_id for one in plan.letters}
        self._targets = {one.topic for one in plan.lanes}
        self._topics = sorted(
            (
                one for one in expansion.topics
                if one.ground == plan.topic and one.state and one.subscription in (None, plan.subscription)
            ),
            key=_place_in_order,
        )  # fmt: skip
        self._hops: dict[str, int] = {}  # by identity, of the copy that was sent
        self._lock = threading.Lock()
        self.last: SentOutcome | None = None
        self._until = 0.0

    def __call__(self) -> SentOutcome:
        """Returns where the sent messages are now: how many were recognised, and by lane the number of those that are
        not acknowledged there. Reads the cluster at most once in two seconds, else returns the last result; another
        thread waits. The result of a reading that takes more than 50,000 messages or 10 s is not complete. Raises
        KodoctlError.
        """
        with self._lock:
            if self.last is None or time.monotonic() > self._until:
                with self._target.session() as session:
                    self.last = self._read(session)
                self._until = time.monotonic() + _FRESH_S
            return self.last

    def _read(self, session: Session) -> SentOutcome:
        budget = _Budget()
        unread = Unread(session.admin, session.client)
        if len(self._hops) < self._sent:
            for topic in self._topics:
                if topic.name.full in self._targets:
                    for one in self._messages(session, topic, unread, budget, unacknowledged=False):
                        if one.properties.get(self._plan.kind.mark) in self._ids:
                            self._hops[one.identity] = min(_hops(one), self._hops.get(one.identity, _hops(one)))
        places: dict[str, SentPlace] = {}
        for topic in self._topics:
            for one in self._messages(session, topic, unread, budget, unacknowledged=True):
                if one.identity in self._hops:
                    places[one.identity] = self._place(topic, one)
        complete = not budget.is_over() and not budget.lacking and not unread.lines()
        lacking = tuple(sorted(budget.lacking))
        return SentOutcome(self._sent, len(self._hops), Counter(places.values()), complete, lacking)

    def _messages(
        self, session: Session, topic: FamilyTopic, unread: Unread, budget: _Budget, *, unacknowledged: bool
    ) -> Iterator[DeadLetter]:
        """Yields the messages of a lane that were sent since the action began. A lane that the cluster lacks has none to
        yield, and is noted in `budget`: messages that were there went with it.
        """
        reader = lane_reader(topic, self._plan.subscription)
        try:
            for part in partitions_of(session.admin, topic.name):
                facts = read_facts(session.admin, part)
                stored = (
                    read_unacknowledged(session.client, facts, unread, reader, since=self._since)
                    if unacknowledged
                    else read_all(session.client, facts, unread, since=self._since)
                )
                for one in stored:
                    if budget.is_over():
                        return
                    budget.read += 1
                    yield letter_of(one, topic.name.full, None)
        except UsageError:
            budget.lacking.add(topic.name.local)

    def _was_moved(self, letter: DeadLetter) -> bool:
        """True if a worker has moved the message since it was sent. A release leaves no due time: a worker set it."""
        is_due = self._plan.action is RecallAction.RELEASE and letter.number(properties.DUE)
        return bool(is_due) or _hops(letter) > self._hops[letter.identity]

    def _place(self, topic: FamilyTopic, letter: DeadLetter) -> SentPlace:
        if topic.state is State.DEAD:
            stage = SentStage.DEAD
        else:
            stage = SentStage.WAITS if self._was_moved(letter) else SentStage.OPEN
        cause = (letter.cause or "") if stage is SentStage.DEAD else ""
        return SentPlace(stage, topic.name.local, lane_text(topic.level, topic.state), cause)


def _hops(letter: DeadLetter) -> int:
    return letter.number(properties.HOP) or 0


def _place_in_order(topic: FamilyTopic) -> tuple[bool, bool, int]:
    """Place of a lane among those of its subscription: backup levels come after all others, dead letters last."""
    state = topic.state or State.DEAD
    return state is State.DEAD, topic.level is not None and topic.level.is_backup, _ORDER.index(state)


class _Budget:
    """Number of messages and time of one reading. `lacking`: local names of declared lanes that the cluster lacks."""

    def __init__(self) -> None:
        self.read, self._end = 0, time.monotonic() + _SECONDS
        self.lacking: set[str] = set()

    def is_over(self) -> bool:
        """True if nothing more may be read."""
        return self.read >= _MOST or time.monotonic() > self._end
