"""Who is promoted, who goes back, and that nobody is moved to and fro."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kodo_pipeline.recommend.noisy_neighbours import CALM, ENTER
from kodo_pipeline.recommend.promotions import LIGHT, PromotionCase, is_heavy, recommend_promotions
from kodo_pipeline.recommend.slot_use import LaneUse, SlotWindow, SubscriptionSlots, TenantUse

from tests.samples.profiles import examples

WIDTH, GOAL = 300_000, 10_000


def load(started=2, late=0, slot=None, level="L1"):
    slot_ms = 100 * started if slot is None else slot
    return TenantUse(slot_ms, slot_ms, started, late, frozenset({level} if started else ()))


def window(at, rest=100, **tenants):
    started = rest + sum(one.started for one in tenants.values())
    slot_ms = 100 * rest + sum(one.slot_ms for one in tenants.values())
    return SlotWindow(at * WIDTH, 1, {("L1", "ready"): LaneUse(slot_ms, slot_ms, started, 0)}, tenants)


def case(*windows, promoted=None, fixed=(), noisy=(), goals=None):
    slots = SubscriptionSlots("orders", "billing", 16, WIDTH, windows)
    return PromotionCase(slots, "L2", promoted or {}, frozenset(fixed), frozenset(noisy), goals or {}, GOAL)


def told(one):
    return [(move.action, move.tenant, move.source, move.target) for move in recommend_promotions(one)]


LATE = [window(at, vip=load(2, 2)) for at in range(3)]
FINE = [window(at, vip=load(2)) for at in range(3, 12)]


def test_a_light_tenant_that_waits_in_three_windows_goes_up():
    found = case(*LATE, *FINE, goals={"vip": 500})
    assert told(found) == [("promote", "vip", "L1", "L2")]
    (move,) = recommend_promotions(found)
    assert (move.windows, move.late, move.late_else, move.goal) == ((0, WIDTH, 2 * WIDTH), 1.0, 0.0, 500)
    assert move.share == pytest.approx(2 / 102)
    assert recommend_promotions(case(*LATE, *FINE))[0].goal == GOAL
    assert told(case(*LATE[:2], *FINE)) == []
    assert told(case()) == []
    assert recommend_promotions(case(*(window(at, vip=load(4, 4)) for at in range(3))))[0].late_else is None


@pytest.mark.parametrize(
    "windows",
    [
        [window(at, vip=load(2, 1), rest=10) for at in range(6)],  # a sixth of the few there are
        [window(at, vip=load(3, 3), rest=30) for at in range(6)],  # more than a sixteenth
        [window(at, vip=load(3, 3, slot=1_000)) for at in range(6)],  # more than a sixteenth of the slot time
        [window(at, vip=load(1, 1)) for at in range(5)],  # too few to judge by
        [window(at, vip=load(2, 2)) for at in range(11)] + [window(11, vip=load(20))],  # heavy once
        [window(at, vip=load(2, 2)) for at in range(6)] + [window(6, vip=load(2, level="L2"))],  # it is there by now
    ],
    ids=["few", "runs", "slot time", "seldom", "heavy once", "there"],
)
def test_who_is_not_light_or_cannot_be_judged_stays(windows):
    assert told(case(*windows)) == []


def test_windows_of_a_noisy_tenant_and_places_of_others_do_not_count():
    assert told(case(*LATE, *FINE, noisy={0})) == []
    assert told(case(*LATE, *FINE, fixed={"vip"})) == []
    assert told(case(*LATE, *FINE, promoted={"vip": "L2"}, fixed={"vip"})) == []


def test_all_promoted_ones_together_stay_few_and_those_with_a_goal_of_their_own_come_first():
    windows = [window(at, rest=82, a=load(5, 5), b=load(5, 4), c=load(5, 3), d=load(3, 1)) for at in range(4)]
    assert [one for _, one, _, _ in told(case(*windows))] == ["a", "b"]
    assert [one for _, one, _, _ in told(case(*windows, goals={"d": 5}))] == ["d", "a"]
    assert [one for _, one, _, _ in told(case(*windows, promoted={"e": "L2"}))] == ["a", "b"]
    there = [replace(one, tenants={**one.tenants, "e": load(5, level="L2")}) for one in windows]
    assert [one for _, one, _, _ in told(case(*there, promoted={"e": "L2"}))] == ["a"]


def test_who_is_light_no_more_goes_back_once_its_route_is_in_effect():
    heavy = [window(at, vip=load(30, level="L2")) for at in range(3)]
    assert told(case(*heavy, promoted={"vip": "L2"})) == [("return", "vip", "L2", "L1")]
    assert recommend_promotions(case(*heavy, promoted={"vip": "L2"}))[0].share == pytest.approx(30 / 130)
    assert told(case(*heavy[:2], promoted={"vip": "L2"})) == []
    assert told(case(*heavy, window(3, vip=load(2)), promoted={"vip": "L2"})) == []  # not in effect then
    assert told(case(*(window(at, vip=load(14, level="L2"), rest=10) for at in range(3)), promoted={"vip": "L2"})) != []
    still = [window(at, vip=load(2, slot=0, level="L2"), rest=0, a=load(98, 98, slot=0)) for at in range(3)]
    assert told(case(*still, promoted={"vip": "L2"})) == []  # no handler ran, as during a pause
    few = [window(at, vip=load(10, level="L2"), rest=1) for at in range(3)]
    assert told(case(*few, promoted={"vip": "L2"})) == []  # too few to judge by


NAMES = ("a", "b", "c")
LOADS = st.builds(
    lambda started, late, slot, level: load(started, round(started * late), slot, level),
    st.sampled_from([0, 1, 2, 4, 12, 40, 200]), st.floats(0, 1), st.sampled_from([0, 50, 900, 20_000]),
    st.sampled_from(["L1", "L2"]),
)  # fmt: skip
TENANTS = st.dictionaries(st.sampled_from(NAMES), LOADS)


def after_moves(one, moves):
    """The same data under the patched file."""
    promoted = {**one.promoted, **{move.tenant: move.target for move in moves}}
    return replace(one, promoted={tenant: level for tenant, level in promoted.items() if level != "L1"})


@examples(300)
@given(
    st.lists(st.tuples(TENANTS, st.sampled_from([5, 100, 1000])), max_size=16),
    st.lists(st.tuples(TENANTS, st.sampled_from([5, 100, 1000])), max_size=2),
    st.dictionaries(st.sampled_from(NAMES), st.just("L2"), max_size=2),
)
def test_nobody_is_moved_back_by_a_next_run_on_the_same_data_or_on_two_windows_more(windows, more, promoted):
    slices = [window(at, rest, **tenants) for at, (tenants, rest) in enumerate(windows)]
    given_case = case(*slices, promoted=promoted)
    moves = recommend_promotions(given_case)
    moved = {one.tenant: one.action for one in moves}
    assert len(moved) == len(moves)
    taken = after_moves(given_case, moves)
    assert {one.tenant for one in recommend_promotions(taken)}.isdisjoint(moved)
    for move in moves:
        recent = {one.at: one for one in given_case.slots.recent()}
        assert len(move.windows) >= ENTER
        if move.action == "promote":
            assert not any(is_heavy(move.tenant, one) for one in recent.values())
        else:
            assert all(is_heavy(move.tenant, recent[at]) for at in move.windows)
    grown = [window(len(slices) + n, rest, **tenants) for n, (tenants, rest) in enumerate(more)]
    later = replace(taken, slots=replace(taken.slots, slices=(*slices, *grown)))
    assert {one.tenant for one in recommend_promotions(later)}.isdisjoint(moved)


def test_the_bounds_are_apart():
    assert LIGHT * 2 == CALM
