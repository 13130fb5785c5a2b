"""Syntax tree of a condition, of frozen values: the whole language. Every node has the kind of its value.

Conversions are explicit: an untyped value that the compiler reads as a number stands in a Cast.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ValueKind(StrEnum):
    """Kind of a value. UNTYPED: a property or a JSON value, which takes the kind of the value it is compared with."""

    TEXT = "text"
    NUMBER = "number"
    MOMENT = "time"
    SPAN = "duration"
    TRUTH = "true or false"
    UNTYPED = "value of no declared kind"


Value = str | float | int | bool
"""TEXT is str, NUMBER float, MOMENT int (ms since the epoch), SPAN int (ms), TRUTH bool; None stands for NULL."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A value written in the text."""

    value: Value
    kind: ValueKind


@dataclass(frozen=True, slots=True)
class Field:
    """A named fact of the message, read as the vocabulary of the condition says."""

    name: str
    kind: ValueKind


@dataclass(frozen=True, slots=True)
class Property:
    """A property of the message by its name; NULL where the message has none of this name."""

    name: str
    kind: ValueKind = ValueKind.UNTYPED


@dataclass(frozen=True, slots=True)
class Json:
    """A value inside the JSON payload; keys are texts, places in a list numbers from 0."""

    path: tuple[str | int, ...]
    kind: ValueKind = ValueKind.UNTYPED


@dataclass(frozen=True, slots=True)
class Compare:
    """`=`, `!=`, `<`, `<=`, `>` or `>=` of two values of one kind."""

    operator: str
    left: Node
    right: Node
    kind: ValueKind = ValueKind.TRUTH


@dataclass(frozen=True, slots=True)
class Logic:
    """AND or OR of any number of truths."""

    operator: str
    parts: tuple[Node, ...]
    kind: ValueKind = ValueKind.TRUTH


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a truth; of NULL it is NULL, as in SQL."""

    part: Node
    kind: ValueKind = ValueKind.TRUTH


@dataclass(frozen=True, slots=True)
class IsNull:
    """IS NULL: never NULL itself."""

    part: Node
    kind: ValueKind = ValueKind.TRUTH


@dataclass(frozen=True, slots=True)
class In:
    """IN a list of constants of the operand's kind."""

    part: Node
    values: tuple[Constant, ...]
    kind: ValueKind = ValueKind.TRUTH


@dataclass(frozen=True, slots=True)
class Like:
    """LIKE, and ILIKE with `fold`: `%` is any text, `_` any character, a backslash takes the next one as it is."""

    part: Node
    pattern: str
    fold: bool = False
    kind: ValueKind = ValueKind.TRUTH


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`+ - * / %`. A division by zero, and a result that is no finite number, are NULL."""

    operator: str
    left: Node
    right: Node
    kind: ValueKind


@dataclass(frozen=True, slots=True)
class Call:
    """lower, upper, length or coalesce."""

    function: str
    arguments: tuple[Node, ...]
    kind: ValueKind


@dataclass(frozen=True, slots=True)
class Cast:
    """Conversion of a text or an untyped value to another kind; NULL if it cannot be converted."""

    part: Node
    kind: ValueKind


Node = (
    Constant | Field | Property | Json | Compare | Logic | Not | IsNull | In | Like | Arithmetic | Call | Cast
)  # fmt: skip


def references(node: Node) -> frozenset[Field | Property | Json]:
    """The fields, properties and JSON paths of a message that a condition reads."""
    match node:
        case Field() | Property() | Json():
            return frozenset({node})
        case Compare(left=left, right=right) | Arithmetic(left=left, right=right):
            return references(left) | references(right)
        case Logic(parts=parts) | Call(arguments=parts):
            return frozenset[Field | Property | Json]().union(*map(references, parts))
        case Not(part=part) | IsNull(part=part) | In(part=part) | Like(part=part) | Cast(part=part):
            return references(part)
        case _:
            return frozenset()
