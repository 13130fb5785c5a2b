"""Facts of routes: what conditions in text may say, what cannot be evaluated, and which messages are in a share."""

import pytest

from kodoctl.expressions.filter_errors import ConditionError
from kodoctl.topology.model.subscription import Route, RouteCondition
from kodoctl.topology.names import Level, State
from kodoctl.topology.route_conditions import condition_of, in_words, properties_of, taken_values, takes_all, truth
from kodoctl.topology.route_facts import MAX_CONDITION, MAX_TEXT, ROUTE_FACTS, RouteFacts, parse_condition


def facts(properties: dict[str, str] | None = None, **more: object) -> RouteFacts:
    usual: dict[str, object] = {"key": "k", "tenant": "u7", "identity": "m1", "size": 10, "level": Level.L1}
    return RouteFacts(properties=properties or {}, **(usual | more))  # type: ignore[arg-type]


def route(when: object, to: str = "L2", **more: object) -> Route:
    return Route.model_validate({"when": when, "to": to, **more})


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("tenant = 'u7' AND key LIKE 'k%'", True),
        ("level = 'L1' AND state = 'ready'", True),
        ("attempts >= 3", True),
        ("attempts_retrying = 1 AND attempts_pending = 2 AND attempts_blocking = 0 AND attempts_backup = 4", True),
        ("reason = 'bank-busy'", True),
        ("payload_size > 10", False),
        ("properties['size'] > 5 AND properties['uid'] IN ('a', 'b')", True),
        ("NOT (properties['uid'] = 'a')", False),
        ("properties['missing'] = 'a'", None),
        ("properties['uid'] > 5", None),
        ("properties['long'] IS NULL", None),
        ("properties['missing'] IS NULL", True),
        ("tenant = 'u8' OR properties['missing'] = 'a'", None),
    ],
)
def test_a_condition_holds_only_where_it_is_true(text: str, holds: bool | None) -> None:
    message = facts({"size": "6", "uid": "a", "long": "x" * (MAX_TEXT + 1)}, attempts=(1, 2, 0, 4), reason="bank-busy")
    assert truth(parse_condition(text), message) is holds


def test_a_value_that_is_too_long_is_not_looked_at() -> None:
    assert truth(parse_condition("key IS NOT NULL"), facts(key="x" * MAX_TEXT)) is True
    assert truth(parse_condition("key IS NOT NULL"), facts(key="x" * (MAX_TEXT + 1))) is None
    assert facts().document is None


def test_every_fact_has_a_value() -> None:
    message = facts(attempts=(1, 2, 3, 4), reason="r", state=State.PENDING)
    assert {name: fact.read(message) for name, fact in ROUTE_FACTS.items()} == {
        "key": "k", "tenant": "u7", "level": "L1", "state": "pending", "attempts": 10.0, "attempts_retrying": 1.0,
        "attempts_pending": 2.0, "attempts_blocking": 3.0, "attempts_backup": 4.0, "reason": "r", "payload_size": 10.0,
    }  # fmt: skip
    assert ROUTE_FACTS["key"].read(facts(key="")) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("age > 3", "'age' is no fact"),
        ("payload.x = 1", "'payload' is no fact"),
        ("now() > now()", "only lower, upper, length, coalesce and cast are"),
        ("properties['kodo-id'] = 'x'", "kodo-id is the platform's own"),
        ("tenant = 'a' OR " * 80 + "true", "at most 1,000 are read"),
        ("", "a condition is needed"),
    ],
)
def test_what_no_condition_of_a_route_may_say_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConditionError) as caught:
        parse_condition(text)
    assert says in str(caught.value)
    assert len(text) < 900 or len(text) > MAX_CONDITION


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ({"equals": "a"}, "a", True),
        ({"equals": "a"}, "b", False),
        ({"equals": "a"}, None, None),
        ({"exists": True}, None, False),
        ({"greater_than": 5}, "6", True),
        ({"greater_than": 5}, "x", None),
    ],
)
def test_a_test_of_one_property_says_what_cannot_be_evaluated(
    condition: dict[str, object], value: str | None, holds: bool | None
) -> None:
    test = RouteCondition.model_validate({"property": "size", **condition})
    found = truth(test, facts({} if value is None else {"size": value}))
    assert found is holds


def test_a_share_takes_the_same_keys_always_and_grows() -> None:
    some = [facts(key=f"k{number}") for number in range(4_000)]
    tenth = {one.key for one in some if one.chosen("a", 0.1)}
    fifth = {one.key for one in some if one.chosen("a", 0.2)}
    other = {one.key for one in some if one.chosen("b", 0.1)}
    assert 320 < len(tenth) < 480
    assert tenth < fifth
    assert len(tenth & other) < 100
    assert all(one.chosen("a", 1.0) for one in some)
    assert facts(key="", identity="m\ud800").chosen("a", 1e-9) is False
    assert facts(key="k", identity="1").chosen("a", 0.5) == facts(key="k", identity="2").chosen("a", 0.5)


UID = {"property": "uid", "equals": "a"}


@pytest.mark.parametrize(
    ("earlier", "later", "swallowed"),
    [
        (route("true"), route(UID), True),
        (route("tenant = 'a'"), route("tenant = 'a' AND level = 'L1'"), True),
        (route("tenant = 'a' AND level = 'L1'"), route("tenant = 'a'"), False),
        (route(UID), route("properties['uid'] = 'a' AND (attempts > 2 AND key = 'x')"), True),
        (route("properties['uid'] IN ('a', 'b')"), route(UID), True),
        (route("tenant IN ('a', 'b')"), route("tenant = 'b'"), True),
        (route("attempts IN (1, 2)"), route("attempts = 1"), False),
        (route(UID, share="50%"), route(UID), False),
        (route(UID), route(UID, at=["dispatch", "retrying"]), False),
        (route("tenant = 'a'"), route(UID), False),
    ],
)
def test_a_route_takes_all_of_a_later_one(earlier: Route, later: Route, swallowed: bool) -> None:
    assert takes_all(earlier, later) is swallowed


def test_values_of_a_list_that_an_earlier_route_takes() -> None:
    later = route("tenant IN ('b', 'c') AND level = 'L1'")
    assert taken_values(route("tenant IN ('a', 'b')"), later) == ["b"]
    assert taken_values(route("tenant IN ('a', 'b')", share="1%"), later) == []
    assert taken_values(route("tenant IN ('a', 'b') AND key = 'k'"), later) == []
    assert taken_values(route("attempts > 3"), later) == []
    assert taken_values(route("tenant = 'b'"), route("tenant LIKE 'b%'")) == []
    assert taken_values(route({"property": "uid", "exists": True}), route({"property": "uid", "at_least": 3})) == []


def test_what_a_condition_reads_and_how_it_is_said() -> None:
    text = "properties['a'] = 'x'\n  AND length(properties['b']) > 2 AND tenant = 'u'"
    assert properties_of(condition_of(text)) == {"a", "b"}
    assert properties_of(RouteCondition.model_validate(UID)) == {"uid"}
    assert in_words(text) == "properties['a'] = 'x' AND length(properties['b']) > 2 AND tenant = 'u'"
