"""Syntax tree -> condition. An allow-list: what is not named here is refused, at its place. All findings at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Final

from sqlglot import exp

from kodoctl.recall.filter import ast
from kodoctl.recall.filter.ast import Constant, Node, ValueKind
from kodoctl.recall.filter.coercion import TRUTHS, moment, number
from kodoctl.recall.filter.fields import FACTS
from kodoctl.recall.filter.filter_errors import ConditionError, Fault, diagnostics
from kodoctl.recall.filter.parser import MAX_DEPTH

_COMPARE: Final = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_ARITHMETIC: Final = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_KINDS: Final = {
    "TEXT": ValueKind.TEXT, "VARCHAR": ValueKind.TEXT, "DOUBLE": ValueKind.NUMBER, "FLOAT": ValueKind.NUMBER, "INT": ValueKind.NUMBER,
    "BIGINT": ValueKind.NUMBER, "TIMESTAMP": ValueKind.MOMENT, "TIMESTAMPTZ": ValueKind.MOMENT, "DATE": ValueKind.MOMENT, "BOOLEAN": ValueKind.TRUTH,
}  # fmt: skip
_UNITS: Final = {"MILLISECOND": 1, "SECOND": 1000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000,
                 "WEEK": 604_800_000}  # fmt: skip
_EXACT: Final = 2**53  # whole numbers beyond it are not told apart by a double
_LONGEST: Final = 36_500 * 86_400_000  # ms
_BAD_KEYS: Final = frozenset("'?*`")  # what a path in Spark cannot say
_FUNCTIONS: Final = "now, lower, upper, length, coalesce and cast"
_STRAY: Final = re.compile(r"(?<!\\)(?:\\\\)*\\(?![\\%_])")  # a backslash that Spark refuses in a pattern
POISON: Final = Constant(False, ValueKind.LOOSE)  # stands for what was refused, so that the rest is still looked at


class Compiler:
    """Turns one tree; `now` is ms since the epoch, the moment the text's now() stands for."""

    def __init__(self, text: str, now: int) -> None:
        self._text, self._now = text, now
        self._faults: list[Fault] = []

    def condition(self, tree: exp.Expression) -> Node:
        """The whole, which must be true or false. Raises ConditionError with every finding."""
        found = self._truth(tree, 0)
        if self._faults:
            raise ConditionError(*diagnostics(self._text, self._faults))
        return found

    # --- by kind of node

    def _node(self, tree: Any, depth: int) -> Node:
        if depth > MAX_DEPTH:
            return self._fault(tree, f"nested more than {MAX_DEPTH} deep", "K551", "a condition beyond the limits")
        below = depth + 1
        match tree:
            case exp.Paren():
                return self._node(tree.this, below)
            case exp.And() | exp.Or():
                return self._logic(tree, below)
            case exp.Not():
                return ast.Not(self._truth(tree.this, below))
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                return self._compare(tree, _COMPARE[type(tree)], tree.this, tree.expression, below)
            case exp.Between():
                return self._between(tree, below)
            case exp.In():
                return self._in(tree, below)
            case exp.Is():
                return self._is(tree, below)
            case exp.Like() | exp.ILike():
                return self._like(tree, below)
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Mod():
                return self._arithmetic(tree, below)
            case _:
                return self._leaf(tree, below)

    def _leaf(self, tree: Any, below: int) -> Node:
        match tree:
            case exp.Column() | exp.Bracket() | exp.Dot():
                return self._reference(tree)
            case exp.Literal():
                return self._literal(tree)
            case exp.Boolean():
                return Constant(bool(tree.this), ValueKind.TRUTH)
            case exp.Neg():
                return self._negative(tree, below)
            case exp.Interval():
                return self._interval(tree)
            case exp.Cast() | exp.TryCast():
                return self._cast(tree, below)
            case exp.CurrentTimestamp() if not tree.this:
                return Constant(self._now, ValueKind.MOMENT)
            case exp.Lower() | exp.Upper() | exp.Length():
                kind = ValueKind.NUMBER if isinstance(tree, exp.Length) else ValueKind.TEXT
                argument = self._as(tree.this, self._node(tree.this, below), ValueKind.TEXT)
                return ast.Call(type(tree).__name__.lower(), (argument,), kind)
            case exp.Coalesce():
                return self._coalesce(tree, below)
            case exp.Anonymous() if str(tree.this).lower() == "now" and not tree.expressions:
                return Constant(self._now, ValueKind.MOMENT)
            case exp.Func() | exp.Anonymous():
                return self._fault(tree, f"this function is not allowed: only {_FUNCTIONS} are")
            case exp.Null():
                return self._fault(tree, "nothing equals NULL: write IS NULL or IS NOT NULL")
            case _:
                return self._fault(tree, f"{_called(tree)} is not part of conditions")

    # --- truths

    def _truth(self, tree: Any, depth: int) -> Node:
        """A node in a place where only true or false makes sense."""
        return self._as(tree, self._node(tree, depth), ValueKind.TRUTH)

    def _logic(self, tree: Any, depth: int) -> Node:
        """A chain of ANDs leans to the left, one level a word: it is one node here."""
        kind, parts, at = type(tree), [], tree
        while isinstance(at, kind):
            parts.append(at.expression)
            at = at.this
        found = tuple(self._truth(part, depth) for part in (at, *reversed(parts)))
        return ast.Logic("AND" if kind is exp.And else "OR", found)

    def _compare(self, tree: Any, operator: str, left_tree: Any, right_tree: Any, depth: int) -> Node:
        left, right = self._node(left_tree, depth), self._node(right_tree, depth)
        if POISON in (left, right):
            return POISON
        kind = self._common(left, right)
        if kind is None and operator in ("=", "!="):
            kind = ValueKind.TEXT
        elif kind is None:
            detail = "neither side says what it is: write CAST(… AS DOUBLE), or AS TIMESTAMP, on one of them"
            return self._fault(tree, detail, "K553", "kinds that do not fit")
        if kind is ValueKind.TRUTH and operator not in ("=", "!="):
            return self._fault(tree, "true and false have no order", "K553", "kinds that do not fit")
        return ast.Compare(operator, self._as(left_tree, left, kind), self._as(right_tree, right, kind))

    def _common(self, left: Node, right: Node) -> ValueKind | None:
        """The kind both sides are read as; None: neither says. A quoted moment follows the other side."""
        if left.kind is right.kind:
            return None if left.kind is ValueKind.LOOSE else left.kind
        sides = ((left, right), (right, left))
        loose = next((other.kind for one, other in sides if one.kind is ValueKind.LOOSE), None)
        quoted = (other.kind for one, other in sides if isinstance(one, Constant) and one.kind is ValueKind.TEXT)
        return loose or next(quoted, left.kind)

    def _between(self, tree: Any, depth: int) -> Node:
        if tree.args.get("symmetric"):
            return self._fault(tree, "SYMMETRIC is not part of conditions")
        low = self._compare(tree, ">=", tree.this, tree.args["low"], depth)
        high = self._compare(tree, "<=", tree.this, tree.args["high"], depth)
        return ast.Logic("AND", (low, high))

    def _in(self, tree: Any, depth: int) -> Node:
        part, listed = self._node(tree.this, depth), tree.expressions
        if not listed or tree.args.get("query") or tree.args.get("unnest") or tree.args.get("field"):
            return self._fault(tree, "IN takes a list of values in brackets, at least one")
        found = [self._node(one, depth) for one in listed]
        values = []
        for one, value in zip(listed, found, strict=True):
            if not isinstance(value, Constant):
                return self._fault(one, "IN takes values, not what must be computed")
            values.append(value)
        kind = part.kind if part.kind is not ValueKind.LOOSE else values[0].kind
        fitted = [self._as(one, value, kind) for one, value in zip(listed, values, strict=True)]
        constants = tuple(one for one in fitted if isinstance(one, Constant))
        return ast.In(self._as(tree.this, part, kind), constants)

    def _is(self, tree: Any, depth: int) -> Node:
        if not isinstance(tree.expression, exp.Null):
            return self._fault(tree, "IS goes with NULL or NOT NULL; a truth stands for itself")
        return ast.IsNull(self._node(tree.this, depth))

    def _like(self, tree: Any, depth: int) -> Node:
        part = self._as(tree.this, self._node(tree.this, depth), ValueKind.TEXT)
        pattern = tree.expression
        if not (isinstance(pattern, exp.Literal) and pattern.is_string):
            return self._fault(pattern, "LIKE takes a quoted pattern: '%' is any text, '_' any character")
        if _STRAY.search(pattern.this):
            return self._fault(pattern, r"a backslash in a pattern stands before % or _ or another backslash")
        found = ast.Like(part, pattern.this, isinstance(tree, exp.ILike))
        return ast.Not(found) if tree.args.get("negate") else found

    # --- values

    def _arithmetic(self, tree: Any, depth: int) -> Node:
        operator = _ARITHMETIC[type(tree)]
        left, right = self._node(tree.this, depth), self._node(tree.expression, depth)
        if POISON in (left, right):
            return POISON
        shapes: dict[tuple[str, ValueKind, ValueKind], ValueKind] = {
            ("+", ValueKind.MOMENT, ValueKind.SPAN): ValueKind.MOMENT,
            ("+", ValueKind.SPAN, ValueKind.MOMENT): ValueKind.MOMENT,
            ("-", ValueKind.MOMENT, ValueKind.SPAN): ValueKind.MOMENT,
            ("-", ValueKind.MOMENT, ValueKind.MOMENT): ValueKind.SPAN,
            ("+", ValueKind.SPAN, ValueKind.SPAN): ValueKind.SPAN,
            ("-", ValueKind.SPAN, ValueKind.SPAN): ValueKind.SPAN,
        }
        sides = self._sides(left, right)
        kind = ValueKind.NUMBER if sides == (ValueKind.NUMBER, ValueKind.NUMBER) else shapes.get((operator, *sides))
        if kind is None:
            detail = f"{left.kind} {operator} {right.kind} means nothing"
            return self._fault(tree, detail, "K553", "kinds that do not fit")
        return ast.Arithmetic(
            operator, self._as(tree.this, left, sides[0]), self._as(tree.expression, right, sides[1]), kind
        )

    @staticmethod
    def _sides(left: Node, right: Node) -> tuple[ValueKind, ValueKind]:
        """A loose side is a number, beside a duration or a moment a moment."""
        times = (ValueKind.SPAN, ValueKind.MOMENT)
        loose_left = ValueKind.MOMENT if right.kind in times else ValueKind.NUMBER
        loose_right = ValueKind.MOMENT if left.kind in times else ValueKind.NUMBER
        return (
            loose_left if left.kind is ValueKind.LOOSE else left.kind,
            loose_right if right.kind is ValueKind.LOOSE else right.kind,
        )

    def _coalesce(self, tree: Any, depth: int) -> Node:
        trees = [tree.this, *tree.expressions]
        found = [self._node(one, depth) for one in trees]
        kind = next((one.kind for one in found if one.kind is not ValueKind.LOOSE), ValueKind.LOOSE)
        fitted = tuple(self._as(one, node, kind) for one, node in zip(trees, found, strict=True))
        return ast.Call("coalesce", fitted, kind)

    def _literal(self, tree: Any) -> Node:
        if tree.is_string:
            return Constant(str(tree.this), ValueKind.TEXT)
        value = number(str(tree.this))
        if value is None:
            return self._fault(tree, "this is no number a double can hold")
        if abs(value) >= _EXACT and value.is_integer():
            detail = "a whole number of this size is not told apart from its neighbours: compare it as text, in quotes"
            return self._fault(tree, detail)
        return Constant(value, ValueKind.NUMBER)

    def _negative(self, tree: Any, depth: int) -> Node:
        part = self._node(tree.this, depth)
        if isinstance(part, Constant) and part.kind in (ValueKind.NUMBER, ValueKind.SPAN):
            return Constant(-part.value, part.kind)  # type: ignore[operator]
        zero = Constant(0.0, ValueKind.NUMBER)
        return ast.Arithmetic("-", zero, self._as(tree.this, part, ValueKind.NUMBER), ValueKind.NUMBER)

    def _interval(self, tree: Any) -> Node:
        amount = number(str(tree.this.this)) if isinstance(tree.this, exp.Literal) else None
        unit = _UNITS.get(str(tree.args.get("unit") or "").upper().removesuffix("S"))
        if amount is None or unit is None:
            detail = "write a number and one unit, such as interval '90 minutes'; units: " + ", ".join(_UNITS).lower()
            return self._fault(tree, detail)
        if abs(amount * unit) > _LONGEST:
            return self._fault(tree, "longer than a hundred years")
        return Constant(round(amount * unit), ValueKind.SPAN)

    def _cast(self, tree: Any, depth: int) -> Node:
        name = tree.to.this.name if hasattr(tree.to.this, "name") else ""
        kind = _KINDS.get(name)
        if kind is None or tree.to.expressions or tree.args.get("format"):
            detail = "a cast goes to STRING, DOUBLE, TIMESTAMP or BOOLEAN"
            return self._fault(tree, detail)
        return self._as(tree.this, self._node(tree.this, depth), kind, asked=True)

    # --- references

    def _reference(self, tree: Any) -> Node:
        steps = self._steps(tree)
        if steps is None:
            return POISON
        (root, *path) = steps
        name = str(root)
        if name.lower() == "properties":
            if len(path) != 1 or not isinstance(path[0], str):
                return self._fault(tree, "one property by its name: properties['uid']")
            return ast.Property(path[0])
        if name.lower() == "payload" and path:
            bad = [step for step in path if isinstance(step, str) and (not step or _BAD_KEYS & set(step))]
            if bad:
                return self._fault(tree, f"the key {bad[0]!r}: empty keys, and those with ' ? * `, cannot be reached")
            return ast.Json(tuple(path))
        if path or name.lower() not in FACTS:
            return self._unknown(tree, name)
        return ast.Field(name.lower(), FACTS[name.lower()].kind)

    def _unknown(self, tree: Any, name: str) -> Node:
        near = get_close_matches(name.lower(), [*FACTS, "properties"], 1)
        hint = (
            f"did you mean {near[0]}?" if near else f"a property is properties['{name}'], a JSON value payload.{name}"
        )
        known = "" if near else "\nfacts: " + ", ".join(["properties['…']", "payload.…", *FACTS])
        return self._fault(tree, f"{name!r} is no fact of a message: {hint}{known}", "K552", "unknown fact")

    def _steps(self, tree: Any) -> list[str | int] | None:
        """`payload.a['b'][0]` as its steps, walked without recursion. None when a fault was told."""
        steps: list[str | int] = []
        while not isinstance(tree, exp.Column):
            match tree:
                case exp.Dot() if isinstance(tree.expression, exp.Identifier):
                    steps.append(str(tree.expression.this))
                case exp.Bracket() if len(tree.expressions) == 1 and (step := _step(tree.expressions[0])) is not None:
                    steps.append(step)
                case _:
                    self._fault(tree, "write payload.name, payload['name'] or payload.list[0]")
                    return None
            tree = tree.this
        parts = [tree.args.get(part) for part in ("this", "table", "db", "catalog")]
        if not all(part is None or isinstance(part, exp.Identifier) for part in parts):
            self._fault(tree, f"{_called(tree)} is not part of conditions")
            return None
        steps += [str(part.this) for part in parts if part is not None]
        return steps[::-1]

    # --- kinds and faults

    def _as(self, tree: Any, node: Node, kind: ValueKind, *, asked: bool = False) -> Node:
        """A node as a kind: as it is, cast where it is loose (or a cast was `asked` for), a fault where it does not
        fit.
        """
        if node is POISON or node.kind is kind:
            return node
        if isinstance(node, Constant) and node.kind is ValueKind.TEXT and kind in (ValueKind.MOMENT, ValueKind.TRUTH):
            return self._quoted(tree, str(node.value), kind)
        if node.kind is ValueKind.LOOSE or (asked and node.kind is ValueKind.TEXT):
            return ast.Cast(node, kind)
        detail = f"this is a {node.kind}, needed is a {kind}"
        return self._fault(tree, detail, "K553", "kinds that do not fit")

    def _quoted(self, tree: Any, text: str, kind: ValueKind) -> Node:
        parse: Callable[[str], Any] = moment if kind is ValueKind.MOMENT else TRUTHS.get
        value = parse(text)
        if value is None:
            example = (
                "'2026-01-31 14:00:00' (UTC) or '2026-01-31T14:00:00+01:00'"
                if kind is ValueKind.MOMENT
                else "true or false"
            )
            return self._fault(tree, f"{text!r} is no {kind}: write {example}", "K553", "kinds that do not fit")
        return Constant(value, kind)

    def _fault(
        self, tree: Any, detail: str, code: str = "K550", summary: str = "a condition that cannot be read"
    ) -> Node:
        at, length = _place(tree)
        self._faults.append(Fault(at, length, code, summary, detail))
        return POISON


def _step(tree: Any) -> str | int | None:
    """A key or a place in a list, as written in brackets."""
    if not isinstance(tree, exp.Literal):
        return None
    if tree.is_string:
        return str(tree.this)
    text = str(tree.this)
    return int(text) if text.isdigit() and len(text) < 10 else None


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


def _called(tree: Any) -> str:
    """Usual name of a kind of node, as far as the key of the node shows it."""
    return str(getattr(tree, "key", "this")).upper()
