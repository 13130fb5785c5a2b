"""`kodoctl pipeline audit` as it is typed: verdicts as exit codes, and what it says when there is nothing to judge."""

from __future__ import annotations

import shutil

import pytest

from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from kodoctl.topology.names import State
from tests.spark.traffic import Traffic

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]
TOPICS = "orders: {partitions: 1, subscriptions: {billing: {states: [retrying], audit: true}}}"


def test_the_verdict_is_the_exit_code_and_every_run_has_its_id(spark, workspace):
    file = workspace.topology(TOPICS)
    landing = workspace.folder / "landing"
    typed = ("pipeline", "audit", str(file), "--landing", str(landing), "--ledger", str(workspace.folder / "recalls"))
    nothing = workspace.run(*typed, code=1)
    assert "no run has landed [K810]" in nothing.err
    assert "land first: kodoctl pipeline ingest" in " ".join(nothing.err.split())
    assert nothing.out == ""

    def judged(what, code):
        shutil.rmtree(landing, ignore_errors=True)
        traffic = Traffic(expand(load_topology(str(file))))
        traffic.done(0, "anna")
        traffic.record(9, traffic.move(2, traffic.store(1, "ben"), State.RETRYING))
        what(traffic)
        traffic.land(landing, ended=60)
        return workspace.run(*typed, "--format", "json", code=code).json()

    found = judged(lambda traffic: None, 0)
    assert (found["verdict"], found["subscriptions"][0]["messages"]) == ("no loss", {"done": 2})
    assert found["run"]
    found = judged(lambda traffic: traffic.store(3, "cleo"), 5)
    assert (found["verdict"], found["findings"][0]["fate"]) == ("loss", "lost")
    found = judged(lambda traffic: traffic.transitions.pop(0), 6)  # a record is missing, or a message
    assert (found["verdict"], found["reasons"][0]["kind"]) == ("inconclusive", "lost or unrecorded")
    told = workspace.run(*typed, code=6)
    run = told.err.split()[1].rstrip(":")
    assert told.out.splitlines()[-1] == f"run: {run}"


def test_a_landing_of_a_run_that_was_cut_off_says_so(workspace):
    file = workspace.topology(TOPICS)
    landing = workspace.folder / "landing"
    Traffic(expand(load_topology(str(file)))).land(landing, ended=60, runs=1)
    found = workspace.run("pipeline", "audit", str(file), "--landing", str(landing), code=1)
    assert "holds no run but one that was cut off" in " ".join(found.err.split())
