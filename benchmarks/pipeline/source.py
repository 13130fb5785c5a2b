"""How fast Spark reads Pulsar through our source, beside plain Reader loops in as many processes, and whether it is exact.

    python benchmarks/pipeline/source.py [--messages 1000000] [--partitions 4] [--size 1024] [--rounds 3] [--arms reader native-1 …]

Needs a broker (kodoctl dev up --use). Arms, in random order in each round, one warm session for all of Spark's: `reader`
(Reader loops that take every field and keep nothing), `native-N` (our source by the native border, with N splits a partition, to
Spark's `noop`), `binding-N` (the same without the border), `core-native` and `core-binding` (what Spark's tasks call, without
Spark, in as many processes as `reader`). Afterwards each number of splits is counted once by each: rows, distinct places and
distinct numbers must be those that were sent.
"""

from __future__ import annotations

import argparse
import random
import statistics
from contextlib import closing
from dataclasses import replace
from itertools import product
from typing import Any

from common import (
    CORES,
    Memory,
    Readers,
    admin,
    broker_seconds,
    cell,
    cluster,
    fill,
    machine,
    namespace,
    remove,
    say,
    timed,
    write,
)
from kodo_pipeline.source.data_source import PulsarSource
from kodo_pipeline.source.native_batches import BATCHES
from kodo_pipeline.source.options import read_options
from kodo_pipeline.source.partition_stats import read_stored
from kodo_pipeline.source.split_reader import read_split
from kodo_pipeline.source.splits import splits_of
from kodo_pipeline.spark.spark_session import SparkSettings, spark_session

from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.binary.client import BrokerClient

SPLITS = (1, 2, 8)
WAYS = ("native", "binding")
ARMS = ("reader", *(f"core-{way}" for way in WAYS), *(f"{way}-{splits}" for way in WAYS for splits in SPLITS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
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
    say(BATCHES.choose().status)
    topics = [f"persistent://{space}/flow-partition-{number}" for number in range(asked.partitions)]
    with spark_session(SparkSettings()) as spark:
        spark.dataSource.register(PulsarSource)

        options = {
            "topic": f"persistent://{space}/flow",
            "adminUrl": where.admin_url,
            "serviceUrl": where.broker_url,
        }

        def frame(way: str, splits: int) -> Any:
            native = str(way == "native").lower()
            return spark.read.format("pulsar").options(**options, splits=str(splits), native=bool(native)).load()

        def arm(name: str) -> float:
            kind, _, more = name.partition("-")
            if kind in WAYS:
                return timed(lambda: frame(kind, int(more)).write.format("noop").mode("overwrite").save())[0]
            work = read_split_of if kind == "core" else None
            read, took = Readers(where, topics, min(CORES, asked.partitions), work, more == "native" or None).run()
            assert read == asked.messages, f"{read} messages read"
            return took

        for number in range(-1, asked.rounds):  # the first round warms Spark, and is thrown away
            for name in random.sample(asked.arms, len(asked.arms)):
                before = broker_seconds(where)
                with Memory() as memory:
                    took = arm(name)
                spent = {
                    **memory.spent,
                    **({} if before is None else {"broker": (broker_seconds(where) or 0) - before}),
                }
                spent = {program: round(seconds * 1e6 / asked.messages, 1) for program, seconds in spent.items()}
                say(f"round {number + 1}: {name} {asked.messages / took:,.0f}/s, µs a message {spent}")
                if number >= 0:
                    run = {
                        "arm": name,
                        "round": number,
                        "seconds": round(took, 3),
                        "rate": round(asked.messages / took),
                    }
                    runs.append({**run, "cpu_us": spent})
        for way, splits in product(WAYS, SPLITS):
            if f"{way}-{splits}" not in asked.arms:
                continue
            found = frame(way, splits).selectExpr(
                "count(*) AS rows", "count(DISTINCT partition, ledger, entry, batch_index) AS places",
                "count(DISTINCT properties['n']) AS numbers",
            ).collect()[0].asDict()  # fmt: skip
            say(f"exact with {splits} splits, {way}: {found}")
            assert set(found.values()) == {asked.messages}, found
            runs.append({"arm": f"exact-{way}-{splits}", **found})
    return runs


def read_split_of(url: str, topics: list[str], go: Any, counts: Any, native: bool) -> None:  # noqa: FBT001
    """Reads whole partitions with the functions that a Spark task calls."""
    where = cluster()
    options = replace(
        read_options({"topics": ",".join(topics), "adminUrl": where.admin_url, "serviceUrl": url}, 1),
        native=bool(native),
    )
    with BrokerClient(options.connection) as broker:
        broker.get().get_topic_partitions(topics[0])  # connects
        go.wait(120)
        read = 0
        with closing(HttpAdmin(options.connection)) as port:
            stored = read_stored(port, options.topics)
        for (topic, number), one in stored.items():
            if f"{topic.full}-partition-{number}" in topics:
                for split in splits_of(topic.full, number, one.pieces, 1):
                    read += sum(batch.num_rows for batch in read_split(split, options, broker))
        counts.put(read)


def table(runs: list[dict[str, Any]]) -> list[str]:
    rates = {
        name: [run["rate"] for run in runs if run["arm"] == name]
        for name in dict.fromkeys(run["arm"] for run in runs if "rate" in run)
    }
    base = statistics.median(rates.get("reader") or [float("nan")])
    lines = ["| arm | messages/s | of the plain readers |", "|---|---|---|"]
    return lines + [
        f"| {name} | {cell(found)} | {statistics.median(found) / base:.0%} |" for name, found in sorted(rates.items())
    ]


if __name__ == "__main__":
    main()
