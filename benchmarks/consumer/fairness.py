"""Waits of quiet tenants while one is noisy, on a real broker, compared with the alternatives.

    python benchmarks/consumer/fairness.py [--loads f2 f1 …] [--arms ours fifo …] [--repeats 1] [--go BINARY]
        [--beside CHECKOUT] [--variant NAME=VARIABLE=VALUE ...] [--out FILE]

Loads (16 slots, handlers of 10 ms unless said otherwise; times count from the flood on, before it is a quiet time):

- `f2`: one tenant drops 100,000 messages at once, 99 quiet ones send 5/s each, for 60 s
- `f2-million`: the same with 1,000,000 messages, more than any look-ahead holds, so the flood is isolated; for 480 s
- `f1`: one tenant sends 1,000/s, nine 50/s each, capacity 1,270/s, for 120 s
- `f3`: one tenant with handlers of 30 s, 99 quiet ones send 1/s each, for 60 s
- `f9`: 30 % of one tenant's handlers fail, 200/s of it, 99 quiet ones send 5/s each, for 60 s

Arms: `ours`; `fifo` (a Shared consumer and threads); `key_shared` (16 consumers, a thread each); `sketch` (receive everything,
a queue a tenant in memory, round robin: the idea without any guarantee); `go` (the Go library, its Pending state above 50/s a
tenant; --go names a binary built from golang/); `ours-python`, `ours-before` and their like (see variants.py). Dwell is from sending to the start of the handler; a message that has not
started at the end counts with its age. A flood is `through` when the last quiet message that was sent before the flood's end has
started; `after` are those sent from then on. Every run is a line of fairness.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pulsar
from cluster import CLUSTER, admin, batched, client, cpu, create_tenant, create_topic, loaded, topology
from variants import Variants, add_variants, variants_of

HERE = Path(__file__).parent
QUIET_BEFORE = 12.0  # seconds without the noisy tenant: what the machine and the arm do by themselves
SLOTS = 16
TOPICS = """
  {topic}:
    backup: true
    fair_by: uid
    subscriptions:
      s:
        concurrency: 16
        lookahead: {{messages: {messages}, size: 256MiB}}
        isolate: {isolate}
        in_place: []
        retrying: {{delays: [5s, 10s], attempts: 10}}
        states: [retrying, pending]
        dead_letter: false
"""


@dataclass(frozen=True)
class Load:
    """Rates in messages a second, times in seconds."""

    flood: int = 0  # messages at once
    noisy: float = 0  # a second
    quiet: int = 99  # tenants
    each: float = 5.0  # a second, of each quiet tenant
    watch: float = 60.0
    handler: float = 0.010
    noisy_handler: float = 0.010
    failing: float = 0.0  # of the noisy tenant's
    lookahead: int = 150_000
    isolate: str = "off"


LOADS = {
    "f2": Load(flood=100_000),
    "f2-million": Load(flood=1_000_000, watch=480.0, lookahead=50_000, isolate="{share: 25%, min: 1000}"),
    "f1": Load(noisy=1_000, quiet=9, each=50.0, watch=120.0, handler=SLOTS / 1270, noisy_handler=SLOTS / 1270),
    "f3": Load(noisy=2, each=1.0, noisy_handler=30.0),
    "f9": Load(noisy=200, failing=0.3),
}
ARMS = ("ours", "fifo", "key_shared", "sketch", "go")
Handle = Callable[[bytes], None]


class Journal:
    """Handler starts, written down for the one who reads them when the time is over."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self._lines: list[str] = []

    def handle(self, payload: bytes) -> None:
        tenant, sent, *_ = payload.decode().split()
        self._lines.append(f"{tenant} {sent} {time.time():.6f}")  # one append: no lock needed
        time.sleep(self.load.noisy_handler if tenant == "noisy" else self.load.handler)

    def end(self) -> None:
        sys.stdout.write("\n".join([*self._lines, f"cpu {cpu():.3f} 0"]) + "\n")
        sys.stdout.flush()
        os._exit(0)  # the arms' threads may be asleep for long


# What runs in a process of its own


def ours(load: Load, tenant: str, topic: str, journal: Journal) -> None:
    from kodo_consumer import Message

    runs: dict[str, int] = {}

    def handle(message: Message) -> None:
        journal.handle(message.data)
        if load.failing and message.tenant == "noisy":
            number = int(message.data.split()[2])
            runs[message.id] = runs.get(message.id, 0) + 1
            if number % 100 < load.failing * 100 and runs[message.id] < 3:
                raise ValueError("one of those that fail")

    topics = TOPICS.format(topic=topic, messages=load.lookahead, isolate=load.isolate)
    consumer = loaded(topology(tenant, topics), topic)
    consumer.handler(handle)
    consumer.start()


def _subscribe(tenant: str, topic: str, kind: pulsar.ConsumerType) -> pulsar.Consumer:
    return client().subscribe(
        f"persistent://{tenant}/ns/{topic}", "s", kind, receiver_queue_size=1000,
        initial_position=pulsar.InitialPosition.Earliest, batch_index_ack_enabled=True,
    )  # fmt: skip


def _receiving(consumer: pulsar.Consumer, handle: Handle) -> None:
    while True:
        message = consumer.receive()
        handle(message.data())
        consumer.acknowledge(message)


def fifo(_load: Load, tenant: str, topic: str, journal: Journal) -> None:
    consumer = _subscribe(tenant, topic, pulsar.ConsumerType.Shared)
    for _ in range(SLOTS):
        threading.Thread(target=_receiving, args=(consumer, journal.handle), daemon=True).start()


def key_shared(_load: Load, tenant: str, topic: str, journal: Journal) -> None:
    for _ in range(SLOTS):
        consumer = _subscribe(tenant, topic, pulsar.ConsumerType.KeyShared)
        threading.Thread(target=_receiving, args=(consumer, journal.handle), daemon=True).start()


def sketch(_load: Load, tenant: str, topic: str, journal: Journal) -> None:
    queues: dict[str, deque[Any]] = {}
    turns: deque[str] = deque()
    there = threading.Condition()

    def fill(consumer: pulsar.Consumer) -> None:
        while True:
            messages = list(consumer.batch_receive())
            with there:
                for message in messages:
                    found = message.properties()["uid"]
                    if not queues.setdefault(found, deque()):
                        turns.append(found)
                    queues[found].append((consumer, message))
                there.notify(len(messages))

    def work() -> None:
        while True:
            with there:
                there.wait_for(lambda: turns)
                found = turns.popleft()
                consumer, message = queues[found].popleft()
                if queues[found]:
                    turns.append(found)
            journal.handle(message.data())
            consumer.acknowledge(message)

    for _ in range(3):  # the broker lets 50,000 messages be unacknowledged a consumer
        threading.Thread(
            target=fill, args=(_subscribe(tenant, topic, pulsar.ConsumerType.Shared),), daemon=True
        ).start()
    for _ in range(SLOTS):
        threading.Thread(target=work, daemon=True).start()


def run_arm(arm: str, load: Load, tenant: str, topic: str, seconds: float) -> None:
    journal = Journal(load)
    {"ours": ours, "fifo": fifo, "key_shared": key_shared, "sketch": sketch}[arm](load, tenant, topic, journal)
    time.sleep(seconds)
    journal.end()


def produce(load: Load, tenant: str, topic: str, out: Path) -> None:
    """Writes `tenant sent` of all quiet messages, and in the last line when the flood began and when all of it was sent."""
    with_broker = client()
    quiet = with_broker.create_producer(
        f"persistent://{tenant}/ns/{topic}", block_if_queue_full=True, batching_enabled=False
    )
    flood = batched(with_broker, tenant, topic)
    begin = time.time() + 0.5
    until = begin + QUIET_BEFORE + load.watch
    sent: list[str] = []
    times: dict[str, float] = {"flood": begin + QUIET_BEFORE, "sent": begin + QUIET_BEFORE}

    def send(producer: pulsar.Producer, name: str, number: int) -> None:
        now = f"{time.time():.6f}"
        producer.send_async(f"{name} {now} {number}".encode(), _ignore, properties={"uid": name}, partition_key=name)
        if name != "noisy":
            sent.append(f"{name} {now}")

    def noisy() -> None:
        time.sleep(max(0.0, times["flood"] - time.time()))
        for number in range(load.flood):
            send(flood, "noisy", number)
        if load.flood:
            flood.flush()
            times["sent"] = time.time()
        _paced(lambda number: send(quiet, "noisy", number), load.noisy, times["flood"], until)

    loud = threading.Thread(target=noisy)
    loud.start()
    _paced(lambda number: send(quiet, f"q{number % load.quiet}", number), load.quiet * load.each, begin, until)
    loud.join()
    with_broker.close()
    out.write_text("\n".join([*sent, json.dumps(times)]), encoding="utf-8")


def _paced(send: Callable[[int], None], rate: float, begin: float, until: float) -> None:
    number = 0
    while rate and (due := begin + number / rate) < until:
        if (wait := due - time.time()) > 0:
            time.sleep(wait)
        send(number)
        number += 1


def _ignore(_result: Any, _position: Any) -> None:
    pass


# What judges


def judge(load: Load, started: str, produced: str) -> dict[str, Any]:
    *lines, last = produced.strip().splitlines()
    times = json.loads(last)
    end = times["flood"] + load.watch
    starts: dict[tuple[str, str], float] = {}
    noisy, used = [], 0.0
    for line in started.splitlines():
        if len(line.split()) != 3:
            continue  # the client's log
        name, sent, at = line.split()
        if name == "cpu":
            used = float(sent)
        elif name == "noisy":
            noisy.append(float(at))
        else:
            starts.setdefault((name, sent), float(at))
    idle, whole, settled, after = [], [], [], []
    among = [starts.get((name, sent), end) for name, sent in map(str.split, lines) if float(sent) < times["sent"]]
    through = max(among, default=end)
    for line in lines:
        name, sent = line.split()
        at = float(sent)
        wait = min(starts.get((name, sent), end), end) - at
        if at < times["flood"]:
            idle.append(wait)
        elif at < end:
            whole.append(wait)
            if at > times["sent"] + 3:
                settled.append(wait)
            if at > through:
                after.append(wait)
    everything = sum(times["flood"] <= at < end for at in [*starts.values(), *noisy])
    return {
        "idle": spread(idle), "whole": spread(whole), "settled": spread(settled), "after": spread(after), "cpu_s": used,
        "through_s": round(min(through, end) - times["flood"], 2),
        "flood_sent_s": round(times["sent"] - times["flood"], 2), "over_1s": sum(wait > 1 for wait in whole) / len(whole),
        "total_a_second": round(everything / load.watch), "noisy_started": len(noisy),
    }  # fmt: skip


def spread(waits: list[float]) -> dict[str, float]:
    """Milliseconds."""
    ordered = sorted(waits) or [float("nan")]
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {
        name: round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 1) for name, share in at.items()
    }


def measure(name: str, arm: str, go: str | None, variants: Variants) -> dict[str, Any]:
    load, kind = LOADS[name], variants.split(arm)[0]
    tenant, topic = f"fair{time.time_ns() // 1_000_000}", "flow"
    create_tenant(tenant)
    admin_topics(tenant, topic, kind)
    seconds = QUIET_BEFORE + load.watch + 3
    here = [sys.executable, __file__]
    command, environ = variants.one("fairness.py", arm, name, tenant, topic, str(seconds))
    if arm == "go":
        over = ["--pending-above", "50"]
        command = [str(go), "--url", CLUSTER.broker_url, "--topic", f"persistent://{tenant}/ns/{topic}", "--subscription", "s",
                   "--sleep", f"{load.handler}s", "--watch", f"{seconds}s", *over]  # fmt: skip
    with tempfile.TemporaryFile("w+") as starts, tempfile.TemporaryDirectory() as folder:
        worker = subprocess.Popen(command, env=environ, stdout=starts, stderr=subprocess.DEVNULL)
        time.sleep(3)
        sent = Path(folder) / "sent"
        subprocess.run([*here, "--produce", name, tenant, topic, str(sent)], check=True)
        worker.wait(timeout=60)
        starts.seek(0)
        found = judge(load, starts.read(), sent.read_text("utf-8"))
    return {"load": name, "arm": arm, **found, "asked": asdict(load), "machine_load": os.getloadavg()[0],
            "python": platform.python_version(), "cores": os.cpu_count()}  # fmt: skip


def admin_topics(tenant: str, topic: str, arm: str) -> None:
    admin("POST", f"namespaces/{tenant}/ns/maxUnackedMessagesPerSubscription", 1_000_000)
    if arm == "ours":
        admin("POST", f"namespaces/{tenant}/ns/maxUnackedMessagesPerConsumer", 1_000_000)
    names = [topic, f"{topic}-B1"]
    states = ["-s-PENDING", "-s-RETRYING", "-s-DLQ"]
    for one in [*names, *(f"{topic}{state}" for state in states), f"{topic}-B1-s-PENDING", f"{topic}-B1-s-RETRYING"]:
        create_topic(tenant, one, "s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", nargs="+", default=["f2"], choices=list(LOADS))
    parser.add_argument("--arms", nargs="+", default=["ours", "fifo", "sketch"])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--go", help="binary of golang/, for the arm `go`")
    parser.add_argument("--out", default=str(HERE / "fairness.jsonl"))
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--produce", nargs=4, help=argparse.SUPPRESS)
    add_variants(parser)
    arguments = parser.parse_args()
    if arguments.one:
        arm, name, tenant, topic, seconds = arguments.one
        run_arm(arm, LOADS[name], tenant, topic, float(seconds))
    elif arguments.produce:
        name, tenant, topic, sent = arguments.produce
        produce(LOADS[name], tenant, topic, Path(sent))
    else:
        variants = variants_of(arguments, arguments.arms, ARMS)
        for name in arguments.loads:
            for _ in range(arguments.repeats):
                for arm in arguments.arms:
                    record = measure(name, arm, arguments.go, variants)
                    with Path(arguments.out).open("a", encoding="utf-8") as out:
                        out.write(json.dumps(record) + "\n")
                    show = {
                        key: record[key] for key in ("idle", "whole", "settled", "after", "through_s", "total_a_second")
                    }
                    print(f"{name:10} {arm:10} {json.dumps(show)}", flush=True)


if __name__ == "__main__":
    main()
