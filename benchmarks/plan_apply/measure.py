"""What plan and apply cost on a live broker: requests, seconds, memory, for 100, 1,000 and 5,000 topics.

Each size gets a namespace of its own with topics of 4 policies and one subscription each. Steps: apply on the empty
namespace, plan with nothing to change, apply again (must send no write), plan by single requests (the fall-back), destroy.
The floor is what bare concurrent admin calls need for the same writes in the same run.

usage: python benchmarks/plan_apply/measure.py [--sizes 100,1000,5000] [--out results.jsonl]
needs KODOCTL_ADMIN_URL and KODOCTL_BROKER_URL (for example from `kodoctl dev up`)
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

KODOCTL = [sys.executable, "-m", "kodoctl"]


def topology(name: str, topics: int) -> str:
    """A file with `topics` ground topics, 4 policies and one subscription each."""
    head = f"version: 1\nname: {name}\ntenant: bench\nnamespace: {name}\ncreate_tenant: {{clusters: [standalone]}}\n"
    defaults = (
        "defaults:\n  policies:\n    retention: {time: 7d, size: 20GiB}\n    backlog_quota: {size: 5GiB}\n"
        "    ttl: 14d\n    max_producers: 100\n"
    )
    each = "".join(f"  t{i:05d}: {{subscriptions: {{s: {{states: [], dead_letter: false}}}}}}\n" for i in range(topics))
    return f"{head}{defaults}topics:\n{each}"


def run(*arguments: str) -> dict[str, object]:
    """One kodoctl command as a whole process: wall and CPU seconds, peak memory, the lines it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    done = subprocess.run([*KODOCTL, *arguments], capture_output=True, text=True, check=False)
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{arguments}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    traffic = next((line for line in done.stderr.splitlines() if " reads, " in line), "")
    last = done.stdout.strip().splitlines()[-1]
    return {
        "wall_s": round(wall, 2),
        "cpu_s": round(cpu, 2),
        "peak_mib": after.ru_maxrss >> 10,
        "traffic": traffic,
        "last": last,
    }


def floor(admin: str, name: str, topics: int) -> dict[str, float]:
    """The same writes by bare requests, 16 at a time, nothing verified: what the API itself allows here."""
    session = requests.Session()
    session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=20))
    session.headers["Content-Type"] = "application/json"
    base = f"{admin}/admin/v2"
    session.put(f"{base}/namespaces/bench/{name}-floor").raise_for_status()

    def make(i: int) -> None:
        topic = f"{base}/persistent/bench/{name}-floor/t{i:05d}"
        calls = (
            ("PUT", f"{topic}/partitions", "1"),
            ("POST", f"{topic}/retention", '{"retentionTimeInMinutes": 10080, "retentionSizeInMB": 20480}'),
            (
                "POST",
                f"{topic}/backlogQuota?backlogQuotaType=destination_storage",
                '{"limitSize": 5368709120, "limitTime": -1, "policy": "producer_request_hold"}',
            ),
            ("POST", f"{topic}/messageTTL?messageTTL=1209600", None),
            ("POST", f"{topic}/maxProducers", "100"),
            ("PUT", f"{topic}/subscription/s", '{"ledgerId": -1, "entryId": -1, "partitionIndex": -1}'),
        )
        for method, url, body in calls:
            session.request(method, url, data=body, timeout=60).raise_for_status()

    def drop(i: int) -> None:
        session.delete(f"{base}/persistent/bench/{name}-floor/t{i:05d}/partitions", timeout=60).raise_for_status()

    times = {}
    with ThreadPoolExecutor(16) as pool:
        for step, work in (("create_s", make), ("delete_s", drop)):
            began = time.monotonic()
            list(pool.map(work, range(topics)))
            times[step] = round(time.monotonic() - began, 2)
    return times


def measure(topics: int, out: Path, *, with_floor: bool) -> None:
    """All steps of one size; every step is one line of `out`."""
    name = f"b{topics}-{int(time.time())}"
    file = Path(f"{name}.yaml")
    file.write_text(topology(name, topics))
    steps = [
        ("apply, empty namespace", ["apply", str(file), "--auto-approve", "-v"]),
        ("plan, nothing to change", ["plan", str(file), "-v"]),
        ("apply, nothing to change", ["apply", str(file), "--auto-approve", "-v"]),
        ("destroy", ["destroy", str(file), "--auto-approve"]),
    ]
    try:
        for step, arguments in steps:
            record({"topics": topics, "step": step, "load": os.getloadavg()[0], **run(*arguments)}, out)
            if step.startswith("plan") and topics <= 1000:
                broker, os.environ["KODOCTL_BROKER_URL"] = os.environ["KODOCTL_BROKER_URL"], ""
                record(
                    {"topics": topics, "step": "plan, single requests", "load": os.getloadavg()[0], **run(*arguments)},
                    out,
                )
                os.environ["KODOCTL_BROKER_URL"] = broker
        if with_floor:
            record({"topics": topics, "step": "floor", **floor(os.environ["KODOCTL_ADMIN_URL"], name, topics)}, out)
    finally:
        file.unlink()


def record(result: dict[str, object], out: Path) -> None:
    """One line of the raw results."""
    line = json.dumps(result)
    print(line, flush=True)
    with out.open("a") as stream:
        stream.write(line + "\n")


def main() -> None:
    """Parses the arguments and measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100,1000,5000")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results.jsonl")
    parser.add_argument("--no-floor", action="store_true")
    options = parser.parse_args()
    record(
        {"machine": f"{os.cpu_count()} cores, Python {platform.python_version()}", "when": time.strftime("%Y-%m-%d")},
        options.out,
    )
    for size in options.sizes.split(","):
        measure(int(size), options.out, with_floor=not options.no_floor)


if __name__ == "__main__":
    main()
