"""kill -9 of `kodoctl pipeline run --every` at every stage of a run: what is left counts for nothing, and the next run has each
message once and the right verdict, whether it comes to its end or is killed at another stage.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from deltalake import DeltaTable
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.state_tables import STATE
from kodo_pipeline.landing.tables import COUNTED, EVENTS, TABLES

from tests.brokers.workspace import run_main
from tests.source_roots import PATHS
from tests.spark.dying import DYING
from tests.spark.judged import Judged, judged

__all__ = ["judged"]
pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(3_600)]
KILLING = f"""
{DYING}
import sys

if "kodoctl" in sys.orig_argv:
    from kodo_pipeline.upkeep import landing_maintenance
    from kodo_pipeline.landing.delta_tables import LandingTable
    from kodo_pipeline.landing.landing_store import Landing
    from kodo_pipeline.run import job as run
    from kodo_pipeline.run.pipeline_metrics import PipelineCollector

    options = run.AuditOptions
    run.AuditOptions = lambda name: options(name, few=0)  # so that each audit keeps a state

    def of(name):
        return lambda _, commit: commit.run == name

    around(Landing, "commit", "run begun.", 1)
    around(Landing, "commit", "batch written", 1, lambda _, commit: commit.batch is not None)
    around(LandingTable, "add", "batch in one table.", 1, lambda table, *_: table.table.name == "events")
    around(landing_maintenance, "rewrite", "maintaining", 1)
    around(LandingTable, "exchange", "maintained, not noted.", 1)
    around(Landing, "commit", "read, not ended", 1, lambda _, commit: commit.facts.get("complete"))
    around(Landing, "commit", "counted", 1, of("rollup"))
    around(Landing, "commit", "rollup named.", 1, of("rollup"))
    around(Landing, "commit", "judged", 1, of("audit"))
    around(LandingTable, "add", "state in one table.", 1, lambda table, *_: table.table.name.startswith("audit_"))
    around(PipelineCollector, "update", "verdict reached", 1)
    around(PipelineCollector, "rest", "between two runs.", 2)
"""
STAGES = (
    ("run begun.", "batch in one table.", "maintaining", "between two runs."),
    ("batch written", "counted", "judged", "verdict reached"),
    ("read, not ended", "rollup named.", "maintained, not noted.", "state in one table."),
)


def _typed(judged: Judged) -> list[str]:
    return [
        "pipeline", "run", str(judged.file), "--landing", str(judged.folder / "landing"), "--ledger", str(judged.folder / "recalls"),
        "--no-report", "--maintain-every", "1", "--admin-url", judged.broker.admin_url, "--broker-url", judged.broker.broker_url,
    ]  # fmt: skip


def _killed(judged: Judged, stage: str) -> None:
    folder = judged.folder / "first"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(KILLING, encoding="utf-8")
    command = [sys.executable, "-m", "kodoctl", *_typed(judged), "--every", "1s", "--master", "local[1]"]
    path = f"{folder}:{PATHS}"
    with subprocess.Popen(
        command, cwd=judged.folder, env={**os.environ, "KILL_AT": stage, "PYTHONPATH": path}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            _, err = process.communicate(timeout=900)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # Java, and all of it where the stage was never reached
    assert process.returncode == -signal.SIGKILL, f"{stage}: {err}"
    assert "Traceback" not in err, err


def _check(judged: Judged, messages: int) -> None:
    """The next run: no loss, so many are done, each is landed once, and no table has what no commit names."""
    found = run_main(*_typed(judged), "--format", "json")
    assert found.code == 0, found.text
    (verdict,) = [one for one in found.lines_json() if one["event"] == "verdict"]
    (fates,) = [one["messages"] for one in verdict["audit"]["subscriptions"]]
    assert {fate: count for fate, count in fates.items() if fate != "not for me"} == {"done": messages}
    landing = Landing(str(judged.folder / "landing"), judged.expansion.name, None)
    rows = DeltaTable(f"{landing.root.uri}/events").to_pyarrow_table(columns=["msg_topic", "id"]).to_pylist()
    assert len({(row["msg_topic"], row["id"]) for row in rows}) == len(rows)
    snapshot = landing.snapshot(*TABLES, *COUNTED, *STATE)
    assert sum(one.rows for one in snapshot.files[EVENTS.name]) == len(rows)
    for table in (*TABLES, *COUNTED, *STATE):
        assert landing.table(table).holds(snapshot.files[table.name]), table.name


@pytest.mark.parametrize("stages", [*((one,) for group in STAGES for one in group), *STAGES], ids="-".join)
def test_a_kill_at_any_stage_leaves_nothing_that_counts_and_the_next_run_is_right(
    judged: Judged, stages: tuple[str, ...]
) -> None:
    """Of several stages each kills the process that goes on behind the kill before."""
    for stage in stages:
        judged.work(3)
        _killed(judged, stage)
        Landing(str(judged.folder / "landing"), judged.expansion.name, None).snapshot(*TABLES)
    _check(judged, 3 * len(stages))
    judged.work(3)
    _check(judged, 3 * len(stages) + 3)
    judged.skipped_is_lost()
