"""The condition language of recall, peek and the pipeline: a small subset of SQL expressions over one message.

    reason = 'handler took too long' AND payload.amount > 100 AND dead_at > now() - interval '2 hours'

Parsed by sqlglot, turned into values of our own by an allow-list, evaluated without eval, in Spark's tasks as
everywhere else. Semantics:

- Three-valued as SQL: a missing fact is NULL, a comparison with NULL is NULL, only what is true is chosen.
- Properties and JSON values are loose: beside a number they are read as a number, beside a moment as a moment, else
  as text; what does not read as one is NULL. Numbers are doubles. Moments are UTC unless they say otherwise.
- now() is the moment the plan is made: a plan chooses the same messages whenever it is carried out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kodoctl.expressions.evaluator import evaluate
from kodoctl.expressions.parser import parse_expression
from kodoctl.recall.filter.fields import VOCABULARY, LetterFacts

if TYPE_CHECKING:
    from kodoctl.expressions.ast import Node
    from kodoctl.recall.message.stored_message import DeadLetter


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition as understood; `text` as written, `now` in ms since the epoch."""

    text: str
    now: int
    root: Node

    def chooses(self, letter: DeadLetter) -> bool:
        """True if the condition is true for a message; False if its value is unknown."""
        return evaluate(self.root, LetterFacts(letter)) is True


def parse(text: str, now: int) -> Condition:
    """Raises ConditionError with every finding, each pointing at its character."""
    tree = parse_expression(text)
    from kodoctl.expressions.compiler import Compiler

    return Condition(text, now, Compiler(text, now, VOCABULARY).condition(tree))


def literal(text: str) -> str:
    """A text as a condition has it, in single quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
