"""Cost and accuracy of `pipeline audit` and `rollup`, compared with DuckDB and Polars on the same Parquet files.

    python benchmarks/pipeline/audit.py [--messages 3000000] [--rounds 3]

Needs a broker (kodoctl dev up --use): the audit asks which ledgers are still there. The landing is made up: messages that were
done, 37 that were acknowledged without a trace, a record for each of the others, producers' numbers. Arms: `kodoctl audit` and
`kodoctl rollup` (whole processes, Spark's start included, everything judged and counted anew), `kodoctl both` (a process that
does what `pipeline run` does behind its ingest: both in one session), `spark audit` and `spark rollup` (the same in one warm
session), `duckdb` and `polars` (peers.py, installed into a throw-away environment: the core of both questions, nothing else: no
ranges, cursors, hops, forged records, gaps told by marks). `error`: largest difference of p50, p95 and p99 from the exact ones.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
from common import HERE, Memory, cell, cluster, machine, say, timed, write
from kodo_pipeline.audit.audit_inputs import load_inputs
from kodo_pipeline.audit.deduplicate import without_duplicates
from kodo_pipeline.audit.incremental_audit import AuditOptions, judge_landing
from kodo_pipeline.audit.job import audit
from kodo_pipeline.audit.judged_rows import LandedTables
from kodo_pipeline.evidence.reading_clock import ReadingClock
from kodo_pipeline.landing.landing_commits import LandingCommit, TableFiles
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.table_writer import TableWriter
from kodo_pipeline.landing.tables import COVERAGE, CURSORS, EVENTS, TRANSITIONS, Table
from kodo_pipeline.rollup import job as rollup_job
from kodo_pipeline.rollup.histogram import percentiles
from kodo_pipeline.rollup.report import parse_window
from kodo_pipeline.rollup.transforms import latencies, rollup
from kodo_pipeline.spark.spark_session import SparkSettings, spark_session

from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology

LOST, PARTITIONS, CHUNK, TENANTS = 37, 4, 250_000, 48
READY = "persistent://bench/ns/flow"
AUDIT = f"{READY}-s-AUDIT"
START = 1_767_225_600_000_000  # 2026-01-01, µs
SPACING = 1_000  # µs between messages
TOPOLOGY = """
version: 1
name: bench
tenant: bench
namespace: ns
topics:
  flow: {partitions: 4, fair_by: uid, subscriptions: {s: {states: [], dead_letter: false, audit: true}}}
"""
WHOLE = ("kodoctl audit", "kodoctl rollup")
BOTH = "kodoctl both"
PEERS = ("duckdb", "polars")
WARM = ("spark audit", "spark rollup")
ARMS = (*WHOLE, BOTH, *PEERS, *WARM)
POINTS = (0.5, 0.95, 0.99)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--both", nargs=2, metavar=("FOLDER", "WINDOW"), help="the process of `kodoctl both`")
    asked = parser.parse_args()
    if asked.both:
        both(Path(asked.both[0]), asked.both[1])
        return
    where, about = cluster(), machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bench.yaml").write_text(TOPOLOGY, encoding="utf-8")
        took, _ = timed(lambda: _plant(folder, asked.messages))
        say(f"landing of {asked.messages:,} messages made in {took:.0f} s")
        runs = measure(asked, folder, ["--admin-url", where.admin_url])
    options = {name: value for name, value in vars(asked).items() if name != "both"}
    write("audit.jsonl", {**about, **options}, runs)
    print("\n".join(table(runs)))


def both(folder: Path, window: str) -> None:
    """Rollup and audit of all that landed, one behind the other as in `pipeline run`, in one session."""
    run, expansion = f"both-{secrets.token_hex(4)}", expand(load_topology(str(folder / "bench.yaml")))
    landing = Landing(str(folder / "landed"), "bench", None)
    with spark_session(SparkSettings(environ=os.environ)) as spark, closing(HttpAdmin(cluster())) as admin:
        rollup_job.count(spark, landing, expansion, run, parse_window(window))
        options = AuditOptions(run, full=True)
        inputs = load_inputs(spark, landing, expansion, admin, str(folder / "recall"), None)
        found = judge_landing(spark, landing, inputs, options)
    assert found["subscriptions"][0]["messages"]["lost"] == LOST, found["subscriptions"]


class Arms:
    """Arms of the measurement, by name; each returns its figures. The landing is below `folder`, and Spark's session is
    warm.
    """

    def __init__(self, spark: Any, folder: Path, place: list[str]) -> None:
        self._spark, self._folder, self._place = spark, folder, place
        self._expansion = expand(load_topology(str(folder / "bench.yaml")))
        self._landing = Landing(str(folder / "landed"), "bench", None)
        self._python, self._widths = "", cycle(("5m", "10m"))
        self.all: dict[str, Callable[[], dict[str, Any]]] = {
            **{name: partial(self._whole, name) for name in WHOLE},
            BOTH: self._both,
            **{name: partial(self._peer, name) for name in PEERS},
            **dict(zip(WARM, (self._audit, self._rollup), strict=True)),
        }

    def _whole(self, name: str) -> dict[str, Any]:
        """A process as a user starts it. A rollup asks no cluster, and counts everything."""
        what = name.split()[1]
        command = [sys.executable, "-m", "kodoctl", "pipeline", what, "bench.yaml", "--landing", "landed"]
        if what == "audit":
            command += ["--full", *self._place]
        else:
            command += ["--window", next(self._widths)]  # another width: everything is counted anew
        took, done = timed(
            lambda: subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False)
        )
        assert done.returncode == (5 if what == "audit" else 0), done.stdout + done.stderr
        assert what == "rollup" or str(LOST) in done.stdout, done.stdout
        return {"seconds": took}

    def _both(self) -> dict[str, Any]:
        command = [sys.executable, __file__, "--both", str(self._folder), next(self._widths)]
        return {"seconds": timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))[0]}

    def _peer(self, name: str) -> dict[str, Any]:
        self._python = self._python or _installed(self._folder)
        command = [self._python, str(HERE / "peers.py"), name, str(self._folder)]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    def _tables(self) -> LandedTables:
        return LandedTables(*(self._landing.read(self._spark, one) for one in (EVENTS, TRANSITIONS, COVERAGE, CURSORS)))

    def _audit(self) -> dict[str, Any]:
        took, found = timed(lambda: audit(self._spark, self._tables(), self._expansion))
        assert found["subscriptions"][0]["messages"]["lost"] == LOST, found["subscriptions"]
        return {"seconds": took}

    def _rollup(self) -> dict[str, Any]:
        given, window = self._tables(), "300000 milliseconds"
        began = time.monotonic()
        topics = self._spark.createDataFrame([(READY, "B2", "ready")], "msg_topic string, level string, state string")
        with without_duplicates(given.transitions) as records:
            for name, transform in (("rollup", rollup), ("latencies", latencies)):
                rows = transform(given.events, records, window=window, topics=topics)
                rows.write.mode("overwrite").parquet(str(self._folder / name))
        ages = self._spark.read.parquet(str(self._folder / "latencies"))
        seen = percentiles(ages, ["tenant"], POINTS).collect()
        took = time.monotonic() - began
        by_tenant: dict[str, list[float]] = {}
        for row in sorted(seen):
            by_tenant.setdefault(row["tenant"], []).append(row["latency"])
        return {"seconds": took, "percentiles": by_tenant}


def measure(asked: argparse.Namespace, folder: Path, place: list[str]) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = []
    with spark_session(SparkSettings(extra={"spark.driver.memory": "4g"})) as spark:
        arms = Arms(spark, folder, place).all
        for number in range(-1, asked.rounds):  # the first round warms Spark and caches, and is thrown away
            for name in random.sample(asked.arms, len(asked.arms)):
                with Memory() as memory:
                    run = {"arm": name, "round": number, **arms[name]()}
                run |= {"cpu_s": memory.spent, "peak_mib": round(memory.peak)}
                figures = ", ".join(f"{key} {value:.2f}" for key, value in run.items() if isinstance(value, float))
                say(f"round {number + 1}: {name} {figures}, s of the processor {memory.spent}")
                if number >= 0:
                    runs.append(run)
    return _judged(runs)


def _judged(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Percentiles of tenants become the largest relative difference from DuckDB's, which are exact."""
    exact = next((run["percentiles"] for run in runs if run["arm"] == "duckdb"), {})
    for run in runs:
        found = run.pop("percentiles", None)
        if found and exact:
            run["error"] = max(
                abs(one - true) / true
                for tenant, all_of in exact.items()
                for one, true in zip(found[tenant], all_of, strict=True)
            )
    return runs


def _plant(folder: Path, messages: int) -> None:
    landing = Landing(str(folder / "landed"), "bench", None)
    rng = random.Random(7)
    lost = set(rng.sample(range(messages), LOST))
    numbers = dict.fromkeys(range(PARTITIONS), 0)
    for batch, start in enumerate(range(0, messages, CHUNK)):
        rows = range(start, min(start + CHUNK, messages))
        records = _records([row for row in rows if row not in lost], numbers, rng)
        parts = {
            EVENTS.name: _stored(landing, EVENTS, batch, _events(rows)),
            TRANSITIONS.name: _stored(landing, TRANSITIONS, batch, records),
        }
        if batch == 0:
            parts[COVERAGE.name] = landing.write_rows(COVERAGE, f"{batch:09d}-r1", list(_coverage(messages)))
        landing.commit(LandingCommit("r1", START // 1000, batch, parts))
    for run, seen in (("r0", 0), ("r1", messages)):  # the first looked before the first message
        cursors = landing.write_rows(CURSORS, run, list(_cursors(run, seen)))
        at = (START + seen * SPACING) // 1000
        landing.commit(LandingCommit(run, at, None, {CURSORS.name: cursors}, ReadingClock().to_facts()))
        landing.commit(LandingCommit(f"{run}-end", at, facts={"complete": True}))


def _stored(landing: Landing, table: Table, batch: int, columns: dict[str, Any]) -> TableFiles:
    rows = len(next(iter(columns.values())))
    whole = pa.table(
        [columns.get(field.name, pa.nulls(rows, field.type)) for field in table.arrow()], schema=table.arrow()
    )
    with TableWriter(landing.root / table.name, table, f"{batch:09d}-r1") as writer:
        for one in whole.to_batches():
            writer.write(one)
    return TableFiles.of(writer.files)


def _place(row: int) -> tuple[int, int, int]:
    """(partition, ledger, entry)."""
    return row % PARTITIONS, 100 + row % PARTITIONS, row // PARTITIONS


def _id(row: int) -> str:
    partition, ledger, entry = _place(row)
    return f"{ledger}:{entry}:{partition}:-1"


def _events(rows: range) -> dict[str, Any]:
    places, ids = [_place(row) for row in rows], [_id(row) for row in rows]
    when = pa.array([START + row * SPACING for row in rows], pa.timestamp("us", tz="UTC"))
    same = {"msg_topic": READY, "topic": "flow", "level": "B2", "state": "ready", "ingest_run": "r1"}
    return {
        **{name: pa.array([text] * len(rows)) for name, text in same.items()}, "mid": pa.array(ids), "id": pa.array(ids),
        "msg_partition": pa.array([one[0] for one in places], pa.int32()), "ledger": pa.array([one[1] for one in places]),
        "entry": pa.array([one[2] for one in places]), "batch_index": pa.array([-1] * len(rows), pa.int32()),
        "tenant": pa.array([f"t{row % TENANTS}" for row in rows]), "hop": pa.array([0] * len(rows), pa.int32()),
        "seq_run": pa.array([f"{0x18F000000000000:015x}"] * len(rows)),
        "seq_partition": pa.array([one[0] for one in places], pa.int32()), "seq_number": pa.array([one[2] + 1 for one in places]),
        "publish_ts": when, "origin_publish_ts": when, "size": pa.array([200] * len(rows)),
        "split_id": pa.array([f"s{one[0]}" for one in places]),
    }  # fmt: skip


def _records(rows: list[int], numbers: dict[int, int], rng: random.Random) -> dict[str, Any]:
    counted = []
    for row in rows:
        worker = row % PARTITIONS
        numbers[worker] += 1
        counted.append((f"w-{worker}", numbers[worker]))
    ages = [max(1, int(rng.lognormvariate(3 + (row % TENANTS) / 12, 1.2))) for row in rows]
    ids = [_id(row) for row in rows]
    same = {
        "topic": "flow", "subscription": "s", "msg_topic": READY, "event": "done", "rule": "done", "target_topic": "", "target_id": "",
        "audit_topic": AUDIT, "ingest_run": "r1",
    }  # fmt: skip
    at = [START + row * SPACING + age * 1_000 for row, age in zip(rows, ages, strict=True)]
    return {
        **{name: pa.array([text] * len(rows)) for name, text in same.items()}, "id": pa.array(ids), "identity": pa.array(ids),
        "worker_run": pa.array([one[0] for one in counted]), "number": pa.array([one[1] for one in counted]),
        "hop": pa.array([0] * len(rows), pa.int32()), "tenant": pa.array([f"t{row % TENANTS}" for row in rows]),
        "age_ms": pa.array(ages), "at_ts": pa.array(at, pa.timestamp("us", tz="UTC")),
    }  # fmt: skip


def _coverage(messages: int) -> Any:
    for partition in range(PARTITIONS):
        last = (messages - 1 - partition) // PARTITIONS
        for topic, ledger in ((READY, 100 + partition), (AUDIT, 200 + partition)):
            yield {
                "split_id": f"{topic}-{partition}", "msg_topic": topic, "msg_partition": partition, "first": f"{ledger}:0",
                "last": f"{ledger}:{last}", "entries_planned": last + 1, "entries_seen": last + 1, "rows": last + 1, "full": True,
                "state": "complete", "seconds": 1.0, "ingest_run": "r1", "batch": 0, "gaps": [], "ledgers_before": [ledger],
                "ledgers_after": [ledger],
            }  # fmt: skip


def _cursors(run: str, messages: int) -> Any:
    from datetime import UTC, datetime

    for partition in range(PARTITIONS):
        last = (messages - 1 - partition) // PARTITIONS
        for topic, name, ledger in ((READY, "s", 100), (READY, "", 100), (AUDIT, "", 200)):
            yield {
                "msg_topic": topic, "msg_partition": partition, "topic": "flow", "subscription": name,
                "mark_ledger": ledger + partition, "mark_entry": last, "acknowledged": [], "ttl_ms": None,
                "first_ledger": ledger + partition, "created_ts": None, "rewrites": 0, "ingest_run": run,
                "audit": "wait" if topic == AUDIT else None,
                "taken_ts": datetime.fromtimestamp((START + messages * SPACING) / 1e6, UTC),
            }  # fmt: skip


def _installed(folder: Path) -> str:
    subprocess.run([sys.executable, "-m", "venv", str(folder / "peers")], check=True)
    python = str(folder / "peers/bin/python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PEERS, "pyarrow", "pytz"]
    subprocess.run(pip, check=True, env={**os.environ, "PIP_NO_INPUT": "1"})
    return python


def table(runs: list[dict[str, Any]]) -> list[str]:
    lines = ["| arm | audit s | rollup s | whole process s | error of percentiles |", "|---|---|---|---|---|"]

    def of(arm: str, key: str, digits: int = 2) -> str:
        found = [run[key] for run in runs if run["arm"] == arm and key in run]
        return cell(found, digits) if found else ""

    errors = [run["error"] for run in runs if "error" in run]  # known beside DuckDB alone
    error = f"{max(errors):.2%}" if errors else ""
    rows = {
        "kodoctl pipeline, as typed": (*(of(name, "seconds") for name in WHOLE), "", ""),
        "both in one session, as in `pipeline run`": ("", "", of(BOTH, "seconds"), ""),
        "the same, warm session": (*(of(name, "seconds") for name in WARM), "", error),
        **{name: (*(of(name, key) for key in ("audit", "rollup", "process")), "exact") for name in PEERS},
    }
    lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items() if any(cells[:3])]
    ours = [run["seconds"] for run in runs if run["arm"] == "spark audit"]
    theirs = {name: [run["audit"] for run in runs if run["arm"] == name] for name in PEERS}
    ratios = [
        f"{statistics.median(ours) / statistics.median(found):.1f} × {name}"
        for name, found in theirs.items()
        if ours and found
    ]
    return [*lines, "", f"Warm audit over theirs: {', '.join(ratios)}"] if ratios else lines


if __name__ == "__main__":
    main()
