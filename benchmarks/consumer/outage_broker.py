"""Cost of an outage of some customers for all others, on a real broker: worker processes, handlers on threads or a loop.

    python benchmarks/consumer/outage_broker.py [--customers 0 60] [--places retrying …] [--handlers sync async]
                                                [--workers 1 3] [--seconds 60] [--label TEXT] [--out FILE]

Workers of 16 slots each are processes (`kodo-consumer run`). 100 ready messages a second of 50 customers take 10 ms each,
throughout. Then messages of other customers come, more than all slots get through, which hang for 8 s each once they are
in RETRYING, PENDING or B1, or at once (`ready`). Each run is a line: ready messages started of those sent from the moment
on that the first handler hung, their wait from sending to the start of the handler, and the slots of the slow ones as a
mean. 0 customers: the same without the outage. Every run is a line of outage_broker.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from cluster import CLUSTER, client, create_tenant, create_topic, topology

HERE = Path(__file__).parent
SLOTS = 16
RATE = 100.0  # ready messages a second
READY_CUSTOMERS = 50
HANG = 8.0  # seconds
CALM = 5.0  # seconds of ready messages alone, before the outage
GRACE = 3.0  # seconds after the end, in which a message may start that was sent before it
PLACES = ("ready", "retrying", "pending", "B1")
LANES = ("", "-s-RETRYING", "-s-PENDING", "-B1", "-B1-s-RETRYING", "-B1-s-PENDING")
TOPICS = """
  flow:
    backup: true
    fair_by: customer
    subscriptions:
      s:
        states: [retrying, pending]
        dead_letter: false
        in_place: []
        retrying: {delays: [1s], attempts: 9}
        pending: {delays: [1s], attempts: 9}
        concurrency: 16
"""
APP = """
import asyncio, os, time
from kodo_consumer import MoveTo, Pending, Retry

ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
worker, place, hang = os.environ["WORKER"], os.environ["PLACE"], float(os.environ["HANG"])
ASKS = {"retrying": Retry, "pending": Pending, "B1": lambda: MoveTo("B1")}


def seconds(message):
    kind, number, sent = message.data.decode().split()
    if kind == "slow" and place in ASKS and place not in (message.state, message.level):
        raise ASKS[place]()
    os.write(ledger, f"{kind} {number} {sent} {time.time():.6f} {worker}\\n".encode())
    return hang if kind == "slow" else 0.01


def sync(message):
    time.sleep(seconds(message))


async def on_loop(message):
    await asyncio.sleep(seconds(message))
"""
Started = dict[int, float]  # by number of the message: when its handler started first


class Ledger:
    """Starts of handlers, written by the workers."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> tuple[Started, Started, set[str]]:
        """Returns (starts of quick messages, starts of slow messages, names of the workers that started any)."""
        found: dict[str, Started] = {"quick": {}, "slow": {}}
        workers = set()
        for line in self._file.read_text().splitlines() if self._file.exists() else []:
            kind, number, _sent, at, worker = line.split()
            found[kind].setdefault(int(number), float(at))
            workers.add(worker)
        return found["quick"], found["slow"], workers


class Traffic:
    """Messages to the ground topic. `sent`: of the quick ones, when each was."""

    def __init__(self, tenant: str) -> None:
        self._client = client()
        topic = f"persistent://{tenant}/ns/flow"
        self._producer = self._client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
        self.sent: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._quick)
        self._thread.start()

    def _quick(self) -> None:
        begin = time.time()
        while not self._over.is_set():
            number = len(self.sent)
            time.sleep(max(0.0, begin + number / RATE - time.time()))
            self.sent.append(time.time())
            self._send("quick", number, f"quick{number % READY_CUSTOMERS}")

    def slow(self, customers: int, messages: int) -> None:
        for number in range(messages):
            self._send("slow", number, f"slow{number % customers}")

    def _send(self, kind: str, number: int, customer: str) -> None:
        payload = f"{kind} {number} {time.time():.6f}".encode()
        self._producer.send_async(payload, lambda *_: None, properties={"customer": customer})

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        self._producer.flush()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._client.close()


@contextmanager
def workers(folder: Path, count: int, handler: str, place: str) -> Iterator[None]:
    command = [str(Path(sys.executable).with_name("kodo-consumer")), "run", str(folder / "t.yaml"), "--topic", "flow"]
    command += ["--subscription", "s", "--handler", f"app:{handler}"]
    command += ["--admin-url", CLUSTER.admin_url, "--broker-url", CLUSTER.broker_url or ""]
    environ = {**os.environ, "LEDGER": str(folder / "ledger"), "PLACE": place, "HANG": str(HANG)}
    with (folder / "log").open("ab") as log:
        running = [
            subprocess.Popen(command, cwd=folder, env={**environ, "WORKER": str(number)}, stdout=log, stderr=log)
            for number in range(count)
        ]
        try:
            yield
        finally:
            for process in running:
                process.send_signal(signal.SIGTERM)
            for process in running:
                process.wait(60)


def measure(customers: int, place: str, handler: str, count: int, seconds: float) -> dict[str, Any]:
    tenant = f"outage{time.time_ns() // 1_000_000}"
    create_tenant(tenant)
    for lane in LANES:
        create_topic(tenant, f"flow{lane}", "s")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "t.yaml").write_text(topology(tenant, TOPICS), encoding="utf-8")
        (folder / "app.py").write_text(APP, encoding="utf-8")
        ledger = Ledger(folder / "ledger")
        traffic = Traffic(tenant)
        try:
            with workers(folder, count, "on_loop" if handler == "async" else handler, place):
                _until(lambda: len(ledger.read()[2]) == count, folder)
                time.sleep(CALM)
                begin = time.time()
                if customers:
                    traffic.slow(customers, round(SLOTS * count * (seconds / HANG + 3)))
                    _until(lambda: ledger.read()[1], folder)
                    begin = min(ledger.read()[1].values())
                time.sleep(max(0.0, begin + seconds - time.time()))
                end = begin + seconds
                traffic.end()
                time.sleep(GRACE)
                quick, slow, _ = ledger.read()
        finally:
            traffic.close()
    return judge(traffic.sent, quick, slow, begin, end)


def _until(true: Any, folder: Path, within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while not true():
        if time.monotonic() > deadline:
            sys.exit(f"nothing was handled in {within:.0f} s:\n{(folder / 'log').read_text()[-2000:]}")
        time.sleep(0.1)


def judge(sent: list[float], quick: Started, slow: Started, begin: float, end: float) -> dict[str, Any]:
    """A message that has not started counts with its age at the end."""
    numbers = [number for number, at in enumerate(sent) if begin <= at < end]
    waits = sorted((quick.get(number, end + GRACE) - sent[number]) * 1000 for number in numbers)
    taken = sum(max(0.0, min(at + HANG, end) - at) for at in slow.values())
    return {
        "sent": len(numbers), "started": sum(number in quick for number in numbers),
        "p50_ms": round(waits[len(waits) // 2], 1), "p99_ms": round(waits[len(waits) * 99 // 100], 1),
        "max_ms": round(waits[-1], 1), "slow_slots": round(taken / (end - begin), 2), "slow_started": len(slow),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--customers", type=int, nargs="+", default=[0, 60])
    parser.add_argument("--places", nargs="+", default=["retrying"], choices=PLACES)
    parser.add_argument("--handlers", nargs="+", default=["sync", "async"], choices=("sync", "async"))
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--label", default="", help="what the workers' code is, where it is another")
    parser.add_argument("--out", type=Path, default=HERE / "outage_broker.jsonl")
    options = parser.parse_args()
    print(f"{'slow customers':<36} {'started':>12} {'p50':>8} {'p99':>8} {'max':>8} {'slow slots':>10}")
    for place, count, handler, customers in product(
        options.places, options.workers, options.handlers, options.customers
    ):
        found = measure(customers, place, handler, count, options.seconds)
        name = f"{customers} in {place}, {handler}, {count} worker{'s' * (count > 1)}"
        print(
            f"{name:<36} {found['started']:>5}/{found['sent']:<6} {found['p50_ms']:>8} {found['p99_ms']:>8}"
            f" {found['max_ms']:>8} {found['slow_slots']:>10}", flush=True,
        )  # fmt: skip
        record = {
            "customers": customers,
            "place": place,
            "handler": handler,
            "workers": count,
            "seconds": options.seconds,
        }
        about = {
            "label": options.label,
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
            "cores": os.cpu_count(),
        }
        with options.out.open("a", encoding="utf-8") as out:
            out.write(json.dumps(record | found | about) + "\n")


if __name__ == "__main__":
    main()
