"""`kodoctl pipeline recall apply` on a real broker: lanes side by side, each letter once, killed anywhere and run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kodoctl.recall.plan import letter_table, selection
from kodoctl.recall.plan.recall_plan import SEGMENT
from tests.broker.recalling import DLQ, ONE_LANE, RETRYING, Recalls
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually
from tests.source_roots import PATHS
from tests.spark.dying import DYING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broker
LETTERS = 120
KILLING = f"""
{DYING}
from kodo_pipeline.recall import send_job as sending
from kodoctl.pulsar.binary.bundled_producer import BundledProducer
from kodoctl.pulsar.binary.recall_transport import DeadLetterConsumer, DedupProducer
from kodoctl.recall.send import batch_sender, dead_letter_partitions
from kodoctl.recall.ledger.delta_ledger import DeltaLedger

sending.AT_ONCE = 20
around(DeltaLedger, "append", "first intent", 2)  # the first call books the doubts of an earlier attempt: none
around(DeltaLedger, "append", "first intent booked.", 2)
around(DedupProducer, "send", "first sent.", 1)
around(DedupProducer, "send", "sent.", 13)
around(BundledProducer, "_publish", "first sent.", 1)  # the same by the native border: a bundle of some messages
around(BundledProducer, "_publish", "sent.", 2)
around(batch_sender.BatchSender, "_count", "stored", 2)  # all receipts are there, nothing of it is booked
around(DeltaLedger, "append", "booked.", 4)  # the first bundle, while the second is on its way
around(sending, "_total", "all sent", 1)
around(DeadLetterConsumer, "acknowledge", "acknowledged.", 25)
around(dead_letter_partitions.DeadLetterPartitions, "count_unacknowledged", "all done", 1)
"""
BRIEF, LONG = (
    "sent.",
    [
        "first intent",
        "first intent booked.",
        "first sent.",
        "stored",
        "booked.",
        "all sent",
        "acknowledged.",
        "all done",
    ],
)


def _apply(recalls: Recalls, *more: str, file: str = "p.json", code: int | None = 0) -> dict[str, Any]:
    run = recalls.workspace.run(
        "pipeline", "recall", "apply", file, "--rate", "50000/s", "--format", "json", *more, code=code
    )
    found: dict[str, Any] = json.loads(run.out) if run.out else {}
    return found | {"said": run.err}


def _killed(recalls: Recalls, step: str) -> None:
    """The command as a process of its own, which dies at a step, with Spark and all its tasks."""
    folder = recalls.workspace.folder / "killing"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(KILLING, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "kodoctl",
        "pipeline",
        "recall",
        "apply",
        "p.json",
        "--rate",
        "50000/s",
        "--master",
        "local[2]",
    ]
    environment = {**os.environ, "KILL_AT": step, "PYTHONPATH": f"{folder}:{PATHS}"}
    with subprocess.Popen(
        [*command, *recalls.workspace.connection()], cwd=recalls.workspace.folder, env=environment, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        _, err = process.communicate(timeout=290)
    assert process.returncode == -signal.SIGKILL, f"{step}: {err}"
    assert "Traceback" not in err


def _kill_and_again(recalls: Recalls, step: str) -> None:
    recalls.die(range(LETTERS), batch=7)
    chosen = {n for n in range(LETTERS) if n % 3}
    recalls.plan("payload.n % 3 > 0")
    _killed(recalls, step)
    at_kill = recalls.arrived()
    assert max(at_kill.values(), default=1) == 1, step
    report = _apply(recalls)
    assert report["complete"], step
    assert recalls.arrived() == Counter(chosen), f"{step}: each once"
    assert recalls.held() == set(range(LETTERS)) - chosen
    assert Counter(recalls.booked().values()) == recalls.receipts(), "the audit looks for letters where they are booked"


def _in_segments(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Plans that are made from now on have so many rows in a segment."""
    for module in (letter_table, selection):
        monkeypatch.setattr(module, "SEGMENT", rows)


@pytest.mark.full
@pytest.mark.parametrize("rows", [30, SEGMENT])
def test_a_kill_in_the_middle_of_sending_and_again_each_letter_arrives_once(
    rows: int, spark: SparkSession, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    _in_segments(monkeypatch, rows)
    _kill_and_again(Recalls(workspace), BRIEF)


@pytest.mark.full
@pytest.mark.parametrize("rows", [SEGMENT, 30])
@pytest.mark.parametrize("step", LONG)
def test_a_kill_at_any_step_and_again_each_letter_arrives_once(
    step: str, rows: int, spark: SparkSession, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    _in_segments(monkeypatch, rows)
    _kill_and_again(Recalls(workspace), step)


@pytest.mark.full
def test_a_plan_of_many_segments_is_made_and_carried_out_by_spark(
    spark: SparkSession, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    _in_segments(monkeypatch, 20)
    recalls = Recalls(workspace)
    recalls.die([*range(90), *range(5)], batch=7)
    named = [
        "topologies",
        "--topic",
        "orders",
        "--subscription",
        "billing",
        "--where",
        "payload.n < 80",
        "--out",
        "p.json",
    ]
    made = workspace.run("pipeline", "recall", "plan", *named, "--format", "json")
    plan = made.json()
    assert (plan["letters"]["rows"], plan["letters"]["letters"], plan["settle"]) == (85, 80, [])
    assert "Its letters are in p.json.letters, which belongs beside it." in made.err
    report = _apply(recalls)
    assert (report["sent"], report["before"], report["acknowledged"], report["complete"]) == (80, 0, 85, True)
    assert report["said"].count("Sending 20 letters into 2 lanes, 2 at a time.") == 4, "the last has only copies"
    assert recalls.arrived() == Counter(range(80))
    assert recalls.held() == set(range(80, 90))
    again = recalls.apply()
    assert (again["sent"], again["already"], again["before"], again["complete"]) == (0, 80, 80, True)
    table = workspace.folder / "p.json.letters"
    table.write_bytes(table.read_bytes()[:-1])
    assert "K559" in workspace.run("recall", "apply", "p.json", code=4).err


BLIND = """
from kodoctl.recall import cluster

cluster.largest_message = lambda *_: None
"""


@pytest.mark.full
def test_an_interrupt_ends_tasks_that_wait_for_receipts_for_ever(workspace: Workspace) -> None:
    """A role that may not ask for limits sends a letter that is too large: its lane stands still."""
    recalls = Recalls(workspace, ONE_LANE)
    recalls.plan_one_too_large()
    folder = workspace.folder / "blind"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BLIND, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{PATHS}"}
    process = workspace.process(
        *["pipeline", "recall", "apply", "p.json", "--rate", "50000/s", "--master", "local[2]"], env=environment
    )
    eventually(lambda: 0 in recalls.arrived(), every=0.5, within=120)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "Interrupted:" in out
    assert "Traceback" not in err
    recalls.limit(RETRYING, 100 << 10)
    recalls.apply(code=None)
    recalls.plan(file="rest.json")
    recalls.apply(file="rest.json")
    assert recalls.arrived() == Counter(range(6))
    assert recalls.held() == set()


def test_lanes_are_sent_side_by_side_and_what_was_sent_is_not_sent_again(
    spark: SparkSession, workspace: Workspace
) -> None:
    recalls = Recalls(workspace)
    recalls.die([*range(60), *range(5)], batch=7)
    recalls.plan("payload.n < 50")
    report = _apply(recalls)
    assert (report["sent"], report["before"], report["acknowledged"], report["complete"]) == (50, 0, 55, True)
    assert "Sending 50 letters into 2 lanes, 2 at a time." in report["said"]
    assert recalls.arrived() == Counter(range(50))
    assert recalls.held() == set(range(50, 60))
    for one in recalls.stored(RETRYING):
        n = json.loads(one.payload or b"")["n"]
        assert (one.key, one.ordering_key, one.event_time) == (f"k{n % 5}", "o", 1_000 + n)
        assert dict(one.properties) == {
            "uid": f"u{n % 3}", "kodo-id": f"id-{n}", "kodo-origin-id": f"9:{n}:0:-1", "kodo-recall": one.properties["kodo-recall"],
        }  # fmt: skip
    again = _apply(recalls)
    assert (again["sent"], again["already"], again["before"], again["complete"]) == (0, 50, 50, True)
    assert "Sending" not in again["said"], "nothing left: no Spark is started"
    recalls.plan("true", file="rest.json")
    workspace.admin("POST", f"{workspace.path(RETRYING)}/partitions", 2)
    grown = workspace.run("pipeline", "recall", "apply", "rest.json", code=4)
    assert "K822" in grown.err
    assert "has 2 partitions, 1 when planned" in " ".join(grown.err.split())
    assert recalls.held() == set(range(50, 60))
    assert DLQ in workspace.topics()
