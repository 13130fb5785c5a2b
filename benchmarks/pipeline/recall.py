"""Rate of a lane of `pipeline recall apply`, compared with a plain producer loop: unbatched, numbered, deduplicated.

    python benchmarks/pipeline/recall.py [--letters 50000] [--lanes 1 2] [--size 1024] [--out benchmarks/pipeline/recall.jsonl]

Each number of lanes is an arm of its own, with the loop (one producer, into one partition) beside it; the letters lie in one
partition of the dead letters. Needs a broker: KODOCTL_ADMIN_URL and KODOCTL_BROKER_URL, else the current context's. Makes a Pulsar tenant of its own. Clock:
of the loop, first send until last receipt; of the recall, first intent until last receipt as the ledger has booked them, so
without Spark's start, with reading the letters, patching their properties and every commit of the ledger. `whole` is the command
from start to end, acknowledging included. Exact: each recall id is read back from the lanes, once. `peak_mib`: the largest process of Python
(the command, or a task) and of Java, while the plan is made and while it is carried out.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pulsar
import requests
from common import Memory

from kodoctl.pulsar.binary.message_reader import read_stored
from kodoctl.pulsar.connection.connection import Flags, connect
from kodoctl.pulsar.session import Session

CLUSTER = connect(Flags(), os.environ, Path.cwd())
TOPOLOGY = """
version: 1
name: bench
tenant: {tenant}
namespace: ns
topics:
  orders:
    partitions: {lanes}
    subscriptions: {{billing: {{states: [retrying]}}}}
  loop: {{partitions: 1, policies: {{deduplication: true}}, subscriptions: {{s: {{states: [], dead_letter: false}}}}}}
"""


def properties(number: int, lanes: int) -> dict[str, str]:
    return {
        "uid": f"u{number % 50}", "kodo-id": f"id-{number}", "kodo-reason": "timeout", "kodo-level": "L1",
        "kodo-origin-id": f"9:{number}:{number % lanes}:-1",
    }  # fmt: skip


def send(client: Any, topic: str, numbers: range, body: bytes, lanes: int, **options: Any) -> float:
    """Seconds from the first message to the last receipt."""
    producer = client.create_producer(
        topic, block_if_queue_full=True, max_pending_messages=1000, send_timeout_millis=0, **options
    )
    done, left = threading.Event(), Counter(left=len(numbers))

    def received(*_: object) -> None:
        left["left"] -= 1
        if not left["left"]:
            done.set()

    began = time.monotonic()
    for number in numbers:
        producer.send_async(body, received, partition_key=f"k{number}", properties=properties(number, lanes),
                            **({} if options["batching_enabled"] else {"sequence_id": number + 1}))  # fmt: skip
    done.wait()
    seconds = time.monotonic() - began
    producer.close()
    return seconds


def kodoctl(folder: Path, *words: str) -> Any:
    command = [
        sys.executable,
        "-m",
        "kodoctl",
        *words,
        "--admin-url",
        CLUSTER.admin_url,
        "--broker-url",
        CLUSTER.broker_url or "",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout) if "json" in words else None


def booked(folder: Path) -> dict[str, tuple[int, float]]:
    """Lane -> letters stored, seconds from its first intent to its last receipt."""
    import deltalake

    rows = (
        deltalake.DeltaTable(str(folder / ".kodoctl/recall"))
        .to_pyarrow_table(columns=["event", "lane", "at"])
        .to_pylist()
    )
    found = {}
    for lane in sorted({row["lane"] for row in rows}):
        moments = [row["at"] for row in rows if row["lane"] == lane]
        sent = sum(row["event"] == "sent" for row in rows if row["lane"] == lane)
        found[lane] = (sent, (max(moments) - min(moments)) / 1000)
    return found


def arm(asked: argparse.Namespace, lanes: int) -> dict[str, Any]:
    """One loop, then one recall into so many lanes."""
    tenant = f"bench{secrets.token_hex(3)}"
    body = json.dumps({"text": "x" * (asked.size - 12)}).encode()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "bench.yaml").write_text(TOPOLOGY.format(tenant=tenant, lanes=lanes), encoding="utf-8")
        requests.put(
            f"{CLUSTER.admin_url}/admin/v2/tenants/{tenant}", json={"allowedClusters": ["standalone"]}, timeout=30
        )
        kodoctl(folder, "apply", "--auto-approve", "bench.yaml")
        with Session(CLUSTER) as session:
            client, numbers = session.client.get(), range(asked.letters)
            dead = f"persistent://{tenant}/ns/orders-billing-DLQ-partition-0"
            send(client, dead, numbers, body, lanes, batching_enabled=True)
            loop = send(client, f"persistent://{tenant}/ns/loop-partition-0", numbers, body, lanes, batching_enabled=False,
                        producer_name="loop")  # fmt: skip
            with Memory(own=False) as planning:
                kodoctl(folder, "pipeline", "recall", "plan", "bench.yaml", "--topic", "orders", "--subscription", "billing",
                        "--where", "true", "--limit", str(asked.letters), "--out", "p.json", "--format", "json")  # fmt: skip
            began = time.monotonic()
            with Memory(own=False) as applying:
                report = kodoctl(
                    folder, "pipeline", "recall", "apply", "p.json", "--rate", "1000000/s", "--format", "json"
                )
            whole = time.monotonic() - began
            arrived: Counter[str] = Counter()
            for lane in range(lanes):
                part = f"persistent://{tenant}/ns/orders-billing-RETRYING-partition-{lane}"
                arrived.update(
                    one.properties["kodo-recall"] for one in read_stored(session.client, part, (2**62, 2**62))
                )
        found = {lane.rpartition("/")[2]: round(sent / seconds) for lane, (sent, seconds) in booked(folder).items()}
    return {
        "at": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()), "letters": asked.letters, "lanes": lanes, "size": asked.size,
        "cores": os.cpu_count(), "load_before": round(load, 1), "client": pulsar.__version__,
        "loop_per_second": round(asked.letters / loop), "lane_per_second": found,
        "ratio_all_lanes_to_loop": round(sum(found.values()) / (asked.letters / loop), 2), "whole_seconds": round(whole, 1),
        "peak_mib": {"plan": _rounded(planning.largest), "apply": _rounded(applying.largest)},
        "exact": len(arrived) == asked.letters == arrived.total() and report["complete"],
    }  # fmt: skip


def _rounded(largest: Counter[str]) -> dict[str, int]:
    return {program: round(mib) for program, mib in sorted(largest.items())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--letters", type=int, default=50_000)
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--out", default=str(Path(__file__).parent / "recall.jsonl"))
    asked = parser.parse_args()
    for lanes in asked.lanes:
        result = arm(asked, lanes)
        print(json.dumps(result, indent=1))
        with Path(asked.out).open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
