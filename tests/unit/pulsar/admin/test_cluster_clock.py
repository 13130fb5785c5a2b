"""Clock of the cluster from the answers of its admin API, whatever the clock of this machine says."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kodoctl.pulsar.admin.admin import Reply
from kodoctl.pulsar.admin.cluster_clock import ClusterClock, read_clock

NOON = 1_700_000_000_000  # ms, a whole second
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("wall", "took", "ahead"),
    [
        (NOON, 0.0, 0),
        (NOON + 999, 0.0, 0),  # in the same second
        (NOON + 2_999, 2.0, 0),  # told when the answer was asked for, which took so long to come
        (NOON + 3_001, 2.0, 1),
        (NOON - 1, 0.5, -1),
        (NOON + HOUR, 0.0, HOUR - 1_000),
        (NOON - HOUR, 2.0, -HOUR),
    ],
)
def test_a_difference_is_what_is_certain_of_it(wall: int, took: float, ahead: int) -> None:
    reply = Reply("GET", "clusters", 200, server_time=NOON, took=took)
    assert ClusterClock.of(reply, wall) == ClusterClock(ahead)


def test_without_a_date_nothing_is_known() -> None:
    assert ClusterClock.of(Reply("GET", "clusters", 200), NOON) == ClusterClock(None)


@pytest.mark.parametrize(("ahead", "now"), [(0, NOON), (None, NOON), (HOUR, NOON - HOUR), (-HOUR, NOON + HOUR)])
def test_the_time_is_the_clusters(monkeypatch: pytest.MonkeyPatch, ahead: int | None, now: int) -> None:
    monkeypatch.setattr(time, "time", lambda: NOON / 1000)
    assert ClusterClock(ahead).now() == now


@pytest.mark.parametrize("status", [200, 403])
def test_a_refusal_tells_the_time_as_well(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    class Answering:
        def call(self, method: str, path: str) -> Reply:
            return Reply(method, path, status, server_time=NOON - HOUR)

    monkeypatch.setattr(time, "time", lambda: NOON / 1000)
    answering: Any = Answering()
    assert read_clock(answering) == ClusterClock(HOUR - 1_000)
