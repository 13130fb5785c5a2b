"""`kodoctl pipeline audit` as it is typed: verdicts as exit codes, and what it says when there is nothing to judge."""

from __future__ import annotations

import shutil

import pytest

from kodoctl.protocol.properties import SEQ
from kodoctl.protocol.sequence_numbers import NOBODY
from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from kodoctl.topology.names import State
from tests.spark.traffic import BEGIN, Traffic

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]
TOPICS = "orders: {partitions: 1, subscriptions: {billing: {states: [retrying], audit: true}}}"


class Judge:
    """Two orders that are done, what a case makes of them, and the audit of that as it is typed."""

    def __init__(self, workspace):
        self.workspace, self.landing = workspace, workspace.folder / "landing"
        self.file = workspace.topology(TOPICS)
        ledger = str(workspace.folder / "recalls")
        self.typed = ("pipeline", "audit", str(self.file), "--landing", str(self.landing), "--ledger", ledger)

    def audits(self, what, code, *options):
        shutil.rmtree(self.landing, ignore_errors=True)
        traffic = Traffic(expand(load_topology(str(self.file))))
        traffic.done(0, "anna")
        traffic.record(9, traffic.move(2, traffic.store(1, "ben"), State.RETRYING))
        what(traffic)
        traffic.land(self.landing, ended=60)
        return self.workspace.run(*self.typed, *options, code=code)


def _one_record_less(traffic):
    traffic.transitions.pop(0)  # it is missing, or a message


def test_loss_and_doubt_are_exit_codes_and_every_run_has_its_id(spark, workspace):
    judge = Judge(workspace)
    nothing = workspace.run(*judge.typed, code=64)
    assert "nothing has landed [K801]" in nothing.err
    assert "land first: kodoctl pipeline ingest" in " ".join(nothing.err.split())
    assert nothing.out == ""
    found = judge.audits(lambda traffic: traffic.store(3, "cleo"), 5, "--format", "json").json()
    assert (found["verdict"], found["findings"][0]["fate"]) == ("loss", "lost")
    assert found["run"]
    assert found["read_at"] == round((BEGIN.timestamp() + 60) * 1000), "the run that read, not this one"
    for file in (judge.landing / "trade/base/events/000000000-r2").rglob("*.parquet"):
        file.unlink()
    gone = workspace.run(*judge.typed, code=1)
    assert "[K573]" in gone.err
    assert "is gone, and its table names it" in " ".join(gone.err.split()), "what stood there would be missed by nobody"
    told = judge.audits(_one_record_less, 6)
    run = told.err.split()[1].rstrip(":")
    assert told.out.splitlines()[-1] == f"run: {run}"


@pytest.mark.full
def test_with_the_keys_of_the_platform_a_strangers_mark_proves_no_loss(spark, workspace, monkeypatch):
    def marked(traffic):
        count = {"seq_run": "f" * 15, "seq_partition": 0, "seq_high": 9, "seq_end": True}
        traffic.done(3, "eve", for_subscription=NOBODY, size=0, properties={SEQ: f"{'f' * 15}:0:high=9:end"}, **count)

    judge = Judge(workspace)
    monkeypatch.setenv("KODO_CONSUMER_SIGNING_KEYS", "short")
    refused = judge.audits(marked, 64)
    assert "KODO_CONSUMER_SIGNING_KEYS: key 1 has fewer than 16 characters" in " ".join(refused.err.split())
    monkeypatch.setenv("KODO_CONSUMER_SIGNING_KEYS", "a key of many characters")
    # Spark was started without it here: a key travels by its variable's name, never as text.
    unset = judge.audits(marked, 1)
    assert "KODO_CONSUMER_SIGNING_KEYS is not set where it is needed" in " ".join(unset.err.split())
    monkeypatch.setitem(spark.sparkContext.environment, "KODO_CONSUMER_SIGNING_KEYS", "a key of many characters")
    found = judge.audits(marked, 6, "--format", "json").json()
    assert [one["kind"] for one in found["reasons"]] == ["unsigned mark"]


@pytest.mark.full
def test_no_loss_is_exit_code_0_and_doubt_says_why(spark, workspace):
    judge = Judge(workspace)
    found = judge.audits(lambda traffic: None, 0, "--format", "json").json()
    assert (found["verdict"], found["subscriptions"][0]["messages"]) == ("no loss", {"done": 2})
    found = judge.audits(_one_record_less, 6, "--format", "json").json()
    assert (found["verdict"], found["reasons"][0]["kind"]) == ("inconclusive", "lost or unrecorded")


def test_a_landing_of_a_run_that_was_cut_off_says_so(workspace):
    file = workspace.topology(TOPICS)
    landing = workspace.folder / "landing"
    Traffic(expand(load_topology(str(file)))).land(landing, ended=60, runs=1)
    found = workspace.run("pipeline", "audit", str(file), "--landing", str(landing), code=64)
    assert "holds no run but one that was cut off" in " ".join(found.err.split())
