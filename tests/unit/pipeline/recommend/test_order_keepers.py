"""What can be recommended where order is kept: limits, slots, and the keys that nothing helps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kodo_pipeline.recommend.order_keepers import (
    DeclaredLimit,
    SerialKey,
    idle_while_waiting,
    limit_exceeded,
    recommend_limit,
    recommend_slots,
    serial_keys,
)
from kodo_pipeline.recommend.slot_use import LaneUse, SlotWindow, SubscriptionSlots, TenantUse

from tests.samples.profiles import examples

WIDTH, TOTAL = 300_000, 8


def use(slots, offered=None):
    return TenantUse(round(slots * WIDTH), round((slots if offered is None else offered) * WIDTH), 50, 0)


def window(at, late=50, workers=1, **tenants):
    slot_ms, offered = sum(one.slot_ms for one in tenants.values()), sum(one.offered_ms for one in tenants.values())
    return SlotWindow(at * WIDTH, workers, {("L1", "ready"): LaneUse(slot_ms, offered, 100, late)}, tenants)


def slots(*windows, total=TOTAL):
    return SubscriptionSlots("orders", "billing", total, WIDTH, windows)


def limit(case, declared=None):
    one = recommend_limit(case, "uid", declared, limit_exceeded(case, declared))
    return one and (one.who, one.path, one.before, one.after)


def test_a_tenant_that_took_the_slots_is_limited_to_what_others_leave():
    case = slots(*(window(at, acme=use(7.0), other=use(0.9, 1.0)) for at in range(3)), window(3, 0, other=use(1)))
    assert limit(case) == ("acme", ("limits",), None, 6)
    change = recommend_limit(case, "uid", None, -1)
    assert change is not None
    assert (change.by, change.busy, change.needed, change.late, change.late_else) == ("uid", 7.0, 2, 0.5, 0.0)
    assert limit(case, DeclaredLimit(1, 7)) == ("acme", ("limits", 1, "limit"), 7, 6)
    assert limit(case, DeclaredLimit(1, 6)) is None  # it is not in effect yet
    assert limit(slots(*(window(at, acme=use(6.0), other=use(1.9, 4.0)) for at in range(4))), DeclaredLimit(0, 6)) == (
        "acme", ("limits", 0, "limit"), 6, 2,
    )  # fmt: skip
    assert limit(slots(*case.slices[:2])) is None
    assert limit(slots()) is None


def test_a_limit_that_all_workers_share_is_as_much_as_all_of_them_may_have():
    case = slots(*(window(at, workers=4, acme=use(28.0), other=use(3.6, 4.0)) for at in range(3)))
    assert limit(case) == ("acme", ("limits",), None, 6), "a new one is of each worker"
    assert limit(case, DeclaredLimit(0, 31)) == ("acme", ("limits", 0, "limit"), 31, 6)
    assert limit(case, DeclaredLimit(0, 31, shared=True)) == ("acme", ("limits", 0, "limit"), 31, 24)
    assert limit(case, DeclaredLimit(0, 20, shared=True)) is None, "it is not in effect yet"
    assert limit_exceeded(case, DeclaredLimit(0, 28, shared=True)) == -1


def test_a_tenant_with_a_number_of_its_own_is_not_what_the_limit_of_others_is_about():
    case = slots(*(window(at, acme=use(7.0), other=use(0.9, 1.0)) for at in range(3)))
    assert limit_exceeded(case, DeclaredLimit(0, 4)) == 2 * WIDTH
    assert limit_exceeded(case, DeclaredLimit(0, 4, own=frozenset({"acme"}))) == -1
    assert limit(case, DeclaredLimit(0, 7, own=frozenset({"acme"}))) is None, "it would change nothing for it"


def test_nobody_is_limited_who_had_less_than_half_or_harmed_nobody():
    assert limit(slots(*(window(at, a=use(3.9), b=use(3.9)) for at in range(5)))) is None
    assert limit(slots(*(window(at, 0, acme=use(7), other=use(0.9)) for at in range(5)))) is None
    assert limit(slots(*(window(at, acme=use(5), other=use(0.9)) for at in range(5)))) is None


def test_more_slots_where_what_arrives_needs_them_and_never_more_than_twice_as_many():
    def needs(offered, total=TOTAL):
        one = recommend_slots(
            slots(*(window(at, a=use(4, offered / 2), b=use(4, offered / 2)) for at in range(3)), total=total), -1
        )
        return one and (one.path, one.before, one.after, one.needed)

    assert needs(9.0) == (("concurrency", "total"), 8, 12, 12)
    assert needs(40.0) == (("concurrency", "total"), 8, 16, 47)
    assert needs(4.0) is None  # they would do
    assert needs(9.0, total=16) is None  # what was taken is not recommended again
    assert recommend_slots(slots(window(0, a=use(8, 9))), -1) is None


def test_a_key_that_ran_without_a_pause_is_named():
    case = slots(*(window(at, k1=use(0.98), k2=use(0.95), k3=use(0.5)) for at in range(3)))
    assert serial_keys(case) == [SerialKey("k1", 3, 882.0, 900.0), SerialKey("k2", 3, 855.0, 900.0)]
    assert serial_keys(slots(*(window(at, 0, k1=use(0.98)) for at in range(3)))) == []
    assert idle_while_waiting(case) == (3, pytest.approx(2.43))
    assert idle_while_waiting(slots(*case.slices[:2])) is None
    assert idle_while_waiting(slots(*(window(at, a=use(8)) for at in range(3)))) is None
    assert idle_while_waiting(slots(*(window(at, a=use(0)) for at in range(3)))) is None, "no handler ran"
    assert idle_while_waiting(slots(*(window(at, workers=0, a=use(0)) for at in range(3)))) is None, "no worker ran"


LOADS = st.dictionaries(
    st.sampled_from("abc"), st.builds(use, st.sampled_from([0.0, 0.5, 3.0, 4.5, 7.5]), st.floats(0, 20)), max_size=3
)


@examples(300)
@given(st.lists(st.tuples(LOADS, st.sampled_from([0, 50]), st.integers(0, 2)), max_size=14))
def test_what_was_taken_is_not_recommended_again(windows):
    case = slots(*(window(at, late, workers, **loads) for at, (loads, late, workers) in enumerate(windows)))
    change = recommend_limit(case, "uid", None, -1)
    if change is not None:
        assert 1 <= change.after < TOTAL
        taken = DeclaredLimit(0, change.after)
        again = recommend_limit(case, "uid", taken, limit_exceeded(case, taken))
        assert again is None or not set(again.windows) & set(change.windows)
    more = recommend_slots(case, -1)
    if more is not None:
        taken = slots(*case.slices, total=more.after)
        again = recommend_slots(taken, -1)
        assert again is None or more.after < more.needed  # twice as many were not enough
