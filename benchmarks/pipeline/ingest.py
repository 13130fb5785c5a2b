"""Rate and memory of `pipeline ingest`, compared with our source alone and with Reader loops and pyarrow.

    python benchmarks/pipeline/ingest.py [--messages 400000] [--partitions 4] [--size 1024] [--rounds 3]

Needs a broker (kodoctl dev up --use). Arms, in random order in each round, one warm session for both of Spark's: `ingest` (a
topology's topics into a new landing: events, coverage, cursors, manifests, checkpoint), `sketch` (the bar: our source as a plain
stream, AvailableNow, by foreachBatch into a folder of Parquet a batch, in batches of the same bytes; it could be resumed, its rows
are as read, nothing is proved), `source` (spark.read of the ready topic, written as Parquet: no canonical events, nothing that
could be resumed), `pyarrow` (Reader loops in as many processes as cores, Parquet by pyarrow: what a user writes without Spark).
`peak`: MiB of Python, Java and workers together.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from pathlib import Path
from typing import Any

from common import CORES, Memory, Readers, cell, cluster, fill, machine, namespace, remove, say, timed, write
from kodo_pipeline.ingest import job
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.source.data_source import PulsarSource
from kodo_pipeline.spark.spark_session import SparkSettings, spark_session

from kodoctl.cli.application import app
from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology

TOPOLOGY = """
version: 1
name: bench
tenant: {tenant}
namespace: ns
topics:
  flow: {{partitions: {partitions}, fair_by: uid, subscriptions: {{s: {{audit: true}}}}}}
"""
ARMS = ("ingest", "sketch", "source", "pyarrow")
MAX_BYTES = 256 * 2**20  # of a batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    asked = parser.parse_args()
    where, about = cluster(), machine()
    space = namespace(where)
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "bench.yaml"
        file.write_text(TOPOLOGY.format(tenant=space.partition("/")[0], partitions=asked.partitions), encoding="utf-8")
        try:
            place = ["--admin-url", where.admin_url, "--broker-url", where.broker_url or ""]
            app(["apply", str(file), "--auto-approve", *place], standalone_mode=False)
            fill(where, space, "flow", asked.messages, asked.partitions, asked.size)
            runs = measure(asked, where, space, file)
        finally:
            remove(where, space)
    write("ingest.jsonl", {**about, **vars(asked)}, runs)
    print("\n".join(table(runs)))


def measure(asked: argparse.Namespace, where: Any, space: str, file: Path) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = []
    expansion = expand(load_topology(str(file)))
    topics = [f"persistent://{space}/flow-partition-{number}" for number in range(asked.partitions)]
    with spark_session(SparkSettings()) as spark:
        spark.dataSource.register(PulsarSource)

        def ingested(folder: Path) -> tuple[int, float]:
            request = job.IngestRequest(expansion, where, Landing(str(folder), "bench", None), "bench-0", MAX_BYTES)
            present, _ = job.present(request)
            took, done = timed(lambda: job.ingest(request, present, spark, lambda _: None))
            return sum(one.events for one in done), took

        options = {
            "topic": f"persistent://{space}/flow",
            "adminUrl": where.admin_url,
            "serviceUrl": where.broker_url,
        }

        def sketched(folder: Path) -> tuple[int, float]:
            def land(rows: Any, batch: int) -> None:
                rows.write.mode("overwrite").parquet(f"{folder}/rows/batch_id={batch}")

            read = spark.readStream.format("pulsar").options(**options, maxBytesPerTrigger=str(MAX_BYTES)).load()
            stream = read.writeStream.foreachBatch(land).option("checkpointLocation", str(folder / "checkpoint"))
            took, _ = timed(lambda: stream.trigger(availableNow=True).start().awaitTermination())
            return spark.read.parquet(str(folder / "rows")).count(), took

        def copied(folder: Path) -> tuple[int, float]:
            rows = str(folder / "rows")
            took, _ = timed(lambda: spark.read.format("pulsar").options(**options).load().write.parquet(rows))
            return spark.read.parquet(rows).count(), took

        def written(folder: Path) -> tuple[int, float]:
            return Readers(where, topics, min(CORES, asked.partitions), more=folder).run()

        does = {"ingest": ingested, "sketch": sketched, "source": copied, "pyarrow": written}
        for number in range(-1, asked.rounds):  # the first round warms Spark, and is thrown away
            for name in random.sample(asked.arms, len(asked.arms)):
                with tempfile.TemporaryDirectory() as folder, Memory() as memory:
                    landed, took = does[name](Path(folder))
                assert landed == asked.messages, f"{name}: {landed}"
                spent = {program: round(seconds * 1e6 / landed, 1) for program, seconds in memory.spent.items()}
                say(f"round {number + 1}: {name} {landed / took:,.0f}/s, {memory.peak:,.0f} MiB, µs a message {spent}")
                if number >= 0:
                    run = {"arm": name, "round": number, "seconds": round(took, 3), "rate": round(landed / took)}
                    runs.append({**run, "peak_mib": round(memory.peak), "cpu_us": spent})
    return runs


def table(runs: list[dict[str, Any]]) -> list[str]:
    lines = ["| arm | messages/s | of the sketch | of the source alone | peak MiB |", "|---|---|---|---|---|"]
    by = {name: [run for run in runs if run["arm"] == name] for name in dict.fromkeys(run["arm"] for run in runs)}
    rate = {name: statistics.median(run["rate"] for run in found) for name, found in by.items()}
    for name, found in by.items():
        ratios = " | ".join(f"{rate[name] / rate[one]:.0%}" if one in rate else "" for one in ("sketch", "source"))
        lines.append(
            f"| {name} | {cell([run['rate'] for run in found])} | {ratios} | {cell([run['peak_mib'] for run in found])} |"
        )
    return lines


if __name__ == "__main__":
    main()
