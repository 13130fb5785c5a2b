"""Route conditions: whether a message matches, and whether one condition includes another.

One meaning for lint, senders and workers. A condition is a test of one property, or a text of the condition
language. The comparisons of a test are between numbers and match no other text. A condition that cannot be
evaluated does not match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isnan, nan
from typing import TYPE_CHECKING, Any, Final

from kodoctl.expressions import ast
from kodoctl.expressions.ast import Node, ValueKind
from kodoctl.expressions.coercion import number
from kodoctl.expressions.evaluator import evaluate
from kodoctl.topology.model.subscription import RouteCondition
from kodoctl.topology.model.topology import KEY
from kodoctl.topology.route_facts import UnreadableFactError, parse_condition

if TYPE_CHECKING:
    from kodoctl.topology.model.subscription import Route
    from kodoctl.topology.route_facts import RouteFacts

Condition = RouteCondition | Node


def condition_of(when: RouteCondition | str) -> Condition:
    """The condition of a route: the test of a property as it is, a text parsed. Raises ConditionError for a text that
    cannot be parsed.
    """
    return parse_condition(when) if isinstance(when, str) else when


def truth(condition: Condition, facts: RouteFacts) -> bool | None:
    """True if a message matches a condition, False if not; None if that is unknown, which is no match. The test of a
    property is unknown if the property is missing (`exists` is then False), or is no number where numbers are compared.
    A text is unknown as in SQL (values that are missing or of another kind), or if it reads one of over 1,024
    characters.
    """
    if isinstance(condition, RouteCondition):
        value = facts.properties.get(condition.property)
        return holds(condition, value) if _comparable(condition, value) else None
    try:
        found = evaluate(condition, facts)
    except UnreadableFactError:
        return None
    return None if found is None else found is True


def _comparable(condition: RouteCondition, value: str | None) -> bool:
    """True if a test of one property gives true or false for a value, not unknown."""
    if value is None:
        return condition.exists is True
    is_number = any(getattr(condition, name) is not None for name in _COMPARISONS)
    return not (is_number and isnan(_number(value)))


def properties_of(condition: Condition) -> frozenset[str]:
    """Message properties that a condition reads."""
    if isinstance(condition, RouteCondition):
        return frozenset({condition.property})
    return frozenset(found.name for found in ast.references(condition) if isinstance(found, ast.Property))


def takes_all(earlier: Route, later: Route) -> bool:
    """True if `earlier`, which comes before `later` in the list, certainly takes every message that `later` would, if
    both routes count for its tenant (exclusive levels). Raises ConditionError for a condition that cannot be parsed.
    """
    if not set(later.at) <= set(earlier.at) or share_of(earlier) < 1:
        return False
    parts = [*map(_as_test, _conjuncts(condition_of(later.when)))]
    return all(
        any(_swallows(one, other) for other in parts) for one in map(_as_test, _conjuncts(condition_of(earlier.when)))
    )


def taken_values(earlier: Route, later: Route) -> list[str]:
    """Values in the list of `later` that it never sees, because `earlier` takes all messages with them, if both routes
    count for their tenants. Only certain cases are returned. Raises ConditionError for a condition that cannot be
    parsed.
    """
    if not set(later.at) <= set(earlier.at) or share_of(earlier) < 1:
        return []
    one, others = _conjuncts(condition_of(earlier.when)), map(_as_test, _conjuncts(condition_of(later.when)))
    test = _as_test(one[0])
    if len(one) > 1 or not isinstance(test, RouteCondition):
        return []
    listed = [other for other in others if isinstance(other, RouteCondition) and other.property == test.property]
    return [value for other in listed for value in _values(other) or () if holds(test, value)]


def exclude(one: Route, other: Route) -> bool:
    """True if certainly no message matches both routes, because they list different values of a property or fact that
    no move changes. Raises ConditionError for a condition that cannot be parsed.
    """
    tests = [
        [test for part in _conjuncts(condition_of(route.when)) if isinstance(test := _as_test(part), RouteCondition)]
        for route in (one, other)
    ]
    return any(
        first.property == second.property
        and first.property not in _CHANGING
        and {*(_values(first) or ())}.isdisjoint(_values(second) or ())
        for first in tests[0]
        for second in tests[1]
        if _values(first) and _values(second)
    )


def share_of(route: Route) -> float:
    """Share of the matching messages that a route takes, from 0 to 1."""
    return float(route.share.rstrip("%")) / 100


def _conjuncts(condition: Condition) -> tuple[Condition, ...]:
    """Parts of a condition that are joined by AND, or the condition itself."""
    if isinstance(condition, ast.Logic) and condition.operator == "AND":
        return tuple(found for part in condition.parts for found in _conjuncts(part))
    return (condition,)


def _as_test(condition: Condition) -> Condition:
    """`properties['x'] = 'a'`, and IN, as the test of one property with the same meaning; other conditions unchanged. A
    fact gets a name that no property has.
    """
    match condition:
        case ast.Compare("=", left, ast.Constant(value, ValueKind.TEXT)) if name := _name(left):
            return RouteCondition.model_construct(property=name, equals=value)
        case ast.In(part, values) if name := _name(part):
            return RouteCondition.model_construct(property=name, in_=tuple(one.value for one in values))
        case _:
            return condition


def key_test_of(when: str) -> RouteCondition | None:
    """Returns a condition `key = 'a'` or `key IN ('a', 'b')` as the test of a property `key`, and the same condition of
    `tenant` as well, for callers whose tenants are the keys; None for any other condition. Raises ConditionError for a
    text that cannot be parsed.
    """
    test = _as_test(parse_condition(when))
    if isinstance(test, RouteCondition) and test.property in ("\0key", "\0tenant"):
        return test.model_copy(update={"property": KEY})
    return None


def _name(node: Node) -> str:
    """Name of a property, or of a fact of kind TEXT with a NUL before it; "" for anything else."""
    match node:
        case ast.Cast(ast.Property(name), ValueKind.TEXT):
            return name
        case ast.Field(name, ValueKind.TEXT):
            return f"\0{name}"
        case _:
            return ""


def _swallows(earlier: Condition, later: Condition) -> bool:
    if isinstance(earlier, RouteCondition) and isinstance(later, RouteCondition):
        return covers(earlier, later)
    return earlier == later or earlier == ast.Constant(True, ValueKind.TRUTH)


def covers(earlier: RouteCondition, later: RouteCondition) -> bool:
    """True only if it is certain that `earlier` matches every message that `later` matches. False may also mean that
    this cannot be told.
    """
    if earlier.property != later.property:
        return False
    if earlier == later or earlier.exists:
        return True
    values = _values(later)
    if values is not None:
        return all(holds(earlier, value) for value in values)
    for sign, strict, weak in ((1, "greater_than", "at_least"), (-1, "less_than", "at_most")):
        bound, inner = _comparison_bound(earlier, sign, strict, weak), _comparison_bound(later, sign, strict, weak)
        if bound is not None:
            return inner is not None and inner >= bound
    return False


def _comparison_bound(condition: RouteCondition, sign: int, strict: str, weak: str) -> tuple[float, bool] | None:
    """(number times `sign`, whether it is excluded) of a comparison, None without one; a larger pair admits less."""
    for name in (strict, weak):
        if (bound := getattr(condition, name)) is not None:
            return sign * bound, name == strict
    return None


def _values(condition: RouteCondition) -> list[str] | None:
    if condition.equals is not None:
        return [as_property(condition.equals)]
    return [as_property(value) for value in condition.in_] if condition.in_ is not None else None


def as_property(value: object) -> str:
    """A value of the file as the text of a message property: true and false in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(text: str) -> float:
    """The number that a text is, in the form that the condition language takes; else NaN, which no comparison matches."""
    found = number(text)
    return nan if found is None else found


_COMPARISONS: Final = ("greater_than", "at_least", "less_than", "at_most")
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
    """True if a message property with this text matches. A missing one (None) matches no condition, not even
    `not_equals` or `not_in`; text that is no number matches no comparison.
    """
    if value is None:
        return False
    operators = ((name, getattr(condition, name)) for name in _HOLDS)
    return any(operand is not None and _HOLDS[name](operand, value) for name, operand in operators)


_CHANGING: Final = ("\0level", "\0state", "\0reason")
_WORDS = {
    "equals": "is", "not_equals": "is not", "in_": "is one of", "not_in": "is none of", "greater_than": ">",
    "at_least": "≥", "less_than": "<", "at_most": "≤",
}  # fmt: skip


def in_words(condition: RouteCondition | str) -> str:
    """The condition on one line for people: `size > 100000`, `uid is one of u1, u2`."""
    if isinstance(condition, str):
        return " ".join(condition.split())
    for name, word in _WORDS.items():
        value = getattr(condition, name)
        if value is not None:
            values = value if isinstance(value, tuple) else (value,)
            return f"{condition.property} {word} {', '.join(map(as_property, values))}"
    return f"{condition.property} exists"
