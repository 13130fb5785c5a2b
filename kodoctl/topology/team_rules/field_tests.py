# pure: every branch is tested
"""Tests of one value by a team rule: checked once when the rules are read, then held against the values of topologies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kodoctl.text.formatting import many
from kodoctl.topology.model.policies import to_json
from kodoctl.topology.safe_patterns import pattern_problem
from kodoctl.topology.team_rules.rule_fields import (
    UnknownFieldError,
    WrongOperandError,
    comparable,
    field_type,
    is_list,
    is_switch,
    parse_operand,
)
from kodoctl.topology.yaml.schema_hints import in_yaml

if TYPE_CHECKING:
    from kodoctl.topology.team_rules.rules_model import FieldTest

_OF_ENTRIES: Final = ("in", "not_in", "includes")


@dataclass(frozen=True, slots=True)
class CompiledTest:
    """A test of the value at `path`. `operands`: (operator, value in the type of the field; a tuple of values for `in`,
    `not_in` and `includes`); `optional`: a field without a value passes; `of_list`: the field is a list; `of_switch`:
    the field has settings, or is `false` or `off`, which is no value.
    """

    path: str
    operands: tuple[tuple[str, Any], ...]
    optional: bool
    of_list: bool = False
    of_switch: bool = False

    def failure(self, value: Any) -> str:
        """Returns a text about the values that are needed, if the test does not hold; "" if it holds. `value`: value of
        the field, None if it has none, which an optional test, `not_in` and `present: false` allow.
        """
        return "; ".join(
            _should(operator, operand, of_list=self.of_list)
            for operator, operand in self.operands
            if not self._holds(operator, operand, value)
        )

    def _holds(self, operator: str, operand: Any, value: Any) -> bool:
        if operator == "present":
            return (value is not None and not (self.of_switch and value in (False, "off"))) is operand
        if value is None:
            return self.optional or operator == "not_in"
        entries = value if isinstance(value, tuple) else (value,)
        match operator:
            case "equals":
                return bool(value == operand)
            case "in":
                return all(one in operand for one in entries)
            case "not_in":
                return not any(one in operand for one in entries)
            case "includes":
                return all(one in entries for one in operand)
            case "at_least":
                return comparable(value) >= comparable(operand)
            case "at_most":
                return comparable(value) <= comparable(operand)
            case _:
                texts = (str(one).lower() if isinstance(one, bool) else str(one) for one in entries)
                return all(re.fullmatch(operand, text) for text in texts)


def shown_value(value: Any) -> str:
    """A value of a topology on one line, as its file would have it."""
    return in_yaml(to_json(value))


def _should(operator: str, operand: Any, *, of_list: bool) -> str:
    listed = ", ".join(map(shown_value, operand)) if operator in _OF_ENTRIES else shown_value(operand)
    match operator:
        case "present":
            return "it is needed" if operand else "it must not be set"
        case "equals":
            return f"should be {listed}"
        case "in":
            return f"should be one of {listed}" if len(operand) > 1 else f"should be {listed}"
        case "not_in":
            return f"must not be {listed}"
        case "includes":
            return f"should have {listed}"
        case "at_least" | "at_most":
            amount = many(operand, "entry", "entries") if of_list else listed
            return f"should {'have' if of_list else 'be'} {operator.replace('_', ' ')} {amount}"
        case _:
            return f"should match {operand}"


def compile_test(kind: str, path: str, test: FieldTest) -> tuple[CompiledTest | None, list[tuple[str, str]]]:
    """Returns (the test, errors as pairs of operator and text): the test is None if there are errors. The operator is
    "" for an error in the path. `kind`: kind of the objects that are judged, such as `topics`; `path`: of the field.
    """
    try:
        annotation = field_type(kind, path)
    except UnknownFieldError as problem:
        return None, [("", str(problem))]
    operands: list[tuple[str, Any]] = []
    problems: list[tuple[str, str]] = []
    for operator, raw in test.operands.items():
        try:
            operands.append((operator, _operand(annotation, operator, raw)))
        except WrongOperandError as problem:
            problems.append((operator, str(problem)))
    problems = problems or [*_contradictions(dict(operands))]
    if problems:
        return None, problems
    compiled = CompiledTest(path, tuple(operands), test.optional, is_list(annotation), is_switch(annotation))
    return compiled, []


def _operand(annotation: Any, operator: str, raw: Any) -> Any:
    match operator:
        case "present":
            return raw
        case "matches":
            if why := pattern_problem(raw):
                raise WrongOperandError(f"the expression {why}")
            return raw
        case "in" | "not_in" | "includes":
            if not raw:
                raise WrongOperandError("should hold at least one entry")
            if operator == "includes" and not is_list(annotation):
                raise WrongOperandError(
                    "`includes` asks for entries of a list, and this is none: write `equals` or `in`"
                )
            return tuple(parse_operand(annotation, one, operator) for one in raw)
        case _:
            return parse_operand(annotation, raw, operator)


def _contradictions(operands: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields (operator, text for people) for tests that contradict another one, so that every object would be refused,
    and for one beside `equals`, which decides by itself.
    """
    least, most = operands.get("at_least"), operands.get("at_most")
    if least is not None and most is not None and comparable(least) > comparable(most):
        yield (
            "at_most",
            f"can never hold together with `at_least`: {shown_value(least)} is more than {shown_value(most)}",
        )
    if "equals" in operands and (others := [one for one in operands if one not in ("equals", "present")]):
        yield "equals", f"decides by itself: remove `{others[0]}`"
    if "in" in operands and all(one in operands.get("not_in", ()) for one in operands["in"]):
        yield "not_in", "can never hold together with `in`: it forbids every value that is allowed"
