"""How fast isolation reads through a flood that is far beyond the look-ahead, beside raw loops that move as many messages.

    python benchmarks/consumer/readthrough.py [--messages 100000] [--lookahead 20000] [--seconds 150] [--repeats 3]
        [--beside CHECKOUT] [--variant NAME=VARIABLE=VALUE ...] [--out FILE] [ARM ...]

Needs a broker as throughput.py does. Each run has a backlog of its own: so many messages of one tenant and 100 of ten quiet ones
behind them. `ours`: 16 slots, handlers of 10 ms, `isolate` as it is by default, until the last quiet message has started or the
`--seconds` are over; what is read is handled or moved to B1, and is due there after a minute at the earliest. `raw-reroute`,
`raw-route`: the loops of throughput.py over the same backlog, with a due time and without. `ours-python`, `ours-before` and their like: see
variants.py. Arms run in turn, each in a process of its own; every run is a line of readthrough.jsonl.

`passed`: messages of the ready lane that were handled or moved aside. `read`: those in the look-ahead are counted as well, all of the
backlog once the last quiet message has started.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import threading
import time
from pathlib import Path
from typing import Any

from cluster import batched, client, cpu, create_tenant, create_topic, edition, loaded, topology
from fairness import TOPICS, admin_topics
from throughput import moved_to, raw_reroute_arm
from variants import Variants, add_variants, variants_of

HERE = Path(__file__).parent
ARMS = ("ours", "raw-reroute", "raw-route")
QUIET = 100  # messages behind the flood


def preload(tenant: str, messages: int) -> None:
    with_broker = client()
    producer = batched(with_broker, tenant)
    for number in range(messages + QUIET):
        name = "noisy" if number < messages else f"q{number % 10}"
        producer.send_async(b"x" * 32, lambda *_: None, properties={"uid": name}, partition_key=name)
    producer.flush()
    with_broker.close()


def ours(tenant: str, messages: int, lookahead: int, seconds: float) -> dict[str, Any]:
    from kodo_consumer import Message

    topics = TOPICS.format(topic="flow", messages=lookahead, isolate="{share: 25%, min: 1000}")
    consumer = loaded(topology(tenant, topics))
    left, over, handled = [QUIET], threading.Event(), [0] * 2

    def handle(message: Message) -> None:
        handled[message.level == "L1"] += 1
        if message.tenant != "noisy":
            left[0] -= 1
            if left[0] <= 0:
                over.set()
        time.sleep(0.010)

    consumer.handler(handle)
    began, used = time.perf_counter(), cpu()
    consumer.start()
    through = over.wait(seconds)
    took, used = time.perf_counter() - began, cpu() - used
    counts, waiting = consumer.counts, consumer.in_flight["L1/ready"]
    moved = counts.finished["isolated"]
    passed = handled[True] + moved
    read = messages if through else passed + waiting
    return {
        "seconds": took,
        "cpu_s": used,
        "done": counts.done,
        "moved": moved,
        "passed": passed,
        "read": read,
    } | edition()


def raw(tenant: str, messages: int, *, due: bool) -> dict[str, float]:
    found = raw_reroute_arm(tenant, "s", messages, due=due).record
    took, used = found["seconds"], found["cpu_us"] * messages / 1e6
    return {"seconds": took, "cpu_s": used, "done": 0, "moved": messages, "passed": messages, "read": messages}


def run_arm(arm: str, tenant: str, messages: int, lookahead: int, seconds: float) -> None:
    found = (
        ours(tenant, messages, lookahead, seconds) if arm == "ours" else raw(tenant, messages, due=arm == "raw-reroute")
    )
    print(json.dumps(found), flush=True)
    os._exit(0)  # what waits need not be waited for


def measure_one(arm: str, messages: int, lookahead: int, seconds: float, variants: Variants) -> dict[str, Any]:
    tenant = f"through{time.time_ns() // 1_000_000}"
    create_tenant(tenant)
    admin_topics(tenant, "flow", "ours")
    if arm == "raw-route":
        create_topic(tenant, moved_to("s", due=False), "s")
    preload(tenant, messages)
    record = {"arm": arm} | variants.run("readthrough.py", arm, tenant, str(messages), str(lookahead), str(seconds))
    return record | {"lookahead": lookahead, "load": os.getloadavg()[0], "python": platform.python_version(),
                     "cores": os.cpu_count()}  # fmt: skip


def measure(arguments: argparse.Namespace) -> None:
    found: dict[str, list[dict[str, Any]]] = {}
    variants = variants_of(arguments, arguments.arms, ARMS)
    for _ in range(arguments.repeats):
        for arm in arguments.arms:
            record = measure_one(arm, arguments.messages, arguments.lookahead, arguments.seconds, variants)
            found.setdefault(arm, []).append(record)
            with Path(arguments.out).open("a", encoding="utf-8") as out:
                out.write(json.dumps(record) + "\n")
    for arm, records in found.items():
        passed = [record.get("passed", record["read"]) for record in records]  # another checkout may not count it
        rates = [count / record["seconds"] for count, record in zip(passed, records, strict=True)]
        costs = [record["cpu_s"] / count * 1e6 for count, record in zip(passed, records, strict=True)]
        print(
            f"{arm:12} {statistics.median(rates):7,.0f} handled or moved/s ({min(rates):,.0f}–{max(rates):,.0f})"
            f"  {statistics.median(costs):6.1f} µs CPU ({min(costs):.1f}–{max(costs):.1f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--lookahead", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=150, help="of `ours` at most")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", default=str(HERE / "readthrough.jsonl"))
    parser.add_argument(
        "--one", nargs=5, metavar=("ARM", "TENANT", "MESSAGES", "LOOKAHEAD", "SECONDS"), help=argparse.SUPPRESS
    )
    add_variants(parser)
    parser.add_argument("arms", nargs="*", default=list(ARMS), help="default: all")
    arguments = parser.parse_args()
    if arguments.one:
        arm, tenant, messages, lookahead, seconds = arguments.one
        run_arm(arm, tenant, int(messages), int(lookahead), float(seconds))
    else:
        measure(arguments)


if __name__ == "__main__":
    main()
