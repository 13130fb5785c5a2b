"""Footprint of the consumer, idle and with a full look-ahead: processor time and resident memory.

    python benchmarks/consumer/footprint.py [--idle 30] [--tenants 100000] [--beside CHECKOUT]
        [--variant NAME=VARIABLE=VALUE ...] [--out FILE] [ARM ...]

`idle`: 12 lanes without messages, processor time over `--idle` seconds. `full`: the same 12 lanes, a look-ahead of 50,000
messages of 1 KiB filled by 100,000 tenants one after the other (every message of another tenant, all of them seen once,
the last 50,000 held by handlers that never come to them). `bare` is Python with the client and one subscription: what nobody
can be below. `idle-before` and their like: see variants.py. Every run is a line of footprint.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import threading
import time
from pathlib import Path
from typing import Any

import pulsar
from cluster import admin, batched, client, cpu, create_tenant, create_topic, loaded, rss_mib, topology
from variants import add_variants, variants_of

HERE = Path(__file__).parent
STATES = ("RETRYING", "PENDING", "BLOCKING")
TOPICS = """
  flow:
    levels: [L1, L2, L3]
    fair_by: uid
    subscriptions:
      s: {states: [retrying, pending, blocking], dead_letter: false, concurrency: 16, isolate: "off",
          lookahead: {messages: 50000, size: 128MiB}}
"""


def consumer(tenant: str, handle: Any) -> Any:
    found = loaded(topology(tenant, TOPICS))
    found.handler(handle)
    found.start()
    return found


def bare(tenant: str, _seconds: float, _tenants: int) -> dict[str, Any]:
    with_broker = client()
    with_broker.subscribe(f"persistent://{tenant}/ns/flow", "s", pulsar.ConsumerType.Shared)
    time.sleep(2)
    return {"rss_mib": rss_mib()}


def idle(tenant: str, seconds: float, _tenants: int) -> dict[str, Any]:
    found = consumer(tenant, lambda _message: None)
    time.sleep(10)  # the start is over
    began = cpu()
    time.sleep(seconds)
    used = cpu() - began
    lanes = len(found.policy.lanes)
    return {"lanes": lanes, "core_percent": round(used / seconds * 100, 2), "rss_mib": rss_mib()}


def full(tenant: str, _seconds: float, tenants: int) -> dict[str, Any]:
    released = threading.Event()
    seen = [0]

    def handle(_message: object) -> None:
        seen[0] += 1
        if seen[0] > tenants // 2:
            released.wait()

    found = consumer(tenant, handle)
    until = time.time() + 180
    while time.time() < until and found.counts.received < tenants:
        time.sleep(0.5)
    time.sleep(2)
    in_flight = sum(found.in_flight.values())
    return {"lanes": len(found.policy.lanes), "seen": found.counts.received, "held": in_flight, "rss_mib": rss_mib()}


ARMS = {"bare": bare, "idle": idle, "full": full}


def fill(tenant: str, tenants: int) -> None:
    with_broker = client()
    producer = batched(with_broker, tenant)
    for number in range(tenants):
        producer.send_async(b"x" * 1024, lambda *_: None, properties={"uid": f"tenant-{number}"})
    producer.flush()
    with_broker.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=float, default=30.0)
    parser.add_argument("--tenants", type=int, default=100_000)
    parser.add_argument("--out", default=str(HERE / "footprint.jsonl"))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    add_variants(parser)
    parser.add_argument("arms", nargs="*", default=[*ARMS], help="default: all")
    arguments = parser.parse_args()
    if arguments.one:
        arm, tenant = arguments.one
        print(json.dumps(ARMS[arm](tenant, arguments.idle, arguments.tenants)), flush=True)
        os._exit(0)  # handlers are held up for ever
    variants = variants_of(arguments, arguments.arms, [*ARMS])
    for arm in arguments.arms:
        tenant = f"foot{time.time_ns() // 1_000_000}"
        create_tenant(tenant)
        admin("POST", f"namespaces/{tenant}/ns/maxUnackedMessagesPerConsumer", 1_000_000)
        for level in ("", "-L2", "-L3"):
            create_topic(tenant, f"flow{level}", "s")
            for state in STATES:
                create_topic(tenant, f"flow{level}-s-{state}", "s")
        if variants.split(arm)[0] == "full":
            fill(tenant, arguments.tenants)
        more = ("--idle", str(arguments.idle), "--tenants", str(arguments.tenants))
        record = {"arm": arm} | variants.run("footprint.py", arm, tenant, *more)
        record |= {"load": os.getloadavg()[0], "python": platform.python_version()}
        with Path(arguments.out).open("a", encoding="utf-8") as out:
            out.write(json.dumps(record) + "\n")
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
