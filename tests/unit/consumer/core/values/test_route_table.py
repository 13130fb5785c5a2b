"""Route table: the first that holds, choices that come to rest, circles, and what senders agree on."""

from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.core.values.route_table import DispatchTable, RouteChoice, RouteRule, RouteTable

from kodoctl.topology.names import RouteMoment
from kodoctl.topology.route_facts import RouteFacts

L1, L2, B1, B2 = Level.L1, Level.L2, Level.B1, Level.B2
ANY = frozenset(RouteMoment)


def facts(level: Level = L1, state: State = State.READY, **properties: str) -> RouteFacts:
    return RouteFacts(properties, "", "(none)", "m", 0, level, state)


def on(level: Level | None, to: Level, **more: object) -> RouteRule:
    return RouteRule(lambda found: level is None or found.level is level, to, name=f"{level} {to}", **more)  # type: ignore[arg-type]


def test_the_first_route_that_holds_wins_and_may_leave_a_message_where_it_is() -> None:
    table = RouteTable((on(L2, L2), on(None, B1)))
    assert table.on_dispatch(facts()) == RouteChoice(B1, "None B1")
    assert table.on_dispatch(facts(L2)) == RouteChoice()
    assert table.on_dispatch(facts(B1)) == RouteChoice()
    assert RouteTable((on(None, L2), on(None, B1)), frozenset({L2})).on_dispatch(facts()) == RouteChoice()
    assert RouteTable().on_dispatch(facts()) == RouteChoice()


def test_a_choice_at_dispatch_comes_to_rest_so_that_it_is_the_same_there() -> None:
    table = RouteTable((on(L1, L2), on(L2, B1)))
    assert table.on_dispatch(facts()) == RouteChoice(B1, "L1 L2")
    assert table.on_dispatch(facts(B1)) == RouteChoice()


def test_routes_in_a_circle_leave_a_message_where_it_is() -> None:
    table = RouteTable((on(L1, L2), on(L2, L1)))
    assert table.on_dispatch(facts()) == RouteChoice(None, "L2 L1", circular=True)


def test_a_route_is_evaluated_at_its_moments_only() -> None:
    waiting = frozenset({RouteMoment.RETRYING, RouteMoment.BACKUP})
    table = RouteTable((on(None, L2, at=waiting),))
    assert table.on_dispatch(facts()).to is None
    assert table.on_leaving(facts(L1, State.RETRYING)) == RouteChoice(L2, "None L2")
    assert table.on_leaving(facts(L2, State.RETRYING)).to is None
    assert table.on_leaving(facts(L1, State.PENDING)).to is None
    assert table.on_leaving(facts(B1)).to is L2


def test_what_cannot_be_evaluated_does_not_hold_and_is_named_once() -> None:
    unknown = RouteRule(lambda _: None, L2, at=ANY, name="route 1")
    table = RouteTable((unknown, on(L1, B1, at=ANY)))
    assert table.on_dispatch(facts()) == RouteChoice(B1, "L1 B1", ("route 1",))
    assert table.on_leaving(facts(L1, State.BLOCKING)) == RouteChoice(B1, "L1 B1", ("route 1",))


def test_a_route_that_cannot_be_evaluated_is_named_once_in_a_circle_too() -> None:
    unknown = RouteRule(lambda _: None, L1, name="route 1")
    table = RouteTable((unknown, on(L1, L2), on(L2, L1)))
    assert table.on_dispatch(facts()) == RouteChoice(None, "L2 L1", ("route 1",), circular=True)


def test_a_share_takes_its_part_and_the_rest_goes_on_to_the_next_route() -> None:
    table = RouteTable((on(None, L2, share=0.25, salt="a"), on(L1, B1)))
    found = [table.on_dispatch(RouteFacts({}, f"k{number}", "t", "m", 0, L1)).to for number in range(2_000)]
    assert 420 < found.count(L2) < 580
    assert found.count(L2) + found.count(B1) == 2_000


def test_senders_send_where_all_subscriptions_want_a_message_and_else_where_it_was_sent_to() -> None:
    to_l2, to_b1, none = RouteTable((on(None, L2),)), RouteTable((on(None, B1),)), RouteTable()
    assert DispatchTable((to_l2, to_l2)).choose(facts()) is L2
    assert DispatchTable((to_l2, to_b1)).choose(facts()) is L1
    assert DispatchTable((to_l2, none)).choose(facts()) is L1
    assert DispatchTable((to_l2,)).choose(facts(L2)) is L2
