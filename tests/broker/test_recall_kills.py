"""kill -9 of `recall apply` at every named step, and the same command again: each letter arrives once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.broker.recalling import ONE_LANE, RETRYING, Recalls
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

pytestmark = pytest.mark.broker
LETTERS = 90
APP = """
import os, signal, sys
from itertools import count

from kodoctl.pulsar.binary.bundled_producer import BundledProducer
from kodoctl.pulsar.binary.recall_transport import DeadLetterConsumer, DedupProducer
from kodoctl.recall.send import batch_sender, dead_letter_partitions, sender
from kodoctl.recall.ledger.delta_ledger import DeltaLedger

STEP = os.environ["KILL_AT"]
sender.MOST_AT_ONCE = 20


def around(owner, name, step, nth):
    '''The process dies before the nth call, or (step ends with a dot) right after it.'''
    original, calls = getattr(owner, name), count(1)

    def patched(*arguments):
        fatal = STEP == step and next(calls) == nth
        if fatal and not step.endswith("."):
            os.kill(os.getpid(), signal.SIGKILL)
        answer = original(*arguments)
        if fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, name, patched)


around(DeltaLedger, "append", "first intent", 2)  # the first call books the doubts of an earlier attempt: none
around(DeltaLedger, "append", "first intent booked.", 2)
around(DedupProducer, "send", "first sent.", 1)
around(DedupProducer, "send", "sent.", 33)
around(BundledProducer, "_publish", "first sent.", 1)  # the same by the native border: a bundle of some messages
around(BundledProducer, "_publish", "sent.", 3)
around(batch_sender.BatchSender, "_count", "stored", 2)  # all receipts are there, nothing of it is booked
around(DeltaLedger, "append", "booked.", 4)  # the first bundle, while the second is on its way
around(DeadLetterConsumer, "acknowledge", "acknowledged.", 25)
around(dead_letter_partitions.DeadLetterPartitions, "count_unacknowledged", "all done", 1)

from kodoctl.cli.main import main
main()
"""
STEPS = [
    "first intent",
    "first intent booked.",
    "first sent.",
    "sent.",
    "stored",
    "booked.",
    "acknowledged.",
    "all done",
]


def attempt(workspace: Workspace, step: str, group: str = "recall", *more: str) -> int:
    """`recall apply p.json` (or another group's) as a process that dies at a step."""
    app = workspace.folder / "app.py"
    app.write_text(APP, encoding="utf-8")
    root = str(Path(__file__).parents[2])
    command = [
        sys.executable,
        str(app),
        group,
        "apply",
        "p.json",
        "--rate",
        "5000/s",
        *more,
        *workspace.connection(),
    ]
    done = subprocess.run(
        command, cwd=workspace.folder, env={**os.environ, "KILL_AT": step, "PYTHONPATH": root}, timeout=120,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode


def test_a_kill_at_any_step_and_again_each_letter_arrives_once(workspace: Workspace) -> None:
    recalls = Recalls(workspace, ONE_LANE)
    before: set[int] = set()
    for turn, step in enumerate(STEPS):
        letters = range(turn * 1_000, turn * 1_000 + LETTERS)
        recalls.die(letters, batch=8)
        chosen = {n for n in letters if n % 3}
        recalls.plan(f"payload.n % 3 > 0 and payload.n >= {letters.start}")
        assert attempt(workspace, step) == -signal.SIGKILL, step
        at_kill = recalls.arrived()
        assert max(at_kill.values(), default=1) == 1, step
        assert set(at_kill) <= before | chosen, step
        assert recalls.apply()["complete"], step
        before |= chosen
        assert recalls.arrived() == Counter(before), f"{step}: each once"
        assert recalls.held() == {n for t in range(turn + 1) for n in range(t * 1_000, t * 1_000 + LETTERS)} - before, (
            step
        )
    assert Counter(recalls.booked().values()) == recalls.receipts(), "what was read back is booked with its place"


def test_killed_at_one_step_after_the_other(workspace: Workspace) -> None:
    recalls = Recalls(workspace, ONE_LANE)
    recalls.die(range(LETTERS), batch=8)
    recalls.plan()
    for step in ("sent.", "first sent.", "booked.", "stored"):
        attempt(workspace, step)
    assert recalls.apply()["complete"]
    assert recalls.arrived() == Counter(range(LETTERS))
    assert recalls.held() == set()


def test_where_the_broker_has_forgotten_the_name_the_lane_is_read_back(workspace: Workspace) -> None:
    """Deduplication off and on again drops the broker's memory: numbers alone would send letters twice."""
    recalls = Recalls(workspace, ONE_LANE)
    recalls.die(range(LETTERS), batch=8)
    recalls.plan()
    assert attempt(workspace, "stored") == -signal.SIGKILL
    stored = recalls.arrived()
    assert len(stored) > 20
    topic = workspace.path(RETRYING)
    for wanted in (False, True):
        workspace.admin("POST", f"{topic}/deduplicationEnabled", wanted)
        _until_deduplicating(recalls, wanted=wanted)
    report = recalls.apply()
    assert report["complete"]
    assert recalls.arrived() == Counter(range(LETTERS))
    assert Counter(recalls.booked().values()) == recalls.receipts()


def _until_deduplicating(recalls: Recalls, *, wanted: bool) -> None:
    path = f"{recalls.workspace.path(RETRYING)}-partition-0/internalStats"
    eventually(lambda: ("pulsar.dedup" in recalls.workspace.admin("GET", path)["cursors"]) is wanted)


def test_an_interrupt_ends_cleanly_and_the_same_command_goes_on(workspace: Workspace) -> None:
    recalls = Recalls(workspace, ONE_LANE)
    recalls.die(range(LETTERS), batch=8)
    recalls.plan()
    process = workspace.process("recall", "apply", "p.json", "--rate", "20/s")
    _until_some_arrived(recalls)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "Interrupted:" in out
    assert "Traceback" not in err
    some = recalls.arrived()
    assert 0 < len(some) < LETTERS
    assert recalls.held() == set(range(LETTERS)) - set(some), "what was sent is acknowledged"
    assert recalls.apply()["complete"]
    assert recalls.arrived() == Counter(range(LETTERS))


BLIND = """
from kodoctl.recall import cluster
from kodoctl.recall.send import batch_sender

cluster.largest_message = lambda *_: None
batch_sender.PATIENCE = 1.0

from kodoctl.cli.main import main
main()
"""


def test_a_letter_that_holds_up_its_lane_lets_an_interrupt_end_it_and_is_not_lost(workspace: Workspace) -> None:
    """By a role that may not ask for the limit of a topic. The broker refuses one letter and stores what was sent behind it:
    to the old number of that letter it would say that it has it.
    """
    recalls = Recalls(workspace, ONE_LANE)
    recalls.plan_one_too_large()
    app = workspace.folder / "blind.py"
    app.write_text(BLIND, encoding="utf-8")
    command = [sys.executable, str(app), "recall", "apply", "p.json", "--rate", "5000/s", *workspace.connection()]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        command, cwd=workspace.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        eventually(lambda: 0 in recalls.arrived(), every=0.2)
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130, out + err
    assert "without a receipt when this stopped" in " ".join(out.split())
    assert "Traceback" not in err
    stored = set(recalls.arrived())
    assert 1 not in stored
    assert 1 in recalls.held()
    recalls.limit(RETRYING, 100 << 10)
    first = recalls.apply(code=None)
    recalls.plan(file="rest.json")
    recalls.apply(file="rest.json")
    assert recalls.arrived() == Counter(range(6)), f"{sorted(stored)} stored behind it; then {first}"
    assert recalls.held() == set()


def _until_some_arrived(recalls: Recalls) -> None:
    eventually(lambda: len(recalls.arrived()) > 5, every=0.2)
