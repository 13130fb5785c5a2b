"""A broker that takes a lane over stores messages a second time: a release acknowledges the copies, a move names them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from tests.broker.waiting_messages import TOPICS, Waits
from tests.brokers.workspace import Workspace
from tests.source_roots import PATHS

pytestmark = pytest.mark.broker
ONE_PARTITION = TOPICS.replace("orders:\n", "orders:\n  partitions: 1\n", 1)
BATCH = 20  # as below
APP = """
import os
from itertools import count

import pulsar
import requests

from kodoctl.recall.send import batch_sender, sender

sender.MOST_AT_ONCE = 20
calls, original = count(1), batch_sender.BatchSender._send_all


def stored_twice(self, batch):
    '''What a broker does that opens a topic before it has counted its messages (apache/pulsar#25954), made certain: the
    second batch is stored, the topic is opened again, and takes the batch once more.
    '''
    if next(calls) == 2:
        client = pulsar.Client(os.environ["BROKER"])
        parts = {self._lanes[one.chosen.lane].part for one in batch.messages}
        producers = {part: client.create_producer(part) for part in parts}
        for one in batch.messages:
            sent = self._recalled_message(one, None)
            producers[self._lanes[one.chosen.lane].part].send(
                sent.payload, dict(sent.properties), partition_key=sent.key, event_timestamp=sent.event_time
            )
        client.close()
        for part in parts:
            requests.put(os.environ["ADMIN"] + "/admin/v2/" + part.replace("://", "/") + "/unload", timeout=30)
    original(self, batch)


batch_sender.BatchSender._send_all = stored_twice

from kodoctl.cli.main import main
main()
"""


def _apply(waits: Waits, *more: str) -> dict[str, Any]:
    workspace = waits.workspace
    app = workspace.folder / "app.py"
    app.write_text(APP, encoding="utf-8")
    words = ["waiting", "apply", "p.json", "--rate", "5000/s", *more, *workspace.connection()]
    broker = {"BROKER": workspace.broker.broker_url, "ADMIN": workspace.broker.admin_url}
    done = subprocess.run(
        [sys.executable, str(app), *words], cwd=workspace.folder, timeout=120, capture_output=True, text=True,
        env={**os.environ, **broker, "PYTHONPATH": PATHS}, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_copies_that_a_broker_made_of_released_messages_are_acknowledged(workspace: Workspace) -> None:
    waits = Waits(workspace, ONE_PARTITION)
    waits.put("L1/blocking", range(90))
    waits.plan("L1/blocking", "payload.n >= 30")
    report = _apply(waits, "--format", "json")
    twice = report["duplicates"]
    assert twice >= BATCH, f"more where the broker did so itself: {report}"
    assert report["sent"] + report["had_already"] == 60
    assert (report["acknowledged"], report["stored_twice"]) == (60 + twice, [])
    if not report["complete"]:  # acknowledgements that were gathered when the topic was opened again are lost
        assert waits.apply(code=None)["complete"]
    copies = Counter(one.properties.get("kodo-release") for one in waits.stored("L1/blocking"))
    assert Counter(copies.values()) == {90: 1, 1: 60 - twice, 2: twice}, "the 90 without were put there"
    assert waits.left("L1/blocking") == Counter(range(90)), "each once"
    again = waits.apply()
    assert (again["complete"], again["sent"], again["duplicates"]) == (True, 0, 0), "they are acknowledged already"
    assert waits.left("L1/blocking") == Counter(range(90))


def test_copies_where_workers_read_are_named(workspace: Workspace) -> None:
    waits = Waits(workspace, ONE_PARTITION)
    waits.put("L1/blocking", range(60))
    waits.plan("L1/blocking", "true", "--action", "move", "--to", "L2")
    report = _apply(waits, "--format", "json")
    assert (report["sent"] + report["had_already"], report["duplicates"]) == (60, 0)
    ready = waits.left("L2/ready")
    assert set(ready) == set(range(60))
    twice = [number for number, copies in ready.items() if copies == 2]
    assert len(twice) == len(report["stored_twice"]) >= BATCH
    assert all(f"{workspace.full('orders-L2')}-partition-0 " in line for line in report["stored_twice"])
    text = waits.waiting("apply", "p.json").out
    assert "stored when a broker took the lane over; workers may get both" in " ".join(text.split()), text
