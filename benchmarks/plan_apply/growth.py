"""Growth of plan, destroy and the views with the number of topics: CPU seconds, peak memory and requests of kodoctl's process.

usage: python benchmarks/plan_apply/growth.py [--sizes 300,3000,20000] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from measure import KODOCTL, record, run, topology
from stand_in import Estate, StandIn, enlarge

HERE = Path(__file__).parent


def alike(name: str, topics: int) -> str:
    return topology(name, topics, digits=6)


def mixed(name: str, topics: int) -> str:
    """Ground topics as people write them: every fifth with two levels and a backup, with waiting states, four partitions."""
    head = (
        f"version: 1\nname: {name}\ntenant: bench\nnamespace: {name}\ncreate_tenant: {{clusters: [standalone]}}\n"
        "defaults:\n  partitions: 4\n  policies:\n    retention: {time: 3d, size: 10GiB}\ntopics:\n"
    )
    return head + "".join(map(_ground, range(topics)))


def _ground(number: int) -> str:
    more = "    levels: double\n    backup: true\n" if number % 5 == 0 else ""
    return (
        f"  topic-{number:06d}:\n    description: messages of kind {number}\n{more}"
        "    message_properties: {uid: required, size: optional}\n    fair_by: uid\n"
        "    policies: {retention: {time: 7d, size: 20GiB}}\n"
        "    subscriptions:\n      worker:\n        expected_workers: 2\n"
        "        retrying: {delays: [10s, 1m, 5m], attempts: 12}\n"
        "        limits:\n          - {kind: rate, by: uid, limit: 100/s, burst: 200}\n"
    )


if __name__ == "__main__":
    shape, n, what = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    real = 10
    name = f"g-{shape}-{n}-{int(time.time())%100000}"
    make = {"alike": alike, "mixed": mixed}[shape]
    file = Path(f"{name}.yaml")
    file.write_text(make(name, real))
    admin, broker = os.environ["KODOCTL_ADMIN_URL"], os.environ["KODOCTL_BROKER_URL"]
    print(run("apply", str(file), "--auto-approve", "-v"))
    estate = Estate(admin, broker, f"bench/{name}", real, n)
    file.write_text(make(name, n))
    t = time.monotonic()
    print("first", run("plan", str(file), "-v"), flush=True)
    enlarge(estate, name)
    print("enlarged", time.monotonic() - t, flush=True)
    with StandIn(estate) as stand_in:
        print(stand_in.url, file, flush=True)
        for w in what:
            if w == "hold":
                time.sleep(36000)
            args = w.split()
            args.insert(1, str(file))
            stand_in.requests.clear()
            print(w, run(*args, "-v", KODOCTL_ADMIN_URL=stand_in.url), dict(stand_in.requests), flush=True)
