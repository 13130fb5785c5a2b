"""Route conditions on one message property: does a value match, and does one condition swallow another.

One meaning for lint and consumer. Properties are texts; comparisons are between numbers, and text that is no number
matches none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import nan
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kodoctl.topology.model.subscription import RouteCondition


def covers(earlier: RouteCondition, later: RouteCondition) -> bool:
    """True if every message that `later` matches is matched by `earlier` (sure cases only)."""
    if earlier.property != later.property:
        return False
    if earlier == later or earlier.exists:
        return True
    values = _values(later)
    if values is not None:
        return all(holds(earlier, value) for value in values)
    for sign, strict, weak in ((1, "greater_than", "at_least"), (-1, "less_than", "at_most")):
        bound, inner = _bound(earlier, sign, strict, weak), _bound(later, sign, strict, weak)
        if bound is not None:
            return inner is not None and inner >= bound
    return False


def _bound(condition: RouteCondition, sign: int, strict: str, weak: str) -> tuple[float, bool] | None:
    """The bound of a comparison, a larger one for fewer numbers: its number times `sign`, and whether it is strict."""
    for name in (strict, weak):
        if (number := getattr(condition, name)) is not None:
            return sign * number, name == strict
    return None


def _values(condition: RouteCondition) -> list[str] | None:
    if condition.equals is not None:
        return [as_property(condition.equals)]
    return [as_property(value) for value in condition.in_] if condition.in_ is not None else None


def as_property(value: object) -> str:
    """A value of the file as the text a message property holds."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(text: str) -> float:
    """The number that a text is; else NaN, which no comparison matches."""
    try:
        return float(text)
    except ValueError:
        return nan


_HOLDS: Final[Mapping[str, Callable[[Any, str], bool]]] = {
    "equals": lambda wanted, value: value == as_property(wanted),
    "not_equals": lambda unwanted, value: value != as_property(unwanted),
    "in_": lambda wanted, value: value in map(as_property, wanted),
    "not_in": lambda unwanted, value: value not in map(as_property, unwanted),
    "greater_than": lambda low, value: _number(value) > low,
    "at_least": lambda low, value: _number(value) >= low,
    "less_than": lambda high, value: _number(value) < high,
    "at_most": lambda high, value: _number(value) <= high,
    "exists": lambda _yes, _value: True,
}


def holds(condition: RouteCondition, value: str | None) -> bool:
    """True if a message property with this text (None: missing) matches. Text that is no number matches no comparison."""
    if value is None:
        return False
    operators = ((name, getattr(condition, name)) for name in _HOLDS)
    return any(operand is not None and _HOLDS[name](operand, value) for name, operand in operators)


_WORDS = {
    "equals": "is", "not_equals": "is not", "in_": "is one of", "not_in": "is none of", "greater_than": ">",
    "at_least": "≥", "less_than": "<", "at_most": "≤",
}  # fmt: skip


def in_words(condition: RouteCondition) -> str:
    """`size > 100000`, `uid is one of u1, u2`: one line for people."""
    for name, word in _WORDS.items():
        value = getattr(condition, name)
        if value is not None:
            values = value if isinstance(value, tuple) else (value,)
            return f"{condition.property} {word} {', '.join(map(as_property, values))}"
    return f"{condition.property} exists"
