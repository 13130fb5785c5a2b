"""Disasters on the real broker around the clocks of the cluster, of the ingest's machine, of workers and of producers."""

from __future__ import annotations

import time

import pytest

from kodoctl.pulsar.admin import admin_http
from tests.services.polling import eventually
from tests.services.skewed_clock import COMPILER, skewed
from tests.spark.judged import fates_of, judged, outcome

__all__ = ["judged"]
pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(900)]
SERVER_TIME = admin_http._server_time


def clocks(patch, *, machine=0, cluster=0):
    """From now on the clock of this machine, and the one that the cluster tells, are so many seconds ahead; `cluster` None: it
    tells none.
    """
    real, told = time.time, SERVER_TIME
    patch.setattr("kodo_pipeline.ingest.job.time.time", lambda: real() + machine)
    patch.setattr(
        admin_http, "_server_time", lambda answer: None if cluster is None else told(answer) + 1_000 * cluster
    )


def test_neither_a_clock_set_back_nor_an_added_partition_hides_a_loss(judged, monkeypatch):
    real = time.time
    monkeypatch.setattr("kodo_pipeline.ingest.job.time.time", lambda: real() + 300)
    judged.work(10)
    judged.read()
    monkeypatch.undo()
    judged.skipped_is_lost()
    judged.skip_on_an_added_partition(3)
    judged.lost(6)


@pytest.mark.skipif(COMPILER is None, reason="no compiler, and without one no process has another clock")
@pytest.mark.parametrize("hours", [7, -7])
def test_a_workers_clock_changes_no_verdict(judged, hours):
    judged.send_apart(20)
    with skewed(judged.folder, hours), judged.run():
        eventually(lambda: sum(judged.done().values()) == 20 and judged.left() == 0, within=60)
    judged.read()
    found = judged.verdict()
    assert outcome(found) == ("no loss", set()), found["reasons"]
    assert fates_of(found) == {"done": 20}
    judged.skipped_is_lost()


@pytest.mark.skipif(COMPILER is None, reason="no compiler, and without one no process has another clock")
@pytest.mark.parametrize(("hours", "kind"), [(7, "clock"), (-7, "overdue")])
def test_a_producers_clock_hides_no_loss(judged, monkeypatch, hours, kind):
    judged.work(10)
    with skewed(judged.folder, hours):
        judged.send_apart(3)
    judged.read()
    assert outcome(judged.verdict()) == ("inconclusive", {kind}), "they wait, and nobody knows for how long"
    if hours > 0:  # later, when no clock seems wrong any more: their time has come, but they wait since long ago
        judged.read()
        clocks(monkeypatch, machine=hours * 3_600 + 30, cluster=hours * 3_600 + 30)
        judged.read()
        assert outcome(judged.verdict()) == ("inconclusive", {"overdue"})
        monkeypatch.undo()
    judged.told("POST", "/subscription/work/skip_all")
    judged.lost(3)


@pytest.mark.parametrize("hours", [1, -1])
def test_the_clock_of_the_ingests_machine_an_hour_off_decides_nothing_and_is_named(judged, monkeypatch, hours):
    judged.work(5)
    judged.read()
    with monkeypatch.context() as patch:
        clocks(patch, machine=hours * 3_600)
        judged.work(5)
        judged.read()
        found = judged.verdict()
        assert (outcome(found), fates_of(found)) == (("no loss", set()), {"done": 10}), found["reasons"]
        side = "ahead of" if hours > 0 else "behind"
        assert any(f"1h {side} the cluster's" in note for note in found["notes"]), found["notes"]
        judged.send(3)
        judged.read()
        found = judged.verdict()
        assert (outcome(found), fates_of(found)) == (("no loss", set()), {"done": 10, "open": 3}), found["reasons"]
    judged.read()
    found = judged.verdict()
    assert (outcome(found), fates_of(found)) == (("no loss", set()), {"done": 10, "open": 3}), found["reasons"]
    with monkeypatch.context() as patch:
        clocks(patch, machine=(hours + 2) * 3_600, cluster=7_200)  # two hours later: that is beyond the horizon
        judged.read()
        found = judged.verdict()
        assert (outcome(found), fates_of(found)) == (("inconclusive", {"overdue"}), {"done": 10, "overdue": 3})
    judged.finish(5)
    judged.read()
    found = judged.verdict()
    assert (outcome(found), fates_of(found)) == (("no loss", set()), {"done": 13}), found["reasons"]
    judged.skipped_is_lost()


def test_a_cluster_whose_clock_is_not_told_or_was_set_back_is_a_doubt_while_messages_are_open(judged, monkeypatch):
    judged.work(2)
    judged.send(3)
    for seconds, verdict in ((None, "inconclusive"), (0, "no loss"), (-3_600, "inconclusive")):
        with monkeypatch.context() as patch:
            clocks(patch, cluster=seconds)
            judged.read()
            found = judged.verdict()
            kinds = {"clock"} if verdict == "inconclusive" else set()
            assert (outcome(found), fates_of(found)) == ((verdict, kinds), {"done": 2, "open": 3}), found["reasons"]
    judged.told("POST", "/subscription/work/skip_all")
    judged.lost(3)
