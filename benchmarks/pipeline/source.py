"""How fast Spark reads Pulsar through our source, beside plain Reader loops in as many processes, and whether it is exact.

    python benchmarks/pipeline/source.py [--messages 1000000] [--partitions 4] [--size 1024] [--rounds 3]

Needs a broker (kodoctl dev up --use). Arms, in random order in each round, one warm session for all of Spark's: `reader`
(Reader loops that take every field and keep nothing), `spark-N` (our source with N splits a partition, to Spark's `noop`).
Afterwards each number of splits is counted once: rows, distinct places and distinct numbers must be those that were sent.
"""

from __future__ import annotations

import argparse
import random
import statistics
from typing import Any

from common import CORES, Memory, Readers, admin, cell, cluster, fill, machine, namespace, remove, say, timed, write

from kodoctl.pipeline.source.data_source import PulsarSource
from kodoctl.pipeline.spark.spark_session import SparkSettings, spark_session

SPLITS = (1, 2, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    where, about = cluster(), machine()
    space = namespace(where)
    try:
        admin(where, "PUT", f"persistent/{space}/flow/partitions", asked.partitions)
        fill(where, space, "flow", asked.messages, asked.partitions, asked.size)
        runs = measure(asked, where, space)
    finally:
        remove(where, space)
    write("source.jsonl", {**about, **vars(asked)}, runs)
    print("\n".join(table(runs)))


def measure(asked: argparse.Namespace, where: Any, space: str) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = []
    topics = [f"persistent://{space}/flow-partition-{number}" for number in range(asked.partitions)]
    with spark_session(SparkSettings()) as spark:
        spark.dataSource.register(PulsarSource)

        def frame(splits: int) -> Any:
            options = {
                "topic": f"persistent://{space}/flow",
                "adminUrl": where.admin_url,
                "serviceUrl": where.broker_url,
            }
            return spark.read.format("pulsar").options(**options, splits=str(splits)).load()

        def arm(name: str) -> float:
            if name == "reader":
                read, took = Readers(where, topics, min(CORES, asked.partitions)).run()
                assert read == asked.messages, f"{read} messages read"
                return took
            splits = int(name.partition("-")[2])
            return timed(lambda: frame(splits).write.format("noop").mode("overwrite").save())[0]

        arms = ["reader", *(f"spark-{splits}" for splits in SPLITS)]
        for number in range(-1, asked.rounds):  # the first round warms Spark, and is thrown away
            for name in random.sample(arms, len(arms)):
                with Memory() as memory:
                    took = arm(name)
                spent = {program: round(seconds * 1e6 / asked.messages, 1) for program, seconds in memory.spent.items()}
                say(f"round {number + 1}: {name} {asked.messages / took:,.0f}/s, µs a message {spent}")
                if number >= 0:
                    run = {
                        "arm": name,
                        "round": number,
                        "seconds": round(took, 3),
                        "rate": round(asked.messages / took),
                    }
                    runs.append({**run, "cpu_us": spent})
        for splits in SPLITS:
            found = frame(splits).selectExpr(
                "count(*) AS rows", "count(DISTINCT partition, ledger, entry, batch_index) AS places",
                "count(DISTINCT properties['n']) AS numbers",
            ).collect()[0].asDict()  # fmt: skip
            say(f"exact with {splits} splits: {found}")
            assert set(found.values()) == {asked.messages}, found
            runs.append({"arm": f"exact-{splits}", **found})
    return runs


def table(runs: list[dict[str, Any]]) -> list[str]:
    rates = {
        name: [run["rate"] for run in runs if run["arm"] == name]
        for name in dict.fromkeys(run["arm"] for run in runs if "rate" in run)
    }
    base = statistics.median(rates["reader"])
    lines = ["| arm | messages/s | of the plain readers |", "|---|---|---|"]
    return lines + [
        f"| {name} | {cell(found)} | {statistics.median(found) / base:.0%} |" for name, found in sorted(rates.items())
    ]


if __name__ == "__main__":
    main()
