"""What the consumer costs beside the raw client loop: client CPU per message, of handlers that do nothing and of reroutes.

    python benchmarks/consumer/throughput.py [--messages 100000] [--size 1024] [--repeats 5] [--out FILE] [ARM ...]

Needs a broker: KODOCTL_ADMIN_URL and KODOCTL_BROKER_URL, else the current context's. One backlog is kept by a
holding subscription; each run drains it through a fresh one, in a process of its own. Arms run interleaved, in random order.

Arms: `raw` (receive, data, acknowledge), `sync`, `async` (Consumer with a plain or an async handler), `sync-fair`,
`async-fair` (the same with 100 tenants and turns between them); `raw-reroute` (receive, publish with properties and a due
time, acknowledge after the receipt) and `reroute` (Consumer whose handler sends everything to RETRYING). Quote the difference
to the raw arm of the same run, not messages a second.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import queue
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
import requests

from kodoctl.pulsar.connection import Flags, connect

ARMS = ("raw", "sync", "async", "sync-fair", "async-fair", "raw-reroute", "reroute")
HERE = Path(__file__).parent
HOUR = 3_600_000  # ms
CLUSTER = connect(Flags(), os.environ, Path.cwd())
EARLIEST = {"ledgerId": -1, "entryId": -1}
TOPOLOGY = """
version: 1
name: bench
tenant: {tenant}
namespace: ns
topics:
  flow:
    {fair}
    subscriptions:
      {subscription}: {{states: {states}, dead_letter: false, in_place: [], concurrency: 16, retrying: {{delays: [1h]}}}}
"""


def admin(method: str, path: str, body: Any = None) -> requests.Response:
    url = f"{CLUSTER.admin_url}/admin/v2/{path}"
    return requests.request(method, url, json=body, timeout=30, headers={"Content-Type": "application/json"})


def client() -> pulsar.Client:
    return pulsar.Client(CLUSTER.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def preload(tenant: str, messages: int, size: int) -> None:
    admin("PUT", f"tenants/{tenant}", {"allowedClusters": ["standalone"], "adminRoles": []})
    admin("PUT", f"namespaces/{tenant}/ns")
    admin("PUT", f"persistent/{tenant}/ns/flow/partitions", 1)
    admin("PUT", f"persistent/{tenant}/ns/flow/subscription/hold", EARLIEST)
    with_broker = client()
    producer = with_broker.create_producer(
        f"persistent://{tenant}/ns/flow", batching_enabled=True, batching_max_messages=1000,
        batching_max_publish_delay_ms=5, block_if_queue_full=True, max_pending_messages=20_000,
    )  # fmt: skip
    for number in range(messages):
        producer.send_async(b"x" * size, _ignore, properties={"uid": f"u{number % 100}"})
    producer.flush()
    with_broker.close()


def _ignore(_result: Any, _position: Any) -> None:
    pass


def raw_arm(tenant: str, subscription: str, messages: int) -> tuple[float, float]:
    with_broker = client()
    consumer = with_broker.subscribe(
        f"persistent://{tenant}/ns/flow", subscription, pulsar.ConsumerType.Shared, receiver_queue_size=2000,
        initial_position=pulsar.InitialPosition.Earliest, batch_index_ack_enabled=True,
    )  # fmt: skip
    began, used = time.perf_counter(), cpu()
    for _ in range(messages):
        message = consumer.receive(10_000)
        message.data()
        consumer.acknowledge(message)
    took = time.perf_counter() - began, cpu() - used
    with_broker.close()
    return took


def raw_reroute_arm(tenant: str, subscription: str, messages: int) -> tuple[float, float]:
    with_broker, with_broker_too = client(), client()
    consumer = with_broker.subscribe(
        f"persistent://{tenant}/ns/flow", subscription, pulsar.ConsumerType.Shared, receiver_queue_size=2000,
        initial_position=pulsar.InitialPosition.Earliest, batch_index_ack_enabled=True,
    )  # fmt: skip
    producer = with_broker_too.create_producer(
        f"persistent://{tenant}/ns/flow-{subscription}-RETRYING", batching_enabled=True, batching_max_messages=1000,
        batching_max_publish_delay_ms=5, block_if_queue_full=True, max_pending_messages=20_000,
    )  # fmt: skip
    stored: queue.SimpleQueue[Any] = queue.SimpleQueue()
    began, used = time.perf_counter(), cpu()
    left = messages
    for _ in range(messages):
        message = consumer.receive(10_000)
        number = message.message_id()
        more = {"kodo-hop": "1", "kodo-origin-id": str(number), "kodo-reason": "asked to retry"}
        producer.send_async(
            message.data(), partial(_stored, stored, number), properties=message.properties() | more,
            deliver_at=int(time.time() * 1000) + HOUR,
        )  # fmt: skip
        while not stored.empty():
            consumer.acknowledge(stored.get())
            left -= 1
    while left:
        consumer.acknowledge(stored.get(timeout=30))
        left -= 1
    took = time.perf_counter() - began, cpu() - used
    with_broker.close()
    with_broker_too.close()
    return took


def _stored(stored: queue.SimpleQueue[Any], number: Any, _result: Any, _position: Any) -> None:
    stored.put(number)


def consumer_arm(tenant: str, subscription: str, messages: int, arm: str) -> tuple[float, float]:
    import consumer.pulsar_broker  # noqa: F401  # its cost is not that of a message
    from consumer import Consumer, Message, Retry

    later, fair, moves = arm.startswith("async"), arm.endswith("fair"), arm == "reroute"

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "t.yaml"
        by = "fair_by: uid" if fair else "description: none"
        states = "[retrying]" if moves else "[]"
        text = TOPOLOGY.format(tenant=tenant, subscription=subscription, fair=by, states=states)
        file.write_text(text, encoding="utf-8")
        worker = Consumer.load(
            file, topic="flow", subscription=subscription, admin_url=CLUSTER.admin_url, broker_url=CLUSTER.broker_url,
            environ={},
        )  # fmt: skip
    left, over = [messages], threading.Event()

    def count() -> None:
        left[0] -= 1  # a statement of one thread at a time is not needed: handlers that do nothing rarely overlap
        if left[0] <= 0:
            over.set()

    async def handle_later(_message: Message) -> None:
        count()

    def handle(_message: Message) -> None:
        count()

    def move(_message: Message) -> None:
        raise Retry

    worker.handler(move if moves else handle_later if later else handle)
    began, used = time.perf_counter(), cpu()
    worker.start()
    counts = worker._running.worker.counts  # noqa: SLF001
    while not over.wait(0.05 if moves else 1.0):
        if counts.done + counts.finished["retrying"] >= messages:  # reroutes, or a lost count of ours
            break
    took = time.perf_counter() - began, cpu() - used
    worker.stop()
    return took


def run_arm(arm: str, tenant: str, subscription: str, messages: int) -> None:
    if arm.startswith("raw"):
        seconds, used = (raw_arm if arm == "raw" else raw_reroute_arm)(tenant, subscription, messages)
    else:
        seconds, used = consumer_arm(tenant, subscription, messages, arm)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"arm": arm, "seconds": seconds, "cpu_us": used / messages * 1e6, "rss_mib": peak}))


def measure(arguments: argparse.Namespace) -> None:
    tenant = f"bench{int(time.time())}"
    preload(tenant, arguments.messages, arguments.size)
    found: dict[str, list[float]] = {}
    for repeat in range(arguments.repeats):
        for arm in random.sample(arguments.arms, len(arguments.arms)):
            subscription = f"s{repeat}-{arm}"
            admin("PUT", f"persistent/{tenant}/ns/flow/subscription/{subscription}", EARLIEST)
            waiting = f"persistent/{tenant}/ns/flow-{subscription}-RETRYING"
            if arm.endswith("reroute"):
                admin("PUT", f"{waiting}/partitions", 1)
                admin("PUT", f"{waiting}/subscription/{subscription}", EARLIEST)
            command = [sys.executable, __file__, "--one", arm, tenant, subscription, str(arguments.messages)]
            answer = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
            record = json.loads(answer.strip().splitlines()[-1]) | {
                "repeat": repeat, "messages": arguments.messages, "size": arguments.size, "load": os.getloadavg()[0],
                "python": platform.python_version(), "cores": os.cpu_count(),
            }  # fmt: skip
            admin("DELETE", f"persistent/{tenant}/ns/flow/subscription/{subscription}?force=true")
            if arm.endswith("reroute"):
                admin("DELETE", f"{waiting}/partitions?force=true")
            found.setdefault(arm, []).append(record["cpu_us"])
            with Path(arguments.out).open("a", encoding="utf-8") as out:
                out.write(json.dumps(record) + "\n")
    for arm in (arm for arm in ARMS if arm in found):
        values = found[arm]
        base = "raw-reroute" if arm.endswith("reroute") else "raw"
        median, raw = statistics.median(values), statistics.median(found.get(base, [float("nan")]))
        print(f"{arm:11} {median:6.1f} µs a message ({min(values):.1f}–{max(values):.1f}), {base} + {median - raw:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default=str(HERE / "results.jsonl"))
    parser.add_argument("--one", nargs=4, metavar=("ARM", "TENANT", "SUBSCRIPTION", "MESSAGES"), help=argparse.SUPPRESS)
    parser.add_argument("arms", nargs="*", default=list(ARMS))
    arguments = parser.parse_args()
    if arguments.one:
        arm, tenant, subscription, messages = arguments.one
        run_arm(arm, tenant, subscription, int(messages))
    else:
        measure(arguments)


if __name__ == "__main__":
    main()
