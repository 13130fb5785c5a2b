"""The trend of a backlog: growing or draining, by whose doing, and what would change it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from kodo_consumer.core.upkeep.backlog_trend import REPEAT, BacklogTrend, HandlerLoad
from kodo_consumer.core.upkeep.tenant_backlog import NO_TENANT, TenantShare
from kodo_consumer.core.values.broker import LaneStats
from kodo_consumer.core.values.effects import Alarm
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.testing import ManualClock

from kodoctl.topology.names import Level
from tests.unit.consumer.engine_bench import policy

EVERY = 5.0


class Bench:
    """A subscription with one ready lane, whose figures a test sets; a reading every five seconds."""

    def __init__(self, of: Policy, *, workers: int = 1) -> None:
        self.policy, self.clock = of, ManualClock()
        self.alarms: list[Alarm] = []
        self.entries, self.started, self.running = 0, 0, 0
        self.waiting, self.working = NO_TENANT, NO_TENANT
        self.trend = BacklogTrend(
            lambda: self.policy,
            self.clock,
            lambda: HandlerLoad(self.running, self.started, self.waiting, self.working),
            lambda: workers,
            self.alarms.append,
        )

    def go_on(self, seconds: float, *, come: float, handled: float, handler: float) -> None:
        """`come` entries a second come and `handled` are handled, each in `handler` seconds."""
        for _ in range(round(seconds / EVERY)):
            self.clock.advance(EVERY)
            self.entries = max(0, self.entries + round((come - handled) * EVERY))
            self.started += round(handled * EVERY)
            self.running = round(handled * handler)
            for lane in self.policy.every_lane:
                self.trend(lane, LaneStats(backlog=self.entries, rate_in=come))

    @property
    def text(self) -> str:
        return self.trend.advice.text if self.trend.advice is not None else ""


@pytest.fixture
def bench() -> Bench:
    return Bench(policy(levels=(Level.L1,), concurrency=10))


def test_a_backlog_that_drains_says_when_it_is_empty(bench: Bench) -> None:
    bench.entries = 60_000
    assert bench.trend.advice is None
    bench.go_on(180, come=100, handled=200, handler=0.01)
    advice = bench.trend.advice
    assert advice is not None
    assert (advice.growth, advice.cause) == (pytest.approx(-100), "")
    assert advice.drained_in == pytest.approx(420)
    assert advice.text == "42,000 entries wait, drained in about 7 min"
    assert bench.alarms == []


def test_a_trend_is_not_known_any_more_a_minute_after_the_last_statistics(bench: Bench) -> None:
    bench.go_on(180, come=200, handled=100, handler=0.01)
    bench.clock.advance(60.0)
    assert bench.trend.advice is not None
    bench.clock.advance(1.0)
    assert bench.trend.advice is None


def test_senders_that_got_faster_are_named_with_both_rates(bench: Bench) -> None:
    bench.go_on(600, come=100, handled=100, handler=0.1)
    bench.go_on(120, come=300, handled=100, handler=0.1)
    assert bench.text == (
        "24,000 entries wait, 200.0/s more: senders got faster (292.0/s, 100.0/s before);"
        " all 10 slots are busy: more `concurrency` or more workers help"
    )
    advice = bench.trend.advice
    assert advice is not None
    assert (advice.cause, advice.drained_in) == ("senders", None)


def test_handlers_that_got_slower_are_named_with_both_times(bench: Bench) -> None:
    bench.go_on(600, come=100, handled=100, handler=0.02)
    bench.go_on(120, come=100, handled=5, handler=2)
    assert "handlers got slower (1.9 s a message, 20 ms before); all 10 slots are busy" in bench.text
    advice = bench.trend.advice
    assert advice is not None
    assert advice.cause == "handlers"


def test_both_are_named_where_both_changed(bench: Bench) -> None:
    bench.go_on(600, come=100, handled=100, handler=0.02)
    bench.go_on(120, come=900, handled=5, handler=2)
    advice = bench.trend.advice
    assert advice is not None
    assert advice.cause == "both"
    assert "senders got faster" in advice.text
    assert " and handlers got slower" in advice.text


def test_free_slots_are_no_reason_for_more(bench: Bench) -> None:
    bench.go_on(300, come=100, handled=10, handler=0.1)
    assert "100.0/s come, more than workers handle; 10% of the slots are busy: a limit, an order or" in bench.text


def test_without_a_run_there_is_no_time_of_handlers(bench: Bench) -> None:
    bench.go_on(300, come=100, handled=0, handler=0)
    assert "100.0/s come, more than workers handle; 0% of the slots" in bench.text


def test_where_each_partition_goes_to_one_worker_more_workers_do_not_help() -> None:
    bench = Bench(_ordered("failover"), workers=2)
    bench.go_on(300, come=100, handled=10, handler=1)
    alone = "2 workers for 2 partitions, of which each goes to one worker, so more workers do not help"
    assert bench.text.endswith(f"all 10 slots are busy: more `concurrency` or more partitions help; {alone}")


def test_a_worker_without_a_partition_blames_nothing_that_holds_messages_back() -> None:
    bench = Bench(replace(policy(levels=(Level.L1,), concurrency=10), subscription_type="failover"), workers=2)
    bench.go_on(200, come=10, handled=0, handler=0)
    assert bench.text.endswith(
        "this worker has no partition, and starts nothing: ask /readyz of another one;"
        " 2 workers for 1 partition, of which each goes to one worker, so more workers do not help"
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_where_one_worker_reads_all_partitions_only_its_slots_help(workers: int) -> None:
    """One worker for two partitions was told that more workers help, which the broker refuses."""
    bench = Bench(_ordered("exclusive"), workers=workers)
    bench.go_on(300, come=100, handled=10, handler=1)
    alone = "one worker reads all partitions of an exclusive subscription"
    assert bench.text.endswith(f"all 10 slots are busy: more `concurrency` helps; {alone}")


def test_workers_that_share_a_partition_by_keys_may_be_more_than_partitions() -> None:
    bench = Bench(_ordered("key_shared"), workers=3)
    bench.go_on(300, come=100, handled=10, handler=1)
    assert bench.text.endswith("all 10 slots are busy: more `concurrency` or more workers help")


def test_where_order_is_kept_free_slots_may_wait_for_a_key() -> None:
    bench = Bench(_ordered("failover"), workers=1)
    bench.go_on(300, come=100, handled=10, handler=0.1)
    assert bench.text.endswith("(see /readyz), or messages of one key wait for each other")


def _ordered(kind: Literal["key_shared", "failover", "exclusive"]) -> Policy:
    base = policy(levels=(Level.L1,), concurrency=10)
    lanes = tuple(replace(lane, ordered=True, partitions=2) for lane in base.lanes)
    return replace(base, lanes=lanes, subscription_type=kind)


def test_a_small_or_steady_backlog_and_unknown_lanes_have_no_advice(bench: Bench) -> None:
    bench.go_on(300, come=10.2, handled=10, handler=0.1)
    assert bench.trend.advice is None, "few entries"
    bench.entries = 1_000_000
    bench.go_on(300, come=100, handled=99, handler=0.1)
    assert bench.trend.advice is None, "less than noise"
    bench.clock.advance(EVERY)
    ground = bench.policy.ground_lane
    for stats in (None, LaneStats(backlog=5, whole=False)):
        bench.trend(ground, stats)
    other = Bench(policy(levels=(Level.L1, Level.L2), concurrency=10))
    for _ in range(40):
        other.clock.advance(EVERY)
        other.trend(other.policy.ground_lane, LaneStats(backlog=9_000, rate_in=1.0))
    assert other.trend.advice is None, "a lane is not known"


def test_a_growing_backlog_alarms_once_for_each_cause_and_again_after_ten_minutes(bench: Bench) -> None:
    bench.go_on(REPEAT - EVERY, come=100, handled=50, handler=0.2)
    assert [alarm.kind for alarm in bench.alarms] == ["backlog"]
    bench.go_on(REPEAT, come=100, handled=50, handler=0.2)
    assert len(bench.alarms) == 2
    bench.go_on(60, come=1_000, handled=50, handler=0.2)
    assert "senders got faster" in bench.alarms[2].text


def test_the_tenant_that_causes_a_backlog_is_named_with_the_command_that_helps() -> None:
    bench = Bench(replace(policy(levels=(Level.L1, Level.B1), concurrency=10), fair_by="uid"))
    bench.waiting, bench.working = TenantShare("acme", 0.9), TenantShare("other", 0.5)
    bench.go_on(300, come=100, handled=50, handler=0.2)
    advice = bench.trend.advice
    assert advice is not None
    assert advice.tenant == ("acme", pytest.approx(0.9), 0.0)
    command = "`kodo-consumer move FILE --topic t --subscription s --tenant=acme --to=B1` lets the others go first"
    assert advice.text.endswith(f"workers help; tenant 'acme' has 90% of the waiting messages: {command}")
    assert len(bench.alarms) == 1
    bench.waiting = TenantShare("umbra", 0.9)
    bench.go_on(150, come=100, handled=50, handler=0.2)
    assert "tenant 'umbra'" in bench.alarms[-1].text, "another tenant is news"
    bench.policy = replace(bench.policy, fair_by=None)
    assert "tenant" not in bench.text
