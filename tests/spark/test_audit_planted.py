"""Disasters on the real broker around what the verdict goes by: records, clocks, kills, what was there before it was read."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pulsar
import pytest
from deltalake import DeltaTable

from kodoctl.errors import KodoctlError
from kodoctl.pipeline.audit.verdict import Cause
from kodoctl.pipeline.ingest import job as ingesting
from kodoctl.pipeline.ingest.landing_commits import newest_batch
from kodoctl.protocol.audit_records import Event
from kodoctl.pulsar import admin_http
from tests.broker.test_consumer_process import APP
from tests.skewed import COMPILER, skewed
from tests.spark.judged import Judged, fates_of, judged
from tests.support import EARLIEST, LATEST, eventually, unload

__all__ = ["judged"]
pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]
SERVER_TIME = admin_http._server_time
DYING = """
import os, signal

from kodo_consumer.core.audit_recorder import AuditRecorder


def around(name, step, nth, concerns):
    '''The process dies before its nth call that concerns us.'''
    original, seen = getattr(AuditRecorder, name), []

    def patched(*arguments, **named):
        if os.environ.get("KILL_AT") == step and concerns(arguments, named):
            seen.append(1)
            if len(seen) == nth:
                os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **named)

    setattr(AuditRecorder, name, patched)


around("add", "stored", 3, lambda arguments, _: len(arguments) > 5 and arguments[5])
around("stored", "recorded", 1, lambda *_: True)
"""
LAGGING = """
import os

from kodo_consumer.core import audit_recorder as audit

audit.GATHER = float(os.environ.get("GATHER", audit.GATHER))
"""


def outcome(found):
    return found["verdict"], {one["kind"] for one in found["reasons"]}


def trimmed(judged, suffix=""):
    """Nothing that is acknowledged is kept, and the ledger it was in is closed."""
    judged.told("POST", f"{suffix}/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    unload(judged.broker, f"{judged.topic}{suffix}")
    part = f"persistent/{judged.namespace}/jobs{suffix}"

    def gone():
        judged.broker.admin("POST", f"{part}/trim")
        return judged.broker.admin("GET", f"{part}-partition-0/internalStats").json()["numberOfEntries"] == 0

    eventually(gone, within=120, every=0.3)


def clocks(patch, *, machine=0, cluster=0):
    """From now on the clock of this machine, and the one that the cluster tells, are so many seconds ahead; `cluster` None: it
    tells none.
    """
    real, told = time.time, SERVER_TIME
    patch.setattr(ingesting.time, "time", lambda: real() + machine)
    patch.setattr(
        admin_http, "_server_time", lambda answer: None if cluster is None else told(answer) + 1_000 * cluster
    )


# --- clocks and what was never seen: each of these was "no loss" once


def test_neither_a_clock_set_back_nor_an_added_partition_hides_a_loss(judged, monkeypatch):
    real = time.time
    monkeypatch.setattr(ingesting.time, "time", lambda: real() + 300)
    judged.work(10)
    judged.read()
    monkeypatch.undo()
    judged.skipped_is_lost()
    judged.told("POST", "/partitions", 2)
    with judged.client() as client:
        producer = client.create_producer(f"{judged.topic}-partition-1", batching_enabled=False)
        for _ in range(3):
            producer.send(b"7", properties={"uid": "u1"})
    judged.told("POST", "/subscription/work/skip_all")
    judged.lost(6)


@pytest.mark.full
def test_what_is_deleted_before_the_second_reading_is_never_no_loss(judged):
    judged.publish()
    judged.told("POST", "/subscription/work/skip_all")
    trimmed(judged)
    judged.read()
    assert outcome(judged.verdict()) == ("inconclusive", {"beginning"})


# --- workers killed, and late with their records


@pytest.mark.full
@pytest.mark.parametrize("step", ["stored", "recorded"])
def test_a_worker_killed_between_publish_and_acknowledge_loses_nothing(judged, monkeypatch, step):
    (judged.folder / "app.py").write_text(DYING + APP, encoding="utf-8")
    monkeypatch.setenv("KILL_AT", step)
    judged.send(60)
    with judged.run() as process:
        assert process.wait(60) == -signal.SIGKILL
    judged.read()
    found = judged.verdict()
    assert outcome(found) == ("no loss", set()), found["reasons"]
    assert fates_of(found).get("done", 0) < 60, "it was killed before the last was done"
    monkeypatch.delenv("KILL_AT")
    judged.finish(60)
    judged.read()
    found = judged.verdict()
    fates = fates_of(found)
    assert outcome(found) == ("no loss", set()), found["reasons"]
    assert fates.get("done", 0) + fates.get("done twice", 0) == 60, fates
    assert fates.get("done twice", 0) <= 60
    judged.skipped_is_lost()


@pytest.mark.full
@pytest.mark.parametrize("mode", ["wait", "best_effort"])
def test_records_that_come_a_minute_late_make_no_false_loss(judged, monkeypatch, mode):
    if mode == "best_effort":
        judged.declare(judged.file.read_text(encoding="utf-8").replace("audit: true", "audit: best_effort"))
    (judged.folder / "app.py").write_text(LAGGING + APP, encoding="utf-8")
    monkeypatch.setenv("GATHER", "60")
    judged.send(9)
    with judged.run():
        eventually(lambda: len(judged.done()) >= 8, within=60)
        for _ in range(2):  # while the records are on their way
            judged.read()
            found = judged.verdict()
            assert found["verdict"] == ("no loss" if mode == "wait" else "inconclusive"), found["reasons"]
            assert not {"lost", "overdue"} & fates_of(found).keys()
        eventually(lambda: sum(one.event is Event.DONE for one in judged.records()) >= 9, within=240, every=2)
        eventually(lambda: judged.left() == 0, within=120)
        judged.read()
        found = judged.verdict()
    assert outcome(found) == (("no loss", set()) if mode == "wait" else ("inconclusive", {"best effort"}))
    assert fates_of(found) == {"done": 9}


@pytest.mark.full
@pytest.mark.parametrize("mode", ["wait", "best_effort"])
def test_records_that_were_not_yet_sent_at_one_reading_are_found_by_the_next(judged, monkeypatch, mode):
    if mode == "best_effort":
        text = judged.file.read_text(encoding="utf-8").replace("audit: true", "audit: best_effort")
        judged.declare(text)
    (judged.folder / "app.py").write_text(LAGGING + APP, encoding="utf-8")
    monkeypatch.setenv("GATHER", "600")
    judged.send(9)
    with judged.run() as process:
        eventually(lambda: len(judged.done()) == 8)  # one of them waits for its second attempt
        if mode == "best_effort":  # they are acknowledged without their records, a moment after they are done
            eventually(lambda: judged.left() <= 1)
        judged.read()
        found = judged.verdict()
        if mode == "wait":
            assert outcome(found) == ("no loss", set())
            assert fates_of(found) == {"open": 9}
        else:
            assert outcome(found) == ("inconclusive", {"best effort", "unproved"})
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    monkeypatch.delenv("GATHER")
    judged.finish(9)
    judged.read()
    found = judged.verdict()
    assert fates_of(found) == {"done": 9}
    assert outcome(found) == (("no loss", set()) if mode == "wait" else ("inconclusive", {"best effort"}))


# --- clocks of workers and producers


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
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


# --- records that no worker wrote


@pytest.mark.full
def test_forged_records_are_told_where_that_can_be_told(judged):
    judged.work(10)
    known = set()
    for what, kind in (
        ({"identity": "order-9"}, "unproved"),  # a name that the message does not have
        ({"run": judged.records()[0].run}, "forged records"),  # a number that a worker's record has
        ({"id": "999999999:1:0:-1"}, "lost"),  # of a message that never was: the removed one stays without
        ({"number": 7}, "records"),  # a number beyond a run's beginning
    ):
        judged.removed_and_forged(**what)
        judged.read()
        found = judged.verdict()
        kinds = {one["kind"] for one in found["reasons"]}
        assert found["verdict"] != "no loss", what
        assert kind in kinds - known, (what, found["reasons"])
        known = kinds


@pytest.mark.full
def test_a_forgery_without_a_flaw_is_believed_as_the_page_says(judged):
    judged.work(10)
    judged.removed_and_forged()
    judged.read()
    assert outcome(judged.verdict()) == ("no loss", set())
    page = (Path(__file__).parents[2] / "docs/explanation/audit.md").read_text(encoding="utf-8")
    assert "Whoever may write to the audit topic can have a removed message taken for done" in page


# --- topics of which something is gone


@pytest.mark.full
def test_what_was_deleted_before_the_first_reading_is_never_no_loss(spark, broker, tenant, tmp_path):
    judged = Judged(spark, broker, tenant, tmp_path, look=False)
    judged.publish()
    judged.told("POST", "/subscription/work/skip_all")
    trimmed(judged)
    judged.read()
    judged.work(5)
    judged.read()
    assert outcome(judged.verdict()) == ("inconclusive", {"beginning"})


@pytest.mark.full
def test_records_that_are_deleted_before_they_are_read_prove_nothing(judged):
    judged.work(10)
    audit = f"{judged.topic}-work-AUDIT"
    unload(judged.broker, audit)
    assert judged.broker.admin("DELETE", f"{audit.replace('://', '/')}/truncate").ok
    judged.work(10)
    judged.read()
    found = judged.verdict()
    assert outcome(found) == ("inconclusive", {"unproved"}), found["reasons"]
    assert {one["cause"] for one in found["findings"]} == {Cause.BEFORE.value, Cause.UNRECORDED.value}
    judged.skip(3)  # what came later has records that cannot be missed
    judged.read()
    found = judged.verdict()
    assert (found["verdict"], fates_of(found)["lost"]) == ("loss", 3)


@pytest.mark.full
def test_records_that_are_turned_on_after_the_traffic_call_none_of_it_lost(spark, broker, tenant, tmp_path):
    judged = Judged(spark, broker, tenant, tmp_path, look=False)
    audited = judged.file.read_text(encoding="utf-8")
    judged.declare(audited.replace("audit: true, ", ""))
    judged.read()
    judged.work(10)
    judged.read()
    judged.declare(audited)
    assert outcome(judged.verdict()) == ("inconclusive", {"never read", "unproved"})
    judged.read()
    found = judged.verdict()
    assert (outcome(found), fates_of(found)) == (("inconclusive", {"unproved"}), {"unproved": 10})
    judged.work(5)
    judged.skip(3)  # from here on records can be missed
    judged.read()
    found = judged.verdict()
    assert (found["verdict"], fates_of(found)) == ("loss", {"done": 5, "lost": 3, "unproved": 10})


@pytest.mark.full
def test_records_that_are_deleted_between_two_readings_stop_the_ingest(judged):
    judged.work(10)
    judged.read()
    judged.work(10)
    audit = f"{judged.topic}-work-AUDIT"
    unload(judged.broker, audit)
    assert judged.broker.admin("DELETE", f"{audit.replace('://', '/')}/truncate").ok
    with pytest.raises(KodoctlError, match="K574"):
        judged.read()
    judged.read(accept_holes=True)
    found = judged.verdict()
    assert outcome(found) == ("inconclusive", {"coverage", "unproved"}), found["reasons"]


@pytest.mark.full
def test_a_subscription_made_again_at_the_latest_message_has_lost_what_it_skipped(judged):
    judged.work(10)
    judged.send(3)
    judged.told("DELETE", "/subscription/work", force="true")
    judged.told("PUT", "/subscription/work", LATEST)
    judged.work(5)
    found = judged.lost(3)
    assert fates_of(found) == {"done": 15, "lost": 3}


@pytest.mark.full
def test_a_topic_made_again_is_not_the_one_that_was_read(judged):
    judged.publish()
    path = judged.part.removesuffix("-partition-0")
    assert judged.broker.admin("DELETE", f"{path}/partitions", force="true").ok
    assert judged.broker.admin("PUT", f"{path}/partitions", 1).ok
    judged.told("PUT", "/subscription/work", EARLIEST)
    judged.work(5)
    judged.read()
    found = judged.verdict()
    assert found["verdict"] == "inconclusive"
    assert "made again" in found["reasons"][0]["text"], found["reasons"]


@pytest.mark.full
def test_a_landing_whose_last_batch_somebody_took_away_is_refused(judged):
    judged.work(10)
    judged.read()
    judged.skipped_is_lost()
    last = newest_batch(judged.landing.commits())
    DeltaTable(f"{judged.landing.root.uri}/commits").delete(f"batch = {last}")
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)events has [0-9]+ of [0-9]+ rows that were committed to it"):
        judged.verdict()


@pytest.mark.full
def test_what_goes_with_a_deleted_subscription_or_topic_is_never_no_loss(judged):
    judged.work(10)
    judged.send(3)
    judged.read()
    assert outcome(judged.verdict()) == ("no loss", set())
    judged.told("DELETE", "/subscription/work", force="true")
    judged.read()
    assert outcome(judged.verdict()) == ("inconclusive", {"no subscription", "unproved"})
    assert judged.broker.admin("DELETE", f"{judged.part.removesuffix('-partition-0')}/partitions", force="true").ok
    judged.read()
    found = judged.verdict()
    assert "gone" in outcome(found)[1], found["reasons"]
    assert found["verdict"] == "inconclusive"


@pytest.mark.full
def test_a_quiet_topic_that_retention_empties_and_the_broker_loads_again_is_no_loss(judged):
    judged.work(10)
    judged.read()
    trimmed(judged)
    judged.read()
    for _ in range(2):
        unload(judged.broker, judged.topic)  # its empty ledger is replaced
        judged.read()
    judged.work(5)
    judged.read()
    found = judged.verdict()
    assert outcome(found) == ("no loss", set()), found["reasons"]
    assert fates_of(found) == {"done": 15}


# --- recalls


@pytest.mark.full
@pytest.mark.parametrize("looked", [False, True])
def test_a_recalled_letter_that_is_deleted_unread_is_never_no_loss(spark, broker, tenant, tmp_path, looked):
    judged = Judged(spark, broker, tenant, tmp_path, look=looked)
    judged.die("order-1")
    judged.recall()
    judged.told("POST", "-work-RETRYING/subscription/work/skip_all")
    judged.told("POST", "-work-RETRYING/deduplicationEnabled", body=False)  # its cursor keeps them
    trimmed(judged, "-work-RETRYING")
    judged.read()
    found = judged.verdict()
    assert outcome(found) == ("inconclusive", {"unproved"}), found["reasons"]
    assert [one["cause"] for one in found["findings"]] == [Cause.UNCONFIRMED_RECALL.value]
    judged.work(3)
    judged.read()
    assert judged.verdict()["verdict"] == "inconclusive", "nothing that comes later says what became of it"


@pytest.mark.full
def test_copies_of_a_dead_letter_are_recalled_once_and_none_is_lost(judged):
    judged.die("order-1", "order-1", "order-2")
    judged.recall()
    judged.finish(1)
    judged.read()
    found = judged.verdict()
    assert outcome(found) == ("no loss", set()), found["reasons"]
    assert fates_of(found) == {"done": 2}
    judged.die("order-3")
    judged.recall()
    judged.told("POST", "-work-RETRYING/subscription/work/skip_all")
    judged.lost(1)


@pytest.mark.full
def test_a_foreign_consumer_at_one_ingest_takes_no_loss_back(judged):
    judged.work(5)
    judged.skipped_is_lost()
    with judged.client() as client:
        foreign = client.subscribe(judged.topic, "work", consumer_type=pulsar.ConsumerType.Shared)
        judged.send(2)
        for _ in range(3):  # its producer's mark, too
            foreign.acknowledge(foreign.receive(5_000))
        eventually(lambda: judged.left() == 0)
        judged.read()
        found = judged.verdict()
        assert (found["verdict"], fates_of(found)) == ("loss", {"done": 5, "lost": 3, "unproved": 2})
        assert "unrecorded workers" in outcome(found)[1]
    judged.work(4)
    judged.read()
    found = judged.verdict()
    assert (found["verdict"], fates_of(found)) == ("loss", {"done": 9, "lost": 3, "unproved": 2})
    judged.skip(1)
    judged.read()
    assert fates_of(judged.verdict()) == {"done": 9, "lost": 4, "unproved": 2}


@pytest.mark.full
def test_a_foreign_subscription_on_the_same_topics_changes_no_verdict(judged):
    with judged.client() as client:
        for suffix in ("", "-work-RETRYING", "-work-AUDIT"):
            foreign = client.subscribe(
                f"{judged.topic}{suffix}", "theirs", consumer_type=pulsar.ConsumerType.Shared,
                initial_position=pulsar.InitialPosition.Earliest,
            )  # fmt: skip
        judged.work(5)
        foreign.acknowledge(foreign.receive(5_000))
        judged.told("POST", "/subscription/theirs/skip_all")
        judged.read()
        found = judged.verdict()
        assert (outcome(found), fates_of(found)) == (("no loss", set()), {"done": 5})
        judged.skipped_is_lost()
    judged.told("DELETE", "/subscription/theirs", force="true")
    judged.read()
    found = judged.verdict()
    assert (found["verdict"], fates_of(found)) == ("loss", {"done": 5, "lost": 3})


@pytest.mark.full
def test_an_ingest_between_audit_true_and_the_restart_of_the_workers_calls_nothing_lost(
    spark, broker, tenant, tmp_path
):
    judged = Judged(spark, broker, tenant, tmp_path, look=False)
    audited = judged.file.read_text(encoding="utf-8")
    judged.declare(audited.replace("audit: true, ", ""))
    with judged.run():  # begun before `audit: true`
        judged.send(3)
        eventually(lambda: sum(judged.done().values()) == 3 and judged.left() == 0, within=60)
        judged.declare(audited)
        judged.read()
        assert "unrecorded workers" in outcome(judged.verdict())[1]
        judged.send(5)
        eventually(lambda: sum(judged.done().values()) == 8 and judged.left() == 0, within=60)
    judged.work(4)
    judged.read()
    found = judged.verdict()
    assert outcome(found) == ("inconclusive", {"unproved"}), found["reasons"]
    assert fates_of(found) == {"done": 4, "unproved": 8}
    judged.skip(3)
    judged.read()
    found = judged.verdict()
    assert (found["verdict"], fates_of(found)) == ("loss", {"done": 4, "lost": 3, "unproved": 8})
