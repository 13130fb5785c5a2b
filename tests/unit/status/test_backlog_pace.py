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


def test_messages_that_wait_for_their_time_are_no_backlog_of_workers() -> None:
    ready = replace(READY, rate_in=0.0, rate_acked=10.0)
    assert backlog_text([replace(ready, delayed=5_400)]) == "ready lanes: empty in about 1 min at this pace"
    assert backlog_text([replace(ready, delayed=6_000, messages_about=60_000)]) == ""
    assert not is_growing([replace(READY, delayed=6_000)])


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
        (LaneAverages(0, 45.0, None), f"{RATES}; the broker's averages do not show what changed; {WATCH}"),
        (LaneAverages(0, 21.0, 19.0), FASTER),
        (LaneAverages(0, None, 28.0), LESS),
        (LaneAverages(0, 21.0, 28.0), f"{FASTER} and {LESS}"),
    ],
    ids=["unknown", "too early", "neither", "one unknown", "other unknown", "senders", "workers", "both"],
)
def test_the_cause_is_what_the_averages_prove(before: LaneAverages | None, cause: str) -> None:
    assert next(growth_reasons([replace(READY, before=before)], HOUR)) == cause


@pytest.mark.parametrize(
    ("rate_in", "rate_acked", "cause"),
    [
        (50.0, 20.0, f"{RATES}, about as in the minutes before"),
        (90.0, 20.0, f"{RATES}, 90/s and 20/s in the minutes before"),
        (50.0, 10.0, f"{RATES}, 50/s and 10/s in the minutes before"),
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


def test_what_is_delivered_stands_for_what_the_broker_does_not_count_as_handled() -> None:
    lane = replace(READY, rate_acked=None, rate_out=20.0, before=LaneAverages(0, None, None))
    assert backlog_text([lane]) == "ready lanes: 30/s more come than are delivered"
    reasons = [next(growth_reasons([lane], HOUR, one)) for one in (EarlierRates(50.0, 20.0), EarlierRates(50.0, 30.0))]
    assert reasons == [
        "50/s come, 20/s are delivered, about as in the minutes before",
        "less is delivered to workers: 20/s, 30/s in the minutes before",
    ]


def test_rates_that_lack_a_worker_say_nothing() -> None:
    lanes = [READY, replace(READY, level="L2", rate_acked=0.0, steady=False)]
    assert (backlog_text(lanes), is_growing(lanes), list(growth_reasons(lanes, HOUR))) == ("", False, [])


ALONE = "one worker reads all partitions of an exclusive subscription"
HELP = "help, unless a limit, a live order or one tenant holds messages back: ask /readyz of a worker"


@pytest.mark.parametrize(
    ("lane", "remedy"),
    [
        (READY, f"workers hold 400 messages for 64 slots: more workers or `concurrency` {HELP}"),
        (
            replace(READY, one_each=True, consumers=4, unacknowledged=0),
            (f"more partitions or `concurrency` {HELP}; 4 workers for 4 partitions, of which each goes to one worker"),
        ),
        (
            replace(READY, unacknowledged=3),
            (
                "workers hold 3 messages for 64 slots: more slots hardly help, because order, a delay, a dispatch rate or "
                "the broker holds messages back"
            ),
        ),
        (
            replace(READY, one_each=True, alone=True, consumers=1),
            f"more `concurrency` {HELP.replace('help,', 'helps,')}; {ALONE}",
        ),
        (
            replace(READY, one_each=True, alone=True, consumers=1, slots=None),
            f"find out whether {HELP.removeprefix('help, unless ')}; {ALONE}",
        ),
        (replace(READY, one_each=True, consumers=1), f"more workers or `concurrency` {HELP}"),
        (replace(READY, unacknowledged=None), f"more workers or `concurrency` {HELP}"),
        (replace(READY, unacknowledged=-3), f"more workers or `concurrency` {HELP}"),
        (replace(READY, unacknowledged=3, steered="{}"), f"more workers or `concurrency` {HELP}"),
        (replace(READY, slots=None), f"more workers {HELP}"),
    ],
    ids=[
        "slots",
        "partitions",
        "delivery",
        "exclusive",
        "exclusive and adaptive",
        "few workers",
        "not counted",
        "miscounted",
        "steered",
        "adaptive",
    ],
)
def test_the_remedy_goes_by_what_workers_hold(lane: LaneStatus, remedy: str) -> None:
    assert list(growth_reasons([lane], HOUR))[1] == remedy
