"""Moves of tenants by hand: what they take, from where, what waits and what is queued, and which orders are refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from kodo_consumer.core.upkeep.move_orders import share_lines
from kodo_consumer.core.upkeep.override_state import apply_overrides, why_not_followed
from kodo_consumer.core.values.broker import Confirmed
from kodo_consumer.core.values.envelope import FRESH, Level, State
from kodo_consumer.core.values.limit_policy import Concurrency, Quota
from kodo_consumer.core.values.outcomes import DONE, MoveAsked, RetryAsked
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.core.values.route_table import RouteRule
from kodo_consumer.core.values.tenant_moves import TenantMove
from kodo_consumer.testing.manual_clock import START_WALL

from kodoctl.protocol.overrides import STAY, Override, OverrideKind
from kodoctl.topology.names import RouteMoment
from tests.unit.consumer.engine_bench import B1, L1, L2, Bench, delivery, policy, store_all

S1 = Level.S1
FAIR = policy((S1, L2, L1, B1), fair_by="uid")
UNTIL = "until 2026"


def order(to: str = "L2", tenant: str = "u1", waiting: str = "", why: str = "psp is down") -> Override:
    return Override(
        OverrideKind.MOVE, START_WALL, START_WALL + 3_600_000, "ann@desk", why, tenant=tenant, to=to, waiting=waiting
    )


def moved(*orders: Override, of: Policy = FAIR) -> Bench:
    bench = Bench(of)
    bench.engine.apply_policy(apply_overrides(of, orders))
    return bench


def levels_of(bench: Bench) -> list[str]:
    return [outgoing.topic.rsplit("t-", 1)[1] for _, outgoing in bench.published()]


def handled(bench: Bench) -> list[str]:
    return sorted(message.id.split(":")[1] for message in bench.take_all())


def test_a_first_receipt_goes_to_the_level_and_is_handled_there() -> None:
    bench = moved(order())
    bench.give(delivery(1, uid="u1"), delivery(2, uid="u2"))
    bench.give(delivery(3, uid="u1"), level=L2)
    assert handled(bench) == ["2", "3"]
    ((_, outgoing),) = bench.published()
    assert outgoing.topic.endswith("L2-ready")
    assert (outgoing.properties["kodo-routes"], outgoing.properties["kodo-for"]) == ("1", "s")
    lane = next(lane for lane in bench.engine.lanes if (lane.lane.level, lane.lane.state) == (L1, State.READY))
    assert lane.counted["routed", "by hand"] == 1


def test_the_record_names_who_ordered_it_and_why() -> None:
    move = apply_overrides(FAIR, [order()]).moves["u1"]
    assert move == TenantMove(L2, START_WALL, waiting=True, name=move.name)
    assert move.name.startswith("moved by hand by ann@desk until 20")
    assert move.name.endswith(": psp is down")
    assert not apply_overrides(FAIR, [order(why="")]).moves["u1"].name.endswith(": ")


@pytest.mark.parametrize("state", [State.RETRYING, State.PENDING, State.BLOCKING])
def test_what_comes_out_of_a_wait_moves_as_well_or_stays(state: State) -> None:
    for waiting, handled_here, gone in ((STAY, ["1"], []), ("", [], ["L2-ready"])):
        bench = moved(order(waiting=waiting))
        bench.give(delivery(1, uid="u1", kodo_hop=1), state=state)
        assert handled(bench) == handled_here
        assert levels_of(bench) == gone
        bench.give(delivery(2, uid="u1", kodo_hop=3), state=state, level=L2)
        assert handled(bench) == ["2"], "on its level it is handled where it waited"


def test_messages_sent_before_an_order_stay_where_what_waits_stays() -> None:
    bench = moved(order(waiting=STAY))
    old = delivery(1, uid="u1")._replace(publish_time=START_WALL - 1)
    bench.give(old, delivery(2, uid="u1"))
    assert handled(bench) == ["1"]
    assert levels_of(bench) == ["L2-ready"]
    bench.give(delivery(3, uid="u1", kodo_hop=1, kodo_routes=1), level=S1)
    assert handled(bench) == ["3"]


def test_what_a_route_brought_moves_on_and_what_a_handler_or_failures_brought_stays() -> None:
    bench = moved(order())
    bench.give(delivery(1, uid="u1", kodo_hop=1, kodo_routes=1), delivery(2, uid="u1", kodo_hop=1), level=S1)
    bench.give(delivery(3, uid="u1", kodo_hop=2, kodo_routes=2), delivery(4, uid="u1", kodo_hop=3), level=B1)
    bench.give(delivery(5, uid="u1", kodo_hop=1, kodo_routes=1, kodo_attempts_backup=1), level=B1)
    assert handled(bench) == ["2", "4", "5"]
    assert levels_of(bench) == ["L2-ready", "L2-ready"]


def test_a_handler_that_moves_its_message_elsewhere_is_obeyed() -> None:
    bench = moved(order())
    bench.give(delivery(1, uid="u1"), level=L2)
    (message,) = bench.take_all()
    bench.engine.finish(message, MoveAsked(S1))
    ((_, outgoing),) = bench.published()
    bench.give(delivery(2)._replace(properties=outgoing.properties), level=S1)
    assert (handled(bench), bench.published()) == (["1"], [])


def test_a_move_wins_over_the_routes_of_the_file() -> None:
    out = RouteRule(lambda _: True, B1, frozenset(RouteMoment), name="route 1")
    for waiting in ("", STAY):
        bench = moved(order(waiting=waiting), of=replace(FAIR, routes=(out,)))
        bench.give(delivery(1, uid="u1"), delivery(2, uid="u2"))
        bench.give(delivery(3, uid="u1", kodo_hop=1), level=L2, state=State.RETRYING)
        bench.give(delivery(4, uid="u1"), level=L2)
        assert handled(bench) == ["3", "4"], "on the level of the move no route takes them away"
        assert levels_of(bench) == ["L2-ready", "B1-ready"]
    bench = moved(order("L1"), of=replace(FAIR, routes=(out,)))
    bench.give(delivery(1, uid="u1"))
    assert handled(bench) == ["1"], "and its usual level is a level, too"


def test_moved_as_often_as_it_may_be_a_message_stays() -> None:
    bench = moved(order())
    bench.give(delivery(1, uid="u1", kodo_hop=8, kodo_routes=8))
    assert handled(bench) == ["1"]


def test_a_move_out_of_an_exclusive_level_counts_until_it_ends() -> None:
    own = replace(FAIR, exclusive_levels={S1: frozenset({"u1"})})
    bench = moved(order(), of=own)
    bench.give(delivery(1, uid="u1"), level=S1)
    bench.give(delivery(2, uid="u1", kodo_hop=1, kodo_routes=1), level=L2)
    assert levels_of(bench) == ["L2-ready"]
    bench.engine.apply_policy(own)
    assert levels_of(bench) == ["S1-ready"]


def test_what_is_queued_or_waits_at_a_limit_goes_at_once_and_nothing_is_lost() -> None:
    cap = Concurrency("uid", 1, shared=False)
    of = replace(FAIR, limits=(cap,))
    bench = Bench(of)
    bench.give(*(delivery(number, uid="u1" if number % 2 else "u2") for number in range(40)))
    running = bench.take_all()
    assert Counter(message.tenant for message in running) == {"u1": 1, "u2": 1}
    assert any(lane.lane.state is State.READY for lane in bench.engine.lanes)
    bench.engine.apply_policy(apply_overrides(of, [order()]))
    assert bench.engine.check_invariants() == []
    assert len(store_all(bench)) == 19
    assert bench.engine.check_invariants() == []
    for message in running:
        bench.engine.finish(message, DONE)
    left = 0
    while taken := bench.take_all():
        left += len(taken)
        for message in taken:
            assert message.tenant == "u2"
            bench.engine.finish(message, DONE)
    assert left == 19
    assert len(set(bench.acknowledged())) == 40


def test_a_flood_leaves_in_parts_and_what_was_released_meanwhile_does_not() -> None:
    bench = Bench(FAIR)
    bench.give(*(delivery(number, uid="u1") for number in range(4_100)))
    bench.engine.apply_policy(apply_overrides(FAIR, [order()]))
    assert len(bench.engine.queued_moves) == 100
    assert bench.engine.check_invariants() == []
    bench.engine.apply_policy(apply_overrides(FAIR, [order(), order(tenant="u2")]))
    bench.engine.drain()
    assert len(bench.engine.queued_moves) == 0
    assert len(store_all(bench)) == 4_000
    assert bench.engine.check_invariants() == []


def test_messages_that_fail_on_the_new_level_wait_there() -> None:
    bench = moved(order())
    bench.give(delivery(1, uid="u1"), level=L2)
    (message,) = bench.take_all()
    bench.engine.finish(message, RetryAsked(None, "x"))
    assert levels_of(bench) == ["L2-retrying"]


def test_of_what_a_message_claims_only_its_way_counts() -> None:
    move = TenantMove(L2, 1_000, waiting=True)
    assert move.takes(L1, State.READY, FRESH, 0)
    assert not move.takes(L2, State.READY, FRESH, 0)
    assert not move.takes(B1, State.READY, FRESH.replace(due=5), 0)


@pytest.mark.parametrize(
    ("of", "to", "reasons"),
    [
        (policy(), "L2", ["no fair_by"]),
        (FAIR, "L3", ["t has no level L3; there is S1, L2, L1, B1: to add one"]),
        (policy((L2, L1), draining=(L2,), fair_by="uid"), "L2", ["L2 is draining and takes no messages; there is L1"]),
        (policy(fair_by="uid", subscription_type="key_shared"), "L2", ["s is key_shared", "overtake others of its key"]),
        (policy(subscription_type="failover"), "L8", ["no fair_by", "s is failover", "no level L8"]),
        (replace(FAIR, exclusive_levels={S1: frozenset({"u7"})}), "S1", ["S1 admits only u7: `exclusive_levels`"]),
    ],
)  # fmt: skip
def test_an_order_that_cannot_be_followed_is_refused_with_all_reasons(of: Policy, to: str, reasons: list[str]) -> None:
    found = why_not_followed(order(to), of)
    assert all(reason in found for reason in reasons), found


def test_orders_that_can_be_followed_are_and_others_change_nothing() -> None:
    own: dict[str, Any] = {"exclusive_levels": {S1: frozenset({"u1"})}}
    assert why_not_followed(order("S1"), replace(FAIR, **own)) == ""
    assert why_not_followed(order("L2"), replace(FAIR, **own)) == "", "out of its own level a tenant may be moved"
    assert [why_not_followed(order(to), FAIR) for to in ("S1", "L1", "B1")] == ["", "", ""]
    assert apply_overrides(FAIR, [order("L8")]).moves == {}
    assert apply_overrides(replace(FAIR, exclusive_levels={S1: frozenset({"u7"})}), [order("S1")]).moves == {}, (
        "since a reload"
    )
    assert apply_overrides(FAIR, []).moves == {}
    assert FAIR.is_plain
    assert not apply_overrides(FAIR, [order()]).is_plain
    assert apply_overrides(FAIR, [order()]).max_hops == FAIR.max_hops + 8


def test_what_a_quota_set_aside_for_queued_messages_is_theirs_on_the_other_level() -> None:
    of = replace(FAIR, limits=(Quota("uid", 10, 3_600_000, shared=False),), lookahead_messages=20)
    bench = Bench(of)
    bench.give(*(delivery(number, uid="u1") for number in range(10)))
    assert all(held.has_reservation for lane in bench.engine.lanes for held in lane)
    bench.engine.apply_policy(apply_overrides(of, [order()]))
    out = bench.published()
    for ticket, _ in out:
        bench.engine.receipt(ticket, Confirmed("x"))
    came = [delivery(number)._replace(properties=dict(outgoing.properties)) for number, (_, outgoing) in enumerate(out)]
    bench.give(*came, level=L2)
    assert (len(bench.take_all()), bench.published()) == (10, [])
    assert bench.engine.check_invariants() == []


def test_up_and_down_are_said_in_slot_time() -> None:
    lanes = [replace(lane, share=0.5 if lane.level is S1 else 0.1 if lane.level is L1 else 0.01) for lane in FAIR.lanes]
    of = replace(FAIR, lanes=tuple(lanes[:3]), unread=tuple(lanes[3:]))
    said = [" ".join(share_lines(of, order(level))) for level in ("S1", "B1", "L1")]
    assert said[0].startswith("That is up: where all lanes have messages, S1 has 200% of the slot time")
    assert said[1].startswith("That is down: ")
    assert said[2] == ""
