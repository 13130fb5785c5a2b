"""Disasters on the real broker around audit records: workers killed before them, records that come late, go, or are forged."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from kodo_pipeline.evidence.audit_evidence import Cause

from kodoctl.errors import KodoctlError
from kodoctl.protocol.audit_records import Event
from tests.broker.test_consumer_process import APP
from tests.brokers.topics import unload
from tests.services.polling import eventually
from tests.spark.judged import Judged, fates_of, judged, outcome

__all__ = ["judged"]
pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]
DYING = """
import os, signal

from kodo_consumer.core.engine.audit_recorder import AuditRecorder


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
around("on_stored", "recorded", 1, lambda *_: True)
"""
LAGGING = """
import os

from kodo_consumer.core.engine import audit_recorder as audit

audit.GATHER = float(os.environ.get("GATHER", audit.GATHER))
"""


@pytest.fixture(autouse=True)
def _interpreted_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """What DYING and LAGGING replace, a compiled core does not look up."""
    monkeypatch.setenv("KODO_FAST_CORE", "false")


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
    assert "A program that may write to the audit topic can make a removed message look done" in page


# --- records that are gone, or were not kept


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
