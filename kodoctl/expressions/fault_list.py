"""Faults of a condition that is being compiled, each at the place of its syntax tree in the text."""

from __future__ import annotations

from typing import Any, Final

from sqlglot import exp

from kodoctl.expressions.ast import Constant, Node, ValueKind
from kodoctl.expressions.filter_errors import ConditionError, SyntaxIssue, diagnostics

_WORDS: Final = "use =, <>, <, <=, >, >=, IN, BETWEEN, LIKE, IS NULL, AND, OR, NOT"
POISON: Final = Constant(False, ValueKind.UNTYPED)
"""Stands for what was refused, so that the rest of the condition is still checked."""


class FaultList:
    """Faults of one text, in the order in which they were found."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._faults: list[SyntaxIssue] = []

    def add(self, tree: Any, detail: str, code: str = "K550", summary: str = "a condition that cannot be read") -> Node:
        """POISON, after noting the fault at the first word of `tree`."""
        at, length = _place(tree)
        self._faults.append(SyntaxIssue(at, length, code, summary, detail))
        return POISON

    def add_word(self, tree: Any) -> Node:
        """POISON, after noting that conditions have no such word: that of an operator between its two sides, else of the
        tree.
        """
        if (found := self._operator(tree)) is None:
            return self.add(tree, f"{keyword(tree)} is not allowed in a condition: {_WORDS}")
        at, word = found
        detail = f'"{word}" is not allowed in a condition: {_WORDS}'
        self._faults.append(SyntaxIssue(at, len(word), "K550", "a condition that cannot be read", detail))
        return POISON

    def _operator(self, tree: Any) -> tuple[int, str] | None:
        """The place and the text of the operator between the two sides of `tree`; None if `tree` has no two
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
        """POISON, after noting that the kinds of values at `tree` do not fit (K553)."""
        return self.add(tree, detail, "K553", "kinds that do not fit")

    def check(self) -> None:
        """Raises ConditionError with every fault, if there is one."""
        if self._faults:
            raise ConditionError(*diagnostics(self._text, self._faults))


def _places(tree: Any) -> list[tuple[int, int]]:
    return [(node.meta["start"], node.meta["end"]) for node in tree.walk() if {"start", "end"} <= node.meta.keys()]


def keyword(tree: Any) -> str:
    """Usual name of a kind of node, as far as the key of the node shows it."""
    return str(getattr(tree, "key", "this")).upper()


def _place(tree: Any) -> tuple[int, int]:
    """First character of a tree and how many its first word has: names, literals and functions know their places."""
    found = (
        [(node.meta["start"], node.meta["end"]) for node in tree.walk() if "start" in node.meta and "end" in node.meta]
        if isinstance(tree, exp.Expr)
        else []
    )
    while not found and tree is not None and (tree := getattr(tree, "parent", None)) is not None:
        found = [(node.meta["start"], node.meta["end"]) for node in tree.walk() if "start" in node.meta]
    start, end = min(found, default=(0, 0))
    return start, end - start + 1
