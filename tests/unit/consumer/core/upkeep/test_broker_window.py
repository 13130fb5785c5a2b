"""What the broker's limits on unacknowledged messages leave of the look-ahead, and what a person is told."""

from __future__ import annotations

import pytest
from kodo_consumer.core.upkeep.broker_window import lane_request, lookahead_findings, unacked_limits
from kodo_consumer.core.values.broker import UnackedLimits
from kodo_consumer.core.values.policy import AuditTo, Policy

from tests.unit.consumer.engine_bench import L1, policy
from tests.unit.consumer.runtime.worker_place import MemoryCluster

UNTOLD = UnackedLimits(50_000, 200_000)


def _told(of: Policy, limits: UnackedLimits | None) -> list[str]:
    cluster = MemoryCluster(of)
    cluster.limits = limits
    found = lookahead_findings(of, unacked_limits(of, cluster))
    assert {one.code for one in found} <= {"K719"}
    return [one.detail for one in found]


@pytest.mark.parametrize("limits", [None, UNTOLD, UnackedLimits(0, 0), UnackedLimits(1_000, 0)])
def test_enough_or_enough_by_several_consumers_or_unknown_is_nothing_to_tell(limits: UnackedLimits | None) -> None:
    assert _told(policy(), limits) == []


def test_too_little_even_by_all_consumers_is_told_once_for_all_lanes_with_what_to_write() -> None:
    (told,) = _told(policy(), UnackedLimits(500, 0))
    assert told == (
        "persistent://p/n/t-L2-ready and 8 more: the broker sends a worker no more than 500 unacknowledged messages by each"
        " of 64 consumers, the look-ahead is 50000: write `policies: {max_unacked_per_consumer: 50000}`, or a smaller"
        " `lookahead`"
    )


def test_the_limit_of_all_workers_together_is_told_once_they_could_reach_it() -> None:
    (told,) = _told(policy((L1,), (), expected_workers=4), UNTOLD)
    assert "sends 4 workers together no more than 200000" in told
    assert "max_unacked_per_subscription: 400000" in told


def test_one_worker_is_told_of_as_one() -> None:
    (told,) = _told(policy((L1,), (), lookahead_messages=300_000), UnackedLimits(0, 200_000))
    assert "sends 1 worker together no more than 200000 unacknowledged messages, the look-ahead is 300000 each" in told


def test_a_lane_shared_by_keys_is_read_by_one_consumer() -> None:
    of = policy((L1,), (), subscription_type="key_shared")
    (told,) = _told(of, UnackedLimits(10_000, 0))
    assert "a worker no more than 10000 unacknowledged messages, the look-ahead" in told


def test_where_one_reader_gets_all_in_order_the_broker_has_no_limit() -> None:
    assert _told(policy((L1,), (), subscription_type="failover"), UnackedLimits(1, 1)) == []
    of = policy((L1,), subscription_type="exclusive")
    cluster = MemoryCluster(of)
    cluster.limits = UnackedLimits(1, 0)
    assert sorted(unacked_limits(of, cluster)) == [1, 2, 3], "state lanes are always shared"


@pytest.mark.parametrize(
    ("audit", "says"),
    [
        (None, False),
        (AuditTo("persistent://p/n/t-AUDIT", wait=False), False),
        (AuditTo("persistent://p/n/t-AUDIT", wait=True), True),
    ],
)
def test_consumers_say_that_they_record_only_where_they_wait_for_it(audit: AuditTo | None, says: bool) -> None:
    of = policy((L1,), (), audit=audit)
    assert lane_request(of, of.lanes[0], "worker", 0).records is says
