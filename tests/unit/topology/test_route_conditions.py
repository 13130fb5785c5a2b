"""Route conditions: what matches, what swallows what, and how it is said."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kodoctl.topology.model.subscription import ROUTE_OPERATORS, RouteCondition
from kodoctl.topology.route_conditions import covers, holds, in_words, key_test_of


def condition(**operator: Any) -> RouteCondition:
    return RouteCondition.model_validate(
        {"property": "size", **{("in" if key == "in_" else key): value for key, value in operator.items()}}
    )


@pytest.mark.parametrize(
    ("operator", "yes", "no"),
    [
        ({"equals": "a"}, ["a"], ["b", "A", None]),
        ({"equals": 5}, ["5"], ["5.0", None]),
        ({"equals": True}, ["true"], ["True", None]),
        ({"not_equals": "a"}, ["b", ""], ["a", None]),
        ({"in_": ["a", 1]}, ["a", "1"], ["b", None]),
        ({"not_in": ["a"]}, ["b"], ["a", None]),
        ({"exists": True}, ["", "x"], [None]),
        ({"greater_than": 10}, ["10.1", "1e3"], ["10", "9", "x", "", None, "1_000", " 11", "inf", "\u0661\u0662"]),
        ({"at_least": 10}, ["10", "11"], ["9.9", "x", None]),
        ({"less_than": 10}, ["9.9", "-1"], ["10", "x", None]),
        ({"at_most": 10}, ["10", "9"], ["10.1", "x", None]),
    ],
)
def test_a_condition_matches_the_text_of_a_property(
    operator: dict[str, Any], yes: list[str | None], no: list[str | None]
) -> None:
    assert [value for value in [*yes, *no] if holds(condition(**operator), value)] == yes


@pytest.mark.parametrize(
    ("earlier", "later", "swallowed"),
    [
        ({"equals": "a"}, {"equals": "a"}, True),
        ({"equals": "a"}, {"equals": "b"}, False),
        ({"exists": True}, {"greater_than": 3}, True),
        ({"greater_than": 3}, {"exists": True}, False),
        ({"in_": ["a", "b"]}, {"equals": "b"}, True),
        ({"in_": ["a", "b"]}, {"in_": ["b", "c"]}, False),
        ({"not_equals": "a"}, {"in_": ["b", "c"]}, True),
        ({"greater_than": 5}, {"equals": 6}, True),
        ({"greater_than": 5}, {"greater_than": 5}, True),
        ({"greater_than": 5}, {"at_least": 5}, False),
        ({"greater_than": 5}, {"at_least": 6}, True),
        ({"greater_than": 5}, {"less_than": 9}, False),
        ({"at_least": 5}, {"greater_than": 5}, True),
        ({"at_least": 5}, {"at_least": 4}, False),
        ({"less_than": 5}, {"less_than": 4}, True),
        ({"less_than": 5}, {"at_most": 5}, False),
        ({"less_than": 5}, {"at_most": 4}, True),
        ({"at_most": 5}, {"less_than": 5}, True),
        ({"at_most": 5}, {"at_most": 6}, False),
        ({"not_in": ["a"]}, {"not_in": ["a", "b"]}, False),
    ],
)
def test_a_route_is_dead_when_an_earlier_one_matches_all_of_it(
    earlier: dict[str, Any], later: dict[str, Any], swallowed: bool
) -> None:
    assert covers(condition(**earlier), condition(**later)) is swallowed


def test_conditions_on_different_properties_never_swallow_each_other() -> None:
    assert not covers(RouteCondition(property="a", exists=True), RouteCondition(property="b", exists=True))


OPERATORS = st.one_of(
    st.builds(
        lambda name, value: {name: value},
        st.sampled_from(["greater_than", "at_least", "less_than", "at_most"]),
        st.integers(-3, 3),
    ),
    st.builds(
        lambda name, value: {name: value},
        st.sampled_from(["equals", "not_equals"]),
        st.integers(-3, 3) | st.sampled_from(["a", "b"]),
    ),
    st.builds(
        lambda name, value: {name: value}, st.sampled_from(["in_", "not_in"]), st.lists(st.integers(-3, 3), max_size=3)
    ),
    st.just({"exists": True}),
)


@given(OPERATORS, OPERATORS, st.sampled_from([None, "a", "b", "", *map(str, range(-5, 6)), "0.5", "2.5"]))
def test_what_a_swallowed_condition_matches_the_earlier_one_matches_too(
    earlier: dict[str, Any], later: dict[str, Any], value: str | None
) -> None:
    first, second = condition(**earlier), condition(**later)
    if covers(first, second) and holds(second, value):
        assert holds(first, value)


@pytest.mark.parametrize(
    ("operator", "words"),
    [
        ({"equals": "vip"}, "size is vip"), ({"not_equals": True}, "size is not true"), ({"in_": ["a", 1]}, "size is one of a, 1"),
        ({"not_in": ["a"]}, "size is none of a"), ({"greater_than": 5}, "size > 5"), ({"at_least": 5}, "size ≥ 5"),
        ({"less_than": 5}, "size < 5"), ({"at_most": 0}, "size ≤ 0"), ({"exists": True}, "size exists"),
    ],
)  # fmt: skip
def test_a_condition_is_said_in_words(operator: dict[str, Any], words: str) -> None:
    assert in_words(condition(**operator)) == words


def test_every_operator_is_in_these_tables() -> None:
    assert set(ROUTE_OPERATORS) == {
        "equals",
        "not_equals",
        "in_",
        "not_in",
        "greater_than",
        "at_least",
        "less_than",
        "at_most",
        "exists",
    }


@pytest.mark.parametrize(("when", "test"), [
    ("key = 'a'", {"property": "key", "equals": "a"}),
    ("key IN ('a', 'b')", {"property": "key", "in": ["a", "b"]}),
    ("tenant = 'a'", {"property": "key", "equals": "a"}),
    ("properties['uid'] = 'a'", None),
    ("key LIKE 'a%'", None),
])  # fmt: skip
def test_a_condition_on_keys_alone_is_the_test_of_a_property(when: str, test: dict[str, Any] | None) -> None:
    assert key_test_of(when) == (test and RouteCondition(**test))
