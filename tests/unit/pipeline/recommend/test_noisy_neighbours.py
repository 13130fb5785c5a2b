"""Who is moved, who is not, and that advice once taken ends."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from kodo_pipeline.recommend.noisy_neighbours import (
    CALM,
    ENTER,
    LOUD,
    RECENT,
    LoadWindow,
    SubscriptionWindows,
    TenantLoad,
    is_degraded,
    is_noisy,
    recommend_moves,
    unmovable,
    without_contrast,
)

from tests.samples.profiles import examples

WIDTH = 300_000
WAITING = {"done": 100, "late": 50}
FINE = {"done": 100, "late": 0}


def window(at, rest=100, active=10, done=100, late=0, **volumes):
    tenants = {name: one if isinstance(one, TenantLoad) else TenantLoad(one) for name, one in volumes.items()}
    return LoadWindow(at * WIDTH, rest + sum(one.volume for one in tenants.values()), active, done, late, tenants)


def case(*slices, routed=None, ladder=("B1", "D1"), fixed=()):
    return SubscriptionWindows("orders", "billing", ladder, routed or {}, frozenset(fixed), WIDTH, slices)


def told(case):
    return [(one.action, one.tenant, one.source, one.target) for one in recommend_moves(case)]


def applied(case, moves):
    """The same data under the patched file."""
    routed = {**case.routed, **{one.tenant: one.target for one in moves}}
    return replace(case, routed={tenant: level for tenant, level in routed.items() if level != "L1"})


def test_a_tenant_that_makes_others_wait_in_three_windows_is_isolated():
    noise = [window(at, noisy=900, late=50) for at in range(3)]
    quiet = [window(at, noisy=10) for at in range(3, 6)]
    assert told(case(*noise, *quiet)) == [("isolate", "noisy", "L1", "B1")]
    move = recommend_moves(case(*noise, *quiet))[0]
    assert (move.windows, move.share, move.late, move.late_else) == ((0, WIDTH, 2 * WIDTH), 0.9, 0.5, 0.0)
    assert told(case(*noise[:2], *quiet)) == []
    assert recommend_moves(case()) == []
    everywhere = recommend_moves(case(*noise))[0]
    assert everywhere.late_else is None  # there is no other window


def test_where_others_wait_as_long_without_the_noise_a_move_is_no_finding():
    noise = [window(at, noisy=900, late=50) for at in range(3)]
    always = case(*noise, *(window(at, noisy=10, late=48) for at in range(3, 6)))
    assert [one.tenant for one in without_contrast(always, recommend_moves(always))] == ["noisy"]
    less = case(*noise, *(window(at, noisy=10, late=40) for at in range(3, 6)))
    assert without_contrast(less, recommend_moves(less)) == []
    alone = case(*noise)
    assert without_contrast(alone, recommend_moves(alone)) == [], "nothing speaks against it"
    a = [window(at, rest=10, a=300, late=50) for at in range(3)]
    c = [window(at, rest=10, c=300, late=50) for at in range(3, 6)]
    two = case(*a, *c)
    assert without_contrast(two, recommend_moves(two)) == [], "the noise of the other one is no quiet window"
    back = case(*(window(at, noisy=10, late=50) for at in range(RECENT)), routed={"noisy": "B1"})
    assert [one.action for one in recommend_moves(back)] == ["upgrade"]
    assert without_contrast(back, recommend_moves(back)) == []


def test_nobody_is_moved_for_noise_that_harms_nobody_or_harm_that_nobody_makes():
    assert told(case(*(window(at, noisy=900) for at in range(5)))) == []
    assert told(case(*(window(at, rest=500, big=100, late=50) for at in range(5)))) == []
    assert told(case(*(window(at, rest=0, active=1, only=900, late=50) for at in range(5)))) == []
    assert told(case(*(window(at, rest=900, active=2, half=1000, late=50) for at in range(5)))) == []  # its fair share
    assert told(case(*(window(at, rest=9, small=90, late=50) for at in range(5)))) == []  # too few to matter
    assert told(case(*(window(at, noisy=900, done=10, late=10) for at in range(5)))) == []  # too few to judge by


def test_the_fewest_that_explain_every_harmed_window_are_moved():
    both = [window(at, rest=10, one=300, two=300, late=50) for at in range(4)]
    only_two = [window(at, rest=10, two=300, late=50) for at in range(4, 6)]
    assert told(case(*both, *only_two)) == [("isolate", "two", "L1", "B1")]
    # greedy takes the middle first, and then needs both others, who make it needless
    left = [window(at, rest=10, a=300, late=50) for at in range(3)]
    right = [window(at, rest=10, c=300, late=50) for at in range(3, 6)]
    middle = [window(at, rest=10, **{name: 300}, b=400, late=50) for at, name in enumerate("aaccac", 6)]
    assert {one.tenant for one in recommend_moves(case(*left, *right, *middle))} == {"a", "c"}


def test_who_still_harms_where_it_was_put_goes_further_down_until_there_is_no_further():
    there = TenantLoad(900, 10, 0, frozenset({"B1"}))
    slices = [window(at, noisy=there, late=50) for at in range(4)]
    assert told(case(*slices, routed={"noisy": "B1"})) == [("degrade", "noisy", "B1", "D1")]
    assert told(case(*slices, routed={"noisy": "B1"}, ladder=("B1",))) == []
    assert told(case(*slices)) == []  # the newest windows have it in B1 already
    not_yet = [window(at, noisy=900, late=50) for at in range(4)]
    assert told(case(*not_yet, routed={"noisy": "B1"})) == []  # the route was not in effect: wait


def test_who_has_been_calm_for_twelve_windows_comes_back_and_not_before():
    loud_once = window(0, noisy=900)
    calm = [window(at, rest=1000, noisy=100) for at in range(1, RECENT + 1)]
    assert told(case(loud_once, *calm, routed={"noisy": "B1"})) == [("upgrade", "noisy", "B1", "L1")]
    assert told(case(loud_once, *calm[:-1], routed={"noisy": "B1"})) == []
    between = window(RECENT, rest=500, noisy=100)  # neither loud nor calm
    assert CALM < 100 / 600 < LOUD
    assert told(case(loud_once, *calm[:-1], between, routed={"noisy": "B1"})) == []
    assert told(case(*calm[1:], routed={"noisy": "B1"})) == []  # not enough is known
    silent = [window(at) for at in range(RECENT + 1)]
    assert told(case(*silent, routed={"noisy": "B1"})) == [("upgrade", "noisy", "B1", "L1")]
    assert told(case(*silent, routed={"noisy": "B1"}, fixed={"noisy"})) == [], "it must not be moved"


def test_whose_place_is_somebody_elses_to_change_is_named_and_not_moved():
    slices = [window(at, noisy=900, late=50) for at in range(4)]
    given_ = case(*slices, fixed={"noisy", "other"})
    assert (told(given_), unmovable(given_)) == ([], ["noisy"])


def test_a_calm_tenant_with_a_route_of_its_own_is_not_said_to_harm_others():
    calm = [window(at, mover=TenantLoad(5, levels=frozenset({"B1"}))) for at in range(RECENT)]
    assert unmovable(case(*calm, routed={"mover": "B1"}, fixed={"mover"})) == []


NAMES = ("a", "b", "c")
loads = st.builds(
    TenantLoad,
    st.sampled_from([0, 5, 90, 130, 300, 1000, 5000]),
    st.integers(0, 40),
    st.just(0),
    st.frozensets(st.sampled_from(["L1", "B1", "D1"]), max_size=3),
)


@st.composite
def cases(draw):
    slices = []
    for at in range(draw(st.integers(0, 16))):
        tenants = draw(st.dictionaries(st.sampled_from(NAMES), loads, max_size=3))
        rest, done = draw(st.sampled_from([0, 50, 400, 2000])), draw(st.sampled_from([0, 30, 100]))
        late = draw(st.integers(0, done))
        volume = rest + sum(one.volume for one in tenants.values())
        slices.append(LoadWindow(at * WIDTH, volume, draw(st.integers(1, 9)), done, late, tenants))
    routed = draw(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["B1", "D1"]), max_size=2))
    fixed = draw(st.frozensets(st.sampled_from(NAMES), max_size=1)) - routed.keys()
    return SubscriptionWindows("orders", "billing", ("B1", "D1"), routed, fixed, WIDTH, tuple(slices))


@examples(200)
@given(cases())
def test_advice_that_was_taken_is_not_given_again_nor_taken_back(given_case):
    assert recommend_moves(applied(given_case, recommend_moves(given_case))) == []


@examples(60)
@given(cases())
def test_only_who_was_loud_while_others_waited_is_ever_moved_down(given_case):
    moves = recommend_moves(given_case)
    assert len({one.tenant for one in moves}) == len(moves)
    assert not given_case.fixed & {one.tenant for one in moves}
    at = {one.at: one for one in given_case.slices}
    for move in moves:
        if move.action == "upgrade":
            assert all(
                one.tenants[move.tenant].volume < CALM * one.volume
                for one in map(at.__getitem__, move.windows)
                if move.tenant in one.tenants
            )
        else:
            assert len(move.windows) >= ENTER
            assert all(is_noisy(move.tenant, at[one]) and is_degraded(at[one]) for one in move.windows)
            assert move.share >= LOUD
