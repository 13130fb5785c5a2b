"""Cost of plan and apply on a live broker: requests, seconds, memory, for 100, 1,000 and 5,000 topics.

Each size gets a namespace of its own with topics of 4 policies and one subscription each. Steps: apply on the empty
namespace, plan with nothing to change, the same by single requests (the fall-back), apply again (must send no write),
destroy. The floor is what bare concurrent admin calls need for the same writes in the same round.

usage: python benchmarks/plan_apply/measure.py [--sizes 100,1000,5000] [--rounds 3] [--out FOLDER]
needs KODOCTL_ADMIN_URL and KODOCTL_BROKER_URL (for example from `kodoctl dev up`)

Writes results.jsonl (one line a step) and results.md (the table of the README) into FOLDER, by default next to this file.
Sizes above 1,000 are measured once, without the fall-back: 26 requests a topic need no second proof.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

HERE = Path(__file__).parent
LARGE = 1000  # topics; above it one round
KODOCTL = [sys.executable, "-m", "kodoctl"]


def topology(name: str, topics: int, digits: int = 5) -> str:
    """A file with `topics` ground topics, 4 policies and one subscription each; `digits`: of the number in each name."""
    head = f"version: 1\nname: {name}\ntenant: bench\nnamespace: {name}\ncreate_tenant: {{clusters: [standalone]}}\n"
    defaults = (
        "defaults:\n  policies:\n    retention: {time: 7d, size: 20GiB}\n    backlog_quota: {size: 5GiB}\n"
        "    ttl: 14d\n    max_producers: 100\n"
    )
    each = "".join(
        f"  t{i:0{digits}d}: {{subscriptions: {{s: {{states: [], dead_letter: false}}}}}}\n" for i in range(topics)
    )
    return f"{head}{defaults}topics:\n{each}"


_TRAFFIC = re.compile(r"([\d,]+) reads, ([\d,]+) writes")


def run(*arguments: str, **settings: str) -> dict[str, object]:
    """One kodoctl command as a whole process: wall and CPU seconds, peak memory, requests, the last line it printed."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        began = time.monotonic()
        process = subprocess.Popen([*KODOCTL, *arguments], stdout=out, stderr=err, env={**os.environ, **settings})
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        printed, logged = out.read(), err.read()
    if process.returncode:
        sys.exit(f"{arguments}: exit {process.returncode}\n{printed[-2000:]}\n{logged[-2000:]}")
    traffic = [line for line in logged.splitlines() if " reads, " in line]
    numbers = _TRAFFIC.search(traffic[-1]).groups() if traffic else ()  # without -v kodoctl counts nothing
    requests_sent = {
        kind: int(number.replace(",", "")) for kind, number in zip(("reads", "writes"), numbers, strict=False)
    }
    return {
        "wall_s": round(wall, 2),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mib": usage.ru_maxrss >> 10,
        **requests_sent,
        "last": printed.strip().splitlines()[-1][:200],
        "lines": printed.count("\n"),
        "bytes": len(printed.encode()),
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
        for step, work in (("floor: bare writes", make), ("floor: bare deletes", drop)):
            began = time.monotonic()
            list(pool.map(work, range(topics)))
            times[step] = round(time.monotonic() - began, 2)
    return times


def measure(topics: int, number: int, out: Path) -> list[dict[str, object]]:
    """All steps of one size; every step is one line of `out`."""
    name = f"b{topics}-{int(time.time())}"
    file = Path(f"{name}.yaml")
    file.write_text(topology(name, topics))
    fallback = {"KODOCTL_BROKER_URL": ""}
    steps = [
        ("apply, empty namespace", ["apply", str(file), "--auto-approve", "-v"], {}),
        ("plan, nothing to change", ["plan", str(file), "-v"], {}),
        ("the same by single requests", ["plan", str(file), "-v"], fallback),
        ("apply, nothing to change", ["apply", str(file), "--auto-approve", "-v"], {}),
        ("destroy", ["destroy", str(file), "--auto-approve", "-v"], {}),
    ]
    results = []
    try:
        for step, arguments, settings in steps:
            if settings and topics > LARGE:
                continue
            about = {"topics": topics, "round": number, "step": step, "load": os.getloadavg()[0]}
            results.append(record({**about, **run(*arguments, **settings)}, out))
        about = {"topics": topics, "round": number}
        for step, seconds in floor(os.environ["KODOCTL_ADMIN_URL"], name, topics).items():
            results.append(record({**about, "step": step, "wall_s": seconds}, out))
    finally:
        file.unlink()
    return results


def record(result: dict[str, object], out: Path) -> dict[str, object]:
    """One line of the raw results."""
    line = json.dumps(result)
    print(line, flush=True)
    with out.open("a") as stream:
        stream.write(line + "\n")
    return result


def table(results: list[dict[str, object]]) -> str:
    """Markdown: medians (smallest to largest) of each step."""
    lines = ["| topics | step | wall s | CPU s | peak MiB | reads | writes |", "|---|---|---|---|---|---|---|"]
    keys = list(dict.fromkeys((result["topics"], result["step"]) for result in results))
    for topics, step in keys:
        runs = [result for result in results if (result["topics"], result["step"]) == (topics, step)]
        cells = [_cell(runs, name) for name in ("wall_s", "cpu_s", "peak_mib", "reads", "writes")]
        lines.append(f"| {topics:,} | {step} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(runs: list[dict[str, object]], name: str) -> str:
    values = [run[name] for run in runs if name in run]
    if not values:
        return ""
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:,g}" if low == high else f"{middle:,g} ({low:,g}–{high:,g})"


def main() -> None:
    """Parses the arguments and measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100,1000,5000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    out = options.out / "results.jsonl"
    out.unlink(missing_ok=True)
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, Linux"
    record({"machine": machine, "when": time.strftime("%Y-%m-%d"), "load_before": os.getloadavg()[0]}, out)
    results = []
    for size in map(int, options.sizes.split(",")):
        for number in range(options.rounds if size <= LARGE else 1):
            results += measure(size, number, out)
    (options.out / "results.md").write_text(table(results), encoding="utf-8")


if __name__ == "__main__":
    main()
