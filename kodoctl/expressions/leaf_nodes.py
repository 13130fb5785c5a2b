"""Leaves of a condition: literals, durations, and references to parts of a message."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from kodoctl.expressions import ast
from kodoctl.expressions.ast import Constant, Node, ValueKind
from kodoctl.expressions.coercion import number
from kodoctl.expressions.fault_list import POISON, FaultList, keyword

if TYPE_CHECKING:
    from kodoctl.expressions.vocabulary import Vocabulary

_UNITS: Final = {"MILLISECOND": 1, "SECOND": 1000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000,
                 "WEEK": 604_800_000}  # fmt: skip
_EXACT: Final = 2**53  # whole numbers beyond it are not told apart by a double
_LONGEST: Final = 36_500 * 86_400_000  # ms
_BAD_KEYS: Final = frozenset("'?*`")  # what a path in Spark cannot say


def literal(faults: FaultList, tree: Any) -> Node:
    """Compiles a quoted text or a number to a Constant. A number beyond a double, and a whole number from 2^53 on,
    which a double may not distinguish from its neighbours, is recorded as an error.
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
    """Compiles a duration of one number and one unit, such as `INTERVAL '2 hours'`, to a constant in ms, at most a
    hundred years.
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
