"""The facts of a message that a condition may name: one table for reading, evaluating and the documentation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, assert_never

from kodoctl.expressions.ast import Field, Json, Node, Property, Value, ValueKind, references
from kodoctl.expressions.vocabulary import Vocabulary
from kodoctl.protocol import properties
from kodoctl.recall.message.stored_message import ATTEMPTS
from kodoctl.topology.model.topology import KEY
from kodoctl.topology.units import LATEST

if TYPE_CHECKING:
    from kodoctl.recall.message.stored_message import DeadLetter

_TENANT: Final = "tenant"


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that a condition may name. `read` returns None for NULL. `attributes`, `properties`: exactly those of a
    DeadLetter that `read` uses; `meaning`: text for the documentation.
    """

    kind: ValueKind
    meaning: str
    read: Callable[[DeadLetter], Value | None]
    attributes: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()


def _moment(meaning: str, name: str) -> Fact:
    return Fact(ValueKind.MOMENT, meaning, lambda letter: letter.number(name), properties=(name,))


def _count(meaning: str, name: str) -> Fact:
    return Fact(ValueKind.NUMBER, meaning, lambda letter: float(letter.number(name) or 0), properties=(name,))


def _text(meaning: str, name: str) -> Fact:
    return Fact(ValueKind.TEXT, meaning, lambda letter: letter.properties.get(name), properties=(name,))


# fmt: off
FACTS: Final[dict[str, Fact]] = {
    "id": Fact(ValueKind.TEXT, "identity over all hops", lambda letter: letter.identity,
               ("position",), (properties.ID, properties.ORIGIN_ID)),
    "position": Fact(ValueKind.TEXT, "ledger:entry:partition:batch in this topic", lambda letter: str(letter.position),
                     ("position",)),
    "topic": Fact(ValueKind.TEXT, "the topic it is stored in", lambda letter: letter.topic, ("topic",)),
    "partition": Fact(ValueKind.NUMBER, "its partition", lambda letter: float(letter.position.partition), ("position",)),
    "key": Fact(ValueKind.TEXT, "message key", lambda letter: letter.key or None, ("key",)),
    "ordering_key": Fact(ValueKind.TEXT, "ordering key", lambda letter: letter.ordering_key or None, ("ordering_key",)),
    "tenant": Fact(ValueKind.TEXT, "value of fair_by, (none) where it is missing", lambda letter: letter.tenant, (_TENANT,)),
    "reason": _text("why it died", properties.REASON),
    "error": _text("what its last error said, where error_text keeps it", properties.ERROR),
    "error_stack": _text("where that was raised: module.function:line > …", properties.ERROR_STACK),
    "cause": Fact(ValueKind.TEXT, "reason and error, with # for numbers and ids: as plans and reports group them",
                  lambda letter: letter.cause, properties=(properties.REASON, properties.ERROR)),
    "level": _text("level it died in", properties.FROM_LEVEL),
    "attempts": Fact(ValueKind.NUMBER, "attempts of all states", lambda letter: float(letter.attempts), properties=ATTEMPTS),
    "attempts_retrying": _count("failed handler runs", properties.ATTEMPTS_RETRYING),
    "attempts_pending": _count("waits for a rate", properties.ATTEMPTS_PENDING),
    "attempts_blocking": _count("waits for a quota", properties.ATTEMPTS_BLOCKING),
    "attempts_backup": _count("failed runs in a backup level", properties.ATTEMPTS_BACKUP),
    "postponed": _count("times that a handler postponed it", properties.POSTPONED),
    "hops": _count("moves so far", properties.HOP),
    "recall": _text("id of the recall that sent it before", properties.RECALL),
    "origin_id": _text("where it was first stored", properties.ORIGIN_ID),
    "origin_topic": _text("the topic it was first stored in", properties.ORIGIN_TOPIC),
    "dead_at": Fact(ValueKind.MOMENT, "when it was stored here: for a dead letter, when it died",
                    lambda letter: letter.publish_time or None, ("publish_time",)),
    "published_at": Fact(ValueKind.MOMENT, "when it was first published",
                         lambda letter: letter.number(properties.ORIGIN_TIME) or letter.publish_time or None,
                         ("publish_time",), (properties.ORIGIN_TIME,)),
    "event_at": Fact(ValueKind.MOMENT, "event time of its producer",
                     lambda letter: letter.event_time if 0 < letter.event_time <= LATEST else None, ("event_time",)),
    "due_at": _moment("not before", properties.DUE),
    "payload": Fact(ValueKind.TEXT, "the payload as UTF-8 text; payload.x.y and payload['x'][0] reach into JSON",
                    lambda letter: letter.text, ("payload",)),
    "payload_size": Fact(ValueKind.NUMBER, "bytes of payload",
                         lambda letter: None if letter.payload is None else float(len(letter.payload)), ("payload",)),
}
# fmt: on
VOCABULARY: Final = Vocabulary({name: fact.kind for name, fact in FACTS.items()})


@dataclass(frozen=True, slots=True)
class LetterFacts:
    """Adapter (Subject) through which a condition reads a message."""

    letter: DeadLetter

    def read_property(self, name: str) -> str | None:
        """Value of a property of the message; None if it has none of this name."""
        return self.letter.properties.get(name)

    def fact(self, name: str) -> Value | None:
        """Value of one of FACTS; None: NULL."""
        return FACTS[name].read(self.letter)

    @property
    def document(self) -> Any:
        """The payload as JSON; None if the payload is no JSON."""
        return self.letter.document


class FactSources(NamedTuple):
    """The attributes and properties of a DeadLetter that a condition reads; all others may be missing."""

    attributes: frozenset[str]
    properties: frozenset[str]


def sources_of(condition: Node, fair_by: str | None) -> FactSources:
    """Finds the attributes and properties that a condition reads, so that a table need not have others. `fair_by`: the
    property with the tenant, or `key`; None: messages have no tenant.
    """
    attributes, names = set[str](), set[str]()
    for one in references(condition):
        match one:
            case Json():
                attributes.add("payload")
            case Property(name=name):
                names.add(name)
            case Field(name=name):
                attributes.update(FACTS[name].attributes)
                names.update(FACTS[name].properties)
            case _:
                assert_never(one)
    if _TENANT in attributes:
        attributes.remove(_TENANT)
        if fair_by == KEY:
            attributes.add("key")
        elif fair_by is not None:
            names.add(fair_by)
    return FactSources(frozenset(attributes), frozenset(names))
