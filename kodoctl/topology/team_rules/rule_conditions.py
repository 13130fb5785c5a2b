# pure: every branch is tested
"""Conditions of team rules in the language of conditions, over the fields of an object.

A list counts as the number of its entries (an empty one has no value), a size as bytes, a rate as messages or bytes
a second, `unlimited` as more than any number. This module is imported, and with it the parser, only if a rule has a
condition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Any

from kodoctl.expressions.ast import Field, ValueKind, references
from kodoctl.expressions.compiler import Compiler
from kodoctl.expressions.evaluator import evaluate
from kodoctl.expressions.filter_errors import ConditionError
from kodoctl.expressions.parser import parse_expression
from kodoctl.expressions.vocabulary import Vocabulary
from kodoctl.topology.team_rules.field_tests import shown_value
from kodoctl.topology.team_rules.rule_fields import comparable, field_type, value_kind

if TYPE_CHECKING:
    from kodoctl.expressions.ast import Node, Value


@dataclass(frozen=True, slots=True)
class CompiledCondition:
    """A condition that can be evaluated. `fields`: the fields that it reads and their kinds, sorted by path."""

    text: str
    root: Node
    fields: tuple[tuple[str, ValueKind], ...]

    def failure(self, read: Callable[[str], Any]) -> str:
        """Returns a text of one line with the condition and the values that it read, unless the condition is true; ""
        if it is true. `read`: returns the value of the field at a path, None if the field has no value.
        """
        values = {path: read(path) for path, _ in self.fields}
        if evaluate(self.root, _Facts(values, dict(self.fields))) is True:
            return ""
        shown = (
            f"{path} {f'is {shown_value(one)}' if one is not None else 'has no value'}" for path, one in values.items()
        )
        text = " ".join(map(str.strip, self.text.strip().splitlines()))
        return f"`{text}` does not hold{': ' if values else ''}{', '.join(shown)}"


@dataclass(frozen=True, slots=True)
class _Facts:
    """Values of the fields of an object, as a condition compares them."""

    values: dict[str, Any]
    kinds: dict[str, ValueKind]
    document: None = None

    def fact(self, name: str) -> Value | None:
        """Value of a field; None for none, and for one of another kind, such as `adaptive` in place of a number."""
        value = self.values[name]
        if value is None:
            return None
        match self.kinds[name]:
            case ValueKind.NUMBER | ValueKind.SPAN:
                return None if isnan(number := comparable(value)) else number
            case ValueKind.TRUTH:
                return value if isinstance(value, bool) else True  # a map in place of `true`
            case _:
                return str(value)

    def read_property(self, name: str) -> None:
        """None: an object of a rule has no properties."""


def compile_condition(kind: str, text: str) -> tuple[CompiledCondition | None, list[str]]:
    """Returns (the condition, texts of errors): the condition is None if there are errors. `kind`: kind of the objects
    that are judged, such as `topics`.
    """
    vocabulary = Vocabulary({}, payload=False, resolve=lambda path: value_kind(field_type(kind, path), path))
    try:
        root = Compiler(text, None, vocabulary).condition(parse_expression(text))
    except ConditionError as problem:
        return None, [one.detail.partition("\n")[0] for one in problem.diagnostics]  # without its own excerpt
    fields = {one.name: one.kind for one in references(root) if isinstance(one, Field)}
    return CompiledCondition(text, root, tuple(sorted(fields.items()))), []
