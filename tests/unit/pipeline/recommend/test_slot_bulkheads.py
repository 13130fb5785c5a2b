"""Bulkheads that slot use speaks for, and that one that was taken is not recommended again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kodo_pipeline.recommend.noisy_neighbours import ENTER, RECENT
from kodo_pipeline.recommend.slot_bulkheads import (
    DeclaredBulkhead,
    LaneGroup,
    bulkheads_exceeded,
    recommend_bulkhead,
)
from kodo_pipeline.recommend.slot_use import LaneUse, SlotWindow, SubscriptionSlots, is_harmed, slots_for

from tests.samples.profiles import examples

WIDTH, TOTAL = 300_000, 16
READY, RETRYING, LOW = ("L1", "ready"), ("L1", "retrying"), ("B1", "ready")
TOP = ("L2", "ready")
GROUPS = [
    LaneGroup("states", "ready"),
    LaneGroup("states", "retrying"),
    *(LaneGroup("levels", one) for one in ("L2", "L1", "B1")),
]


def use(slots=0.0, offered=None, started=100, late=0):
    return LaneUse(round(slots * WIDTH), round((slots if offered is None else offered) * WIDTH), started, late)


def window(at, lanes, workers=1):
    return SlotWindow(at * WIDTH, workers, lanes, {})


def slots(*windows, total=TOTAL):
    return SubscriptionSlots("orders", "billing", total, WIDTH, windows)


def found(case, declared=(), groups=GROUPS):
    one = recommend_bulkhead(case, groups, declared, bulkheads_exceeded(case, declared))
    return one and (".".join(map(str, one.path)), one.before, one.after)


def hangs(at, taken=15.0, late=50, workers=1):
    return window(at, {READY: use(0.8, 1.0, 100, late), RETRYING: use(taken, started=0)}, workers)


def test_a_state_that_took_the_slots_gets_as_many_as_others_leave():
    case = slots(*(hangs(at) for at in range(3)), *(hangs(at, 0.1, 0) for at in range(3, 6)))
    change = recommend_bulkhead(case, GROUPS, (), -1)
    assert change is not None
    assert (change.path, change.before, change.after) == (("concurrency", "states", "retrying", "max"), None, 14)
    assert (change.who, change.busy, change.total, change.needed) == ("retrying", 15.0, TOTAL, slots_for(1.0))
    assert (change.windows, change.late, change.late_else) == ((0, WIDTH, 2 * WIDTH), 0.5, 0.0)
    assert found(slots(*(hangs(at) for at in range(2)))) is None
    assert found(slots()) is None
    assert found(slots(*(hangs(at, 30.0, workers=2) for at in range(3)))) == (
        "concurrency.states.retrying.max",
        None,
        14,
    )


@pytest.mark.parametrize(
    "lanes",
    [
        {READY: use(0.8, 1.0), RETRYING: use(15, started=0)},  # nobody waited
        {READY: use(0.8, 1.0, 100, 50), RETRYING: use(9, started=0)},  # slots were free
        {READY: use(0.8, 1.0, 10, 10), RETRYING: use(15, started=0)},  # too few to judge by
        {READY: use(9.0, 12.0, 100, 50), RETRYING: use(6, started=0)},  # they took the slots themselves
        {RETRYING: use(15.9, started=100, late=90)},  # there is nobody else
    ],
)
def test_no_bulkhead_where_nobody_waited_or_nobody_else_took_the_slots(lanes):
    assert found(slots(*(window(at, lanes) for at in range(5)))) is None


def test_one_slot_cannot_be_shared_out():
    assert found(slots(*(hangs(at, 0.9) for at in range(5)), total=1)) is None


def test_a_level_that_took_the_slots():
    lanes = {READY: use(0.5, 1.0, 100, 50), LOW: use(15.2, started=50)}
    assert found(slots(*(window(at, lanes) for at in range(4)))) == ("concurrency.levels.B1.max", None, 14)
    kept = [DeclaredBulkhead(LaneGroup("levels", "B1"), min=15)]
    assert found(slots(*(window(at, lanes) for at in range(4))), kept) == ("concurrency.levels.B1.max", None, 15)


def test_a_level_that_needs_little_keeps_it_where_no_one_took_half():
    lanes = {
        TOP: use(0.2, 0.5, 100, 60), READY: use(6, 6, 100), RETRYING: use(2, started=0), ("B1", "ready"): use(7.5, started=100),
    }  # fmt: skip
    case = slots(*(window(at, lanes) for at in range(4)))
    assert found(case) == ("concurrency.levels.L2.min", None, 2)
    change = recommend_bulkhead(case, GROUPS, (), -1)
    assert change is not None
    assert (change.who, change.busy, change.late) == ("all but L2", 15.5, 0.6)
    assert found(case, [DeclaredBulkhead(LaneGroup("levels", "L2"), min=2)]) is None
    assert found(case, [DeclaredBulkhead(LaneGroup("levels", "L2"), max=1)]) is None  # it may not have so many
    assert found(case, [DeclaredBulkhead(LaneGroup("levels", "B1"), min=15)]) is None  # all are kept by then


def test_a_bulkhead_is_tightened_once_it_is_in_effect_and_others_still_wait():
    declared = [DeclaredBulkhead(LaneGroup("states", "retrying"), max=14)]
    before = [hangs(at) for at in range(3)]
    inside = [window(at, {READY: use(1.9, 4.0, 100, 50), RETRYING: use(13.9, started=0)}) for at in range(3, 6)]
    assert found(slots(*before), declared) is None
    assert found(slots(*before, *inside[:2]), declared) is None
    assert found(slots(*before, *inside), declared) == ("concurrency.states.retrying.max", 14, 10)


LANES = st.dictionaries(
    st.sampled_from([READY, RETRYING, LOW, TOP]),
    st.builds(
        lambda slots, offered, started, late: use(slots, offered, started, round(started * late)),
        st.floats(0, 16), st.floats(0, 16), st.integers(0, 200), st.floats(0, 1),
    ),
)  # fmt: skip
CASES = st.builds(
    lambda windows: slots(*(window(at, lanes, workers) for at, (lanes, workers) in enumerate(windows))),
    st.lists(st.tuples(LANES, st.integers(0, 2)), max_size=16),
)


@examples(300)
@given(CASES, st.lists(LANES, max_size=2))
def test_a_bulkhead_that_was_taken_is_neither_repeated_nor_followed_by_another_one_at_once(case, more):
    change = recommend_bulkhead(case, GROUPS, (), -1)
    if change is None:
        return
    kind, name, bound = map(str, change.path[1:])
    bounds: dict[str, Any] = {bound: change.after}
    taken = [replace(DeclaredBulkhead(LaneGroup(kind, name)), **bounds)]
    assert found(case, taken) is None or len(case.slices) > change.windows[-1] // WIDTH + ENTER
    assert 1 <= change.after < TOTAL
    assert len(change.windows) >= ENTER
    newest = max(one.at for one in case.slices)
    assert all(newest - at < RECENT * WIDTH for at in change.windows)
    at = len(case.slices)
    grown = replace(case, slices=(*case.slices, *(window(at + n, lanes) for n, lanes in enumerate(more))))
    again = recommend_bulkhead(grown, GROUPS, taken, bulkheads_exceeded(grown, taken))
    if again is not None:  # never looser, and never by what the first one was recommended by
        assert not set(again.windows) & set(change.windows)
        assert again.path != change.path or (
            again.after < change.after if bound == "max" else again.after > change.after
        )


def test_what_counts_as_waiting():
    assert is_harmed(window(0, {READY: use(1, 1, 20, 2)}), lambda _: True)
    assert not is_harmed(window(0, {READY: use(1, 1, 20, 1)}), lambda _: True)
    assert [slots_for(load) for load in (0, 0.2, 1, 4, 9.5)] == [1, 1, 2, 6, 13]
    assert slots().late([], lambda _: True) is None
    assert window(0, {READY: use(4)}, workers=0).busy(WIDTH) == 4
