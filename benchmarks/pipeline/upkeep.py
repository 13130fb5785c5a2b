"""Cost of a batch, of an audit's reading and of its counting after many small batches, with and without maintenance.

    python benchmarks/pipeline/upkeep.py [--batches 2000] [--every 50] [--rows 20] [--rounds 5] [--warm 8] [--apart 60]

Needs neither a broker nor Spark, but for `--spark`: batches are small Arrow tables, committed by the code that an ingest commits
with. Arms, after 20 and 200 batches and after all: `batch` (written and committed by a process that has just opened the landing, as each
run of an ingest has), `snapshot` (what every audit and report does first: files of all tables as of one commit), `read` (every row
of all tables, by Arrow) and, with `--spark`, `audit` (the verdict) and `report` (the verdict and all that a page shows, from
what `rollup` had counted), without a cluster's answers, in one warm session, which compiles its queries where that of `pipeline run`
does: `--warm` rounds before those that count are thrown away, for behind that many Java is about as fast as it gets. `--apart`: files of
logs are made so many seconds older after each batch, as if they came so far apart: tables keep their log for some minutes. Each is the
least of the rounds, in seconds, and in seconds of this process's processor; `files` and `log` are those of all tables.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from common import machine, say, write
from deltalake import DeltaTable
from kodo_pipeline.landing.landing_commits import LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import COVERAGE, CURSORS, EVENTS, TABLES, TRANSITIONS
from kodo_pipeline.spark.spark_session import SparkSettings, open_session, set_light
from kodo_pipeline.upkeep.landing_maintenance import MaintenanceRequest, is_due, maintain

from kodoctl.topology.expand import Expansion, expand
from kodoctl.topology.load import load_topology

FEW = 20
SETTINGS = SparkSettings()
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
READY = "persistent://bench/ns/flow"
TOPOLOGY = """
version: 1
name: bench
tenant: bench
namespace: ns
topics:
  flow: {fair_by: uid, subscriptions: {s: {states: [], dead_letter: false, audit: true}}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=2000)
    parser.add_argument("--every", type=int, default=50, help="batches between two maintenances; 0: none")
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm", type=int, default=8, help="rounds of Spark's arms that are thrown away, each time")
    parser.add_argument("--apart", type=int, default=60, help="seconds between two batches, by the files of logs")
    parser.add_argument("--spark", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        runs = measure(asked, Path(name))
    write("upkeep.jsonl", {**machine(), **vars(asked)}, runs)
    names = [name for name in runs[0] if name != "batches"]
    print("after | " + " | ".join(names))
    for one in runs:
        print(f"{one['batches']} | " + " | ".join(f"{one[name]:.3f}" for name in names))


def measure(asked: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    (folder / "bench.yaml").write_text(TOPOLOGY, encoding="utf-8")
    expansion = expand(load_topology(str(folder / "bench.yaml")))
    place = str(folder / "landed")
    spark = open_session(SETTINGS) if asked.spark else None
    runs, kept = [], 0.0
    numbers = count()
    for batches in range(1, asked.batches + 1):
        number = next(numbers)
        _run(place, number, asked.rows)
        _age(place, asked.apart)
        landing = Landing(place, "bench", None)
        if is_due(landing.commits(), asked.every):
            began = time.monotonic()
            maintain(MaintenanceRequest(landing, f"m{number}"))
            kept += time.monotonic() - began
        if batches in (FEW, 10 * FEW, asked.batches):
            runs.append({"batches": batches, **_figures(place, asked, numbers, spark, expansion), "kept": kept})
            say(str(runs[-1]))
    return runs


def _figures(
    place: str, asked: argparse.Namespace, numbers: Iterator[int], spark: Any, expansion: Expansion
) -> dict[str, Any]:
    arms: dict[str, Callable[[], Any]] = {
        "batch": lambda: _run(place, next(numbers), asked.rows),
        "snapshot": lambda: Landing(place, "bench", None).snapshot(*TABLES),
        "read": lambda: [DeltaTable(f"{place}/bench/base/{one.name}").to_pyarrow_table().num_rows for one in TABLES],
    }
    found: dict[str, Any] = {}
    for name, arm in arms.items():
        found[name], found[f"{name} processor"] = _least(arm, asked.rounds)
    if spark is not None:  # last: Java compiles on beside what follows
        set_light(spark, SETTINGS, light=Landing(place, "bench", None).is_small())
        _count(spark, place, expansion)
        for name, page in (("audit", False), ("report", True)):
            judge = partial(_judge, spark, place, expansion, page=page)
            _least(judge, asked.warm)
            found[name], _ = _least(judge, asked.rounds)  # Spark is another process
    landing = Landing(place, "bench", None)
    found["files"] = sum(len(files) for files in landing.snapshot(*TABLES).files.values())
    found["log"] = sum("_delta_log/" in one for table in TABLES for one in (landing.root / table.name).files())
    found["commits"] = len(landing.commits())
    return found


def _least(arm: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Seconds of the wall, and of this process's processor: the least of the rounds; 0 where there is none."""
    took, busy = [], []
    for _ in range(rounds):
        began, worked = time.monotonic(), time.process_time()
        arm()
        took.append(time.monotonic() - began)
        busy.append(time.process_time() - worked)
    return min(took, default=0.0), min(busy, default=0.0)


def _age(place: str, seconds: int) -> None:
    for path in Path(place).glob("bench/base/*/_delta_log/*.*"):
        at = path.stat().st_mtime - seconds
        os.utime(path, (at, at))


def _run(place: str, number: int, rows: int) -> None:
    """A run of one batch, as an ingest commits it."""
    landing, run, at = Landing(place, "bench", None), f"r{number}", BEGIN + timedelta(minutes=5 * number % 1440)
    landing.recover()
    cursors = [{"msg_topic": READY, "msg_partition": 0, "topic": "flow", "subscription": name, "mark_ledger": 1, "mark_entry": number * rows,
                "acknowledged": [], "first_ledger": 0, "taken_ts": at, "ingest_run": run} for name in ("", "s")]  # fmt: skip
    ms = 1_767_225_600_000 + number
    landing.commit(LandingCommit(run, ms, tables={CURSORS.name: landing.write_rows(CURSORS, run, cursors)}))
    name, entries = f"{number:09d}-{run}", range(number * rows, (number + 1) * rows)
    made = {
        EVENTS: [
            {"mid": f"1:{one}:0:-1", "id": f"1:{one}:0:-1", "msg_topic": READY, "msg_partition": 0, "ledger": 1, "entry": one,
             "batch_index": -1, "topic": "flow", "level": "L1", "state": "ready", "tenant": f"u{one % 7}", "hop": 0, "attempts": [],
             "publish_ts": at, "origin_publish_ts": at, "size": 100, "properties": [("uid", f"u{one % 7}")], "payload": b"x" * 100,
             "ingest_run": run, "split_id": name} for one in entries
        ],
        TRANSITIONS: [
            {"worker_run": "w", "number": one + 1, "topic": "flow", "subscription": "s", "at_ts": at, "msg_topic": READY,
             "id": f"1:{one}:0:-1", "identity": f"1:{one}:0:-1", "hop": 0, "event": "done", "rule": "done", "tenant": f"u{one % 7}",
             "age_ms": 5, "audit_topic": f"{READY}-s-AUDIT", "audit_id": f"2:{one}:0:-1", "publish_ts": at, "ingest_run": run,
             "split_id": name} for one in entries
        ],
        COVERAGE: [
            {"split_id": name, "msg_topic": READY, "msg_partition": 0, "first": f"1:{entries[0]}", "last": f"1:{entries[-1]}",
             "entries_planned": rows, "entries_seen": rows, "rows": rows, "gaps": [], "ledgers_before": [1], "ledgers_after": [1],
             "state": "complete", "full": True, "seconds": 0.1, "ingest_run": run, "batch": number}
        ],
    }  # fmt: skip
    tables = {table.name: landing.write_rows(table, name, found) for table, found in made.items()}
    landing.commit(LandingCommit(run, ms, number, tables, {"bytes": rows * 100, "holes": [], "unreadable": 0}))
    landing.commit(LandingCommit(f"{run}-end", ms, facts={"complete": True}))


def _count(spark: Any, place: str, expansion: Expansion) -> None:
    from kodo_pipeline.rollup.job import count as roll_up

    roll_up(spark, Landing(place, "bench", None), expansion, "counted")


def _judge(spark: Any, place: str, expansion: Expansion, *, page: bool) -> None:
    from kodo_pipeline.audit.audit_inputs import landed_inputs
    from kodo_pipeline.audit.incremental_audit import AuditOptions, judged_landing
    from kodo_pipeline.report.job import gather_facts

    landing = Landing(place, "bench", None)
    inputs = landed_inputs(spark, landing, expansion, (), {}, None)
    with judged_landing(spark, landing, inputs, AuditOptions(f"bench-{time.monotonic_ns()}")) as judged:
        if page:
            gather_facts(spark, landing, expansion, judged)


if __name__ == "__main__":
    main()
