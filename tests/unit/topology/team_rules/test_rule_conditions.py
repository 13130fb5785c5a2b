"""Conditions of team rules: the values that they compare, and what is shown where one is not true."""

from __future__ import annotations

from typing import Any

import pytest

from kodoctl.topology.model.subscription import Isolate
from kodoctl.topology.model.topology import DeadLetter
from kodoctl.topology.team_rules.rule_conditions import compile_condition
from kodoctl.topology.team_rules.rule_fields import UnknownFieldError, field_type, value_kind
from kodoctl.topology.units import Duration, Rate, Size
from tests.unit.topology.team_rules.rules_files import judged, of_rules

DAY = Duration(86_400_000)


def failure(text: str, of: str = "topics", **values: Any) -> str:
    """The words about a condition over values, whose names have `__` for dots; "" if it is true."""
    condition, problems = compile_condition(of, text)
    assert condition is not None, problems
    return condition.failure({name.replace("__", "."): value for name, value in values.items()}.get)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("name LIKE '%-%'", {"name": "orders-eu"}),
        ("owners >= 1", {"owners": ("a",)}),
        ("owners IS NULL", {}),
        ("partitioned", {"partitioned": True}),
        ("policies.ttl <= INTERVAL '2 days'", {"policies__ttl": DAY}),
        ("policies.ttl > INTERVAL '2 days'", {"policies__ttl": "unlimited"}),
        ("policies.retention.size < 2048", {"policies__retention__size": Size(1024)}),
        ("policies.publish_rate.messages <= 2", {"policies__publish_rate__messages": Rate(120, Duration(60_000))}),
        ("labels['cost-center'] = 'x'", {"labels__cost-center": "x"}),
        ("2 > 1", {}),
    ],
)
def test_a_condition_compares_values_in_their_kinds(text: str, values: dict[str, Any]) -> None:
    assert failure(text, **values) == ""


def test_a_map_or_a_word_in_place_of_a_value_has_a_meaning() -> None:
    assert failure("dead_letter", "subscriptions", dead_letter=DeadLetter.model_construct()) == ""
    assert (
        failure("dead_letter", "subscriptions", dead_letter=False)
        == "`dead_letter` does not hold: dead_letter is false"
    )
    assert failure("concurrency IS NULL", "subscriptions", concurrency="adaptive") == ""
    assert failure("isolate <> 'off'", "subscriptions", isolate=Isolate.model_construct()) == ""


def test_the_values_are_shown_where_a_condition_is_not_true() -> None:
    assert failure("partitions < 4 AND owners > 1", partitions=8) == (
        "`partitions < 4 AND owners > 1` does not hold: owners has no value, partitions is 8"
    )
    assert failure("1 > 2") == "`1 > 2` does not hold"
    assert failure("\n1 > 2\n  OR name = 'a  b'\n", name="x") == "`1 > 2 OR name = 'a  b'` does not hold: name is x"


def test_errors_come_at_once() -> None:
    condition, problems = compile_condition("topics", "nam = 'x' AND properties['a'] = 'b' AND now() > 3")
    assert condition is None
    assert [one.partition(": ")[2] for one in problems] == [
        "topics has no 'nam'; did you mean 'name'?",
        "topics has no 'properties'; did you mean 'message_properties'?",
        "this function is not allowed: only lower, upper, length, coalesce and cast are",
    ]


def test_a_map_has_no_value_of_its_own() -> None:
    with pytest.raises(UnknownFieldError, match="`policies` is a map"):
        value_kind(field_type("topics", "policies"), "policies")


def test_a_rule_may_have_a_condition_alone_or_beside_tests() -> None:
    rule = "rules: {r: {because: b, of: subscriptions, condition: expected_workers <= partitions"
    body = "topics: {J: {partitions: 2, subscriptions: {s: {expected_workers: 3}}}}"
    (finding,) = of_rules(judged(f"{rule}}}}}\n", body))
    assert finding.where is not None
    assert (finding.where.line, finding.where.column) == (5, 45)
    assert finding.detail.split("\n")[0] == (
        "trade/J/s: `expected_workers <= partitions` does not hold: expected_workers is 3, partitions is 2"
    )
    both = of_rules(judged(f"{rule}, require: {{type: failover}}}}}}\n", body))
    assert len(both) == 2
    single = "rules: {r: {because: b, of: topics, condition: partitions > 2}}\n"
    (finding,) = of_rules(judged(single, body))
    assert finding.where is not None
    assert (finding.where.line, finding.where.column) == (5, 26)  # the only field that it reads
