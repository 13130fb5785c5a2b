"""The facts of a message that a condition may name: one table for reading, evaluating, Spark SQL and the
documentation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kodoctl.expressions.ast import Value, ValueKind
from kodoctl.expressions.vocabulary import Vocabulary
from kodoctl.protocol import properties
from kodoctl.topology.units import LATEST

if TYPE_CHECKING:
    from kodoctl.recall.stored_message import DeadLetter


@dataclass(frozen=True, slots=True)
class Fact:
    """`read` answers None for NULL."""

    kind: ValueKind
    meaning: str
    read: Callable[[DeadLetter], Value | None]


def _moment(name: str) -> Callable[[DeadLetter], Value | None]:
    return lambda letter: letter.number(name)


def _count(name: str) -> Callable[[DeadLetter], Value | None]:
    return lambda letter: float(letter.number(name) or 0)


def _text(name: str) -> Callable[[DeadLetter], Value | None]:
    return lambda letter: letter.properties.get(name)


# fmt: off
FACTS: Final[dict[str, Fact]] = {
    "id": Fact(ValueKind.TEXT, "identity over all hops", lambda letter: letter.identity),
    "position": Fact(ValueKind.TEXT, "ledger:entry:partition:batch in this topic", lambda letter: str(letter.position)),
    "topic": Fact(ValueKind.TEXT, "the topic it is stored in", lambda letter: letter.topic),
    "partition": Fact(ValueKind.NUMBER, "its partition", lambda letter: float(letter.position.partition)),
    "key": Fact(ValueKind.TEXT, "message key", lambda letter: letter.key or None),
    "ordering_key": Fact(ValueKind.TEXT, "ordering key", lambda letter: letter.ordering_key or None),
    "tenant": Fact(ValueKind.TEXT, "value of fair_by, (none) where it is missing", lambda letter: letter.tenant),
    "reason": Fact(ValueKind.TEXT, "why it died", lambda letter: letter.reason),
    "error": Fact(ValueKind.TEXT, "what its last error said, where error_text keeps it", _text(properties.ERROR)),
    "error_stack": Fact(ValueKind.TEXT, "where that was raised: module.function:line > …", _text(properties.ERROR_STACK)),
    "cause": Fact(ValueKind.TEXT, "reason and error, with # for numbers and ids: as plans and reports group them",
                  lambda letter: letter.cause),
    "level": Fact(ValueKind.TEXT, "level it died in", lambda letter: letter.level),
    "attempts": Fact(ValueKind.NUMBER, "attempts of all states", lambda letter: float(letter.attempts)),
    "attempts_retrying": Fact(ValueKind.NUMBER, "failed handler runs", _count(properties.ATTEMPTS_RETRYING)),
    "attempts_pending": Fact(ValueKind.NUMBER, "waits for a rate", _count(properties.ATTEMPTS_PENDING)),
    "attempts_blocking": Fact(ValueKind.NUMBER, "waits for a quota", _count(properties.ATTEMPTS_BLOCKING)),
    "attempts_backup": Fact(ValueKind.NUMBER, "failed runs in a backup level", _count(properties.ATTEMPTS_BACKUP)),
    "hops": Fact(ValueKind.NUMBER, "moves so far", _count(properties.HOP)),
    "recall": Fact(ValueKind.TEXT, "id of the recall that sent it before", _text(properties.RECALL)),
    "origin_id": Fact(ValueKind.TEXT, "where it was first stored", _text(properties.ORIGIN_ID)),
    "origin_topic": Fact(ValueKind.TEXT, "the topic it was first stored in", _text(properties.ORIGIN_TOPIC)),
    "dead_at": Fact(ValueKind.MOMENT, "when it was stored here: for a dead letter, when it died",
                    lambda letter: letter.publish_time or None),
    "published_at": Fact(ValueKind.MOMENT, "when it was first published",
                         lambda letter: letter.number(properties.ORIGIN_TIME) or letter.publish_time or None),
    "event_at": Fact(ValueKind.MOMENT, "event time of its producer",
                     lambda letter: letter.event_time if 0 < letter.event_time <= LATEST else None),
    "due_at": Fact(ValueKind.MOMENT, "not before", _moment(properties.DUE)),
    "payload": Fact(ValueKind.TEXT, "the payload as UTF-8 text; payload.x.y and payload['x'][0] reach into JSON",
                    lambda letter: letter.text),
    "payload_size": Fact(ValueKind.NUMBER, "bytes of payload",
                         lambda letter: None if letter.payload is None else float(len(letter.payload))),
}
# fmt: on
VOCABULARY: Final = Vocabulary({name: fact.kind for name, fact in FACTS.items()})


@dataclass(frozen=True, slots=True)
class LetterFacts:
    """A message as conditions see it: their Subject."""

    letter: DeadLetter

    def read_property(self, name: str) -> str | None:
        """One of its properties; None where it has none of this name."""
        return self.letter.properties.get(name)

    def fact(self, name: str) -> Value | None:
        """One of FACTS."""
        return FACTS[name].read(self.letter)

    @property
    def document(self) -> Any:
        """Its payload as JSON; None where it is none."""
        return self.letter.document
