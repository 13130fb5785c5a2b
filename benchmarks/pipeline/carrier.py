"""Cost of a task of `pipeline recall apply` per letter, without Spark: one lane, in this process, and a plain producer loop.

    python benchmarks/pipeline/carrier.py [--letters 20000] [--size 1024] [--rounds 2] [--out benchmarks/pipeline/carrier.jsonl]

Needs a broker, as recall.py does, whose parts it uses. Arms, in random order in each round: `native` (the task by the native
border), `binding` (the task without it), each with the loop of its round beside it. Microseconds of the processor a letter: of the whole process with the
client's threads, and of the thread that reads, books and sends. They hold where others use the machine; rates do not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import requests
from kodo_pipeline.recall.send_job import SendTask
from recall import CLUSTER, TOPOLOGY, kodoctl, send

from kodoctl.pulsar.session import Session
from kodoctl.recall.ledger.delta_ledger import DeltaLedger
from kodoctl.recall.plan.recall_plan_file import loads

WAYS = ("native", "binding")


def measured(letters: int, work: Callable[[], Any]) -> dict[str, float]:
    """Returns the rate and the processor time of `work` for a number of letters: letters a second, and microseconds a
    letter of the process and of this thread.
    """
    began, process, thread = time.monotonic(), time.process_time(), time.thread_time()
    work()
    seconds = time.monotonic() - began
    return {
        "per_second": round(letters / seconds),
        "process_us": round((time.process_time() - process) / letters * 1e6, 1),
        "thread_us": round((time.thread_time() - thread) / letters * 1e6, 1),
    }


def arms(folder: Path, letters: int, size: int, way: str) -> dict[str, dict[str, float]]:
    """One lane of a tenant of its own, then the loop."""
    tenant = f"bench{secrets.token_hex(3)}"
    place, body = f"persistent://{tenant}/ns", json.dumps({"text": "x" * (size - 12)}).encode()
    (folder / "bench.yaml").write_text(TOPOLOGY.format(tenant=tenant, lanes=1), encoding="utf-8")
    url = f"{CLUSTER.admin_url}/admin/v2/tenants/{tenant}"
    requests.put(url, json={"allowedClusters": ["standalone"]}, timeout=30)
    kodoctl(folder, "apply", "--auto-approve", "bench.yaml")
    with Session(CLUSTER) as session:
        client, numbers = session.client.get(), range(letters)
        send(client, f"{place}/orders-billing-DLQ-partition-0", numbers, body, 1, batching_enabled=True)
        kodoctl(folder, "recall", "plan", "bench.yaml", "--topic", "orders", "--subscription", "billing", "--where", "true",
                "--limit", str(letters), "--out", "p.json", "--format", "json")  # fmt: skip
        plan = loads((folder / "p.json").read_text(encoding="utf-8"), "p.json")
        ledger = DeltaLedger(str(folder / f"ledger-{tenant}"))
        ledger.create()
        ledger.entries(plan.source_topic)  # what is imported once is no letter's cost
        errand = SendTask(plan, replace(CLUSTER, native=way == "native"), ledger.path, None, 1e6, "bench", None)
        task = measured(letters, errand.run)
        loop = measured(
            letters,
            lambda: send(
                client, f"{place}/loop-partition-0", numbers, body, 1, batching_enabled=False, producer_name="loop"
            ),
        )
    return {"task": task, "loop": loop}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--letters", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", default=str(Path(__file__).parent / "carrier.jsonl"))
    asked = parser.parse_args()
    for way in (way for _ in range(asked.rounds) for way in random.sample(WAYS, len(WAYS))):
        load = os.getloadavg()[0]
        with tempfile.TemporaryDirectory() as temporary:
            found = arms(Path(temporary), asked.letters, asked.size, way)
        at = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime())
        line = json.dumps(
            {"at": at, "arm": way, "letters": asked.letters, "size": asked.size, "load_before": round(load, 1), **found}
        )
        print(line)
        with Path(asked.out).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
