"""The condition language of recall, peek and the pipeline: a small subset of SQL expressions over one message.

    reason = 'handler took too long' AND payload.amount > 100 AND dead_at > now() - interval '2 hours'

sqlglot parses the text, an allow-list turns it into values of our own, and they are evaluated without eval, also in
Spark's tasks. Semantics:

- Three-valued as SQL: a missing fact is NULL, a comparison with NULL is NULL, only a true result chooses.
- Properties and JSON values have no type: compared with a number they are read as a number, with a moment as a moment,
  else as text; a value that cannot be read so is NULL. To compare one with a duration is an error. Numbers are doubles.
  Moments are UTC unless they say otherwise.
- now() is the time when the plan is made: a plan chooses the same messages whenever it is carried out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kodoctl.expressions.evaluator import evaluate
from kodoctl.expressions.parser import parse_expression
from kodoctl.recall.filter.fields import VOCABULARY, LetterFacts
from kodoctl.text.escaping import quoted

if TYPE_CHECKING:
    from kodoctl.expressions.ast import Node
    from kodoctl.recall.message.stored_message import DeadLetter


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed condition. `text`: as written; `now`: value of now(), in ms since the epoch; `root`: its tree."""

    text: str
    now: int
    root: Node

    def chooses(self, letter: DeadLetter) -> bool:
        """True if the condition is true for a message; False if its value is unknown."""
        return evaluate(self.root, LetterFacts(letter)) is True


def parse(text: str, now: int) -> Condition:
    """Parses a condition. `now`: value of now(), ms since the epoch. Raises ConditionError with all findings."""
    tree = parse_expression(text)
    from kodoctl.expressions.compiler import Compiler

    return Condition(text, now, Compiler(text, now, VOCABULARY).condition(tree))


def literal(text: str) -> str:
    """Returns a text as a literal of the condition language: in single quotes, with quotes, backslashes and control
    characters as escapes. So an input field of one line does not change it.
    """
    return quoted(text)
