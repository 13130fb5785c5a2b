# pure: every branch is tested
"""Search for messages: what a text is compared with, which lanes a message is in, and the words about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
_WORDS: Final = re.compile(r"[\s=#]+|(?<=[^\W\d]):")  # between the words of a text: `order: 4711`, `Order #4711`
_NUMBER: Final = frozenset({"no", "nr", "num", "number", "id"})  # words between a name and its value


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
    text, such as `key`; `copies`: its copies that the search found, as each subscription has them, in the order of the
    topology; `longest_wait`: the longest single wait, in ms, that the file declares for the subscriptions that read the
    lane in which it was found first, 0 if the file lacks these.
    """

    topology: str
    ground: str
    message: PeekedMessage
    longest_wait: int
    facts: list[str] = field(default_factory=list)
    copies: list[LaneCopy] = field(default_factory=list)

    def add(self, fact: str, message: PeekedMessage, copies: Iterable[LaneCopy]) -> None:
        """Adds a stored copy of the message, which becomes `message` unless it is older. `fact`: name of the fact that
        equals the text; `copies`: the stored copy as each subscription of its topic has it.
        """
        if fact not in self.facts:
            self.facts.append(fact)
        if message["published"] >= self.message["published"]:
            self.message = message
        self.copies += copies

    def has_fact(self, name: str) -> bool:
        """True if one of the facts has this name, in upper or lower case: a property, or a member of the payload.
        `name`: in lower case.
        """
        return any(name in (fact.casefold(), fact.casefold().removeprefix("payload.")) for fact in self.facts)

    @property
    def subscriptions(self) -> list[str]:
        """Names of the subscriptions that have a copy, each once, in the order of the copies."""
        return list(dict.fromkeys(one.subscription for one in self.copies))

    @property
    def places(self) -> list[LaneCopy]:
        """The copies that wait in a lane: their subscription has not acknowledged them."""
        return [one for one in self.copies if one.waits]

    @property
    def ended(self) -> list[str]:
        """Names of the subscriptions that have acknowledged all of their copies. A copy of which that is unknown does
        not count as acknowledged.
        """
        open_ = {one.subscription for one in self.copies if one.waits is not False}
        return [one for one in self.subscriptions if one not in open_]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of a search. `hits`: at most 50 (MOST_HITS); `read`: number of messages that were read; `complete`: all
    were; `missing`: topics that the cluster does not have; `unread`: texts about entries that could not be read;
    `recorded`: the subscriptions with audit records, as (topology, ground topic, subscription). `counted`: the text to
    which facts of the `hits` are equal: the searched text, or its last word.
    """

    hits: tuple[SearchHit, ...]
    read: int
    complete: bool
    missing: tuple[str, ...]
    unread: tuple[str, ...]
    recorded: frozenset[tuple[str, str, str]] = frozenset()
    counted: str = ""


@dataclass(frozen=True, slots=True)
class SearchText:
    """A text that a person searches for. `condition`: the condition that the text is, None for another text, such as
    `true`, which reads no fact; `problems`: findings about a text that looks like a condition and is none. `value`: its
    last word, which counts if nothing is equal to the whole text; `name`: the word before it in lower case, without
    words such as `no` and `number`: `order` of `Order no. 4711`. Both are "" for a condition and for a single word;
    `value` is also "" for a last word without a digit in a text that looks like a condition.
    """

    text: str
    condition: Condition | None
    problems: tuple[Diagnostic, ...] = ()
    value: str = ""
    name: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that facts of a message are compared with, the first one first."""
        return (self.text, self.value) if self.value else (self.text,)

    @classmethod
    def of(cls, text: str, now: int) -> SearchText:
        """Reads the text of a search at `now`, ms since the epoch. Raises UsageError (K785) for an empty or too long
        one.
        """
        wanted = text.strip()
        if not wanted or len(wanted) > LONGEST:
            detail = f"a text of 1 to {LONGEST} characters: a kodo-id, a position such as 7:1:0:-1, a key, or a value"
            raise UsageError(error("K785", "message not found", detail))
        name, value = _last_words(wanted)
        try:
            condition = parse(wanted, now)
        except ConditionError as problem:
            if set(wanted) & set("=<>"):  # a field's name is no value to search for in its place
                has_digit = any(map(str.isdigit, value))
                return cls(wanted, None, problem.diagnostics, value if has_digit else "", name)
            return cls(wanted, None, (), value, name)
        return cls(wanted, condition) if references(condition.root) else cls(wanted, None, (), value, name)

    @staticmethod
    def fact_of(text: str, letter: DeadLetter, names: Iterable[str], fair_by: str | None) -> str:
        """Name of the first fact of a message that is equal to `text`: `key`, one of the properties `names` (`tenant`
        for the property `fair_by`), `kodo-id`, `position` or `first position`; "" for none. `names`: properties to
        compare, without that of the key; `fair_by`: property of the tenant, None: there are none.
        """
        given: Mapping[str, str | None] = {
            "key": letter.key,
            **{_fact_name(name, fair_by): letter.properties.get(name) for name in names if name != KEY},
            "kodo-id": letter.properties.get(properties.ID),
            "position": str(letter.position),
            "first position": letter.properties.get(properties.ORIGIN_ID),
        }
        return next((fact for fact, value in given.items() if value == text), "")

    def best(self, hits: Sequence[Sequence[SearchHit]]) -> tuple[str, tuple[SearchHit, ...]]:
        """(text, messages): the first of `texts` that has messages, and these; the whole text and () if none has.
        `hits`: messages of each of `texts`, in their order. If the last word is the value of the name before it in some
        of its messages, only these count; if the text looks like a condition, as `kye = 1` does, no others of the last
        word count either.
        """
        for text, found in zip(self.texts, hits, strict=True):
            named = [one for one in found if self.name and text == self.value and one.has_fact(self.name)]
            if chosen := named or (found if text == self.text or not self.problems else ()):
                return text, tuple(chosen)
        return self.text, ()

    def title(self, hits: Iterable[SearchHit], counted: str, most: int = MOST_HITS) -> str:
        """Sentence about the number of messages that a search has. `counted`: the one of `texts` to which they are
        equal; `most`: number of messages at which a search ends, so that there may be more.
        """
        every = list(hits)
        number = many(len(every), "message") if every else "No stored message"
        number = f"{most} messages or more" if len(every) >= most else number
        if self.condition is not None:
            return f"{number} {'meets' if len(every) < 2 else 'meet'} {self.text}"
        if not every:
            values = '" or "'.join(self.texts[:1] if self.problems else self.texts)
            return f'{number} has the value "{values}"'
        facts = dict.fromkeys(fact for hit in every for fact in hit.facts)
        return f"{number} with {' or '.join(facts)} {counted}"


def _last_words(text: str) -> tuple[str, str]:
    """(name, value): the last word of a text, and the one before it; the value is "" for a text of one word."""
    words = [one for word in _WORDS.split(text) if (one := word.strip("\"'`.,;!?()<>="))]
    if not words or words[-1] == text:
        return "", ""
    *before, value = words
    return next((one.casefold() for one in reversed(before) if one.casefold() not in _NUMBER), ""), value


def _fact_name(name: str, fair_by: str | None) -> str:
    return "tenant" if name == fair_by else name
