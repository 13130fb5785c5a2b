"""Averages of a lane since its consumers connected: bounds by the broker's counters, or not known."""

from __future__ import annotations

from typing import Any

import pytest

from kodoctl.status.lane_averages import acknowledged_rate, average_rates, estimated_messages, gives_to_one, is_steady
from kodoctl.status.lane_status import LaneAverages

SINCE = 1_796_025_222_412  # 2026-11-30T07:53:42.412Z


def consumer(**more: Any) -> dict[str, Any]:
    counts = {"msgOutCounter": 5_000, "unackedMessages": 4_000, "avgMessagesPerEntry": 45}
    return {**counts, "connectedSince": "2026-11-30T07:53:42.412272632Z", **more}


def sub(*consumers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"msgOutCounter": 5_000, "msgBacklog": 100, "consumers": list(consumers), **more}


def test_acknowledged_by_the_present_consumers_and_at_most_sent_of_every_partition() -> None:
    later = consumer(connectedSince="2026-11-30T07:55:22.412Z", msgOutCounter=500, unackedMessages=0)
    assert average_rates([sub(consumer(), later)], [6_000], SINCE + 1_000_000) == LaneAverages(SINCE, 6.0, 1.5)
    two = average_rates([sub(consumer()), sub(later)], [6_600, 4_000], SINCE + 1_100_000)
    assert two == LaneAverages(SINCE + 100_000, 10.0, 1.4)


def test_a_partition_of_which_the_broker_does_not_say_what_came_leaves_no_bound_of_senders() -> None:
    both = [sub(consumer()), sub(consumer())]
    assert average_rates(both, [6_000, None], SINCE + 1_000_000) == LaneAverages(SINCE, None, 2.0)


@pytest.mark.parametrize("more", [{"type": "Failover"}, {"type": "Exclusive"}, {"msgRateRedeliver": 0.2}])
def test_what_the_broker_does_not_count_or_counts_again_is_no_bound_of_acknowledgements(more: dict[str, Any]) -> None:
    """Of failover it counts batches, if anything: a worker that kept up seemed to handle nothing."""
    both = [sub(consumer()), sub(consumer(), **more)]
    assert average_rates(both, [1_000, 1_000], SINCE + 1_000_000) == LaneAverages(SINCE, 2.0, None)


def test_acknowledgements_are_counted_where_several_consumers_share_a_partition() -> None:
    assert (
        acknowledged_rate([sub(type="Shared", messageAckRate=2.5), sub(type="Key_Shared", messageAckRate=1.26)]) == 3.8
    )
    assert acknowledged_rate([sub(type="Failover", messageAckRate=2.5)]) is None
    assert acknowledged_rate([sub()]) == 0.0
    assert [gives_to_one(sub(type=one)) for one in ("Shared", "Exclusive", None)] == [False, True, False]


def test_rates_are_steady_once_every_consumer_was_there_for_a_minute() -> None:
    """After a restart of workers a backlog seemed to grow: rates are zero until the broker renews them."""
    assert [is_steady([sub(consumer(), consumer())], SINCE + after) for after in (64_000, 66_000)] == [False, True]
    young = sub(consumer(connectedSince="2026-11-30T07:55:22.412Z"))
    assert not is_steady([sub(consumer()), young], SINCE + 120_000)
    assert is_steady([sub(), sub(consumer(connectedSince=None))], SINCE)


@pytest.mark.parametrize(
    "one",
    [
        sub(),
        sub(consumer(connectedSince=None)),
        sub(consumer(connectedSince="yesterday")),
        sub(consumer(), consumer(connectedSince=None)),
        sub(consumer(connectedSince="2036-11-30T07:53:42Z")),
    ],
    ids=["no consumer", "no time", "no such time", "one without", "a clock that is behind"],
)
def test_without_the_broker_s_word_there_is_no_average(one: dict[str, Any]) -> None:
    assert average_rates([one], [7], SINCE + 1_000_000) is None
    assert average_rates([sub(consumer()), one], [7, 7], SINCE + 1_000_000) is None


def test_no_partition_has_no_average() -> None:
    assert average_rates([], [], SINCE) is None


def test_counts_that_the_broker_got_wrong_are_never_below_zero() -> None:
    wrong = sub(consumer(unackedMessages=9_000), msgBacklog=-2)
    assert average_rates([wrong], [0], SINCE + 1_000_000) == LaneAverages(SINCE, 0.0, 0.0)
    below = sub(consumer(unackedMessages=-9_000))
    assert average_rates([below], [0], SINCE + 1_000_000) == LaneAverages(SINCE, 0.0, 5.0)


def test_messages_are_entries_times_the_largest_average_batch() -> None:
    assert estimated_messages([sub(consumer(), consumer(avgMessagesPerEntry=50)), sub(consumer())]) == 9_500
    assert estimated_messages([sub(consumer()), sub()]) is None
    assert estimated_messages([sub(msgBacklog=0)]) == 0
    assert estimated_messages([]) == 0
    assert estimated_messages([sub(consumer(avgMessagesPerEntry=0))]) is None
