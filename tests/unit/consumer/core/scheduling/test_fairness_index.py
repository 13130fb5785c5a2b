"""Fairness as numbers, the histogram, the meter and the windows it is judged by."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kodo_consumer.adapters.metrics.tenant_fairness import MAX_LABEL, Labels, TenantWatch, label
from kodo_consumer.core.scheduling.fairness_index import EVEN, TenantWindow, evenness, fair_shares, noisy, says_nothing
from kodo_consumer.core.state.worker_metrics import Meter
from kodo_consumer.core.values.duration_histogram import Histogram
from kodo_consumer.core.values.envelope import State
from kodo_consumer.core.values.outcomes import DONE
from kodo_consumer.testing import ManualClock
from kodo_consumer.testing.manual_clock import START_WALL

from tests.unit.consumer.engine_bench import FAILED, L1, L2, Bench, delivery, lane_of, policy


def test_a_histogram_counts_at_or_below_each_bound() -> None:
    histogram = Histogram((0.1, 1))
    histogram.add(0.1)
    histogram.add(0.5, 3)
    histogram.add(7)
    assert histogram.cumulative() == [("0.1", 1), ("1.0", 4), ("+Inf", 5)]
    assert histogram.total == pytest.approx(8.6)


# ---- fair shares


def test_who_asks_for_less_than_an_even_part_gets_it_and_leaves_the_rest_to_the_others() -> None:
    tallies = {
        "small": TenantWindow(10, 0, False),
        "a": TenantWindow(50, 900, True),
        "b": TenantWindow(40, 900, True, weight=2),
    }
    assert fair_shares(tallies) == {"small": 10, "a": pytest.approx(30), "b": pytest.approx(60)}


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500), st.integers(1, 5)), min_size=1, max_size=20))
def test_fair_shares_part_exactly_what_was_served_and_give_nobody_more_than_asked(rows: list[tuple[int, ...]]) -> None:
    tallies = {str(i): TenantWindow(served, waiting, True, weight) for i, (served, waiting, weight) in enumerate(rows)}
    shares = fair_shares(tallies)
    assert sum(shares.values()) == pytest.approx(sum(tally.served for tally in tallies.values()))
    for name, tally in tallies.items():
        assert shares[name] <= tally.served + tally.waiting + 1e-9


def test_a_starved_tenant_shows_in_both_figures() -> None:
    even = evenness({"a": TenantWindow(100, 5, True), "b": TenantWindow(100, 5, True)})
    assert even == EVEN
    starved = evenness({"a": TenantWindow(150, 500, True), "b": TenantWindow(50, 500, True)})
    assert starved is not None
    assert starved.worst == 0.5
    assert starved.jain == pytest.approx(0.8)


def test_nobody_waiting_is_even_and_too_few_messages_say_nothing() -> None:
    assert evenness({}) == EVEN
    assert evenness({"a": TenantWindow(3, 0, False)}) == EVEN
    assert evenness({"a": TenantWindow(3, 9, True), "b": TenantWindow(1, 9, True)}) is None
    assert evenness({"a": TenantWindow(0, 9, True), "b": TenantWindow(0, 9, True)}) is None


def test_a_newcomer_is_not_judged() -> None:
    even = evenness(
        {"a": TenantWindow(100, 50, True), "b": TenantWindow(100, 50, True), "new": TenantWindow(2, 500, False)}
    )
    assert even is not None
    assert even.worst > 1


def test_noisy_is_a_tenth_of_what_is_held_or_of_the_time_and_twice_an_even_part() -> None:
    quiet = {f"q{number}": 2 for number in range(50)}
    assert noisy({**quiet, "flood": 5_000}, {}) == {"flood"}
    assert noisy({**quiet, "small": 29}, {}) == set()  # below 30 messages
    assert noisy(quiet, {"slow": 9.0, **dict.fromkeys(quiet, 0.1)}) == {"slow"}
    assert noisy({"a": 100, "b": 100, "c": 100}, {}) == set()  # of three, each has a third
    assert noisy({}, {}) == set()


# ---- the meter


def _busy(bench: Bench, meter: Meter, messages: int, seconds: float) -> None:
    for number in range(messages):
        bench.give(delivery(bench.engine.counts.received + number, uid=f"u{number % 7}"), level=L1)
        (message,) = bench.take_all()
        bench.clock.advance(seconds / messages)
        bench.engine.finish(message, DONE)
    assert meter is bench.engine.runs.meter


def _metered(**options: object) -> tuple[Bench, Meter]:
    bench = Bench(policy(in_place=(), fair_by="uid", **options))  # type: ignore[arg-type]
    meter = bench.engine.runs.meter = Meter(bench.policy, bench.clock, Random(3))
    return bench, meter


def test_a_trickle_is_measured_message_by_message() -> None:
    bench, meter = _metered()
    _busy(bench, meter, 200, 20.0)
    timings = meter.timings[bench.policy.lanes[4].state]
    assert sum(timings.handler.counts) == sum(timings.done.counts) == 200
    assert timings.handler.total == pytest.approx(20.0)
    assert sum(meter.done) == 200


def test_a_flood_is_sampled_and_scaled_up_to_all_of_it() -> None:
    bench, meter = _metered()
    _busy(bench, meter, 16_000, 2.0)
    timings = meter.timings[bench.policy.lanes[4].state]
    assert meter._stride > 4
    assert sum(timings.handler.counts) == pytest.approx(16_000, rel=0.15)
    assert timings.handler.total == pytest.approx(2.0, rel=0.15)
    busy = meter.busy.values()
    assert max(busy) < 1.6 * min(busy)  # no tenant is sampled more than the others
    assert sum(meter.done) == 16_000  # what is counted is exact


def test_a_delayed_messages_wait_begins_when_it_was_due() -> None:
    bench, meter = _metered()
    properties: dict[str, Any] = {"kodo_due": START_WALL + 1_000, "kodo_hop": 1, "kodo_retrying": 1}
    bench.give(delivery(1, **properties), level=L1, state=State.RETRYING)
    assert bench.take_all() == []
    bench.later(1.0)
    bench.clock.advance(2.0)
    (message,) = bench.take_all()
    bench.engine.finish(message, FAILED)
    timings = meter.timings[State.RETRYING]
    assert timings.late.total == timings.waited.total == pytest.approx(2.0)
    assert sum(timings.done.counts) == 0
    assert sum(timings.handler.counts) == 1
    assert bench.engine.lanes[lane_of(bench.policy, L1, State.RETRYING)].counted["failed", "ValueError"] == 1


# ---- tenants


def test_labels_are_for_the_busiest_and_no_count_goes_back() -> None:
    labels = Labels(2)
    labels.count(Counter(a=500, b=300, c=200, d=1), 0.0)
    assert (labels.totals, labels.other) == ({"a": 500, "b": 300}, 201)
    labels.count(Counter(c=900, a=1), 10.0)
    assert (labels.totals, labels.other) == ({"a": 501, "b": 300}, 1101)
    labels.count(Counter(c=900), 605.0)  # b's label has been idle for ten minutes
    assert (labels.totals, labels.other) == ({"a": 501, "c": 900}, 1101)
    none = Labels(0)
    none.count(Counter(a=5), 0.0)
    assert (none.totals, none.other) == ({}, 5)
    assert len(label("x" * 500)) == MAX_LABEL


def _watch(bench: Bench, meter: Meter) -> TenantWatch:
    watch = TenantWatch(lambda: bench.engine.context.policy, bench.engine.lanes, meter, bench.clock, 5)
    watch.step(Counter())
    return watch


def test_a_window_tells_quiet_tenants_from_noisy_ones() -> None:
    bench, meter = _metered(concurrency=1_000)
    watch = _watch(bench, meter)
    flood = [delivery(number, uid="flood")._replace(publish_time=START_WALL) for number in range(600)]
    quiet = [delivery(1_000 + n, uid=f"q{n % 9}")._replace(publish_time=START_WALL) for n in range(9)]
    bench.give(*flood, *quiet, level=L1)
    bench.clock.advance(2.0)
    watch.step(Counter())
    assert watch.fairness.noisy == 1
    assert watch.fairness.oldest_quiet == 2.0
    assert watch.waiting["flood"] == 600
    for _ in range(300):
        message = bench.engine.take()
        assert message is not None
        bench.engine.finish(message, DONE)
    bench.clock.advance(2.0)
    watch.step(Counter())
    assert watch.fairness.oldest_quiet == 0.0  # all nine had their turn
    assert watch.fairness.even.worst == pytest.approx(1.0)
    assert watch.labels.totals["flood"] == 291


def test_fair_shares_follow_weights_that_change_while_it_runs() -> None:
    bench, meter = _metered(concurrency=1_000)
    watch = _watch(bench, meter)
    bench.engine.apply_policy(replace(bench.policy, tenant_weights={"a": 10}))
    bench.give(*(delivery(n, uid="ab"[n % 2]) for n in range(1_000)), level=L1)
    bench.clock.advance(1.0)
    watch.step(Counter())
    for _ in range(330):
        message = bench.engine.take()
        assert message is not None
        bench.engine.finish(message, DONE)
    bench.clock.advance(1.0)
    watch.step(Counter())
    assert watch.labels.totals == {"a": 300, "b": 30}
    assert watch.fairness.even.worst == pytest.approx(1.0)


def test_looks_are_not_taken_more_often_than_once_a_second_nor_without_a_tenant_property() -> None:
    bench, meter = _metered()
    watch = _watch(bench, meter)
    bench.give(delivery(1, uid="a"), level=L1)
    watch.step(Counter())
    assert not watch.waiting
    nobody = Bench(policy())
    meter = Meter(nobody.policy, ManualClock(), Random(0))
    plain = TenantWatch(lambda: nobody.policy, nobody.engine.lanes, meter, nobody.clock, 5)
    nobody.give(delivery(1), level=L1)
    plain.step(Counter())
    assert not plain.waiting


def test_a_window_that_says_nothing_for_a_minute_is_begun_anew() -> None:
    bench, meter = _metered()
    watch = _watch(bench, meter)
    bench.give(*(delivery(number, uid=f"u{number}") for number in range(50)), level=L1)
    for _ in range(70):
        bench.clock.advance(1.0)
        watch.step(Counter())
    assert watch.fairness.even == EVEN
    assert watch._before[4].keys() == {f"u{number}" for number in range(50)}


def test_reasons_beyond_so_many_are_counted_as_one() -> None:
    bench, _ = _metered()
    lane = bench.engine.lanes[0]
    for number in range(500):
        lane.count("failed", f"Error{number}")
    assert len(lane.counted) < 70
    assert lane.counted["failed", "other"] == 440
    assert lane.counted.total() == 500


def _looks(watch: TenantWatch, running: dict[str, int]) -> int:
    """Until the pass is over."""
    looks = 1
    watch.step(Counter(running))
    while watch.under_way:
        looks += 1
        watch.step(Counter(running))
    return looks


def _crowd(monkeypatch: pytest.MonkeyPatch, step: int) -> tuple[TenantWatch, int]:
    """Five hundred tenants on two lanes, one of them noisy; the looks of the second pass."""
    monkeypatch.setattr("kodo_consumer.adapters.metrics.tenant_fairness.STEP", step)
    bench, meter = _metered()
    watch = _watch(bench, meter)
    for level in (L1, L2):
        bench.give(*(delivery(number, uid=f"u{number}") for number in range(500)), level=level)
        bench.give(*(delivery(1_000 + number, uid="noisy") for number in range(300)), level=level)
    bench.clock.advance(1.0)
    _looks(watch, {})
    for _ in range(200):
        message = bench.engine.take()
        assert message is not None
        bench.engine.finish(message, DONE)
    bench.clock.advance(1.0)
    return watch, _looks(watch, {"u7": 3})


def test_a_look_sees_a_bounded_number_of_tenants_and_all_looks_together_see_what_one_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, one = _crowd(monkeypatch, 10_000)
    stepped, many = _crowd(monkeypatch, 50)
    tenants = sum(1 for lane in stepped._lanes for _ in lane.ring.queues())
    assert one == 1
    assert tenants / 50 <= many <= tenants / 50 + 1
    assert stepped.fairness == whole.fairness
    assert stepped.fairness.noisy == 1
    assert stepped.waiting == whole.waiting
    assert stepped.labels.totals == whole.labels.totals


def test_a_pass_that_is_under_way_keeps_the_figures_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.metrics.tenant_fairness.STEP", 10)
    bench, meter = _metered()
    watch = _watch(bench, meter)
    bench.give(*(delivery(number, uid=f"u{number}") for number in range(25)))
    bench.clock.advance(1.0)
    watch.step(Counter())
    assert (watch.under_way, watch.waiting.total()) == (True, 0)
    _looks(watch, {})
    assert watch.waiting.total() == 25


@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.integers(0, 30), st.booleans(), st.integers(1, 3)), min_size=1, max_size=40
    )
)
def test_tenants_that_are_alike_may_be_told_as_one(rows: list[tuple[int, int, bool, int]]) -> None:
    single = {str(number): TenantWindow(*row) for number, row in enumerate(rows)}
    grouped = {row: TenantWindow(*row, tenants=count) for row, count in Counter(rows).items()}
    one, other = evenness(single), evenness(grouped)
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert one.jain == pytest.approx(other.jain)
        assert one.worst == pytest.approx(other.worst)
    backlogged = sum(tally.is_backlogged for tally in single.values())
    if backlogged and says_nothing(sum(tally.served for tally in single.values()), backlogged):
        assert one is None
