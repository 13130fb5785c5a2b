"""Applies of several clusters wait for each other: before they begin, and before they delete."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from kodoctl.apply.barrier import ALONE, ClusterBarrier
from kodoctl.errors import RefusedError


def test_alone_nobody_is_waited_for() -> None:
    ALONE.may_begin()
    ALONE.built(done=False)
    assert ALONE.why_not_delete() == ""


def test_deletes_begin_when_all_that_comes_before_is_done_everywhere() -> None:
    meeting = ClusterBarrier(["eu", "us"])
    eu, us = meeting.seat("eu"), meeting.seat("us")
    with ThreadPoolExecutor() as pool:
        begun = pool.submit(eu.may_begin)
        assert not begun.done()
        us.may_begin()
        begun.result(5)
        eu.built(done=True)
        may = pool.submit(eu.why_not_delete)
        assert not may.done()
        us.built(done=True)
        us.leave(refusing=False)
        assert may.result(5) == ""


def test_a_cluster_that_refuses_stops_all_before_they_begin() -> None:
    meeting = ClusterBarrier(["eu", "us"])
    meeting.seat("us").leave(refusing=True)
    with pytest.raises(RefusedError, match="us did; nothing was written to any cluster"):
        meeting.seat("eu").may_begin()


@pytest.mark.parametrize("half", [True, False])
def test_a_cluster_that_is_away_or_does_half_holds_up_deletes_only(half: bool) -> None:
    meeting = ClusterBarrier(["eu", "us"])
    eu, us = meeting.seat("eu"), meeting.seat("us")
    if half:
        with ThreadPoolExecutor() as pool:
            pool.submit(us.may_begin)
            eu.may_begin()
        us.built(done=False)
    us.leave(refusing=False)
    eu.may_begin()
    eu.built(done=True)
    assert "us did not do all that comes before" in eu.why_not_delete()
