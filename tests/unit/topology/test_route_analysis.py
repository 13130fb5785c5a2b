"""Analysis of routes: where they may take a message, and which lead in a circle."""

import pytest

from kodoctl.topology import route_analysis
from kodoctl.topology.model.subscription import Route
from kodoctl.topology.names import Level, RouteMoment, State
from kodoctl.topology.route_analysis import RoutePoint, circle, may_take

DISPATCH, RETRYING, PENDING, BACKUP = (
    RouteMoment.DISPATCH,
    RouteMoment.RETRYING,
    RouteMoment.PENDING,
    RouteMoment.BACKUP,
)
L1, L2, B1, B2 = Level.L1, Level.L2, Level.B1, Level.B2
POINTS = [
    RoutePoint(L2, DISPATCH),
    RoutePoint(L1, DISPATCH),
    RoutePoint(L1, RETRYING),
    RoutePoint(L1, PENDING),
    RoutePoint(L2, RETRYING),
    RoutePoint(B1, BACKUP),
]


def route(when: str, to: str = "L2", **more: object) -> Route:
    return Route.model_validate({"when": when, "to": to, **more})


@pytest.mark.parametrize(
    ("when", "found"),
    [
        ("level = 'L1'", True),
        ("NOT (level = 'L1')", False),
        ("level = 'L1' AND tenant = 'a'", True),
        ("level = 'L2' AND tenant = 'a'", False),
        ("level = 'L2' OR tenant = 'a'", True),
        ("level = 'L2' OR state = 'pending'", False),
        ("level = 'L1' OR tenant = 'a'", True),
        ("NOT (level = 'L1' OR tenant = 'a')", False),
        ("attempts > 0", False),
        ("attempts / 0 > 1", False),
        ("attempts / 0 > 1 AND tenant = 'a'", False),
        ("true", True),
        ("properties['a'] IS NULL", True),
    ],
)
def test_a_route_may_take_what_its_condition_leaves_open(when: str, found: bool) -> None:
    assert may_take(route(when), RoutePoint(L1, DISPATCH)) is found


def test_what_a_point_is() -> None:
    assert (RoutePoint(L1, RETRYING).state, RoutePoint(B1, BACKUP).state) == (State.RETRYING, State.READY)
    assert not may_take(route("true"), RoutePoint(L1, RETRYING))
    assert may_take(route("attempts > 0", at=["retrying"]), RoutePoint(L1, RETRYING))


def test_what_a_message_waits_for_after_a_route() -> None:
    assert RoutePoint(L1, RETRYING).after(B1, POINTS) == [RoutePoint(B1, BACKUP)]
    assert RoutePoint(L1, RETRYING).after(L2, POINTS) == [RoutePoint(L2, RETRYING)]
    assert RoutePoint(L1, DISPATCH).after(B1, POINTS) == [RoutePoint(B1, DISPATCH)]
    assert RoutePoint(B1, BACKUP).after(B2, POINTS) == [RoutePoint(B2, BACKUP)]
    assert RoutePoint(B1, BACKUP).after(L1, POINTS) == [RoutePoint(L1, RETRYING), RoutePoint(L1, PENDING)]


@pytest.mark.parametrize(
    ("routes", "found"),
    [
        ([route("true")], None),
        ([route("level = 'L1'"), route("level = 'L2'", "L1")], ([0, 1], [L2, L1, L2])),
        ([route("level = 'L1'"), route("level = 'L2'", "L1", share="10%")], ([0, 1], [L2, L1, L2])),
        ([route("level = 'L1'", at=["retrying"]), route("level = 'L2'", "L1")], None),
        ([route("tenant = 'a'", "B1", at=["retrying"]), route("tenant = 'b'", "L1", at=["backup"])], None),
        (
            [route("tenant = 'a'", "B1", at=["retrying"]), route("key = 'b'", "L1", at=["backup"])],
            ([0, 1], [L1, B1, L1]),
        ),
        # out of a backup level a message comes into a ready lane: routes of `backup` are not evaluated there
        ([route("level = 'B1'", "L1", at=["backup"]), route("key = 'b'", "B1", at=["backup"])], None),
        ([route("level = 'B1'", "L1", at=["backup"]), route("level = 'L1'", "L2", at=["backup"])], None),
        (
            [
                route("level = 'L1'", "B1", at=["pending"]),
                route("level = 'B1'", "L2", at=["backup"]),
                route("level = 'L2'", "L1", at=["retrying"]),
            ],
            None,
        ),
        (
            [
                route("level = 'L1'", "B1", at=["retrying"]),
                route("level = 'B1'", "L2", at=["backup"]),
                route("level = 'L2'", "L1", at=["retrying"]),
            ],
            ([0, 1, 2], [L1, B1, L2, L1]),
        ),
    ],
)
def test_routes_that_lead_in_a_circle_are_found(
    routes: list[Route], found: tuple[list[int], list[Level]] | None
) -> None:
    assert circle(routes, POINTS) == found


def test_a_circle_among_many_routes_is_looked_for_once_for_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    truths, seen = route_analysis._truths, []
    monkeypatch.setattr(route_analysis, "_truths", lambda *args: seen.append(args) or truths(*args))
    many = [route(f"properties['a{number}'] = 'x'", at=["dispatch", "retrying"]) for number in range(100)]
    assert circle(many, POINTS) is None
    assert len(seen) <= len(many) * len(POINTS), "the search took minutes for 100 routes"
    back = route("level = 'L2' AND key = 'b'", "L1", at=["retrying"])
    assert circle([back, *many], POINTS) == ([0, 1], [L1, L2, L1])


def test_a_list_without_values_matches_nothing() -> None:
    empty = Route.model_validate({"when": {"property": "a", "in": []}, "to": "L2"})
    assert not may_take(empty, RoutePoint(L1, DISPATCH))
