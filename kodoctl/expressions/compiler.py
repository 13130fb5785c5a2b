"""Compiler from sqlglot's tree to our own syntax tree. Only nodes of an allow-list are accepted; any other is an error
with its place. One run reports all errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from kodoctl.expressions import ast
from kodoctl.expressions.ast import Constant, Node, ValueKind
from kodoctl.expressions.coercion import TRUTHS, moment, number
from kodoctl.expressions.fault_list import POISON, FaultList, keyword
from kodoctl.expressions.parser import MAX_DEPTH

if TYPE_CHECKING:
    from kodoctl.expressions.vocabulary import Vocabulary


_UNITS: Final = {"MILLISECOND": 1, "SECOND": 1000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000,
                 "WEEK": 604_800_000}  # fmt: skip
_EXACT: Final = 2**53  # whole numbers beyond it are not told apart by a double
_LONGEST: Final = 36_500 * 86_400_000  # ms
_BAD_KEYS: Final = frozenset("'?*`")  # what a path in Spark cannot say


def literal(faults: FaultList, tree: Any) -> Node:
    """Compiles a quoted text or a number to a Constant. A number beyond a double, and a whole number from 2^53 on,
    which a double may not distinguish from its neighbours, is recorded as an error, and POISON is returned.
    """
    if tree.is_string:
        return Constant(str(tree.this), ValueKind.TEXT)
    value = number(str(tree.this))
    if value is None:
        return faults.add(tree, "this is no number a double can hold")
    if abs(value) >= _EXACT and value.is_integer():
        detail = "a whole number of this size is not told apart from its neighbours: compare it as text, in quotes"
        return faults.add(tree, detail)
    return Constant(value, ValueKind.NUMBER)


def interval(faults: FaultList, tree: Any) -> Node:
    """Compiles a duration of one number and one unit, such as `INTERVAL '2 hours'`, to a constant in ms. Returns POISON
    after an error, such as more than a hundred years.
    """
    amount = number(str(tree.this.this)) if isinstance(tree.this, exp.Literal) else None
    unit = _UNITS.get(str(tree.args.get("unit") or "").upper().removesuffix("S"))
    if amount is None or unit is None:
        detail = "write a number and one unit, such as interval '90 minutes'; units: " + ", ".join(_UNITS).lower()
        return faults.add(tree, detail)
    if abs(amount * unit) > _LONGEST:
        return faults.add(tree, "longer than a hundred years")
    return Constant(round(amount * unit), ValueKind.SPAN)


def reference(faults: FaultList, tree: Any, vocabulary: Vocabulary) -> Node:
    """Compiles a name: a property, a value of the JSON payload, or a fact of the vocabulary. Returns POISON after an
    error.
    """
    steps = _steps(faults, tree)
    if steps is None:
        return POISON
    if vocabulary.resolve is not None:
        name = ".".join(map(str, steps))
        try:
            return ast.Field(name, vocabulary.resolve(name))
        except ValueError as problem:
            return faults.add(tree, str(problem), "K552", "unknown fact")
    (root, *path) = steps
    name = str(root)
    if name.lower() == "properties":
        if len(path) != 1 or not isinstance(path[0], str):
            return faults.add(tree, "one property by its name: properties['uid']")
        if vocabulary.hidden and path[0].startswith(vocabulary.hidden):
            return faults.add(tree, f"{path[0]} is the platform's own, and no condition goes by it")
        return ast.Property(path[0])
    if name.lower() == "payload" and path and vocabulary.payload:
        bad = [step for step in path if isinstance(step, str) and (not step or _BAD_KEYS & set(step))]
        if bad:
            return faults.add(tree, f"the key {bad[0]!r}: empty keys, and those with ' ? * `, cannot be reached")
        return ast.Json(tuple(path))
    if path or name.lower() not in vocabulary.kinds:
        return _unknown(faults, tree, name, vocabulary)
    return ast.Field(name.lower(), vocabulary.kinds[name.lower()])


def _unknown(faults: FaultList, tree: Any, name: str, vocabulary: Vocabulary) -> Node:
    facts, inside = vocabulary.kinds, vocabulary.payload
    near = get_close_matches(name.lower(), [*facts, "properties"], 1)
    value = f", a JSON value payload.{name}" if inside else ""
    hint = f"did you mean {near[0]}?" if near else f"a property is properties['{name}']{value}"
    known = "" if near else "\nfacts: " + ", ".join(["properties['…']", *["payload.…"] * inside, *facts])
    return faults.add(tree, f"{name!r} is no fact of a message: {hint}{known}", "K552", "unknown fact")


def _steps(faults: FaultList, tree: Any) -> list[str | int] | None:
    """`payload.a['b'][0]` as the steps `payload`, `a`, `b`, 0; not recursive. None after adding an error to `faults`."""
    steps: list[str | int] = []
    while not isinstance(tree, exp.Column):
        match tree:
            case exp.Dot() if isinstance(tree.expression, exp.Identifier):
                steps.append(str(tree.expression.this))
            case exp.Bracket() if len(tree.expressions) == 1 and (step := _step(tree.expressions[0])) is not None:
                steps.append(step)
            case _:
                faults.add(tree, "write payload.name, payload['name'] or payload.list[0]")
                return None
        tree = tree.this
    parts = [tree.args.get(part) for part in ("this", "table", "db", "catalog")]
    if not all(part is None or isinstance(part, exp.Identifier) for part in parts):
        faults.add(tree, f"{keyword(tree)} is not allowed in a condition")
        return None
    steps += [str(part.this) for part in parts if part is not None]
    return steps[::-1]


def _step(tree: Any) -> str | int | None:
    """The text or number in brackets as a step; None for anything else."""
    if not isinstance(tree, exp.Literal):
        return None
    if tree.is_string:
        return str(tree.this)
    text = str(tree.this)
    return int(text) if text.isdigit() and len(text) < 10 else None


def compared_kind(left: Node, right: Node) -> ValueKind | None:
    """Kind in which both sides of a comparison are compared. An untyped side or a quoted text is compared in the kind
    of the other side. If neither is so, and the kinds differ, it is that of the left side. None if both are untyped.
    """
    if left.kind is right.kind:
        return None if left.kind is ValueKind.UNTYPED else left.kind
    sides = ((left, right), (right, left))
    loose = next((other.kind for one, other in sides if one.kind is ValueKind.UNTYPED), None)
    quoted = (other.kind for one, other in sides if isinstance(one, Constant) and one.kind is ValueKind.TEXT)
    return loose or next(quoted, left.kind)


def arithmetic_kinds(left: Node, right: Node) -> tuple[ValueKind, ValueKind]:
    """(kind of left, kind of right) for arithmetic. An untyped side counts as a moment if the other is a duration or a
    moment, else as a number.
    """
    times = (ValueKind.SPAN, ValueKind.MOMENT)
    loose_left = ValueKind.MOMENT if right.kind in times else ValueKind.NUMBER
    loose_right = ValueKind.MOMENT if left.kind in times else ValueKind.NUMBER
    return (
        loose_left if left.kind is ValueKind.UNTYPED else left.kind,
        loose_right if right.kind is ValueKind.UNTYPED else right.kind,
    )


def as_kind(faults: FaultList, tree: Any, node: Node, kind: ValueKind, *, asked: bool = False) -> Node:
    """Converts `node` to `kind`: returns the node itself if it has that kind, a constant parsed from a quoted text (a
    moment or a truth, never a number), or a `Cast` if the node is untyped, or is a text and the condition itself has a
    cast (`asked`). Otherwise, and for an untyped node in place of a duration, which no text is, records an error in
    `faults` and returns POISON.
    """
    if node is POISON or node.kind is kind:
        return node
    if isinstance(node, Constant) and node.kind is ValueKind.TEXT and kind in (ValueKind.MOMENT, ValueKind.TRUTH):
        return _quoted_constant(faults, tree, str(node.value), kind)
    if node.kind is ValueKind.UNTYPED and kind is ValueKind.SPAN:
        return faults.add_kind(tree, "a property or JSON value is never a duration: compare it with a number")
    if node.kind is ValueKind.UNTYPED or (asked and node.kind is ValueKind.TEXT):
        return ast.Cast(node, kind)
    return faults.add_kind(tree, f"this is a {node.kind}, needed is a {kind}")


def _quoted_constant(faults: FaultList, tree: Any, text: str, kind: ValueKind) -> Node:
    parse: Callable[[str], Any] = moment if kind is ValueKind.MOMENT else TRUTHS.get
    value = parse(text)
    if value is None:
        example = (
            "'2026-01-31 14:00:00' (UTC) or '2026-01-31T14:00:00+01:00'"
            if kind is ValueKind.MOMENT
            else "true or false"
        )
        return faults.add_kind(tree, f"{text!r} is no {kind}: write {example}")
    return Constant(value, kind)


_COMPARE: Final = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_ARITHMETIC: Final = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_KINDS: Final = {
    "TEXT": ValueKind.TEXT, "VARCHAR": ValueKind.TEXT, "DOUBLE": ValueKind.NUMBER, "FLOAT": ValueKind.NUMBER, "INT": ValueKind.NUMBER,
    "BIGINT": ValueKind.NUMBER, "TIMESTAMP": ValueKind.MOMENT, "TIMESTAMPTZ": ValueKind.MOMENT, "DATE": ValueKind.MOMENT, "BOOLEAN": ValueKind.TRUTH,
}  # fmt: skip
_FUNCTIONS: Final = "lower, upper, length, coalesce and cast"
_STRAY: Final = re.compile(r"(?<!\\)(?:\\\\)*\\(?![\\%_])")  # a backslash that Spark refuses in a pattern


class Compiler:
    """Compiles one tree of `text`, the condition, which errors quote. `now`: value of now() in ms since the epoch;
    None: now() is not allowed.
    """

    def __init__(self, text: str, now: int | None, vocabulary: Vocabulary) -> None:
        self._now, self._vocabulary, self._faults = now, vocabulary, FaultList(text)

    def condition(self, tree: exp.Expression) -> Node:
        """Compiles the whole tree, whose value must be a truth. Raises ConditionError with every error."""
        found = self._truth(tree, 0)
        self._faults.check()
        return found

    # --- by kind of node

    def _node(self, tree: Any, depth: int) -> Node:
        if depth > MAX_DEPTH:
            return self._faults.add(tree, f"nested more than {MAX_DEPTH} deep", "K551", "a condition beyond the limits")
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
                return reference(self._faults, tree, self._vocabulary)
            case exp.Literal():
                return literal(self._faults, tree)
            case exp.Boolean():
                return Constant(bool(tree.this), ValueKind.TRUTH)
            case exp.Neg():
                return self._negative(tree, below)
            case exp.Interval():
                return interval(self._faults, tree)
            case exp.Cast() | exp.TryCast():
                return self._cast(tree, below)
            case exp.CurrentTimestamp() if self._now is not None and not tree.this:
                return Constant(self._now, ValueKind.MOMENT)
            case exp.Lower() | exp.Upper() | exp.Length():
                kind = ValueKind.NUMBER if isinstance(tree, exp.Length) else ValueKind.TEXT
                argument = as_kind(self._faults, tree.this, self._node(tree.this, below), ValueKind.TEXT)
                return ast.Call(type(tree).__name__.lower(), (argument,), kind)
            case exp.Coalesce():
                return self._coalesce(tree, below)
            case exp.Anonymous() if self._now is not None and str(tree.this).lower() == "now" and not tree.expressions:
                return Constant(self._now, ValueKind.MOMENT)
            case exp.Func() | exp.Anonymous():
                return self._faults.add(tree, f"this function is not allowed: only {self._functions} are")
            case exp.Null():
                return self._faults.add(tree, "nothing equals NULL: write IS NULL or IS NOT NULL")
            case _:
                return self._faults.add_word(tree)

    @property
    def _functions(self) -> str:
        return _FUNCTIONS if self._now is None else f"now, {_FUNCTIONS}"

    # --- truths

    def _truth(self, tree: Any, depth: int) -> Node:
        """Compiles a node in a place that needs true or false; notes an error if the node is of another kind."""
        return as_kind(self._faults, tree, self._node(tree, depth), ValueKind.TRUTH)

    def _logic(self, tree: Any, depth: int) -> Node:
        """Makes one node of a chain of ANDs or ORs, which sqlglot nests to the left, one level for each word."""
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
        kind = compared_kind(left, right)
        if kind is None and operator in ("=", "!="):
            kind = ValueKind.TEXT
        elif kind is None:
            detail = "neither side says what it is: write CAST(… AS DOUBLE), or AS TIMESTAMP, on one of them"
            return self._faults.add_kind(tree, detail)
        if kind is ValueKind.TRUTH and operator not in ("=", "!="):
            return self._faults.add_kind(tree, "true and false have no order")
        return ast.Compare(
            operator, as_kind(self._faults, left_tree, left, kind), as_kind(self._faults, right_tree, right, kind)
        )

    def _between(self, tree: Any, depth: int) -> Node:
        if tree.args.get("symmetric"):
            return self._faults.add(tree, "SYMMETRIC is not allowed in a condition")
        low = self._compare(tree, ">=", tree.this, tree.args["low"], depth)
        high = self._compare(tree, "<=", tree.this, tree.args["high"], depth)
        return ast.Logic("AND", (low, high))

    def _in(self, tree: Any, depth: int) -> Node:
        part, listed = self._node(tree.this, depth), tree.expressions
        if not listed or tree.args.get("query") or tree.args.get("unnest") or tree.args.get("field"):
            return self._faults.add(tree, "IN takes a list of values in brackets, at least one")
        found = [self._node(one, depth) for one in listed]
        values = []
        for one, value in zip(listed, found, strict=True):
            if not isinstance(value, Constant):
                return self._faults.add(one, "IN takes values, not what must be computed")
            values.append(value)
        kind = part.kind if part.kind is not ValueKind.UNTYPED else values[0].kind
        fitted = [as_kind(self._faults, one, value, kind) for one, value in zip(listed, values, strict=True)]
        constants = tuple(one for one in fitted if isinstance(one, Constant))
        return ast.In(as_kind(self._faults, tree.this, part, kind), constants)

    def _is(self, tree: Any, depth: int) -> Node:
        if not isinstance(tree.expression, exp.Null):
            return self._faults.add(tree, "IS goes with NULL or NOT NULL; a truth stands for itself")
        return ast.IsNull(self._node(tree.this, depth))

    def _like(self, tree: Any, depth: int) -> Node:
        part = as_kind(self._faults, tree.this, self._node(tree.this, depth), ValueKind.TEXT)
        pattern = tree.expression
        if not (isinstance(pattern, exp.Literal) and pattern.is_string):
            return self._faults.add(pattern, "LIKE takes a quoted pattern: '%' is any text, '_' any character")
        if _STRAY.search(pattern.this):
            return self._faults.add(pattern, r"a backslash in a pattern stands before % or _ or another backslash")
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
        sides = arithmetic_kinds(left, right)
        kind = ValueKind.NUMBER if sides == (ValueKind.NUMBER, ValueKind.NUMBER) else shapes.get((operator, *sides))
        if kind is None:
            detail = f"{left.kind} {operator} {right.kind} means nothing"
            return self._faults.add_kind(tree, detail)
        return ast.Arithmetic(
            operator,
            as_kind(self._faults, tree.this, left, sides[0]),
            as_kind(self._faults, tree.expression, right, sides[1]),
            kind,
        )

    def _coalesce(self, tree: Any, depth: int) -> Node:
        trees = [tree.this, *tree.expressions]
        found = [self._node(one, depth) for one in trees]
        kind = next((one.kind for one in found if one.kind is not ValueKind.UNTYPED), ValueKind.UNTYPED)
        fitted = tuple(as_kind(self._faults, one, node, kind) for one, node in zip(trees, found, strict=True))
        return ast.Call("coalesce", fitted, kind)

    def _negative(self, tree: Any, depth: int) -> Node:
        part = self._node(tree.this, depth)
        if isinstance(part, Constant) and part.kind in (ValueKind.NUMBER, ValueKind.SPAN):
            return Constant(-part.value, part.kind)  # type: ignore[operator]
        zero = Constant(0.0, ValueKind.NUMBER)
        return ast.Arithmetic("-", zero, as_kind(self._faults, tree.this, part, ValueKind.NUMBER), ValueKind.NUMBER)

    def _cast(self, tree: Any, depth: int) -> Node:
        name = tree.to.this.name if hasattr(tree.to.this, "name") else ""
        kind = _KINDS.get(name)
        if kind is None or tree.to.expressions or tree.args.get("format"):
            detail = "a cast goes to STRING, DOUBLE, TIMESTAMP or BOOLEAN"
            return self._faults.add(tree, detail)
        return as_kind(self._faults, tree.this, self._node(tree.this, depth), kind, asked=True)
