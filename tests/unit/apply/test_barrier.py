"""Applies of several clusters wait for each other: before they begin, and before they delete."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from kodoctl.apply import fleet_run
from kodoctl.apply.barrier import ALONE, ClusterBarrier
from kodoctl.apply.fleet_run import Task, run_fleet
from kodoctl.apply.report import ApplyReport
from kodoctl.apply.run import RunOptions
from kodoctl.errors import RefusedError


def test_alone_nobody_is_waited_for() -> None:
    ALONE.wait_to_begin()
    ALONE.report_built(done=False)
    assert ALONE.wait_to_delete() == ""


def test_deletes_begin_when_all_that_comes_before_is_done_everywhere() -> None:
    barrier = ClusterBarrier(["eu", "us"])
    eu, us = barrier.participant("eu"), barrier.participant("us")
    with ThreadPoolExecutor() as pool:
        begun = pool.submit(eu.wait_to_begin)
        assert not begun.done()
        us.wait_to_begin()
        begun.result(5)
        eu.report_built(done=True)
        may = pool.submit(eu.wait_to_delete)
        assert not may.done()
        us.report_built(done=True)
        us.leave(refusing=False)
        assert may.result(5) == ""


def test_a_cluster_that_refuses_stops_all_before_they_begin() -> None:
    barrier = ClusterBarrier(["eu", "us"])
    barrier.participant("us").leave(refusing=True)
    with pytest.raises(
        RefusedError, match="us did; nothing but Pulsar tenants and kodoctl's own records was written to any"
    ):
        barrier.participant("eu").wait_to_begin()


@pytest.mark.parametrize("half", [True, False])
def test_a_cluster_that_is_away_or_does_half_holds_up_deletes_only(half: bool) -> None:
    barrier = ClusterBarrier(["eu", "us"])
    eu, us = barrier.participant("eu"), barrier.participant("us")
    if half:
        with ThreadPoolExecutor() as pool:
            pool.submit(us.wait_to_begin)
            eu.wait_to_begin()
        us.report_built(done=False)
    us.leave(refusing=False)
    eu.wait_to_begin()
    eu.report_built(done=True)
    assert "us did not do all that comes before" in eu.wait_to_delete()


@pytest.mark.parametrize("begun", [True, False])
def test_a_defect_in_one_cluster_leaves_the_results_of_the_others(begun: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, report, unused = ValueError("a defect"), ApplyReport(()), cast("Any", None)

    def run(session: Any, plan: Any, options: Any, *, party: Any, **_: Any) -> ApplyReport:
        if session == "us" and not begun:
            raise problem
        party.wait_to_begin()
        if session == "us":
            raise problem
        return report

    monkeypatch.setattr(fleet_run, "run", run)
    tasks = [Task(name, cast("Any", name), unused) for name in ("eu", "us")]
    eu, us = run_fleet(tasks, [], RunOptions("ann"), listen=lambda _: lambda _: None, stop=threading.Event())
    assert (us.context, us.report, us.problem) == ("us", None, problem)
    assert eu.report == (report if begun else None)
    assert isinstance(eu.problem, RefusedError) is not begun
