"""Syntax tree of a condition: one frozen class for each kind of node. Every node has the kind of its value.

Conversions are explicit: if the compiler reads an untyped value as a number, the tree has a `Cast` around that value.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ValueKind(StrEnum):
    """Kind of a value. UNTYPED: a property, a JSON value, or a `coalesce` of such values only. The compiler converts it
    to the kind of the other side of a comparison; a duration there is an error. It compares two untyped sides as texts
    by `=` and `!=`; other operators are an error.
    """

    TEXT = "text"
    NUMBER = "number"
    MOMENT = "time"
    SPAN = "duration"
    TRUTH = "true or false"
    UNTYPED = "value of no declared kind"


Value = str | float | int | bool
"""TEXT is str, NUMBER float, MOMENT int (ms since the epoch), SPAN int (ms), TRUTH bool; Python's None is NULL."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal in the condition, or the moment of now()."""

    value: Value
    kind: ValueKind


@dataclass(frozen=True, slots=True)
class Field:
    """A named fact of the message, such as `tenant`; the vocabulary of the condition gives its kind."""

    name: str
    kind: ValueKind


@dataclass(frozen=True, slots=True)
class Property:
    """A property of the message by its name; NULL if the message has no property of that name."""

    name: str
    kind: ValueKind = ValueKind.UNTYPED


@dataclass(frozen=True, slots=True)
class Json:
    """A value in the JSON payload. `path`: keys of objects as str, places in lists as int from 0."""

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
    """AND or OR of two or more truths."""

    operator: str
    parts: tuple[Node, ...]
    kind: ValueKind = ValueKind.TRUTH


@dataclass(frozen=True, slots=True)
class Not:
    """Negation of a truth. NOT NULL is NULL, as in SQL."""

    part: Node
    kind: ValueKind = ValueKind.TRUTH


@dataclass(frozen=True, slots=True)
class IsNull:
    """IS NULL: true or false, never NULL."""

    part: Node
    kind: ValueKind = ValueKind.TRUTH


@dataclass(frozen=True, slots=True)
class In:
    """IN: the operand equals one of the constants, which have its kind."""

    part: Node
    values: tuple[Constant, ...]
    kind: ValueKind = ValueKind.TRUTH


@dataclass(frozen=True, slots=True)
class Like:
    """LIKE, or ILIKE (without regard to case) if `fold`. In the pattern `%` is any text, `_` any one character, and a
    backslash makes the next character a plain one.
    """

    part: Node
    pattern: str
    fold: bool = False
    kind: ValueKind = ValueKind.TRUTH


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`+ - * / %` of numbers, moments and spans. A division by zero and a result that is not a finite number are NULL."""

    operator: str
    left: Node
    right: Node
    kind: ValueKind


@dataclass(frozen=True, slots=True)
class Call:
    """A call of lower, upper, length or coalesce."""

    function: str
    arguments: tuple[Node, ...]
    kind: ValueKind


@dataclass(frozen=True, slots=True)
class Cast:
    """Conversion of a text or an untyped value to `kind`; NULL if the value cannot be converted."""

    part: Node
    kind: ValueKind


Node = (
    Constant | Field | Property | Json | Compare | Logic | Not | IsNull | In | Like | Arithmetic | Call | Cast
)  # fmt: skip


def references(node: Node) -> frozenset[Field | Property | Json]:
    """All `Field`, `Property` and `Json` nodes in a condition: the parts of a message that it reads."""
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
