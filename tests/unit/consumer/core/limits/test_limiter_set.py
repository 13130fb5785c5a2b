"""All limits of a subscription together."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kodo_consumer.core.limits import limiter_set, limiter_values
from kodo_consumer.core.limits.lease_client import LeasedLimiter
from kodo_consumer.core.limits.limiter_set import LimiterSet, LimitKind, RerouteOptions, _resize
from kodo_consumer.core.limits.limiters import ConcurrencyLimiter, QuotaLimiter, RateLimiter
from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.core.values.lane_set import LaneSet
from kodo_consumer.core.values.limit_policy import NOBODY, Concurrency, Pace, Quota, Rate

from tests.native.compiled import INTERPRETED_ONLY

RATE = Rate("uid", Pace(10, 1_000, 10), shared=True, overrides={"vip": Pace(100, 1_000, 100)})
CAP = Concurrency("uid", 4, shared=True, overrides={"vip": 8})
QUOTA = Quota("bucket", 6, 60_000, shared=True, overrides={"big": (600, 60_000)})
ALL = (RATE, CAP, QUOTA)


def _limiters(limits: LimiterSet, **properties: str) -> tuple[RateLimiter, ConcurrencyLimiter, QuotaLimiter]:
    rate, cap, quota = limits.limiters_of(properties, "k")
    assert isinstance(rate, RateLimiter)
    assert isinstance(cap, ConcurrencyLimiter)
    assert isinstance(quota, QuotaLimiter)
    return rate, cap, quota


def _kept(limits: LimiterSet) -> int:
    """Limiters there are of the first limit."""
    return len(list(limits._limiters[0]))


def test_each_value_has_limiters_of_its_own_and_overrides_theirs() -> None:
    limits = LimiterSet(ALL, 1)
    rate, cap, quota = _limiters(limits, uid="a", bucket="b")
    assert (rate.interval, rate.burst, cap.limit, quota.amount, quota.period) == (0.1, 10, 4, 6, 60.0)
    vip, vip_cap, big = _limiters(limits, uid="vip", bucket="big")
    assert (vip.interval, vip.burst, vip_cap.limit, big.amount) == (0.01, 100, 8, 600)
    assert _limiters(limits, uid="a", bucket="b") == (rate, cap, quota)
    assert _limiters(limits)[0] is _limiters(limits, uid="")[0]


def test_a_limit_without_a_property_is_one_for_all_and_key_means_the_message_key() -> None:
    one = LimiterSet((Concurrency(None, 1, shared=False),), 1)
    assert one.limiters_of({"uid": "a"}, "k") == one.limiters_of({"uid": "b"}, "l")
    keyed = LimiterSet((Concurrency("key", 1, shared=False),), 1)
    assert keyed.limiters_of({}, "k") != keyed.limiters_of({}, "l")
    assert keyed.limiters_of({}, "") == keyed.limiters_of({"x": "1"}, NOBODY)


def test_shared_limits_are_divided_by_live_workers_and_never_below_one() -> None:
    limits = LimiterSet(ALL, 2)
    rate, cap, quota = _limiters(limits, uid="a", bucket="b")
    assert (rate.interval, rate.burst, cap.limit, quota.amount) == (0.2, 5, 2, 3)
    limits.share_out(2)
    limits.share_out(20)
    assert (rate.interval, rate.burst, cap.limit, quota.amount) == (2.0, 1, 1, 1)
    own = LimiterSet((Rate("uid", Pace(10, 1_000, 10), shared=False),), 5)
    limiter = own.limiters_of({}, "")[0]
    own.share_out(10)
    assert isinstance(limiter, RateLimiter)
    assert limiter.interval == 0.1


def test_limits_too_small_to_be_shared_are_named() -> None:
    assert LimiterSet(ALL, 4).too_small == []
    assert LimiterSet(ALL, 5).too_small == [CAP]
    assert LimiterSet(ALL, 11).too_small == [RATE, CAP, QUOTA]


def test_all_tokens_are_taken_together_or_none() -> None:
    limits = LimiterSet(ALL, 1)
    limiters = _limiters(limits, uid="a", bucket="b")
    for _ in range(4):
        assert limits.start(limiters, 0.0, quota_taken=False) is None
    assert limits.start(limiters, 0.0, quota_taken=False) is limiters[1]
    assert limiters[0].free_at(0.0) == 0.0
    for limiter in limiters:
        limiter.finish()
    assert limits.start(limiters, 0.0, quota_taken=True) is None
    assert limits.start(limiters, 0.0, quota_taken=False) is limiters[1]


def test_a_quota_counts_a_message_once() -> None:
    limits = LimiterSet((QUOTA,), 1)
    limiters = limits.limiters_of({"bucket": "b"}, "")
    for _ in range(6):
        assert limits.start(limiters, 0.0, quota_taken=False) is None
    assert limits.start(limiters, 0.0, quota_taken=False) is limiters[0]
    assert limits.start(limiters, 0.0, quota_taken=True) is None


def test_what_waits_at_most_5_s_gets_a_near_slot_and_the_rest_a_far_one() -> None:
    limits = LimiterSet((RATE,), 1)
    limiters = limits.limiters_of({"uid": "a"}, "")
    leave = RerouteOptions(rate_after=60.0)
    slots = [limits.reserve(limiters, 0.0, leave, quota_taken=False) for _ in range(100)]
    assert [slot.at for slot in slots[:10]] == [0.0] * 10
    assert {slot.over for slot in slots[:10]} == {LimitKind.NOTHING}
    assert slots[10].at == pytest.approx(0.1)
    assert slots[59].at == pytest.approx(5.0)
    assert [slot.at for slot in slots[60:63]] == pytest.approx([60.0, 60.1, 60.2])
    assert {slot.over for slot in slots[10:]} == {LimitKind.RATE}
    stay = limits.reserve(limiters, 0.0, RerouteOptions(), quota_taken=False)
    assert stay.at == pytest.approx(5.1)


def test_a_full_quota_names_itself_and_its_room() -> None:
    limits = LimiterSet((RATE, QUOTA), 1)
    limiters = limits.limiters_of({"uid": "a", "bucket": "b"}, "")
    for _ in range(6):
        limits.reserve(limiters, 0.0, RerouteOptions(), quota_taken=False)
        limits.start(limiters, 0.0, quota_taken=False)
    full = limits.reserve(limiters, 0.0, RerouteOptions(rate_after=1.0, quota=True), quota_taken=False)
    assert (full.over, full.at) == (LimitKind.QUOTA, 61.0)
    stays = limits.reserve(limiters, 0.0, RerouteOptions(rate_after=1.0), quota_taken=False)
    assert stays.over is LimitKind.QUOTA
    taken = limits.reserve(limiters, 0.0, RerouteOptions(), quota_taken=True)
    assert taken.over in (LimitKind.NOTHING, LimitKind.RATE)


def test_nothing_to_leave_for_is_falsy() -> None:
    assert not RerouteOptions()
    assert RerouteOptions(quota=True)
    assert not LimiterSet((), 1)


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from("ab")), max_size=80))
def test_slots_of_several_rates_suit_all_of_them(requests: list[tuple[float, str]]) -> None:
    limits = LimiterSet((RATE, Rate(None, Pace(15, 1_000, 1), shared=False)), 1)
    now, slots = 0.0, []
    for gap, uid in requests:
        now += gap
        slot = limits.reserve(
            limits.limiters_of({"uid": uid}, ""), now, RerouteOptions(rate_after=60.0), quota_taken=False
        )
        slots.append(slot.at)
        assert slot.at >= now
    slots.sort()
    assert all(later - earlier >= 1 / 15 - 1e-6 for earlier, later in pairwise(slots))


def test_limiters_are_forgotten_when_there_are_many_and_they_are_as_good_as_new() -> None:
    limits = LimiterSet((RATE,), 1)
    for number in range(10_001):
        limits.limiters_of({"uid": str(number)}, "")[0].start(float(number))
    limits.prune(5_000.0)
    assert 5_000 < _kept(limits) < 5_100
    limits.prune(50_000.0)
    assert _kept(limits) > 5_000


class Silent(RateLimiter):
    """A limiter that counts how often it is looked at."""

    looks = 0

    def idle(self, now: float) -> bool:
        Silent.looks += 1
        return super().idle(now)


def test_of_many_limiters_only_some_are_looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter_set, "RateLimiter", Silent)
    limits = LimiterSet((RATE,), 1)
    for number in range(40_000):
        limits.limiters_of({"uid": str(number)}, "")[0].start(float(number))
    limits.prune(0.0)
    Silent.looks = 0
    limits.prune(0.0)
    assert (Silent.looks, _kept(limits)) == (5_000, 40_000)
    for _ in range(8):
        limits.prune(50_000.0)
    assert _kept(limits) <= 10_000, "all of them have had their turn"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three values of a limit have limiters of their own."""
    monkeypatch.setattr(limiter_values, "MOST", 3)


@INTERPRETED_ONLY
@pytest.mark.usefixtures("few")
def test_values_for_which_there_is_no_room_share_what_is_allowed_to_one() -> None:
    limits = LimiterSet((QUOTA,), 1)
    own = [limits.limiters_of({"bucket": name}, "")[0] for name in "abc"]
    passed = 0
    for number in range(100):
        limiters = limits.limiters_of({"bucket": f"another{number}"}, "")
        passed += limits.start(limiters, 0.0, quota_taken=False) is None
    assert passed == QUOTA.amount
    assert [limits.limiters_of({"bucket": name}, "")[0] for name in "abc"] == own
    for properties in ({"bucket": "big"}, {}):  # named by the file; without the property
        assert limits.start(limits.limiters_of(properties, ""), 0.0, quota_taken=False) is None
    assert (_kept(limits), limits.crowded_limits) == (6, [QUOTA])
    (told,) = limits.prune(0.0)
    assert told == (
        "quota by bucket: more than 100,000 values in a window; all further ones share what is allowed to one"
    )


@INTERPRETED_ONLY
@pytest.mark.usefixtures("few")
def test_a_value_that_shared_gets_no_second_limiter_before_the_first_is_as_good_as_new() -> None:
    limits = LimiterSet((QUOTA,), 1)
    for name in "abc":
        limits.start(limits.limiters_of({"bucket": name}, ""), 30.0, quota_taken=False)
    shared = limits.limiters_of({"bucket": "d"}, "")
    limits.start(shared, 50.0, quota_taken=False)
    limits.apply_limits((replace(QUOTA, amount=2),), 50.0)
    limits.share_out(2)
    assert [limiter.amount for limiter in shared if isinstance(limiter, QuotaLimiter)] == [1]
    monkey = limits._limiters[0].own
    monkey.clear()
    assert limits.prune(50.0)
    assert limits.limiters_of({"bucket": "d"}, "") == shared
    assert not shared[0].forgotten
    assert limits.prune(120.0) == []
    assert shared[0].forgotten
    assert limits.limiters_of({"bucket": "d"}, "") != shared


@INTERPRETED_ONLY
@pytest.mark.usefixtures("few")
def test_what_many_values_share_has_one_account_at_the_store() -> None:
    limits = LimiterSet((QUOTA, QUOTA, CAP), 1)
    limits.use_leases(lambda: None)
    for name in "abcd":
        limiters = limits.limiters_of({"bucket": name, "uid": name}, "")
    assert [limiter.name for limiter in limiters if isinstance(limiter, LeasedLimiter)] == [
        "quota/others:bucket", "quota1/others:bucket", "concurrency/others:uid"
    ]  # fmt: skip


def test_a_long_value_is_kept_as_its_digest() -> None:
    limits = LimiterSet((QUOTA,), 1)
    limiters = limits.limiters_of({"bucket": "x" * 5_000}, "")
    assert limits.limiters_of({"bucket": "x" * 5_000}, "") == limiters
    assert limits.limiters_of({"bucket": "x" * 5_001}, "") != limiters
    assert max(map(len, limits._limiters[0].own)) < 100


def test_a_long_value_that_the_file_names_has_its_own_size() -> None:
    limits = LimiterSet((Concurrency("uid", 1, shared=False, overrides={"x" * 300: 7}),), 1)
    sizes = [limits.limiters_of({"uid": value}, "")[0] for value in ("x" * 300, "x" * 301)]
    assert [one.limit for one in sizes if isinstance(one, ConcurrencyLimiter)] == [7, 1]


def test_limiters_of_different_kinds_are_never_mixed_up() -> None:
    with pytest.raises(AssertionError):
        _resize(ConcurrencyLimiter(1), RateLimiter(1.0, 1))


def test_a_moment_beyond_the_horizon_is_promised_to_nobody() -> None:
    """Whoever comes back earlier asks anew; a promise of every visit would keep all others away for ever."""
    limits = LimiterSet((Quota(None, 2, 60_000, shared=False), Rate(None, Pace(1, 1_000, 1), shared=False)), 1)
    limiters = limits.limiters_of({}, "")
    leave = RerouteOptions(quota=True, rate_after=10.0, horizon=60.0)
    quota, rate = limiters
    for _ in range(2):
        assert limits.start((quota,), 0.0, quota_taken=False) is None
    within = [limits.reserve((quota,), 1.0, replace(leave, horizon=61.0), quota_taken=False).at for _ in range(2)]
    assert within == [61.0, 61.0]
    visits = {limits.reserve((quota,), 1.0, leave, quota_taken=False).at for _ in range(50)}
    assert visits == {121.0}
    assert limits.reserve((rate,), 0.0, leave, quota_taken=False).over is LimitKind.NOTHING
    far = RerouteOptions(rate_after=4_000.0, horizon=10_000.0)
    assert [limits.reserve((rate,), now, far, quota_taken=False).at for now in (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)] == [
        1.0, 2.0, 3.0, 4.0, 5.0, 4_000.0,
    ]  # fmt: skip
    assert limits.reserve((rate,), 0.0, far, quota_taken=False).at == 4_000.0


def test_a_limit_of_some_lanes_is_met_by_their_messages_alone() -> None:
    retrying = replace(CAP, within=LaneSet((State.RETRYING,)))
    limits = LimiterSet((RATE, retrying), 1)
    (rate,) = limits.limiters_of({"uid": "a"}, "", Level.L1, State.READY)
    both = limits.limiters_of({"uid": "a"}, "", Level.L2, State.RETRYING)
    assert both[0] is rate
    assert [limiter.kind for limiter in both] == ["rate", "concurrency"]
    assert limits.limiters_of({"uid": "a"}, "", Level.L1, State.RETRYING) == both, "one limit for all lanes of it"
    limits.apply_limits((replace(retrying, within=LaneSet(levels=(Level.L2,))),), 0.0)
    assert limits.limiters_of({"uid": "a"}, "", Level.L1, State.RETRYING) == ()
    (moved,) = limits.limiters_of({"uid": "a"}, "", Level.L2, State.READY)
    assert moved is not both[1], "another limit: nothing of the old one counts for it"


def test_limits_of_other_lanes_have_accounts_of_their_own_at_the_store() -> None:
    within = LaneSet((State.RETRYING,), (Level.L2,))
    limits = LimiterSet((QUOTA, replace(QUOTA, within=within), replace(QUOTA, within=within)), 1)
    limits.use_leases(lambda: None)
    limiters = limits.limiters_of({"bucket": "b"}, "", Level.L2, State.RETRYING)
    assert [limiter.name for limiter in limiters if isinstance(limiter, LeasedLimiter)] == [
        "quota:bucket:b", "quota@L2/retrying:bucket:b", "quota@L2/retrying1:bucket:b"
    ]  # fmt: skip
