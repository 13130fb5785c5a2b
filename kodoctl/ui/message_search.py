# pure: every branch is tested
"""Search for messages: what a text is compared with, which lanes a message is in, and the words about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kodoctl.errors import UsageError, error
from kodoctl.expressions.ast import references
from kodoctl.expressions.filter_errors import ConditionError
from kodoctl.protocol import properties
from kodoctl.recall.filter.condition import Condition, parse
from kodoctl.text.formatting import many
from kodoctl.topology.model.topology import KEY

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import PeekedMessage
    from kodoctl.errors import Diagnostic
    from kodoctl.recall.message.stored_message import DeadLetter

LONGEST: Final = 500  # characters of a text that is searched
MOST_HITS: Final = 50


class LaneCopy(NamedTuple):
    """Stored copy of a message in a lane of a subscription. `topic`: without tenant and namespace; `lane`: name for
    people; `waits`: the subscription has not acknowledged it, None: the topic has no such subscription.
    """

    subscription: str
    topic: str
    lane: str
    waits: bool | None
    message: PeekedMessage


@dataclass(slots=True)
class SearchHit:
    """A message that a search found. `message`: its newest stored copy; `facts`: names of its facts that equal the
    text, such as `key`; `copies`: all of its copies, as each subscription has them, in the order of the topology;
    `longest_wait`: the longest wait that the file declares, in ms.
    """

    topology: str
    ground: str
    message: PeekedMessage
    longest_wait: int
    facts: list[str] = field(default_factory=list)
    copies: list[LaneCopy] = field(default_factory=list)

    def add(self, fact: str, copies: Iterable[LaneCopy]) -> None:
        """Adds a stored copy of the message: `copies` has one item for each subscription of its topic. `fact`: name of
        the fact that equals the text.
        """
        self.facts += [fact] * (fact not in self.facts)
        for one in copies:
            if one.message["published"] >= self.message["published"]:
                self.message = one.message
            self.copies.append(one)

    @property
    def subscriptions(self) -> list[str]:
        """Names of the subscriptions that have a copy, each once, in the order of the copies."""
        return list(dict.fromkeys(one.subscription for one in self.copies))

    @property
    def places(self) -> list[LaneCopy]:
        """The copies that their subscription has not acknowledged."""
        return [one for one in self.copies if one.waits]

    @property
    def ended(self) -> list[str]:
        """Names of the subscriptions that have acknowledged every copy of theirs."""
        open_ = {one.subscription for one in self.copies if one.waits is not False}
        return [one for one in self.subscriptions if one not in open_]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of a search. `read`: number of messages that were read; `complete`: all within the span were; `missing`:
    topics that the cluster does not have; `unread`: texts about entries that could not be read; `recorded`: the
    subscriptions with audit records, as (topology, ground topic, subscription).
    """

    hits: tuple[SearchHit, ...]
    read: int
    complete: bool
    missing: tuple[str, ...]
    unread: tuple[str, ...]
    recorded: frozenset[tuple[str, str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class SearchText:
    """A text that a person searches for. `condition`: the text as a condition, None if it is none, or names no fact of
    a message; `problems`: findings about a text with `=`, `<` or `>` that is no valid condition.
    """

    text: str
    condition: Condition | None
    problems: tuple[Diagnostic, ...] = ()

    @classmethod
    def of(cls, text: str, now: int) -> SearchText:
        """Reads the text of a search at `now`, ms since the epoch. Raises UsageError (K785) for an empty or too long
        one.
        """
        wanted = text.strip()
        if not wanted or len(wanted) > LONGEST:
            detail = f"a text of 1 to {LONGEST} characters: a kodo-id, a position such as 7:1:0:-1, a key, or a value"
            raise UsageError(error("K785", "message not found", detail))
        try:
            condition = parse(wanted, now)
        except ConditionError as problem:
            return cls(wanted, None, problem.diagnostics if set(wanted) & set("=<>") else ())
        return cls(wanted, condition if references(condition.root) else None)

    def fact_of(self, letter: DeadLetter, names: Iterable[str], fair_by: str | None) -> str:
        """Name of the fact of a message that is equal to the text: its position, identity, key, or one of the
        properties `names`; "" for none. The name `key` stands for the key. `fair_by`: property of the tenant, None:
        there are none.
        """
        given: Mapping[str, str | None] = {
            "key": letter.key,
            **{_fact_name(name, fair_by): letter.properties.get(name) for name in names if name != KEY},
            "kodo-id": letter.properties.get(properties.ID),
            "position": str(letter.position),
            "first position": letter.properties.get(properties.ORIGIN_ID),
        }
        return next((fact for fact, value in given.items() if value == self.text), "")

    def title(self, hits: Iterable[SearchHit], most: int = MOST_HITS) -> str:
        """Sentence about the number of messages that a search found. `most`: number from which it says "or more"."""
        every = list(hits)
        number = many(len(every), "message") if every else "No message"
        number = f"{most} messages or more" if len(every) >= most else number
        if self.condition is not None:
            return f"{number} {'meets' if len(every) < 2 else 'meet'} {self.text}"
        facts = dict.fromkeys(fact for hit in every for fact in hit.facts)
        return " ".join(filter(None, (number, "with", " or ".join(facts), self.text)))


def _fact_name(name: str, fair_by: str | None) -> str:
    return "tenant" if name == fair_by else name
