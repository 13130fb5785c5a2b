"""The audit by increments: what it finds is what an audit of all rows finds."""

from __future__ import annotations

import pytest
from kodo_pipeline.audit.audit_inputs import landed_inputs
from kodo_pipeline.audit.incremental_audit import AuditOptions, judged_landing
from kodo_pipeline.audit.job import classify_landing
from kodo_pipeline.landing.landing_store import Landing

from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from tests.spark.histories import FILE, History
from tests.spark.world import waiting_of

pytestmark = pytest.mark.timeout(1800)


def both(spark, landing, expansion, letters, run):
    """(by increments, of all rows): the documents, with what waits in each lane, as a page has it."""
    return by_increments(spark, landing, expansion, letters, run), of_all_rows(spark, landing, expansion, letters)


def by_increments(spark, landing, expansion, letters, run):
    """The next audit of a landing, which keeps its state."""
    inputs = landed_inputs(spark, landing, expansion, tuple(letters), {}, None)
    with judged_landing(spark, landing, inputs, AuditOptions(run, few=0)) as judged:
        return {**judged.document, "waiting": waiting_of(judged.result)}


def of_all_rows(spark, landing, expansion, letters):
    """An audit that knows of no other."""
    inputs = landed_inputs(spark, landing, expansion, tuple(letters), {}, None)
    with classify_landing(spark, inputs.tables, inputs.ground, letters=inputs.letters) as judged:
        return {**judged.document(), "waiting": waiting_of(judged)}


@pytest.fixture
def expansion(tmp_path):
    file = tmp_path / "histories.yaml"
    file.write_text(FILE, encoding="utf-8")
    return expand(load_topology(str(file)))


@pytest.mark.full
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("calm", [True, False], ids=["calm", "wild"])
def test_random_histories_in_random_batches_are_judged_alike(spark, tmp_path, expansion, seed, calm):
    landing = Landing(str(tmp_path / "landing"), "histories", None)
    history = History(expansion, landing, seed, calm=calm)
    ways, settled = [], 0
    for number in range(6):
        history.step(40, mischief=0 if calm or number % 2 else 1)
        found, full = both(spark, landing, expansion, history.letters, f"20260101-000000-{number}")
        basis = found.pop("judged")
        assert found == full, (number, basis)
        assert not basis["unsaved"]
        ways.append(basis["all_rows"])
        settled = max(settled, basis["settled_before"])
    assert ways.count(False) >= (4 if calm else 1), "else nothing was tried"
    assert settled > 50
