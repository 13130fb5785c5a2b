"""Throughput of several worker processes: `kodo-consumer run --workers` with 1, 2 and 4 of them.

    python benchmarks/consumer/workers.py [--messages 200000] [--repeats 3] [--workers 1 2 4] [--out FILE] [ARM ...]

Needs a broker as throughput.py does. `no-op`: handlers that do nothing; `busy`: handlers that compute for 200 µs, 16 slots in each worker.
Messages of 1 KiB wait in a topic of four partitions; workers start on its end, and once all are ready the subscription is set back to
its begin. Seconds are from the first handler's start to the last one's, in any process; processor time is that of the workers from their
first message on. A tenth of the messages for `busy`. Arms run in random order; every run is a line of workers.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cluster import CLUSTER, admin, batched, client, create_tenant, topology

HERE = Path(__file__).parent
ARMS = ("no-op", "busy")
TOPICS = """
  flow:
    subscriptions:
      s: {states: [], dead_letter: false, in_place: [], concurrency: 16}
"""
APP = """
import atexit, json, os, resource, time

begin, end, count = [], [0.0], [0]


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@atexit.register
def tell():
    if begin:
        at, used = begin
        with open(f"told-{os.getpid()}.json", "w") as out:
            json.dump({"first": at, "last": end[0], "cpu": cpu() - used, "count": count[0]}, out)


def handle(message):
    if not begin:
        begin[:] = time.time(), cpu()
    count[0] += 1
    end[0] = time.time()


def busy(message):
    handle(message)
    until = time.thread_time() + 0.0002
    while time.thread_time() < until:
        pass
    end[0] = time.time()
"""


def preload(tenant: str, messages: int) -> None:
    create_tenant(tenant)
    admin("PUT", f"persistent/{tenant}/ns/flow/partitions", 4)
    admin("PUT", f"persistent/{tenant}/ns/flow/subscription/hold", {"ledgerId": -1, "entryId": -1})
    with_broker = client()
    producer = batched(with_broker, tenant)
    for _ in range(messages):
        producer.send_async(b"x" * 1024, lambda *_: None)
    producer.flush()
    with_broker.close()


def left(tenant: str) -> int:
    found = admin(
        "GET", f"persistent/{tenant}/ns/flow/partitioned-stats?perPartition=false&getPreciseBacklog=true"
    ).json()
    return int(found["subscriptions"]["s"]["msgBacklog"])


def measure_one(tenant: str, arm: str, workers: int, messages: int) -> dict[str, Any]:
    subscription = f"persistent/{tenant}/ns/flow/subscription/s"
    admin("PUT", subscription)  # at the end
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "t.yaml").write_text(topology(tenant, TOPICS), encoding="utf-8")
        (here / "app.py").write_text(APP, encoding="utf-8")
        handler = "app:busy" if arm == "busy" else "app:handle"
        command = [
            Path(sys.executable).with_name("kodo-consumer"), "run", "t.yaml", "--topic", "flow", "--subscription", "s", "--handler", handler,
            "--workers", str(workers), "--admin-url", CLUSTER.admin_url, "--broker-url", str(CLUSTER.broker_url),
        ]  # fmt: skip
        with (here / "log").open("w") as log:
            process = subprocess.Popen(command, cwd=here, stdout=subprocess.DEVNULL, stderr=log)
        while (here / "log").read_text("utf-8").count(" ready: ") < workers:
            if process.poll() is not None:
                sys.exit((here / "log").read_text("utf-8"))
            time.sleep(0.1)
        time.sleep(1)
        admin("POST", f"{subscription}/resetcursor/0")
        time.sleep(0.5)
        while left(tenant):
            time.sleep(0.2)
        process.terminate()
        process.wait(60)
        reports = [json.loads(file.read_text("utf-8")) for file in here.glob("told-*.json")]
    admin("DELETE", f"{subscription}?force=true")
    return {
        "arm": f"{arm}-{workers}", "messages": messages, "at_work": len(reports), "repeated": sum(one["count"] for one in reports) - messages,
        "seconds": max(one["last"] for one in reports) - min(one["first"] for one in reports),
        "cpu_us": sum(one["cpu"] for one in reports) / messages * 1e6,
        "load": os.getloadavg()[0], "python": platform.python_version(), "cores": os.cpu_count(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--out", default=str(HERE / "workers.jsonl"))
    parser.add_argument("arms", nargs="*", default=[*ARMS], help="default: all")
    asked = parser.parse_args()
    sizes = {"no-op": asked.messages, "busy": asked.messages // 10}
    tenants = {arm: f"workers{time.time_ns() // 1_000_000}{arm[0]}" for arm in asked.arms}
    for arm, tenant in tenants.items():
        preload(tenant, sizes[arm])
    found: dict[str, list[float]] = {}
    for _ in range(asked.repeats):
        every = [(arm, workers) for arm in asked.arms for workers in asked.workers]
        for arm, workers in random.sample(every, len(every)):
            record = measure_one(tenants[arm], arm, workers, sizes[arm])
            found.setdefault(record["arm"], []).append(record["messages"] / record["seconds"])
            with Path(asked.out).open("a", encoding="utf-8") as out:
                out.write(json.dumps(record) + "\n")
    for name, rates in sorted(found.items()):
        print(f"{name:10} {statistics.median(rates):8,.0f}/s ({min(rates):,.0f}–{max(rates):,.0f})")


if __name__ == "__main__":
    main()
