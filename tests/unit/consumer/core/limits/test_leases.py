"""Limits that workers share through a store: the law holds wherever they are, and what there is is used."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kodo_consumer.core.limits.lease_allocator import AHEAD, PARTS, LimitAccount
from kodo_consumer.core.values.lease_protocol import HOLD, ConcurrencySpec, LeaseRequest, QuotaSpec, RateSpec
from kodo_consumer.core.values.limit_policy import Concurrency, Pace, Quota, Rate

from tests.samples.profiles import examples
from tests.unit.consumer.core.limits.lease_workers import World, most_over

CAP = ConcurrencySpec(4)


def _rate(amount: int, burst: int, period: int = 1_000) -> Rate:
    return Rate(None, Pace(amount, period, burst), shared=True)


def _most_at_once(starts: list[float], takes: float) -> int:
    events = sorted([(at, 1) for at in starts] + [(at + takes, -1) for at in starts])
    most = now = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return most


@examples(30)
@given(
    workers=st.integers(1, 6),
    amount=st.integers(1, 60),
    burst=st.integers(1, 60),
    delay=st.floats(0.001, 0.6),
    seed=st.integers(0, 1_000),
    gifts=st.lists(st.tuples(st.floats(0, 1.5), st.integers(0, 5), st.integers(1, 40)), max_size=12),
    deaths=st.lists(st.integers(0, 5), max_size=2),
)
def test_a_shared_rate_is_never_exceeded_in_any_window(
    workers: int,
    amount: int,
    burst: int,
    delay: float,
    seed: int,
    gifts: list[tuple[float, int, int]],
    deaths: list[int],
) -> None:
    world = World(_rate(amount, burst), workers, seed, delay)
    for gap, who, messages in gifts:
        world.run(gap)
        world.workers[who % workers].give(messages)
    for who in deaths:
        world.run(0.3)
        world.workers[who % workers].die()
    world.run(3.0)
    assert most_over(world.passed, 1 / amount, burst) <= 1.02 + 1e-6


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("limit", "busy", "seconds"),
    [
        (_rate(100, 100), 8, 30),
        (_rate(100, 200), 1, 30),
        (_rate(30, 1, 60_000), 8, 200),
        (_rate(5, 5), 3, 60),
    ],
)
def test_a_shared_rate_is_used_to_98_percent_by_those_who_want_it(limit: Rate, busy: int, seconds: int) -> None:
    world = World(limit, 8)
    for worker in world.workers[:busy]:
        worker.give(10_000)
    world.run(seconds)
    pace = limit.pace
    assert len(world.passed) >= 0.98 * seconds * 1000 * pace.amount / pace.period
    started = sorted(worker.started for worker in world.workers[:busy])
    lent_at_once = pace.burst + AHEAD * 1000 * pace.amount / pace.period  # to whoever asks first
    assert started[0] >= 0.9 * (started[-1] - lent_at_once), "nobody goes without"


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("limit", "delay", "least"),
    [
        (_rate(10, 1, 60_000), 0.08, 0.98),
        (_rate(10, 1, 60_000), 0.3, 0.8),
        (_rate(1, 1), 0.08, 0.8),
        (_rate(1, 1), 0.3, 0.5),
        (_rate(5, 5), 1.0, 0.1),
    ],
)
def test_a_shared_rate_goes_on_however_long_answers_take(limit: Rate, delay: float, least: float) -> None:
    world = World(limit, 2, delay=delay)
    for worker in world.workers:
        worker.give(1_000)
    world.run(300)
    pace = limit.pace
    assert len(world.passed) >= least * 300_000 * pace.amount / pace.period
    assert most_over(world.passed, pace.period / 1000 / pace.amount, pace.burst) <= 1.02
    assert min(worker.started for worker in world.workers) >= 0.3 * len(world.passed)


def test_tokens_last_longer_where_answers_take_longer_and_cost_pace_for_that() -> None:
    terms, quota = RateSpec(1.0, 1), QuotaSpec(60, 60.0)
    account = LimitAccount()
    (run,) = account.grant("a", LeaseRequest("g", terms, 1, latency=0.3), 100.0).runs
    assert run.until - run.after == pytest.approx(0.45)
    account.grant("a", LeaseRequest("g", terms, 0, back=(run.mark,)), 100.0)
    (run,) = account.grant("a", LeaseRequest("g", terms, 1, latency=0.3), 100.0).runs
    assert run.after == pytest.approx(1.0 + 0.45 - 0.0392), "one that came back has no room for so long a time"
    (run,) = account.grant("b", LeaseRequest("g", terms, 1), 100.0).runs
    assert (run.after, run.until) == pytest.approx((0.0, 0.05))
    (run,) = LimitAccount().grant("a", LeaseRequest("g", RateSpec(6.0, 1), 1), 100.0).runs
    assert run.until == pytest.approx(0.2352), "the tolerance allows it"
    (run,) = LimitAccount().grant("a", LeaseRequest("g", quota, 1, latency=1.5), 0.0).runs
    assert 2.25 <= run.until <= 2.25 + 60.0 / PARTS
    (run,) = LimitAccount().grant("a", LeaseRequest("g", terms, 1, latency=3_600.0), 100.0).runs
    assert run.until == pytest.approx(1.5 * HOLD), "a worker that was asleep"


def test_a_dead_workers_slots_are_lost_and_no_others() -> None:
    world = World(_rate(100, 100), 4)
    for worker in world.workers:
        worker.give(10_000)
    world.run(10)
    world.workers[0].die()
    before = len(world.passed)
    world.run(10)
    assert len(world.passed) - before >= 0.98 * 1_000


@examples(25)
@given(
    workers=st.integers(1, 5),
    amount=st.integers(1, 30),
    period=st.integers(5, 60),
    seed=st.integers(0, 1_000),
    gifts=st.lists(st.tuples(st.floats(0, 20), st.integers(0, 4), st.integers(1, 30)), max_size=12),
)
def test_a_shared_quota_is_never_exceeded_in_any_window(
    workers: int, amount: int, period: int, seed: int, gifts: list[tuple[float, int, int]]
) -> None:
    world = World(Quota(None, amount, period * 1_000, shared=True), workers, seed)
    for gap, who, messages in gifts:
        world.run(gap)
        world.workers[who % workers].give(messages)
    world.run(2.0 * period)
    passed = world.passed
    for first in range(len(passed) - amount):
        assert passed[first + amount] - passed[first] >= period - 1e-6


@pytest.mark.simulated
@pytest.mark.parametrize(("amount", "minutes"), [(300, 1), (10, 1), (100, 5)])
def test_a_shared_quota_is_used_to_98_percent(amount: int, minutes: int) -> None:
    world = World(Quota(None, amount, minutes * 60_000, shared=True), 8)
    for worker in world.workers:
        worker.give(10 * amount)
    world.run(5 * minutes * 60)
    assert len(world.passed) >= 0.98 * 5 * amount


@examples(25)
@given(
    workers=st.integers(1, 5),
    limit=st.integers(1, 8),
    takes=st.floats(0.005, 2),
    seed=st.integers(0, 1_000),
    gifts=st.lists(st.tuples(st.floats(0, 3), st.integers(0, 4), st.integers(1, 30)), max_size=10),
)
def test_never_more_run_at_once_than_a_shared_cap_allows(
    workers: int, limit: int, takes: float, seed: int, gifts: list[tuple[float, int, int]]
) -> None:
    world = World(Concurrency(None, limit, shared=True), workers, seed)
    for gap, who, messages in gifts:
        world.run(gap)
        world.workers[who % workers].give(messages, takes)
    world.run(10.0)
    assert _most_at_once(world.passed, takes) <= limit


@pytest.mark.simulated
@pytest.mark.parametrize(("limit", "workers", "takes"), [(4, 8, 0.05), (1, 8, 0.05), (3, 2, 0.5), (16, 1, 0.05)])
def test_a_shared_cap_is_used_and_goes_round(limit: int, workers: int, takes: float) -> None:
    world = World(Concurrency(None, limit, shared=True), workers)
    for worker in world.workers:
        worker.give(20_000, takes)
    world.run(20)
    assert len(world.passed) * takes >= 0.98 * limit * 20
    assert _most_at_once(world.passed, takes) <= limit
    started = [worker.started for worker in world.workers]
    assert min(started) >= 0.3 * max(started)


def test_a_dead_workers_permits_are_free_after_a_while() -> None:
    world = World(Concurrency(None, 2, shared=True), 2)
    world.workers[0].give(100, takes=60.0)
    world.run(1)
    world.workers[0].die()
    world.workers[1].give(100, takes=60.0)
    world.run(HOLD - 0.5)
    assert world.workers[1].started == 0
    world.run(2)
    assert world.workers[1].started == 2


def test_what_is_not_used_comes_back() -> None:
    world = World(_rate(10, 100), 2)
    world.workers[0].give(5)
    world.run(2)
    assert not world.workers[0].leases.active
    world.workers[1].give(100)
    world.run(0.5)
    assert world.workers[1].started >= 90
    account = LimitAccount()
    (run,) = account.grant("a", _ask(RateSpec(0.01, 10), 30), 100.0).runs
    account.grant("a", LeaseRequest("g", RateSpec(0.01, 10), 0, back=(run.mark + 0.2, run.mark + 0.21)), 100.0)
    runs = account.grant("b", _ask(RateSpec(0.01, 10), 3), 100.0).runs
    assert [run.mark for run in runs[:2]] == pytest.approx([runs[0].mark, runs[0].mark + 0.01])
    assert [run.count for run in runs] == [1, 1, 1]


# ---- accounts


def _ask(terms: RateSpec | QuotaSpec | ConcurrencySpec, wanted: int, in_use: int = 0, spent: int = 0) -> LeaseRequest:
    return LeaseRequest("g", terms, wanted, in_use, spent)


def test_a_burst_too_small_for_answers_that_take_a_while_costs_pace_not_the_law() -> None:
    world = World(_rate(100, 1), 4)
    for worker in world.workers:
        worker.give(1_000)
    world.run(10)
    assert 100 < len(world.passed) < 1_000
    assert most_over(world.passed, 0.01, 1) <= 1.02


def test_what_was_started_without_a_token_is_charged_but_not_for_ever() -> None:
    terms = RateSpec(0.1, 10)
    account = LimitAccount()
    account.grant("a", _ask(terms, 9), 100.0)
    (run,) = account.grant("a", _ask(terms, 1, spent=30), 102.0).runs
    assert run.after == pytest.approx(100.05 + 3.0 - 102.0)
    (run,) = account.grant("b", _ask(terms, 1, spent=10_000), 102.0).runs
    assert run.after == pytest.approx(5.0)
    (run,) = LimitAccount().grant("b", _ask(terms, 1, spent=30), 102.0).runs
    assert run.after == pytest.approx(-0.85), "it did not know of them, and they are over"
    quota = LimitAccount()
    assert quota.grant("a", _ask(QuotaSpec(10, 60.0), 5, spent=10), 0.0).runs == ()


def test_a_clock_that_was_set_back_takes_the_account_along() -> None:
    rate, quota, cap = LimitAccount(), LimitAccount(), LimitAccount()
    rate.grant("a", _ask(RateSpec(1.0, 1), 3), 10_000.0)
    rate.back = [9_999.9]
    (run,) = rate.grant("b", _ask(RateSpec(1.0, 1), 1), 5_000.0).runs
    assert run.after <= 3.0
    rate.grant("a", LeaseRequest("g", RateSpec(1.0, 1), 0, back=(10_000.1,)), 5_000.0)
    assert rate.back == [], "it was granted by the old time"
    terms = QuotaSpec(4, 60.0)
    quota.grant("a", _ask(terms, 8, in_use=1), 10_000.0)
    assert not quota.grant("a", _ask(terms, 8, in_use=1), 5_000.0).leaving
    while quota.grant("a", _ask(terms, 8, in_use=1), 5_000.0).runs:
        pass
    full = quota.grant("a", _ask(terms, 8, in_use=1), 5_000.0)
    assert 60.0 <= full.leaving[0][0] <= 61.0
    assert sum(count for _, count in full.leaving) == 4
    cap.grant("a", _ask(CAP, 4), 10_000.0)
    assert cap.grant("b", _ask(CAP, 4), 5_000.0).permits == 0, "the first still has them all"


def test_permits_that_cannot_be_divided_evenly_go_to_one_of_those_that_want_more() -> None:
    account = LimitAccount()
    for run in "abc":
        account.grant(run, _ask(CAP, 3), 100.0)
    fair = [account.grant(run, _ask(CAP, 3), 100.1).fair for run in "abc"]
    assert sorted(fair) == [1, 1, 2]


def test_a_clock_that_wavers_stands_still() -> None:
    account = LimitAccount()
    account.grant("a", _ask(RateSpec(1.0, 1), 1), 100.0)
    assert account.grant("b", _ask(RateSpec(1.0, 1), 1), 99.5).runs[0].after == pytest.approx(1.0, abs=0.05)


def test_a_quota_with_another_window_keeps_what_it_counted() -> None:
    account = LimitAccount()
    account.grant("a", _ask(QuotaSpec(10, 60.0), 5), 1_000.0)
    grant = account.grant("a", _ask(QuotaSpec(5, 600.0), 5), 1_001.0)
    assert grant.runs == ()
    assert 600.0 <= grant.leaving[0][0] <= 605.0


def test_marks_nobody_lent_give_nothing_back() -> None:
    account = LimitAccount()
    account.grant("a", LeaseRequest("g", QuotaSpec(2, 60.0), 0, back=(7.0,)), 1_000.0)
    assert account.parts == {}


def test_accounts_go_through_text_unchanged() -> None:
    account, rng = LimitAccount(), Random(1)
    for number in range(20):
        account.grant(f"w{number % 3}", _ask(QuotaSpec(50, 60.0), rng.randint(1, 3)), 1_000.0 + number)
        account.grant(f"w{number % 3}", _ask(CAP, rng.randint(0, 3)), 1_000.0 + number)
    assert LimitAccount.from_json(account.to_json()) == account
    assert LimitAccount.from_json("") == LimitAccount()


def test_an_account_is_kept_until_it_is_as_good_as_new() -> None:
    account = LimitAccount(at=1_000.0)
    assert account.kept_until(RateSpec(1.0, 100)) > 1_100
    assert account.kept_until(QuotaSpec(1, 3_600.0)) > 4_600 + 3_600 / PARTS
    assert account.kept_until(CAP) > 1_000 + HOLD
    for run in "abcd":
        account.grant(run, _ask(RateSpec(3_600.0, 1), 1), 1_000.0)
    assert account.kept_until(RateSpec(3_600.0, 1)) > 1_000 + 4 * 3_600, "the last of them starts in three hours"


def test_a_quotas_tokens_that_come_back_are_lent_again() -> None:
    account, terms = LimitAccount(), QuotaSpec(2, 3_600.0)
    (run,) = account.grant("a", _ask(terms, 1), 1_000.0).runs
    account.grant("b", _ask(terms, 1), 1_000.0)
    assert account.grant("c", _ask(terms, 1), 1_000.0).runs == ()
    account.grant("a", LeaseRequest("g", terms, 0, back=(run.mark,)), 1_001.0)
    assert account.grant("c", _ask(terms, 1), 1_001.0).runs[0].count == 1
