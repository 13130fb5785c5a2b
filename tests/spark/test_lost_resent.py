"""Lost messages sent again on a real broker: each once, killed anywhere and run again, and the next audit knows it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pulsar
import pytest
from deltalake import DeltaTable
from kodo_pipeline.evidence.audit_evidence import Cause

from kodoctl.protocol.audit_records import Event
from tests.brokers.workspace import isolated, run_main
from tests.spark.dying import DYING
from tests.spark.judged import Judged, fates_of, judged, outcome

__all__ = ["judged"]
pytestmark = [pytest.mark.broker, pytest.mark.timeout(1_800)]
KILLING = f"""
{DYING}
from kodoctl.pulsar.binary.bundled_producer import BundledProducer
from kodoctl.pulsar.binary.recall_transport import DedupProducer
from kodoctl.recall.send import batch_sender
from kodoctl.recall.ledger.delta_ledger import DeltaLedger

around(DeltaLedger, "append", "first intent", 2)  # the first call books the doubts of an earlier attempt: none
around(DeltaLedger, "append", "first intent booked.", 2)
around(DedupProducer, "send", "sent.", 2)
around(BundledProducer, "_publish", "sent.", 1)  # the same by the native border: a bundle
around(batch_sender.BatchSender, "_count", "stored", 1)
"""
STEPS = ("first intent", "first intent booked.", "sent.", "stored")


def kodoctl(judged: Judged, *words: str, code: int = 0, ledger: str = "recalls") -> str:
    """A command, with the session of Spark that is there; its output."""
    where = ["--admin-url", judged.broker.admin_url, "--broker-url", judged.broker.broker_url, "--ledger", ledger]
    with isolated(judged.folder):
        ended = run_main(*words, *where)
    assert ended.code == code, ended.text
    return " ".join(ended.text.split())


def planned(judged: Judged, *more: str, code: int = 0, ledger: str = "recalls") -> str:
    """A plan of what was lost, in lost.json; the command's output."""
    (judged.folder / "lost.json").unlink(missing_ok=True)
    of = ["--topic", "jobs", "--subscription", "work", "--landing", "landing"]
    command = ["pipeline", "recall", "plan", str(judged.file), *of, "--lost", *more, "--out", "lost.json"]
    return kodoctl(judged, *command, code=code, ledger=ledger)


def exact(judged: Judged, *suffixes: str) -> None:
    """These topics drop what is sent twice."""
    for suffix in suffixes:
        judged.told("POST", f"{suffix}/deduplicationEnabled", body=True)


def no_loss(judged: Judged, **fates: int) -> dict:
    judged.read()
    found = judged.verdict()
    assert (found["verdict"], fates_of(found)) == ("no loss", fates), found
    return found


@pytest.mark.full
def test_lost_messages_are_sent_again_and_the_audit_says_no_loss(judged, monkeypatch):
    """Neither a clock that is set back between two readings nor an added partition hides that they are lost."""
    exact(judged, "-work-RETRYING")
    real = time.time
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: real() + 300)
        judged.work(10)
        judged.read()
    judged.skip(3)
    judged.skip_on_an_added_partition(3)
    found = judged.lost(6)
    assert fates_of(found) == {"done": 10, "lost": 6}
    assert outcome(found) == ("loss", {"lost"}), "a skip is the only thing between traffic and no loss"
    said = planned(judged)
    assert "Recall of lost messages: jobs / work" in said
    assert f"to {judged.topic}-work-RETRYING (6)" in said, "the ground topic does not drop what is sent twice"
    assert "6 messages to send again" in said, said
    kodoctl(judged, "recall", "apply", "lost.json")
    assert judged.verdict()["verdict"] == "no loss", "the ledger says where they are, before anything is read again"
    judged.finish(10)
    found = no_loss(judged, done=16)
    assert found["subscriptions"][0]["sent_again"] == 6
    assert any("6 messages that were lost" in note for note in found["notes"])
    assert found["lost"] == []
    assert sum(judged.done().values()) == 16
    elsewhere = judged.verdict("elsewhere")
    assert outcome(elsewhere) == ("inconclusive", {"ledger", "unproved"}), "by another ledger they are no loss"
    assert "6 messages were sent again" in elsewhere["reasons"][0]["text"]
    assert {one["cause"] for one in elsewhere["findings"]} == {Cause.SENT_AGAIN.value}
    again = kodoctl(judged, "recall", "apply", "lost.json")
    assert "6 messages of the plan sent by an earlier attempt" in again, again
    assert "0 messages to send again" in planned(judged)
    assert "K826" in planned(judged, ledger="elsewhere", code=4), "no second copy goes out"
    assert "0 messages to send again" in planned(judged, "--unproved", "--again", ledger="elsewhere")

    # What was only late comes after all: it is done twice, and the audit tells that.
    judged.told("DELETE", "/subscription/work", force="true")
    judged.told("PUT", "/subscription/work", {"ledgerId": -1, "entryId": -1})
    judged.finish(10)
    judged.read()
    found = judged.verdict()
    assert found["verdict"] == "no loss", found["reasons"]
    assert fates_of(found) == {"done twice": 16}


@pytest.mark.full
def test_a_resend_that_is_killed_at_any_step_sends_each_message_once(judged):
    exact(judged, "")
    judged.work(10)
    judged.skipped_is_lost()
    assert f"to {judged.topic} (3)" in planned(judged)
    for step in STEPS:
        killed(judged, step)
    kodoctl(judged, "recall", "apply", "lost.json")
    judged.finish(10)
    no_loss(judged, done=13)
    assert sum(judged.done().values()) == 13
    copies = [one for one in judged.stored() if "kodo-release" in one.properties()]
    assert len(copies) == 3
    assert {one.properties()["kodo-for"] for one in copies} == {"work"}


def killed(judged: Judged, step: str) -> None:
    """The command, which dies at a step."""
    folder = judged.folder / "killing"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(KILLING, encoding="utf-8")
    where = ["--admin-url", judged.broker.admin_url, "--broker-url", judged.broker.broker_url, "--ledger", "recalls"]
    ended = subprocess.run(
        [sys.executable, "-m", "kodoctl", "recall", "apply", "lost.json", *where], cwd=judged.folder, timeout=120,
        env={**os.environ, "KILL_AT": step, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        start_new_session=True, check=False, capture_output=True,
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL, (step, ended)


@pytest.mark.full
def test_each_lane_has_a_plan_and_what_cannot_be_sent_is_named(judged):
    exact(judged, "", "-work-RETRYING", "-work-DLQ")
    judged.work(10)
    judged.die("order-1", "order-2")
    judged.read()
    judged.told("POST", "-work-DLQ/subscription/kodo-hold/skip_all")
    judged.skip(3)
    judged.read()
    found = judged.verdict()
    assert {one["lane"]: one["messages"] for one in found["lost"]} == {"L1/ready": 3, "dead": 2}
    several = planned(judged)
    assert "kodoctl recall apply lost-1.json" in several
    assert [
        (plan["lane"], len(plan["letters"]))
        for plan in (json.loads((judged.folder / f"lost-{number}.json").read_text()) for number in (1, 2))
    ] == [("L1/ready", 3), ("dead", 2)], "one audit, a plan of each lane"
    said = planned(judged, "--format", "json")
    document, _ = json.JSONDecoder().raw_decode(said[said.index('{ "plans"') :])
    assert [plan["lane"] for plan in document["plans"]] == ["L1/ready", "dead"], "one document"

    events = DeltaTable(f"{judged.landing.root.uri}/events")  # one payload is masked: its row is there
    gone = max(one["id"] for one in found["findings"] if one["msg_topic"] == judged.topic)
    events.update(updates={"payload": "NULL"}, predicate=f"id = '{gone}'")
    said = planned(judged, "--lane", "dead")
    assert "2 messages to send again" in said
    assert f"to {judged.topic}-work-DLQ (2)" in said
    kodoctl(judged, "recall", "apply", "lost.json")
    judged.read()
    assert judged.verdict()["subscriptions"][0]["messages"]["dead"] == 2


@pytest.mark.full
def test_what_was_lost_on_its_way_is_made_of_the_message_it_was_moved_from(judged):
    exact(judged, "-work-RETRYING")
    judged.work(10)  # one of them was tried twice, so the topic has an entry
    with judged.client() as client:
        reader = client.create_reader(f"{judged.topic}-work-RETRYING-partition-0", pulsar.MessageId.earliest)
        place = reader.read_next(5_000).message_id()
    nowhere = f"{place.ledger_id()}:{place.entry_id()}:0:7"  # it is no batch
    judged.removed_and_forged(
        event=Event.MOVED, rule="retry", reason="boom", target=f"{judged.topic}-work-RETRYING", target_id=nowhere
    )
    judged.lost(1)
    assert "1 message to send again" in planned(judged)
    kodoctl(judged, "recall", "apply", "lost.json")
    judged.finish(10)  # it has the text of one of the others
    no_loss(judged, done=11)


@pytest.mark.full
def test_what_is_written_off_stands_against_no_verdict_and_the_next_loss_does(judged):
    judged.work(10)
    judged.skipped_is_lost()
    of = [str(judged.file), "--landing", "landing", "--reason", "sent by hand"]
    said = kodoctl(judged, "pipeline", "write-off", "plan", *of, "--out", "off.json")
    assert "jobs-partition" not in said, "no partition has a doubt"
    assert "/ work: 3 messages lost, or not proved done" in said
    confirmed = json.loads((judged.folder / "off.json").read_text(encoding="utf-8"))["hash"]
    with isolated(judged.folder):
        booked = run_main("pipeline", "write-off", "apply", "off.json", "--hash", confirmed)
    assert booked.code == 0, booked.text
    found = judged.verdict()
    assert (found["verdict"], fates_of(found)) == ("no loss", {"done": 10, "written off": 3})
    assert any("3 messages written off by" in note for note in found["notes"])
    assert "nothing: no loss and no doubt" in kodoctl(judged, "pipeline", "write-off", "plan", *of)
    judged.skip(2)
    judged.lost(2)
