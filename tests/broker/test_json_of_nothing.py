"""Every command with `--format json` prints one JSON document on the real broker, also if there is nothing to do."""

from __future__ import annotations

import json

import pytest

from tests.broker.waiting_messages import Waits
from tests.brokers.workspace import Workspace, run_main

pytestmark = pytest.mark.broker
WHERE = "topologies --topic orders --subscription billing --where true"
LINES = (
    "plan",
    "apply",
    "drift",
    "status",
    "undo last {namespace}",
    "undo last {namespace}",  # of which nothing is left
    "apply",
    "history {namespace}",
    "destroy --name gone --namespace {namespace}",
    "forget --name gone --namespace {namespace}",
    "peek persistent://{namespace}/orders",
    f"recall plan {WHERE} --out recall.json",
    "recall apply recall.json",
    f"recall discard {WHERE} --because x --out discard.json",
    "recall apply discard.json",
    "waiting list topologies",
    f"waiting plan {WHERE} --lane L1/retrying --out waiting.json",
    "waiting apply waiting.json",
    f"waiting release {WHERE} --lane L1/retrying",
    f"waiting plan {WHERE} --lane L1/retrying --action discard --because x --out waiting-discard.json",
    "waiting apply waiting-discard.json",
)


def test_a_command_with_nothing_to_do_prints_one_document(workspace: Workspace) -> None:
    waits = Waits(workspace)
    for line in LINES:
        words = line.format(namespace=workspace.namespace).split()
        is_stream = words[0] in {"apply", "undo", "destroy", "forget"}
        found = workspace.run(*words, "--format", "json", *(["--auto-approve"] if is_stream else []), code=None)
        assert found.code in (0, 2, 4), f"{line}: {found.text}"
        assert found.out, f"{line}: {found.text}"
        json.loads(found.out.splitlines()[-1] if is_stream else found.out)
    assert waits.orders() == (), "a lane without messages is not paused"
    for line in ("context list", "dev status", "lint topologies", "explain K410"):
        assert run_main(*line.split(), "--format", "json").json() is not None, line
