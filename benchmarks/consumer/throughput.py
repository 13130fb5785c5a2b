"""Throughput of the consumer, compared with code that a user would write or take instead: client CPU per message, and rate.

    python benchmarks/consumer/throughput.py [--messages 100000] [--size 1024] [--repeats 5] [--go BINARY] [--beside CHECKOUT]
        [--variant NAME=VARIABLE=VALUE ...] [--out FILE] [ARM ...]

Needs a broker: KODOCTL_ADMIN_URL and KODOCTL_BROKER_URL, else the current context's. One backlog is kept by a
holding subscription; each run drains it through a fresh one, in a process of its own. Arms run interleaved, in random order.
Each is compared with the arm it names as its base (a variant with that of its base, where it runs): quote ratios of one run, not messages a second.

| arm | what it does | base |
|---|---|---|
| `raw` | receive, data, acknowledge | |
| `sync`, `async` | Consumer with a plain or an async handler that does nothing | `raw` |
| `sync-fair`, `async-fair` | the same with 100 tenants and turns between them | `raw` |
| `go` | the Go library with a handler that does nothing (`--go`: a binary built from golang/) | `raw` |
| `failing` | as `sync`, every tenth message fails once and waits in RETRYING for longer than the run | `sync` |
| `raw-failing` | `raw`, every tenth message as in `raw-reroute` | `raw` |
| `slots-sketch` | a thread hands bundles to 100 asyncio tasks that sleep 10 ms; no guarantees | |
| `slots` | Consumer with async handlers that sleep 10 ms, 100 at a time | `slots-sketch` |
| `raw-reroute` | receive, publish with properties and a due time, acknowledge after the receipt | |
| `reroute` | Consumer whose handler sends everything to RETRYING | `raw-reroute` |
| `raw-route` | the same without a due time, so that the client may batch | |
| `route` | Consumer whose handler transfers everything to another topic | `raw-route` |
| `audit` | as `sync`, with a record of every message on the audit topic | `sync` |
| `hook` | as `sync`, with a hook around `acknowledged` that does nothing; ends once it was called for every message | `sync` |
| `…-python` | an arm of Consumer without the native border, which the others use where it is installed | the arm's |
| `…-NAME` | an arm in the environment of `--variant NAME=…`, such as one without the compiled core | the arm's |
| `…-before` | an arm of the checkout that `--beside` names, measured by its own program | the arm's |

Seconds and processor time (of the whole process, the client's threads included) count from just before `start` of the Consumer, so that its
connecting and its threads are in them; those of raw loops from after the subscription. `steady` has both from the first message in
a handler (raw: of the loop) to the end: of the messages after it, without any start. Neither counts the imports.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import queue
import random
import resource
import statistics
import subprocess
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
from cluster import CLUSTER, admin, batched, client, cpu, create_tenant, create_topic, edition, loaded, topology
from variants import Variants, add_variants, variants_of

BASES = {
    "raw": None, "sync": "raw", "async": "raw", "sync-fair": "raw", "async-fair": "raw", "go": "raw", "failing": "sync",
    "raw-failing": "raw",
    "slots-sketch": None, "slots": "slots-sketch", "raw-reroute": None, "reroute": "raw-reroute", "raw-route": None,
    "route": "raw-route", "audit": "sync", "hook": "sync",
}  # fmt: skip
SLEEP = 0.010  # seconds, of the handlers of `slots`
HERE = Path(__file__).parent
HOUR = 3_600_000  # ms
TOPICS = """
  flow:
    {fair}
    subscriptions:
      {subscription}: {{states: {states}, dead_letter: false, produces: {produces}, in_place: [], concurrency: {slots}, audit: {audit}, retrying: {{delays: [1h]}}}}
  elsewhere: {{}}
"""


def preload(tenant: str, messages: int, size: int) -> None:
    create_tenant(tenant)
    create_topic(tenant, "flow", "hold")
    with_broker = client()
    producer = batched(with_broker, tenant)
    for number in range(messages):
        producer.send_async(b"x" * size, _ignore, properties={"uid": f"u{number % 100}", "number": str(number)})
    producer.flush()
    with_broker.close()


def _ignore(_result: Any, _position: Any) -> None:
    pass


class Stopwatch:
    """Seconds and processor time of an arm: of all messages, and of those after the first one."""

    def __init__(self, messages: int) -> None:
        self._messages = messages
        self._began = self._first = self._end = (time.perf_counter(), cpu())

    def first(self) -> None:
        self._first = time.perf_counter(), cpu()

    def stop(self) -> None:
        self._end = time.perf_counter(), cpu()

    @property
    def record(self) -> dict[str, Any]:
        (began, used), (first, used_first), (end, used_end) = self._began, self._first, self._end
        after = self._messages - 1
        steady = {
            "seconds": end - first,
            "cpu_us": (used_end - used_first) / after * 1e6,
            "rate": after / (end - first),
        }
        return {"seconds": end - began, "cpu_us": (used_end - used) / self._messages * 1e6, "steady": steady}


def raw_arm(tenant: str, subscription: str, messages: int) -> Stopwatch:
    with_broker = client()
    consumer = with_broker.subscribe(
        f"persistent://{tenant}/ns/flow", subscription, pulsar.ConsumerType.Shared, receiver_queue_size=2000,
        initial_position=pulsar.InitialPosition.Earliest, batch_index_ack_enabled=True,
    )  # fmt: skip
    watch = Stopwatch(messages)
    for number in range(messages):
        message = consumer.receive(10_000)
        if not number:
            watch.first()
        message.data()
        consumer.acknowledge(message)
    watch.stop()
    with_broker.close()
    return watch


def raw_reroute_arm(tenant: str, subscription: str, messages: int, *, due: bool, each: int = 1) -> Stopwatch:
    """Publishes one of `each` messages again; the others are acknowledged."""
    with_broker, with_broker_too = client(), client()
    consumer = with_broker.subscribe(
        f"persistent://{tenant}/ns/flow", subscription, pulsar.ConsumerType.Shared, receiver_queue_size=2000,
        initial_position=pulsar.InitialPosition.Earliest, batch_index_ack_enabled=True,
    )  # fmt: skip
    producer = batched(with_broker_too, tenant, moved_to(subscription, due=due))
    stored: queue.SimpleQueue[Any] = queue.SimpleQueue()
    watch = Stopwatch(messages)
    left = messages
    for one in range(messages):
        message = consumer.receive(10_000)
        if not one:
            watch.first()
        if one % each:
            message.data()
            consumer.acknowledge(message)
            left -= 1
            continue
        number = message.message_id()
        more = {"kodo-hop": "1", "kodo-origin-id": str(number), "kodo-reason": "asked to retry"}
        producer.send_async(
            message.data(), partial(_stored, stored, number), properties=message.properties() | more,
            deliver_at=int(time.time() * 1000) + HOUR if due else None,
        )  # fmt: skip
        while not stored.empty():
            consumer.acknowledge(stored.get())
            left -= 1
    while left:
        consumer.acknowledge(stored.get(timeout=30))
        left -= 1
    watch.stop()
    with_broker.close()
    with_broker_too.close()
    return watch


def _stored(stored: queue.SimpleQueue[Any], number: Any, _result: Any, _position: Any) -> None:
    stored.put(number)


def moved_to(subscription: str, *, due: bool) -> str:
    return f"flow-{subscription}-RETRYING" if due else "elsewhere"


def sketch_arm(tenant: str, subscription: str, messages: int) -> Stopwatch:
    """The least that hands messages from a thread to tasks: bundles into a queue, 100 tasks, an acknowledgement each."""
    with_broker = client()
    consumer = with_broker.subscribe(
        f"persistent://{tenant}/ns/flow", subscription, pulsar.ConsumerType.Shared, receiver_queue_size=2000,
        initial_position=pulsar.InitialPosition.Earliest, batch_index_ack_enabled=True,
    )  # fmt: skip

    async def work() -> None:
        loop, there, left, over = asyncio.get_running_loop(), asyncio.Queue[Any](), messages, asyncio.Event()
        fresh = [True]

        def fill() -> None:
            read = 0
            while read < messages:
                bundle = list(consumer.batch_receive())
                read += len(bundle)
                loop.call_soon_threadsafe(take, bundle)

        def take(bundle: list[Any]) -> None:
            for message in bundle:
                there.put_nowait((message.data(), message.message_id()))

        async def handle() -> None:
            nonlocal left
            while True:
                _, number = await there.get()
                if fresh:
                    fresh.clear()
                    watch.first()
                await asyncio.sleep(SLEEP)
                consumer.acknowledge(number)
                left -= 1
                if not left:
                    over.set()

        threading.Thread(target=fill, daemon=True).start()
        tasks = [asyncio.create_task(handle()) for _ in range(100)]
        await over.wait()
        for task in tasks:
            task.cancel()

    watch = Stopwatch(messages)
    asyncio.run(work())
    watch.stop()
    with_broker.close()
    return watch


def consumer_arm(tenant: str, subscription: str, messages: int, arm: str) -> Stopwatch:
    import kodo_consumer.adapters.pulsar  # noqa: F401  # its cost is not that of a message
    from kodo_consumer import Message, Retry, Transfer

    topics = TOPICS.format(
        subscription=subscription, produces="[elsewhere]" if arm == "route" else "[]",
        fair="fair_by: uid" if arm.endswith("fair") else "description: none", slots=100 if arm == "slots" else 16,
        states="[retrying]" if arm in ("reroute", "failing") else "[]", audit=str(arm == "audit").lower(),
    )  # fmt: skip
    worker = loaded(topology(tenant, topics), subscription=subscription)
    left, over, fresh = [messages], threading.Event(), [True]

    def begin() -> None:
        if fresh:
            fresh.clear()
            watch.first()

    def count() -> None:
        begin()
        left[0] -= 1  # a statement of one thread at a time is not needed: handlers that do nothing rarely overlap
        if left[0] <= 0:
            over.set()

    async def handle_later(_message: Message) -> None:
        count()

    async def sleep(_message: Message) -> None:
        begin()
        await asyncio.sleep(SLEEP)
        count()

    def handle(_message: Message) -> None:
        count()

    def retry(_message: Message) -> None:
        begin()
        raise Retry

    def move(_message: Message) -> None:
        begin()
        raise Transfer("elsewhere")

    def fail(message: Message) -> None:
        count()
        if message.properties["number"].endswith("0"):
            raise Retry

    handlers = {"slots": sleep, "reroute": retry, "route": move, "failing": fail}
    worker.handler(handlers.get(arm) or (handle_later if arm.startswith("async") else handle))
    confirmed = count_confirmed(worker) if arm == "hook" else (messages,)
    watch = Stopwatch(messages)
    worker.start()
    wait_for_end(worker, messages, over, is_audited=arm == "audit")
    while confirmed[0] < messages:
        time.sleep(0.01)
    watch.stop()
    worker.stop()
    return watch


def wait_for_end(worker: Any, messages: int, over: threading.Event, *, is_audited: bool) -> None:
    """Waits until the worker is done with the messages, and has recorded them where it keeps records."""
    while not over.wait(0.05):
        counts = worker.counts
        if counts.done + counts.finished.total() >= messages:  # reroutes, or a lost count of ours
            break
    while is_audited and worker.counts.recorded < messages:
        time.sleep(0.01)


def count_confirmed(worker: Any) -> list[int]:
    """The number of messages whose acknowledgement the broker has confirmed, counted by a hook from now on."""
    count = [0]

    @worker.middleware("acknowledged")
    def note(_message: Any, _rule: str) -> None:
        count[0] += 1

    return count


def run_arm(arm: str, tenant: str, subscription: str, messages: int) -> None:
    if arm == "raw":
        found = raw_arm(tenant, subscription, messages).record
    elif arm.startswith("raw"):
        due, each = arm != "raw-route", 10 if arm == "raw-failing" else 1
        found = raw_reroute_arm(tenant, subscription, messages, due=due, each=each).record
    elif arm == "slots-sketch":
        found = sketch_arm(tenant, subscription, messages).record
    else:
        found = consumer_arm(tenant, subscription, messages, arm).record | edition()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(found | {"rss_mib": peak}))


def measure_one(
    arm: str, tenant: str, subscription: str, messages: int, go: str | None, variants: Variants
) -> dict[str, Any]:
    name, _ = variants.split(arm)
    create_topic(tenant, "flow", subscription)
    others = [f"flow-{subscription}-RETRYING", f"flow-{subscription}-DLQ", *["elsewhere"] * name.endswith("route")]
    others += [f"flow-{subscription}-AUDIT"] * (name == "audit")
    for other in others:
        create_topic(tenant, other, subscription)
    record: dict[str, Any] = {"arm": arm}
    if name == "go":
        topic = f"persistent://{tenant}/ns/flow"
        command = [
            str(go),
            "--url",
            CLUSTER.broker_url,
            "--topic",
            topic,
            "--subscription",
            subscription,
            "--messages",
            str(messages),
        ]
        record |= json.loads(
            subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout.splitlines()[-1]
        )
    else:
        record |= variants.run("throughput.py", arm, tenant, subscription, str(messages), timeout=300) | {"arm": arm}
    if "route" in name:
        target = moved_to(subscription, due=name.endswith("reroute"))
        stats = admin("GET", f"persistent/{tenant}/ns/{target}-partition-0/internalStats").json()
        record |= {"entries": stats["entriesAddedCounter"], "stored_bytes": stats["totalSize"]}
    admin("DELETE", f"persistent/{tenant}/ns/flow/subscription/{subscription}?force=true")
    for other in others:
        admin("DELETE", f"persistent/{tenant}/ns/{other}/partitions?force=true")
    return record


def measure(arguments: argparse.Namespace) -> None:
    variants = variants_of(arguments, arguments.arms, [*BASES])
    tenant = f"bench{time.time_ns() // 1_000_000}"
    preload(tenant, arguments.messages, arguments.size)
    found: dict[str, list[dict[str, Any]]] = {}
    for repeat in range(arguments.repeats):
        for arm in random.sample(arguments.arms, len(arguments.arms)):
            record = measure_one(arm, tenant, f"s{repeat}-{arm}", arguments.messages, arguments.go, variants) | {
                "repeat": repeat, "messages": arguments.messages, "size": arguments.size, "load": os.getloadavg()[0],
                "python": platform.python_version(), "cores": os.cpu_count(),
            }  # fmt: skip
            found.setdefault(arm, []).append(record)
            with Path(arguments.out).open("a", encoding="utf-8") as out:
                out.write(json.dumps(record) + "\n")
    for arm in sorted(found, key=lambda arm: ([*BASES].index(variants.split(arm)[0]), arm)):
        name, variant = variants.split(arm)
        base = BASES[name] or ""
        print(row(arm, found[arm], found.get(f"{base}-{variant}") or found.get(base)))


def row(arm: str, records: list[dict[str, Any]], base: list[dict[str, Any]] | None) -> str:
    costs = [record["cpu_us"] for record in records]
    rates = [record["messages"] / record["seconds"] for record in records]
    text = (
        f"{arm:18} {statistics.median(costs):6.1f} µs CPU ({min(costs):.1f}–{max(costs):.1f})"
        f" {statistics.median(rates):8,.0f}/s ({min(rates):,.0f}–{max(rates):,.0f})"
    )
    if base:
        over = statistics.median(costs) - statistics.median(record["cpu_us"] for record in base)
        of = statistics.median(rates) / statistics.median(record["messages"] / record["seconds"] for record in base)
        text += f"  {base[0]['arm']}: {over:+.1f} µs, {of:.0%} of its rate"
    if steady := [record["steady"] for record in records if "steady" in record]:
        median = {name: statistics.median(one[name] for one in steady) for name in ("cpu_us", "rate")}
        text += f"  (steady {median['cpu_us']:.1f} µs, {median['rate']:,.0f}/s)"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default=str(HERE / "results.jsonl"))
    parser.add_argument("--one", nargs=4, metavar=("ARM", "TENANT", "SUBSCRIPTION", "MESSAGES"), help=argparse.SUPPRESS)
    parser.add_argument("--go", help="binary of golang/, for the arm `go`")
    add_variants(parser)
    parser.add_argument("arms", nargs="*", help="default: all, none of them as a variant")
    arguments = parser.parse_args()
    arguments.arms = arguments.arms or [arm for arm in BASES if arm != "go" or arguments.go]
    if arguments.one:
        arm, tenant, subscription, messages = arguments.one
        run_arm(arm, tenant, subscription, int(messages))
    else:
        measure(arguments)


if __name__ == "__main__":
    main()
