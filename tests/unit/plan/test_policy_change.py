"""Changes of policies: the values that count, and their form in a plan file."""

from __future__ import annotations

import pytest

from kodoctl.plan import serialization
from kodoctl.plan.changes import Effective, PolicyChange
from kodoctl.topology.units import Duration

DAY, WEEK = Duration.parse("1d"), Duration.parse("7d")


def test_the_value_that_counts_is_the_effective_one_where_it_is_known() -> None:
    bare = PolicyChange("ttl", DAY, None)
    assert (bare.counting(after=False), bare.counting(after=True)) == (DAY, None)
    known = PolicyChange("ttl", DAY, None, Effective(DAY, "topic"), Effective(WEEK, "namespace"))
    assert (known.counting(after=False), known.counting(after=True)) == (DAY, WEEK)


@pytest.mark.parametrize(
    "change",
    [
        PolicyChange("ttl", DAY, WEEK),
        PolicyChange("ttl", DAY, None, None, Effective(WEEK, "namespace")),
        PolicyChange("ttl", None, DAY, Effective(None, "broker default"), None),
    ],
)
def test_a_change_of_a_policy_comes_back_from_json(change: PolicyChange) -> None:
    document = serialization.field_to_json(change)
    assert document["name"] == "policies.ttl"
    assert serialization.field_from_json(dict(document)) == change


def test_a_field_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown field: 'colour'"):
        serialization.field_from_json({"name": "colour", "before": None, "after": 1})
