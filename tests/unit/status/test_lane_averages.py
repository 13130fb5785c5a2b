"""Averages of a lane since its consumers connected: bounds by the broker's counters, or not known."""

from __future__ import annotations

from typing import Any

import pytest

from kodoctl.status.lane_averages import average_rates, estimated_messages
from kodoctl.status.lane_status import LaneAverages

SINCE = 1_796_025_222_412  # 2026-11-30T07:53:42.412Z


def consumer(**more: Any) -> dict[str, Any]:
    counts = {"msgOutCounter": 5_000, "unackedMessages": 4_000, "avgMessagesPerEntry": 45}
    return {**counts, "connectedSince": "2026-11-30T07:53:42.412272632Z", **more}


def sub(*consumers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"msgOutCounter": 5_000, "msgBacklog": 100, "consumers": list(consumers), **more}


def test_acknowledged_by_the_present_consumers_and_at_most_sent_of_every_partition() -> None:
    later = consumer(connectedSince="2026-11-30T07:55:22.412Z", msgOutCounter=500, unackedMessages=0)
    both = sub(consumer(), later, msgOutCounter=5_500)
    assert average_rates([both], SINCE + 1_000_000) == LaneAverages(SINCE, 6.0, 1.5)
    two = average_rates([sub(consumer()), sub(later, msgOutCounter=500)], SINCE + 1_100_000)
    assert two == LaneAverages(SINCE + 100_000, 10.0, 1.4)


def test_after_a_consumer_left_the_rate_of_senders_has_no_bound() -> None:
    left = sub(consumer(), msgOutCounter=5_001)
    assert average_rates([left], SINCE + 1_000_000) == LaneAverages(SINCE, None, 1.0)
    assert average_rates([sub(consumer()), left], SINCE + 1_000_000) == LaneAverages(SINCE, None, 2.0)


@pytest.mark.parametrize(
    "one",
    [
        sub(),
        sub(consumer(connectedSince=None)),
        sub(consumer(connectedSince="yesterday")),
        sub(consumer(), consumer(connectedSince=None)),
        sub(consumer(connectedSince="2036-11-30T07:53:42Z")),
        sub(consumer(avgMessagesPerEntry=0)),
    ],
    ids=["no consumer", "no time", "no such time", "one without", "a clock that is behind", "no size"],
)
def test_without_the_broker_s_word_there_is_no_average(one: dict[str, Any]) -> None:
    assert average_rates([one], SINCE + 1_000_000) is None
    assert average_rates([sub(consumer()), one], SINCE + 1_000_000) is None


def test_no_partition_has_no_average() -> None:
    assert average_rates([], SINCE) is None


def test_counts_that_the_broker_got_wrong_are_never_below_zero() -> None:
    wrong = sub(consumer(unackedMessages=9_000), msgBacklog=-2)
    assert average_rates([wrong], SINCE + 1_000_000) == LaneAverages(SINCE, 0.0, 0.0)


def test_messages_are_entries_times_the_largest_average_batch() -> None:
    assert estimated_messages([sub(consumer(), consumer(avgMessagesPerEntry=50)), sub(consumer())]) == 9_500
    assert estimated_messages([sub(consumer()), sub()]) is None
    assert estimated_messages([sub(msgBacklog=0)]) == 0
    assert estimated_messages([]) == 0
