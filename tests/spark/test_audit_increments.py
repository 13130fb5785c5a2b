"""The audit by increments: what it finds is what an audit of all rows finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kodoctl.pipeline.audit.audit_inputs import landed_inputs
from kodoctl.pipeline.audit.incremental_audit import AuditOptions, judged_landing
from kodoctl.pipeline.audit.job import classify_landing
from kodoctl.pipeline.audit.last_audit import StateProblem
from kodoctl.pipeline.ingest.delta_tables import LandingTable
from kodoctl.pipeline.ingest.landing_store import Landing
from kodoctl.pipeline.ingest.state_tables import OPEN_EVENTS
from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from tests.spark.histories import FILE, History
from tests.spark.world import waiting_of

pytestmark = pytest.mark.timeout(1800)


def both(spark, landing, expansion, letters, run):
    """(by increments, of all rows): the documents, with what waits in each lane, as a page has it."""
    inputs = landed_inputs(spark, landing, expansion, tuple(letters), {}, None)
    with judged_landing(spark, landing, inputs, AuditOptions(run, few=0)) as judged:
        found = {**judged.document, "waiting": waiting_of(judged.result)}
    with classify_landing(spark, inputs.tables, inputs.ground, letters=inputs.letters) as judged:
        return found, {**judged.document(), "waiting": waiting_of(judged)}


@pytest.fixture
def expansion(tmp_path):
    file = tmp_path / "histories.yaml"
    file.write_text(FILE, encoding="utf-8")
    return expand(load_topology(str(file)))


@pytest.mark.parametrize(
    ("seed", "steps"), [(1, 4), *(pytest.param(seed, 6, marks=pytest.mark.full) for seed in (1, 2, 3))]
)
@pytest.mark.parametrize("calm", [True, False], ids=["calm", "wild"])
def test_random_histories_in_random_batches_are_judged_alike(spark, tmp_path, expansion, seed, steps, calm):
    landing = Landing(str(tmp_path / "landing"), "histories", None)
    history = History(expansion, landing, seed, calm=calm)
    ways, settled = [], 0
    for number in range(steps):
        history.step(40, mischief=0 if calm or number % 2 else 1)
        found, full = both(spark, landing, expansion, history.letters, f"20260101-000000-{number}")
        basis = found.pop("judged")
        assert found == full, (number, basis)
        assert not basis["unsaved"]
        ways.append(basis["all_rows"])
        settled = max(settled, basis["settled_before"])
    assert ways.count(False) >= (steps - 2 if calm else 1), "else nothing was tried"
    assert settled > 50


def test_a_state_whose_file_goes_while_it_is_read_is_made_anew(spark, tmp_path, expansion, monkeypatch):
    landing = Landing(str(tmp_path / "landing"), "histories", None)
    history = History(expansion, landing, 4, calm=True, recalls=False)
    history.step(20)
    both(spark, landing, expansion, (), "20260101-000000-1")
    history.step(20)
    for path in Path(landing.table(OPEN_EVENTS).folder.uri).rglob("*.parquet"):
        if "_delta_log" not in path.parts:
            path.unlink()
    monkeypatch.setattr(LandingTable, "holds", lambda *_: True)  # it was there when that was asked
    found, full = both(spark, landing, expansion, (), "20260101-000000-2")
    basis = found.pop("judged")
    assert found == full
    assert (basis["all_rows"], basis["why"], basis["unsaved"]) == (True, StateProblem.NONE, "")


@pytest.mark.parametrize("problem", [Py4JError("Java is gone"), PySparkException("no space")])
def test_a_state_that_spark_cannot_write_leaves_the_verdict(spark, tmp_path, expansion, monkeypatch, problem):
    landing = Landing(str(tmp_path / "landing"), "histories", None)
    History(expansion, landing, 4, calm=True, recalls=False).step(20)

    def fail(*_, **__):
        raise problem

    monkeypatch.setattr(Landing, "write_frame", fail)
    found, full = both(spark, landing, expansion, (), "20260101-000000-1")
    basis = found.pop("judged")
    assert found == full
    assert str(problem) in basis["unsaved"]
