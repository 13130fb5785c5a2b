"""Exclusive levels: who is admitted where, at dispatch, at every receipt and out of waits, whatever a message claims."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.core.values.exclusive_levels import EVERYBODY, ExclusiveLevels
from kodo_consumer.core.values.outcomes import DONE, MoveAsked
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.core.values.route_table import DispatchTable, RouteChoice, RouteRule, RouteTable
from kodo_consumer.testing.manual_clock import START_WALL

from kodoctl.topology.names import RouteMoment
from kodoctl.topology.route_facts import RouteFacts
from tests.unit.consumer.engine_bench import B1, FAILED, L1, L2, Bench, delivery, policy, store_all

S1 = Level.S1
OWN = ExclusiveLevels({S1: frozenset({"u7", "u8"}), L2: frozenset({"u9"})})
LEVELS = (S1, L2, L1, B1)
ANY = frozenset(RouteMoment)


def of(**changes: Any) -> Policy:
    return policy(LEVELS, fair_by="uid", exclusive_levels={S1: frozenset({"u7"})}, **changes)


def facts(tenant: str, level: Level, state: State = State.READY) -> RouteFacts:
    return RouteFacts({}, "", tenant, "m", 1, level, state)


def rule(to: Level, name: str = "route") -> RouteRule:
    return RouteRule(lambda _: True, to, ANY, name=name)


@pytest.mark.parametrize(
    ("tenant", "level", "belongs"),
    [("u7", L1, S1), ("u7", S1, S1), ("u7", L2, S1), ("u7", B1, B1), ("u9", S1, L2),
     ("u1", S1, L1), ("u1", L2, L1), ("u1", L1, L1), ("u1", B1, B1), ("u1", Level.L3, Level.L3)],
)  # fmt: skip
def test_a_tenant_belongs_on_its_own_level_and_others_on_none_of_these(
    tenant: str, level: Level, belongs: Level
) -> None:
    assert OWN.level_of(tenant, level) is belongs
    assert EVERYBODY.level_of(tenant, level) is level


def test_a_level_names_whom_it_admits() -> None:
    assert OWN.why_not_admitted("u1", S1) == "S1 admits only u7, u8"
    assert (OWN.why_not_admitted("u7", S1), OWN.why_not_admitted("u7", L1)) == ("", "")
    assert OWN.rule_for("u7", L1) == "exclusive level: S1 is this tenant's"
    assert OWN.rule_for("u1", S1) == "exclusive level: S1 is of other tenants"


def test_at_dispatch_a_message_is_placed_before_routes_count_and_these_lead_into_no_exclusive_level() -> None:
    table = RouteTable(exclusive=OWN)
    assert table.on_dispatch(facts("u7", L1)) == RouteChoice(S1, "exclusive level: S1 is this tenant's")
    assert table.on_dispatch(facts("u7", S1)) == RouteChoice()
    assert table.on_dispatch(facts("u1", S1)) == RouteChoice(L1, "exclusive level: S1 is of other tenants")
    assert table.on_dispatch(facts("u1", L1)) == RouteChoice()
    wide = replace(table, rules=(rule(S1, "in"), rule(Level.L3, "out")))
    assert wide.on_dispatch(facts("u7", L1)).to is S1, "no route gives its messages away"
    assert wide.on_dispatch(facts("u1", L1)) == RouteChoice(Level.L3, "out"), "and none lets others in"
    assert wide.on_dispatch(facts("u1", S1)).to is Level.L3
    backup = replace(table, rules=(rule(B1),))
    assert backup.on_dispatch(facts("u7", L1)).to is B1, "backups are everybody's"


def test_routes_in_a_circle_leave_a_message_where_it_belongs() -> None:
    there = RouteRule(lambda found: found.level is L1, Level.L3, name="there")
    back = RouteRule(lambda found: found.level is Level.L3, L1, name="back")
    table = RouteTable((there, back), exclusive=OWN)
    assert table.on_dispatch(facts("u1", S1)) == RouteChoice(L1, "back", circular=True)
    assert table.on_dispatch(facts("u1", L1)) == RouteChoice(None, "back", circular=True)


def test_out_of_a_wait_a_message_goes_where_it_belongs_unless_a_route_takes_it_to_a_backup() -> None:
    table = RouteTable(exclusive=OWN)
    assert table.on_leaving(facts("u7", L1, State.RETRYING)) == RouteChoice(S1, "exclusive level: S1 is this tenant's")
    assert table.on_leaving(facts("u7", S1, State.RETRYING)) == RouteChoice()
    assert table.on_leaving(facts("u1", S1, State.PENDING)).to is L1
    assert replace(table, rules=(rule(B1),)).on_leaving(facts("u7", L1, State.RETRYING)) == RouteChoice(B1, "route")
    assert table.on_leaving(facts("u7", B1)).to is None


def test_senders_place_a_message_also_where_their_readers_do_not_agree() -> None:
    apart = DispatchTable((RouteTable((rule(B1),), exclusive=OWN), RouteTable(exclusive=OWN)))
    assert apart.choose(facts("u7", L1)) is S1
    assert apart.choose(facts("u1", S1)) is L1
    assert DispatchTable((RouteTable(exclusive=OWN),)).choose(facts("u7", L1)) is S1
    assert DispatchTable(()).choose(facts("u7", L1)) is L1


def levels_of(bench: Bench) -> list[str]:
    return [outgoing.topic.rsplit("t-", 1)[1] for _, outgoing in bench.published()]


FORGED = {"kodo_hop": 3, "kodo_for": "s", "kodo_routes": 1, "kodo_recall": "r"}


@pytest.mark.parametrize("claims", [{}, FORGED, {"kodo_hop": 1}, {"kodo_attempts_retrying": 2}])
def test_nobody_gets_in_or_stays_out_by_what_its_headers_claim(claims: dict[str, Any]) -> None:
    bench = Bench(of())
    bench.give(delivery(1, uid="u1", **claims), delivery(2, uid="u7", **claims), level=S1)
    bench.give(delivery(3, uid="u1", **claims), delivery(4, uid="u7", **claims))
    bench.give(delivery(5, uid="u7", **claims), level=L2)
    assert sorted(message.id for message in bench.take_all()) == ["7:2:0:-1", "7:3:0:-1"]
    assert levels_of(bench) == ["L1-ready", "S1-ready", "S1-ready"]
    assert bench.engine.check_invariants() == []


def test_a_message_that_was_moved_too_often_is_not_let_in_but_waits() -> None:
    bench = Bench(of())
    often = delivery(1, uid="u1", kodo_hop=9, kodo_routes=8)
    bench.give(often, level=S1)
    for _ in range(3):
        assert (bench.take_all(), bench.published()) == ([], [])
        bench.later(8)
    bench.later(10)
    assert levels_of(bench) == ["L1-ready"]
    bench.give(often._replace(entry=2, publish_time=START_WALL + 10**9), level=S1)
    assert levels_of(bench) == ["L1-ready"], "a publish time is the sender's to choose"
    ahead = often._replace(entry=4, publish_time=bench.clock.wall() + 1_000)
    bench.give(ahead, level=S1)
    assert levels_of(bench) == [], "the clock of the worker that sent it is ahead: no reason to send it back at once"
    bench.give(delivery(3, uid="u1", kodo_hop=9, kodo_routes=8))
    assert len(bench.take_all()) == 1, "where it may be it stays"


def test_what_waits_on_a_level_that_became_exclusive_leaves_it_and_failures_go_to_the_backup() -> None:
    bench = Bench(of(dead=True))
    bench.give(delivery(1, uid="u1", kodo_hop=1), delivery(2, uid="u7", kodo_hop=1), level=S1, state=State.RETRYING)
    (message,) = bench.take_all()
    assert levels_of(bench) == ["L1-ready"]
    spent = delivery(3, uid="u7", kodo_hop=4, kodo_attempts_retrying=3)
    bench.engine.finish(message, DONE)
    bench.give(spent, level=S1, state=State.RETRYING)
    (message,) = bench.take_all()
    bench.engine.finish(message, FAILED)
    ((_, escalated),) = bench.published()
    assert escalated.topic.endswith("B1-ready")


@pytest.mark.parametrize(
    ("tenant", "level", "to", "reason"),
    [("u1", L1, S1, "S1 is of other tenants"), ("u7", S1, L1, "S1 is this tenant's"), ("u7", S1, B1, "")],
)
def test_a_handler_moves_nothing_in_or_out(tenant: str, level: Level, to: Level, reason: str) -> None:
    bench = Bench(of(in_place=()))
    bench.give(delivery(1, uid=tenant), level=level)
    (message,) = bench.take_all()
    bench.engine.finish(message, MoveAsked(to))
    ((_, outgoing),) = bench.published()
    assert reason in outgoing.properties.get("kodo-reason", "")
    assert outgoing.topic.endswith("-retrying" if reason else "B1-ready")


def test_a_file_with_other_tenants_counts_for_what_is_queued_and_an_order_of_keys_for_nothing() -> None:
    bench = Bench(policy(LEVELS, fair_by="uid"))
    bench.give(delivery(1, uid="u1"), delivery(2, uid="u7"), level=S1)
    bench.engine.apply_policy(of())
    assert levels_of(bench) == ["L1-ready"]
    assert [message.tenant for message in bench.take_all()] == ["u7"]
    assert of(ordered=True).exclusive is EVERYBODY
    store_all(bench)
    assert bench.engine.check_invariants() == []
