"""Faults around a landing in a folder, without Spark: a full disk at each step of a commit, a file that somebody deleted, a
table of a newer kodoctl. What counts is whole or told, never half.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import Schema, write_deltalake
from kodo_pipeline.landing.landing_commits import AUDIT_RUN, LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.recorded_tables import RECORDED
from kodo_pipeline.landing.state_tables import STATE
from kodo_pipeline.landing.tables import COMMITS, COUNTED, COVERAGE, EVENTS, TABLES, Table
from kodo_pipeline.sql.landing_database import open_database

from kodoctl.errors import KodoctlError
from tests.source_roots import PATHS
from tests.unit.pipeline.landing.test_audit_commits import state, values
from tests.unit.pipeline.landings import anew, batch, stored

FULL = """
import resource, signal, sys
from itertools import count

from kodoctl.errors import KodoctlError
from kodo_pipeline.landing.delta_tables import LandingTable
from kodo_pipeline.landing.landing_commits import LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from tests.unit.pipeline.landings import batch
from tests.unit.pipeline.landing.test_audit_commits import state

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit fails, as on a disk that is full
folder, what, name, nth = sys.argv[1:]
owner = Landing if name == "write_rows" else LandingTable
original, calls = getattr(owner, name), count(1)


def full(*given, **named):
    if next(calls) == int(nth):
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    return original(*given, **named)


setattr(owner, name, full)
landing = Landing(folder, "trade", None)
try:
    landing.commit(batch(landing, 1)) if what == "batch" else state(landing, 2, 1, added=True)
except KodoctlError as problem:
    sys.exit(str(problem))
"""
STEPS = {
    ("write_rows", 1): False,
    ("write_rows", 2): False,
    ("replace_rows", 1): False,
    ("add", 1): True,
    ("add", 2): True,
}
"""Step at which the disk is full, and whether the commit counts then."""
BRIEF = (("write_rows", 2), ("add", 1))
"""A step of each kind: before the commit counts, and after it."""


@pytest.mark.parametrize("what", ["batch", "state"])
@pytest.mark.parametrize("step", [pytest.param(one, marks=[] if one in BRIEF else pytest.mark.full) for one in STEPS])
def test_a_disk_that_is_full_at_any_step_of_a_commit_is_told_and_leaves_all_or_nothing(
    landing: Landing, tmp_path: Path, step: tuple[str, int], what: str
) -> None:
    landing.commit(batch(landing, 0))
    first = state(landing, 1, None)
    assert first.number == 1
    typed = [sys.executable, "-c", FULL, str(tmp_path), what, step[0], str(step[1])]
    failed = subprocess.run(typed, text=True, capture_output=True, check=False, timeout=120,
                            env={**os.environ, "PYTHONPATH": PATHS})  # fmt: skip
    assert failed.returncode == 1, failed.stderr
    # Beside it a thread of delta-rs may say that it panicked, when its own writer of `commits` cannot write.
    assert any(line.startswith("K573 ") for line in failed.stderr.splitlines()), failed.stderr
    assert "File too large" in failed.stderr, failed.stderr
    assert "Traceback" not in failed.stderr
    again, counts = anew(landing), STEPS[step]
    commits = again.recover()
    assert len(commits) == 2 + (counts and what == "batch")
    assert values(landing) == ([[1, 2], [2]] if counts and what == "state" else [[1], [1]])
    assert len(stored(landing)) == 2 * (1 + (counts and what == "batch"))
    again.commit(batch(again, 1, "r1" if counts and what == "batch" else "r2"))
    assert [len(stored(landing, name)) for name in ("events", "coverage")] == [4, 2]
    newest = next(one for one in again.commits() if one.run == AUDIT_RUN)
    state(again, 3, newest.number)
    assert values(landing) == [[3], [3]]


ALL = (*TABLES, *COUNTED, *RECORDED, *STATE, COMMITS)


@pytest.fixture(scope="module")
def _filled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a landing with a row, or more, in every table."""
    folder = tmp_path_factory.mktemp("filled")
    landing = Landing(str(folder), "trade", None)
    landing.commit(batch(landing, 0))
    for table in ALL:
        if table not in (EVENTS, COVERAGE, COMMITS):
            replaced = () if table in STATE else None
            run = AUDIT_RUN if table in STATE else f"r-{table.name}"
            found = landing.write_rows(table, f"a-{table.name}", [{}])
            behind = next((one.number for one in landing.commits() if one.run == run), None)
            made = LandingCommit(run, 1, tables={table.name: type(found).of(found.files or (), replaced)})
            landing.commit(made, behind=behind)
    return folder


@pytest.fixture
def filled(_filled_once: Path, tmp_path: Path) -> Landing:
    """A copy of it for one test."""
    shutil.copytree(_filled_once, tmp_path, dirs_exist_ok=True)
    return Landing(str(tmp_path), "trade", None)


@pytest.mark.parametrize("table", ALL, ids=lambda one: one.name)
def test_a_data_file_that_somebody_deleted_is_told_wherever_it_is_read(filled: Landing, table: Table) -> None:
    gone = list(Path(filled.root.uri, table.name).rglob("*.parquet"))
    for one in gone:
        one.unlink()
    assert gone
    again = anew(filled)
    if table is COMMITS:
        for what in (again.commits, again.recover, lambda: again.snapshot(EVENTS)):
            with pytest.raises(KodoctlError, match=r"K573(?s:.*)commits"):
                what()
        return
    files = again.snapshot(table).files[table.name]
    assert not again.table(table).holds(files), "as an audit asks of its state"
    with pytest.raises(KodoctlError, match=rf"K573(?s:.*){table.name}"):
        again.table(table).rows()
    if table not in STATE:
        with open_database(again) as database, pytest.raises(KodoctlError, match=r"K8|K573"):
            list(next(database.answers(f"SELECT * FROM {table.name}")).rows)


@pytest.mark.parametrize("table", ALL, ids=lambda one: one.name)
def test_a_table_of_a_newer_kodoctl_is_told_and_refused(filled: Landing, table: Table) -> None:
    place = f"{filled.root.uri}/{table.name}"
    newer = table.delta().append(pa.field("colour", pa.string()))
    write_deltalake(place, newer.empty_table(), mode="append", schema_mode="merge")
    assert Schema.from_arrow(newer).fields[-1].name == "colour"
    again = anew(filled)
    says = rf"K584(?s:.*){table.name}: it has colour, which a newer kodoctl wrote"
    with pytest.raises(KodoctlError, match=says):
        again.snapshot(EVENTS if table is COMMITS else table)
    if table in (*TABLES, COMMITS):
        with pytest.raises(KodoctlError, match=says):
            again.commit(batch(again, 1))
        assert not any(row["batch"] == 1 for row in stored(filled, "commits"))
