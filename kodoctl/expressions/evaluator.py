"""Value of a condition for one message, in three-valued logic as in SQL. No payload makes the evaluation raise.

NULL (None) means unknown. A comparison with NULL is NULL, and so is NOT NULL. AND is false if a part is false, else
NULL if one is NULL; OR is true if a part is true, else NULL if one is NULL. A message matches only if the whole is
true.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, assert_never

from kodoctl.expressions import ast
from kodoctl.expressions.ast import Node, Value, ValueKind
from kodoctl.expressions.coercion import coerce, finite

if TYPE_CHECKING:
    from kodoctl.expressions.vocabulary import Subject

_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def evaluate(node: Node, subject: Subject) -> Value | None:
    """The value of a node for a message, as a `Value`; None is NULL."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Field(name=name):
            return subject.fact(name)
        case ast.Property(name=name):
            return subject.read_property(name)
        case ast.Json(path=path):
            return json_text(subject.document, path)
        case ast.Compare():
            left, right = evaluate(node.left, subject), evaluate(node.right, subject)
            return None if left is None or right is None else _COMPARE[node.operator](left, right)
        case ast.Logic(operator=joined, parts=parts):
            return _combine_truths((evaluate(part, subject) for part in parts), decisive=joined == "OR")
        case ast.Not(part=part):
            truth = evaluate(part, subject)
            return None if truth is None else not truth
        case ast.IsNull(part=part):
            return evaluate(part, subject) is None
        case ast.In(part=part, values=values):
            found = evaluate(part, subject)
            return None if found is None else any(found == one.value for one in values)
        case ast.Like(part=part):
            text = evaluate(part, subject)
            return None if text is None else like(str(text), node.pattern, fold=node.fold)
        case ast.Arithmetic():
            return _arithmetic(node, evaluate(node.left, subject), evaluate(node.right, subject))
        case ast.Call():
            return _call(node, subject)
        case ast.Cast(part=part, kind=kind):
            return _cast(evaluate(part, subject), kind)
        case _:
            assert_never(node)


def _combine_truths(truths: Iterable[Value | None], *, decisive: bool) -> bool | None:
    """Value of AND (`decisive` False) or OR (`decisive` True); it stops at the first part that decides."""
    unknown = False
    for truth in truths:
        if truth is None:
            unknown = True
        elif bool(truth) is decisive:
            return decisive
    return None if unknown else not decisive


def _arithmetic(node: ast.Arithmetic, left: Any, right: Any) -> Value | None:
    if left is None or right is None:
        return None
    try:
        found = _ARITHMETIC[node.operator](left, right)
    except ZeroDivisionError:
        return None
    return finite(found) if node.kind is ValueKind.NUMBER else found


def _remainder(left: float, right: float) -> float:
    """The remainder of a division by SQL's rule: it has the sign of the dividend."""
    found = abs(left) % abs(right)
    return -found if left < 0 else found


_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": _remainder,
}  # fmt: skip


def _call(node: ast.Call, subject: Subject) -> Value | None:
    if node.function == "coalesce":
        return next((found for part in node.arguments if (found := evaluate(part, subject)) is not None), None)
    text = evaluate(node.arguments[0], subject)
    if text is None:
        return None
    match node.function:
        case "lower":
            return str(text).lower()
        case "upper":
            return str(text).upper()
        case _:
            return float(len(str(text)))


def _cast(value: Value | None, kind: ValueKind) -> Value | None:
    return None if value is None else coerce(str(value), kind)


def json_text(document: Any, path: tuple[str | int, ...]) -> str | None:
    """The value at a path in a document as text: a text as it is, objects and lists as JSON without spaces. None for
    null, and for a path that leads to no value.
    """
    for step in path:
        if isinstance(step, str):
            document = document.get(step) if isinstance(document, dict) else None
        else:
            document = document[step] if isinstance(document, list) and step < len(document) else None
    match document:
        case None:
            return None
        case str():
            return document
        case bool():
            return "true" if document else "false"
        case float():
            return repr(document)
        case _:
            return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def like(text: str, pattern: str, *, fold: bool) -> bool:
    """True if the whole `text` matches the LIKE pattern; `fold`: without regard to case. It takes at most time in
    proportion to text × pattern: the pieces between `%` have a fixed length, and each is matched at its first place.
    """
    if fold:
        text, pattern = text.lower(), pattern.lower()
    first, *others = _pieces(pattern)
    if not others:
        return first.fullmatch(text) is not None
    if not (found := first.match(text)):
        return False
    at = found.end()
    *middle, last = others
    for piece in middle:
        if not (found := piece.search(text, at)):
            return False
        at = found.end()
    return any(piece.fullmatch(text, start) for piece, start in [(last, len(text) - _length(last))] if start >= at)


@lru_cache(maxsize=64)
def _pieces(pattern: str) -> tuple[re.Pattern[str], ...]:
    """Regular expressions for the pieces of a LIKE pattern between its `%`."""
    pieces, piece = [], ""
    characters = iter(pattern)
    for character in characters:
        if character == "%":
            pieces.append(piece)
            piece = ""
        elif character == "_":
            piece += "."
        else:
            piece += re.escape(next(characters, "\\") if character == "\\" else character)
    return tuple(re.compile(one, re.DOTALL) for one in (*pieces, piece))


@lru_cache(maxsize=256)
def _length(piece: re.Pattern[str]) -> int:
    return len(re.sub(r"\\(.)", r"\1", piece.pattern, flags=re.DOTALL))
