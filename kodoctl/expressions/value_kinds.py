"""Kinds of values in a condition: the common kind of two sides, and a node converted to the kind that its place needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kodoctl.expressions import ast
from kodoctl.expressions.ast import Constant, Node, ValueKind
from kodoctl.expressions.coercion import TRUTHS, moment
from kodoctl.expressions.fault_list import POISON, FaultList


def compared_kind(left: Node, right: Node) -> ValueKind | None:
    """Kind in which both sides of a comparison are compared. An untyped side or a quoted text is compared in the kind
    of the other side. None if both are untyped.
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
    """Converts `node` to `kind`: returns the node itself if it has that kind, a constant parsed from a quoted text, or
    a `Cast` if the node is untyped or the condition itself has a cast (`asked`). Otherwise records an error in `faults`
    and returns POISON.
    """
    if node is POISON or node.kind is kind:
        return node
    if isinstance(node, Constant) and node.kind is ValueKind.TEXT and kind in (ValueKind.MOMENT, ValueKind.TRUTH):
        return _quoted_constant(faults, tree, str(node.value), kind)
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
