"""Pace of a backlog: when it is empty, or why it grows and what helps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kodoctl.status.backlog_pace import EarlierRates, backlog_text, growth_reasons, is_growing
from kodoctl.status.lane_status import LaneAverages, LaneStatus

HOUR = 3_600_000
READY = LaneStatus(
    "o", "s", "L1", "ready", "o", there=True, entries=6_000, rate_in=50.0, rate_acked=20.0, consumers=2,
    unacknowledged=400, partitions=4, slots=32, before=LaneAverages(0, 45.0, 19.0),
)  # fmt: skip


@pytest.mark.parametrize(
    ("entries", "rate_in", "rate_acked", "says"),
    [
        (99, 0.0, 50.0, ""),
        (6_000, 40.0, 50.0, "ready lanes: empty in about 10 min at this pace"),
        (6_000, 50.0, 20.0, "ready lanes: 30/s more come than are handled"),
        (6_000, 50.0, 50.5, ""),
    ],
)
def test_a_backlog_says_whether_it_drains(entries: int, rate_in: float, rate_acked: float, says: str) -> None:
    ready = replace(READY, entries=entries, rate_in=rate_in, rate_out=rate_in, rate_acked=rate_acked)
    waiting = replace(ready, state="retrying", entries=10**6, rate_acked=0.0)
    assert backlog_text([ready, waiting]) == says
    assert is_growing([ready, waiting]) == ("more come" in says)
    counted = replace(ready, entries=1, messages=entries)
    assert backlog_text([counted]) == says


def test_batches_are_estimated_in_messages_and_exact_counts_win() -> None:
    ready = replace(READY, entries=60, messages_about=6_000, rate_in=0.0, rate_acked=10.0)
    assert backlog_text([ready]) == "ready lanes: empty in about 10 min at this pace"
    at_least = replace(ready, messages=600, messages_at_least=True)
    assert backlog_text([at_least]) == "ready lanes: empty in at least 1 min at this pace"


def test_a_backlog_that_drains_or_has_no_worker_needs_no_comparison() -> None:
    assert list(growth_reasons([replace(READY, rate_in=10.0)], HOUR)) == []
    alone = replace(READY, consumers=0, rate_acked=0.0, before=None)
    assert list(growth_reasons([alone], HOUR)) == ["no worker is connected: messages wait until one starts"]


RATES, WATCH = "50/s come, 20/s are handled", "`kodoctl status --watch` compares after 2 min"
FASTER = "senders got faster: 50/s, at most 21/s on average since workers connected, 1 h ago"
LESS = "workers handle less: 20/s, 28/s or more on average since they connected, 1 h ago"
SHORT = LaneAverages(HOUR - 60_000, 1.0, 90.0)


@pytest.mark.parametrize(
    ("before", "cause"),
    [
        (None, f"{RATES}; the broker's averages do not show what changed; {WATCH}"),
        (SHORT, f"{RATES}; workers connected 1 min ago, too late to compare; {WATCH}"),
        (LaneAverages(0, 45.0, 19.0), f"{RATES}; the broker's averages do not show what changed; {WATCH}"),
        (LaneAverages(0, None, 19.0), f"{RATES}; the broker's averages do not show what changed; {WATCH}"),
        (LaneAverages(0, 21.0, 19.0), FASTER),
        (LaneAverages(0, None, 28.0), LESS),
        (LaneAverages(0, 21.0, 28.0), f"{FASTER} and {LESS}"),
    ],
    ids=["unknown", "too early", "neither", "some left", "senders", "workers", "both"],
)
def test_the_cause_is_what_the_averages_prove(before: LaneAverages | None, cause: str) -> None:
    assert next(growth_reasons([replace(READY, before=before)], HOUR)) == cause


@pytest.mark.parametrize(
    ("rate_in", "rate_acked", "cause"),
    [
        (50.0, 20.0, f"{RATES}, as in the minutes before"),
        (10.0, 20.0, "senders got faster: 50/s, 10/s in the minutes before"),
        (50.0, 48.0, "workers handle less: 20/s, 48/s in the minutes before"),
        (
            30.0,
            30.0,
            "senders got faster: 50/s, 30/s in the minutes before and workers handle less: 20/s, 30/s in the minutes before",
        ),
    ],
)
def test_with_an_earlier_reading_rates_are_compared_with_that(rate_in: float, rate_acked: float, cause: str) -> None:
    earlier = EarlierRates(rate_in, rate_acked)
    assert next(growth_reasons([replace(READY, before=LaneAverages(0, 1.0, 90.0))], HOUR, earlier)) == cause


HELP = "help, unless a limit, a live order or one tenant holds messages back: ask /readyz of a worker"


@pytest.mark.parametrize(
    ("lane", "remedy"),
    [
        (READY, f"workers hold 400 messages for 64 slots: more workers or `concurrency` {HELP}"),
        (
            replace(READY, one_each=True, consumers=4),
            (
                f"workers hold 400 messages for 128 slots: more partitions or `concurrency` {HELP}; "
                "4 workers for 4 partitions, of which each goes to one worker"
            ),
        ),
        (
            replace(READY, one_each=True, consumers=6, unacknowledged=-3),
            (
                "workers hold 0 messages for 128 slots: more slots do not help, because order, a dispatch rate or the broker "
                "gives them too few; 6 workers for 4 partitions, of which each goes to one worker"
            ),
        ),
        (replace(READY, slots=None), f"more workers {HELP}"),
    ],
    ids=["slots", "partitions", "delivery", "adaptive"],
)
def test_the_remedy_goes_by_what_workers_hold(lane: LaneStatus, remedy: str) -> None:
    assert list(growth_reasons([lane], HOUR))[1] == remedy
