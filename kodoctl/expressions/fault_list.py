"""Errors found while a condition is compiled, each with its place in the text of the condition."""

from __future__ import annotations

from typing import Any, Final

from sqlglot import exp

from kodoctl.expressions.ast import Constant, Node, ValueKind
from kodoctl.expressions.filter_errors import ConditionError, SyntaxIssue, diagnostics

_WORDS: Final = "use =, <>, <, <=, >, >=, IN, BETWEEN, LIKE, IS NULL, AND, OR, NOT"
POISON: Final = Constant(False, ValueKind.UNTYPED)
"""Node in place of a part that was refused, so that the compiler still checks the rest of the condition."""


class FaultList:
    """Collects the errors of one condition. The methods `add…` return POISON, a node to use in place of the wrong one,
    so that the compiler can go on.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._faults: list[SyntaxIssue] = []

    def add(self, tree: Any, detail: str, code: str = "K550", summary: str = "a condition that cannot be read") -> Node:
        """Records an error at the first word of `tree`. Returns POISON."""
        at, length = _place(tree)
        self._faults.append(SyntaxIssue(at, length, code, summary, detail))
        return POISON

    def add_word(self, tree: Any) -> Node:
        """Records that the language has no such operator or word. The error's place is the operator of `tree` if it has
        two sides, else its first word. Returns POISON.
        """
        if (found := self._operator(tree)) is None:
            return self.add(tree, f"{keyword(tree)} is not allowed in a condition: {_WORDS}")
        at, word = found
        detail = f'"{word}" is not allowed in a condition: {_WORDS}'
        self._faults.append(SyntaxIssue(at, len(word), "K550", "a condition that cannot be read", detail))
        return POISON

    def _operator(self, tree: Any) -> tuple[int, str] | None:
        """First character (from 0) and text of the operator between the two sides of `tree`; None if `tree` has no two
        sides.
        """
        if not isinstance(tree, exp.Binary):
            return None
        left, right = _places(tree.this), _places(tree.expression)
        if not left or not right:
            return None
        begin, end = max(end for _, end in left) + 1, min(start for start, _ in right)
        between = self._text[begin:end]
        word = between.strip("()[]'\" \t\n")
        return (begin + between.index(word), word) if word else None

    def add_kind(self, tree: Any, detail: str) -> Node:
        """Records that the kinds of values at `tree` do not fit (K553). Returns POISON."""
        return self.add(tree, detail, "K553", "kinds that do not fit")

    def check(self) -> None:
        """Raises ConditionError with every recorded error, if there is any."""
        if self._faults:
            raise ConditionError(*diagnostics(self._text, self._faults))


def _places(tree: Any) -> list[tuple[int, int]]:
    return [(node.meta["start"], node.meta["end"]) for node in tree.walk() if {"start", "end"} <= node.meta.keys()]


def keyword(tree: Any) -> str:
    """The SQL word for a node of sqlglot, in capitals, made from its class; THIS for other objects."""
    return str(getattr(tree, "key", "this")).upper()


def _place(tree: Any) -> tuple[int, int]:
    """(first character of a tree, from 0; length of its first word). Only names, literals and functions have places; a
    tree without any takes that of the nearest node around it.
    """
    found = _places(tree) if isinstance(tree, exp.Expr) else []
    while not found and tree is not None and (tree := getattr(tree, "parent", None)) is not None:
        found = _places(tree)
    start, end = min(found, default=(0, 0))
    return start, end - start + 1
