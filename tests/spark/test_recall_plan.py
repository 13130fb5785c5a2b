"""`kodoctl pipeline recall plan` on a real broker: the plan that `kodoctl recall plan` makes, letter by letter."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.recalling import DLQ, Recalls
from tests.brokers.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broker
NAMED = ["topologies", "--topic", "orders", "--subscription", "billing"]
DIFFERS = {"run", "made_at", "seal"}


def _spark_plan(recalls: Recalls, where: str, *more: str, file: str = "s.json", code: int = 0) -> dict[str, Any]:
    run = recalls.workspace.run(
        "pipeline", "recall", "plan", *NAMED, "--where", where, "--out", file, "--format", "json", *more, code=code
    )
    found: dict[str, Any] = run.json() | {"said": run.err}
    assert run.err.startswith(f"Run {found['run']}: "), "the run that is told is the plan's"
    return found


def _alike(plan: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in plan.items() if name not in DIFFERS | {"said"}}


def _odd(recalls: Recalls) -> None:
    """Payloads that are none, no JSON, no text, or JSON only for the lenient."""
    payloads = [
        b"",
        b"no json",
        b"\xff\xfe",
        b"{'n':3}",
        b'{"n":3} x',
        b'{"n":1,"n":5}',
        json.dumps({"n": 3.5, "text": "é" * 400}).encode(),
    ]
    with recalls.workspace.client() as client:
        producer = client.create_producer(recalls.workspace.full(DLQ))
        for payload in payloads:
            producer.send(payload, properties={"uid": "u9"})
        producer.close()


@pytest.mark.full
def test_the_plan_is_the_one_made_without_spark(spark: SparkSession, workspace: Workspace) -> None:
    recalls = Recalls(workspace)
    recalls.die([*range(60), *range(20, 25)], batch=7)
    recalls.die([61, 62], kodo_recall="f" * 32)
    _odd(recalls)
    recalls.plan("payload.n < 10", file="first.json")
    assert recalls.apply(file="first.json")["sent"] == 12
    recalls.die(range(100, 110), batch=3)
    (workspace.folder / "patch.json").write_text('{"currency": "EUR"}', encoding="utf-8")
    store = f"sqlite:///{workspace.folder}/kodo.db"
    recalls.remember(store, 31, 33)
    where = "reason = 'timeout' OR payload.n >= 3 OR payload = 'no json'"
    more = ["--limit", "40", "--edit", "patch.json", "--store", store]
    plain = recalls.plan(where, *more)
    assert plain["summary"]["left_out"].keys() == {
        "already", "recalled", "already_done", "repeat", "beyond", "not_editable",
    }  # fmt: skip
    assert _alike(_spark_plan(recalls, where, *more)) == _alike(plain)
    found = _spark_plan(recalls, "payload.n BETWEEN 20 AND 29")
    assert "carry it out with: kodoctl pipeline recall apply s.json" in found["said"]
    assert recalls.apply(file="s.json")["sent"] == 10, "either command carries out either's plan"


@pytest.mark.full
def test_a_landing_is_chosen_from_and_what_it_lacks_is_told(spark: SparkSession, workspace: Workspace) -> None:
    recalls = Recalls(workspace)
    missing = workspace.run("pipeline", "recall", "plan", *NAMED, "--where", "true", "--landing", "landed", code=64)
    assert "K801" in missing.err
    recalls.die(range(30), batch=6)
    workspace.run("pipeline", "ingest", "topologies/trade.yaml", "--landing", "landed")
    found = _spark_plan(recalls, "payload.n > 3", "--landing", "landed")
    assert _alike(found) == _alike(recalls.plan("payload.n > 3"))
    assert "not landed" not in found["said"]
    recalls.die([77])
    stale = _spark_plan(recalls, "payload.n > 3", "--landing", "landed")
    assert _alike(stale) == _alike(found)
    assert "1 entry of the dead letters held now is not landed" in " ".join(stale["said"].split())
    assert recalls.apply(file="s.json")["sent"] == 26
    assert "K820" in workspace.run("pipeline", "recall", "plan", *NAMED, "--where", "ordering_key = 'o'", code=64).err
    assert "^^^^" in workspace.run("pipeline", "recall", "plan", *NAMED, "--where", "keyy = 'o'", code=64).err
