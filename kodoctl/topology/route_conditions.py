"""Route conditions on one message property: does a value match, and does one condition swallow another.

One meaning for lint and consumer. Properties are texts; comparisons are between numbers, and text that is no number
matches none of them.
"""

from __future__ import annotations

from kodoctl.topology.model.topology import RouteCondition


def covers(earlier: RouteCondition, later: RouteCondition) -> bool:
    """True if every message that `later` matches is matched by `earlier` (sure cases only)."""
    if earlier.property != later.property:
        return False
    if earlier == later or earlier.exists:
        return True
    values = _values(later)
    if values is not None:
        return all(holds(earlier, value) for value in values)
    match earlier:
        case RouteCondition(greater_than=low) if low is not None:
            return (later.greater_than is not None and later.greater_than >= low) or (
                later.at_least is not None and later.at_least > low
            )
        case RouteCondition(at_least=low) if low is not None:
            return any(bound is not None and bound >= low for bound in (later.greater_than, later.at_least))
        case RouteCondition(less_than=high) if high is not None:
            return (later.less_than is not None and later.less_than <= high) or (
                later.at_most is not None and later.at_most < high
            )
        case RouteCondition(at_most=high) if high is not None:
            return any(bound is not None and bound <= high for bound in (later.less_than, later.at_most))
        case _:
            return False


def _values(condition: RouteCondition) -> list[str] | None:
    if condition.equals is not None:
        return [as_property(condition.equals)]
    return [as_property(value) for value in condition.in_] if condition.in_ is not None else None


def as_property(value: object) -> str:
    """A value of the file as the text a message property holds."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def holds(condition: RouteCondition, value: str | None) -> bool:
    """True if a message property with this text (None: missing) matches. Text that is no number matches no comparison."""
    if value is None:
        return False
    number = _number(value)
    match condition:
        case RouteCondition(equals=wanted) if wanted is not None:
            return value == as_property(wanted)
        case RouteCondition(not_equals=unwanted) if unwanted is not None:
            return value != as_property(unwanted)
        case RouteCondition(in_=wanted_list) if wanted_list is not None:
            return value in map(as_property, wanted_list)
        case RouteCondition(not_in=unwanted_list) if unwanted_list is not None:
            return value not in map(as_property, unwanted_list)
        case RouteCondition(exists=True):
            return True
    if number is None:
        return False
    return (
        (condition.greater_than is not None and number > condition.greater_than)
        or (condition.at_least is not None and number >= condition.at_least)
        or (condition.less_than is not None and number < condition.less_than)
        or (condition.at_most is not None and number <= condition.at_most)
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


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
