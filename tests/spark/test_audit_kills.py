"""kill -9 of an audit at each stage of its state's commit, with Spark: the next one has the former state or the new one, and the
verdict of an audit of all rows.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kodo_pipeline.audit.audit_state import AuditState
from kodo_pipeline.landing.landing_commits import AUDIT_RUN
from kodo_pipeline.landing.landing_store import Landing

from tests.spark.dying import DYING
from tests.spark.histories import FILE, History, topology_of
from tests.spark.test_audit_increments import both

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]
AUDIT = f"""
{DYING}
import sys

from kodo_pipeline.audit.audit_inputs import landed_inputs
from kodo_pipeline.audit.incremental_audit import AuditOptions, judge_landing
from kodo_pipeline.landing.delta_tables import LandingTable
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.spark.spark_session import SparkSettings, open_session
from tests.spark.histories import topology_of

around(Landing, "start", "begun.", 1)
around(Landing, "write_frame", "some rows written", 3)
around(Landing, "write_rows", "all rows written.", 1)
around(Landing, "commit", "committed, in all tables.", 1)
around(LandingTable, "replace_rows", "complete", 1)
around(LandingTable, "add", "committed, in no table", 1)
around(LandingTable, "add", "committed, in two tables.", 2)
folder, file = sys.argv[1:]
spark = open_session(SparkSettings(master="local[2]", extra={{"spark.driver.memory": "1g"}}, light=True))
landing = Landing(folder, "histories", None)
inputs = landed_inputs(spark, landing, topology_of(file), (), {{}}, None)
judge_landing(spark, landing, inputs, AuditOptions("20260101-000009-killed", few=0))
"""
STAGES = {
    "begun.": False,
    "some rows written": False,
    "all rows written.": False,
    "complete": False,
    "committed, in no table": True,
    "committed, in two tables.": True,
    "committed, in all tables.": True,
}
"""By whether the new state counts."""


@pytest.fixture(scope="module")
def landed(spark, tmp_path_factory):
    """(folder, topology file, batch of the state): a landing with the state of an audit, and a run behind it."""
    folder = tmp_path_factory.mktemp("landed")
    file = folder / "histories.yaml"
    file.write_text(FILE, encoding="utf-8")
    landing = Landing(str(folder / "landing"), "histories", None)
    history = History(topology_of(str(file)), landing, 11, calm=True, recalls=False)
    history.step(30)
    both(spark, landing, history.expansion, (), "20260101-000000-first")
    history.step(30)
    return folder / "landing", str(file), AuditState.of(landing.commits()).batch


@pytest.mark.parametrize("stage", STAGES)
def test_a_kill_at_any_stage_leaves_the_former_state_or_the_new_one(spark, landed, tmp_path, stage):
    folder, file, batch = landed
    shutil.copytree(folder, tmp_path / "landing")
    environ = {**os.environ, "KILL_AT": stage, "PYTHONPATH": os.pathsep.join(sys.path)}
    typed = [sys.executable, "-c", AUDIT, str(tmp_path / "landing"), file]
    killed = subprocess.run(typed, env=environ, start_new_session=True, capture_output=True, timeout=900, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    landing = Landing(str(tmp_path / "landing"), "histories", None)
    newest = max(one.batch for one in landing.commits() if one.batch is not None)
    state = AuditState.of(landing.commits())
    assert state.batch == (newest if STAGES[stage] else batch)
    found, full = both(spark, landing, topology_of(file), (), "20260101-000010-next")
    basis = found.pop("judged")
    assert found == full
    assert (basis["all_rows"], basis["unsaved"], basis["settled_before"]) == (False, "", state.totals.messages)
    left = [one for one in Path(tmp_path / "landing").rglob("state-20260101-000009-killed") if not STAGES[stage]]
    assert not left, "what no commit names is removed"
    assert not (landing.root / f"_work-{AUDIT_RUN}").folders()
