"""What the broker allows less than the file declares: what a worker goes by then, and what a person is told."""

from __future__ import annotations

from random import Random

import pytest
from kodo_consumer.core.engine.publishing import add_jitter
from kodo_consumer.core.upkeep.broker_limits import (
    BrokerLimits,
    clamp_policy,
    limit_findings,
    read_broker_limits,
    readable,
)
from kodo_consumer.core.values.delay_schedule import JITTER, DelaySchedule
from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.core.values.policy import Policy

from kodoctl.topology.model.policies import DelayedDelivery
from tests.unit.consumer.engine_bench import L1, policy, topic
from tests.unit.consumer.runtime.worker_place import MemoryCluster

RETRYING = topic(Level.L1, State.RETRYING)


def _allowed(of: Policy, delays: DelayedDelivery | None = None, sizes: dict[str, int] | None = None) -> BrokerLimits:
    cluster = MemoryCluster(of)
    cluster.rules, cluster.sizes = delays, sizes
    return read_broker_limits(of, cluster)


def _told(of: Policy, allowed: BrokerLimits) -> list[tuple[str, str]]:
    return [(one.code, one.detail) for one in limit_findings(of, allowed)]


def test_where_the_role_may_not_ask_the_file_counts() -> None:
    of = policy(horizon=3_600_000, largest={RETRYING: 9})
    allowed = _allowed(of)
    assert allowed == BrokerLimits()
    assert clamp_policy(of, allowed) == of
    assert _told(of, allowed) == []


def test_one_failing_broker_hides_the_limits_of_its_own_topic_alone() -> None:
    answers = {"a": None, "b": 5, "c": 0, "d": None, "e": 7}
    asked: list[str] = []

    def read(topic: str) -> int | None:
        asked.append(topic)
        return answers[topic]

    assert list(readable(answers, read)) == [("b", 5), ("c", 0)]
    assert asked == ["a", "b", "c", "d"], "without the right to read it, not each topic costs a request"


@pytest.mark.parametrize(
    ("longest", "horizon"), [(0, 60_000), (63_000, 60_000), (62_000, 59_000), (6_000, 5_000), (3_000, 3_000)]
)
def test_waits_and_their_jitter_stay_within_what_the_broker_keeps(longest: int, horizon: int) -> None:
    of = policy((L1,), horizon=60_000)
    allowed = _allowed(of, DelayedDelivery(True, longest))
    assert clamp_policy(of, allowed).horizon == horizon
    assert [code for code, _ in _told(of, allowed)] == (["K726"] if horizon < 60_000 else [])
    assert horizon <= 5_000 or not longest or horizon + JITTER <= longest


def test_a_wait_of_up_to_five_seconds_has_no_jitter_and_a_longer_one_up_to_three_seconds() -> None:
    rng = Random(1)
    assert {add_jitter(due, 1_000, rng) for due in [6_000] * 50} == {6_000}
    late = [add_jitter(6_001, 1_000, rng) or 0 for _ in range(50)]
    assert len(set(late)) > 10
    assert 6_001 <= min(late) <= max(late) < 6_001 + JITTER
    assert add_jitter(None, 1_000, rng) is None


def test_waits_that_are_cut_are_told_once_for_all_topics() -> None:
    of = policy((L1,), horizon=3_600_000)
    ((_, said),) = _told(of, _allowed(of, DelayedDelivery(True, 60_000)))
    assert said == (
        f"{RETRYING} and 2 more: the broker keeps messages 1m at most, the file's waits need 3603s: longer ones are cut to"
        " 57s; raise `maxDeliveryDelayInMillis`, or shorten the waits"
    )


def test_delayed_delivery_that_is_off_is_told_and_cuts_nothing() -> None:
    of = policy((L1,), horizon=60_000)
    allowed = _allowed(of, DelayedDelivery(False, 0))
    assert clamp_policy(of, allowed) == of
    ((code, said),) = _told(of, allowed)
    assert code == "K727"
    assert "delivered at once" in said


def test_backup_levels_are_asked_about_where_they_wait_longer_than_in_memory() -> None:
    def asked(delay: int) -> set[str]:
        of = policy((Level.L1, Level.B1), (), waits={None: DelaySchedule((delay,), 3)})
        return set(_allowed(of, DelayedDelivery()).delays)

    assert asked(5_000) == set()
    assert asked(5_001) == {topic(Level.B1, State.READY)}


def test_the_smaller_limit_on_sizes_counts_and_only_one_the_file_does_not_have_is_told() -> None:
    ready, pending = topic(Level.L1, State.READY), topic(Level.L1, State.PENDING)
    of = policy((L1,), largest={RETRYING: 100, ready: 100})
    allowed = _allowed(of, DelayedDelivery(), {RETRYING: 80, ready: 200, pending: 80})
    assert clamp_policy(of, allowed).largest == {RETRYING: 80, ready: 100, pending: 80}
    ((code, said),) = _told(of, allowed)
    assert code == "K728"
    assert said.startswith(f"{RETRYING} and 1 more: messages of more than 80 bytes are not sent there")
