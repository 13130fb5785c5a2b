"""Cost of an incremental audit, compared with a full audit, and with the audit of a landing that has only the new messages.

    python benchmarks/pipeline/increments.py [--messages 3000000] [--batches 100] [--new 100000] [--rounds 3]

Needs no broker. Landings are made up as audit.py makes them: messages that were done, 37 that were acknowledged without a trace.
One holds `--messages` in `--batches`, and is audited; each round lands `--new` more, and audits again (`new`). The other holds `--new`
alone, and is audited as a whole (`alone`). `all`: `--full` of the first one, in the end. All in one warm session; each audit counts and
commits its state. Seconds of the processor are those of Spark and this process.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from audit import LOST, PARTITIONS, SPACING, START, TOPOLOGY, _events, _records, _stored
from common import Memory, cell, machine, say, timed, write
from kodo_pipeline.audit.audit_inputs import landed_inputs
from kodo_pipeline.audit.incremental_audit import AuditOptions, judge_landing
from kodo_pipeline.evidence.reading_clock import ReadingClock
from kodo_pipeline.landing.landing_commits import LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import COVERAGE, CURSORS, EVENTS, TRANSITIONS
from kodo_pipeline.spark.spark_session import SparkSettings, spark_session

from kodoctl.topology.expand import Expansion, expand
from kodoctl.topology.load import load_topology

READY = "persistent://bench/ns/flow"


class Traffic:
    """A landing that grows. `lost`: messages that were acknowledged without a trace, all among the first ones."""

    def __init__(self, folder: Path) -> None:
        self.landing = Landing(str(folder), "bench", None)
        self._rng = random.Random(7)
        self._numbers = dict.fromkeys(range(PARTITIONS), 0)
        self._messages = self._batch = self._run = 0
        self._look()

    def land(self, messages: int, batches: int, lost: int) -> None:
        """One run."""
        size, first = messages // batches, self._messages
        gone = set(self._rng.sample(range(first, first + messages), lost))
        self._run += 1
        for _ in range(batches):
            rows = range(self._messages, self._messages + size)
            records = _records([row for row in rows if row not in gone], self._numbers, self._rng)
            covered = self.landing.write_rows(COVERAGE, f"{self._batch:09d}-r{self._run}", list(self._coverage(rows)))
            parts = {
                EVENTS.name: _stored(self.landing, EVENTS, self._batch, _events(rows)),
                TRANSITIONS.name: _stored(self.landing, TRANSITIONS, self._batch, records),
                COVERAGE.name: covered,
            }
            self.landing.commit(LandingCommit(f"r{self._run}", self._at(), self._batch, parts))
            self._messages, self._batch = self._messages + size, self._batch + 1
        self._look()

    def _at(self) -> int:
        return (START + self._messages * SPACING) // 1000 + self._run

    def _look(self) -> None:
        run = f"r{self._run}"
        rows = self.landing.write_rows(CURSORS, f"{run}-look", list(self._cursors(run)))
        self.landing.commit(LandingCommit(run, self._at(), None, {CURSORS.name: rows}, ReadingClock().to_facts()))
        self.landing.commit(LandingCommit(f"{run}-end", self._at(), facts={"complete": True}))

    def _coverage(self, rows: range) -> Any:
        for partition in range(PARTITIONS):
            own = range(-(-(rows.start - partition) // PARTITIONS), -(-(rows.stop - partition) // PARTITIONS))
            for topic, ledger in ((READY, 100 + partition), (f"{READY}-s-AUDIT", 200 + partition)):
                yield {
                    "split_id": f"{topic}-{partition}-{own.start}", "msg_topic": topic, "msg_partition": partition,
                    "first": f"{ledger}:{own.start}", "last": f"{ledger}:{own.stop - 1}", "entries_planned": len(own),
                    "entries_seen": len(own), "rows": len(own), "full": True, "state": "complete", "seconds": 1.0,
                    "ingest_run": f"r{self._run}", "batch": self._batch, "gaps": [], "ledgers_before": [ledger],
                    "ledgers_after": [ledger],
                }  # fmt: skip

    def _cursors(self, run: str) -> Any:
        from datetime import UTC, datetime

        for partition in range(PARTITIONS):
            last = (self._messages - 1 - partition) // PARTITIONS
            for topic, name, ledger in ((READY, "s", 100), (READY, "", 100), (f"{READY}-s-AUDIT", "", 200)):
                yield {
                    "msg_topic": topic, "msg_partition": partition, "topic": "flow", "subscription": name,
                    "mark_ledger": ledger + partition, "mark_entry": last, "acknowledged": [], "ttl_ms": None,
                    "first_ledger": ledger + partition, "created_ts": None, "rewrites": 0, "ingest_run": run,
                    "audit": "wait" if topic != READY else None,
                    "taken_ts": datetime.fromtimestamp(self._at() / 1000, UTC),
                }  # fmt: skip


def audited(spark: Any, landing: Landing, expansion: Expansion, run: str, *, full: bool = False) -> dict[str, Any]:
    """Figures of one audit."""

    def judge() -> Any:
        inputs = landed_inputs(spark, landing, expansion, (), {}, None)
        return judge_landing(spark, landing, inputs, AuditOptions(run, full, few=0))

    with Memory() as memory:
        took, found = timed(judge)
    judged = found["judged"]
    assert found["subscriptions"][0]["messages"]["lost"] == LOST, found["subscriptions"]
    assert not judged["unsaved"], judged
    files = sum(len(one) for one in landing.snapshot(EVENTS, TRANSITIONS).files.values())
    return {
        "seconds": took, "cpu_s": memory.spent, "peak_mib": round(memory.peak), "all_rows": judged["all_rows"],
        "settled_before": judged["settled_before"], "files": files,
    }  # fmt: skip


def measure(asked: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    (folder / "bench.yaml").write_text(TOPOLOGY, encoding="utf-8")
    expansion = expand(load_topology(str(folder / "bench.yaml")))
    large = Traffic(folder / "large")
    took, _ = timed(lambda: large.land(asked.messages, asked.batches, LOST))
    say(f"landing of {asked.messages:,} messages in {asked.batches} batches made in {took:.0f} s")
    runs: list[dict[str, Any]] = []
    with spark_session(SparkSettings(extra={"spark.driver.memory": "4g"})) as spark:

        def run(arm: str, number: int, landing: Landing, *, full: bool = False) -> None:
            found = {"arm": arm, "round": number, **audited(spark, landing, expansion, f"{arm}-{number}", full=full)}
            say(f"{arm} {number}: {found}")
            if number >= 0:
                runs.append(found)

        run("first", 0, large.landing)
        for number in range(-1, asked.rounds):  # the first round warms Spark, and is thrown away
            small = Traffic(folder / f"small{number}")
            small.land(asked.new, 1, LOST)
            run("alone", number, small.landing)
            large.land(asked.new, 1, 0)
            run("new", number, large.landing)
        run("all", 0, large.landing, full=True)
    return runs


def table(runs: list[dict[str, Any]]) -> list[str]:
    lines = ["| audit | s | s of the processor | peak MiB |", "|---|---|---|---|"]
    for arm in dict.fromkeys(one["arm"] for one in runs):
        own = [one for one in runs if one["arm"] == arm]
        spent = [sum(one["cpu_s"].values()) for one in own]
        peak = max(one["peak_mib"] for one in own)
        lines.append(f"| {arm} | {cell([one['seconds'] for one in own], 1)} | {cell(spent, 1)} | {peak:,} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=3_000_000)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--new", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    about = machine()
    with tempfile.TemporaryDirectory() as name:
        runs = measure(asked, Path(name))
    write("increments.jsonl", {**about, **vars(asked)}, runs)
    print("\n".join(table(runs)), file=sys.stdout)


if __name__ == "__main__":
    main()
