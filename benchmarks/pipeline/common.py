"""Helpers of the pipeline's measurements: topics full of messages, plain readers to compare with Spark, memory, results.

The broker is the one named by KODOCTL_ADMIN_URL and KODOCTL_BROKER_URL, else by the current context.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import secrets
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import pulsar
import requests

import kodoctl
from kodoctl.errors import KodoctlError
from kodoctl.pulsar.connection.connection import Connection, Flags, connect

HERE = Path(__file__).parent
CORES = os.cpu_count() or 1
_LISTENS = "0A"  # state of a socket in /proc/net/tcp


def cluster() -> Connection:
    """The broker to measure on; ends the process where none is named."""
    try:
        return connect(Flags(), os.environ, Path.cwd())
    except KodoctlError as problem:
        sys.exit(str(problem))


def admin(where: Connection, method: str, path: str, body: Any = None) -> requests.Response:
    url = f"{where.admin_url}/admin/v2/{path}"
    return requests.request(method, url, json=body, timeout=60, headers={"Content-Type": "application/json"})


def client(where: Connection) -> pulsar.Client:
    return pulsar.Client(where.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def namespace(where: Connection) -> str:
    """A new one that keeps everything."""
    tenant = f"bench-{secrets.token_hex(4)}"
    admin(where, "PUT", f"tenants/{tenant}", {"allowedClusters": ["standalone"], "adminRoles": []})
    admin(where, "PUT", f"namespaces/{tenant}/ns")
    forever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    admin(where, "POST", f"namespaces/{tenant}/ns/retention", forever)
    return f"{tenant}/ns"


def remove(where: Connection, space: str) -> None:
    admin(where, "DELETE", f"namespaces/{space}?force=true")
    admin(where, "DELETE", f"tenants/{space.partition('/')[0]}?force=true")


def fill(
    where: Connection, space: str, topic: str, messages: int, partitions: int, size: int, ledgers: int = 4
) -> None:
    """Messages 0 … messages-1 with property `n`, a tenant and a key, in batches; each round ends in a ledger of its own."""
    body = os.urandom(size)
    began = time.monotonic()
    share = -(-messages // ledgers)
    with_broker = client(where)
    for start in range(0, messages, share):
        producers = [
            with_broker.create_producer(
                f"persistent://{space}/{topic}-partition-{number}", batching_enabled=True, batching_max_messages=100,
                batching_max_publish_delay_ms=10, block_if_queue_full=True, max_pending_messages=5_000,
            )
            for number in range(partitions)
        ]  # fmt: skip
        for number in range(start, min(start + share, messages)):
            properties = {"n": str(number), "uid": f"tenant-{number % 101}"}
            producers[number % partitions].send_async(
                body, None, properties=properties, partition_key=f"k{number % 997}"
            )
        for number, producer in enumerate(producers):
            producer.flush()
            producer.close()
            admin(where, "PUT", f"persistent/{space}/{topic}-partition-{number}/unload")
    with_broker.close()
    say(f"filled {topic}: {messages:,} messages of {size} bytes in {time.monotonic() - began:.0f} s")


class Readers:
    """Plain Reader loops in processes of their own, each for its share of the partitions: the code that a user writes
    without Spark.
    """

    def __init__(
        self,
        where: Connection,
        topics: list[str],
        processes: int,
        work: Callable[..., None] | None = None,
        more: Any = None,
    ) -> None:
        """`work` instead of a plain loop, with `more`; of a plain loop `more` is a folder for Parquet, or nothing."""
        context = multiprocessing.get_context("spawn")
        self._go, self._counts = context.Barrier(processes + 1), context.Queue()
        shares = [topics[number::processes] for number in range(processes)]
        self._running = [
            context.Process(target=work or read_plainly, args=(where.broker_url, share, self._go, self._counts, more))
            for share in shares
        ]
        for one in self._running:
            one.start()

    def run(self) -> tuple[int, float]:
        """(messages, seconds) from the moment all are connected."""
        self._go.wait(120)
        began = time.monotonic()
        read = sum(self._counts.get(timeout=1_800) for _ in self._running)
        took = time.monotonic() - began
        for one in self._running:
            one.join()
        return read, took


def read_plainly(url: str, topics: list[str], go: Any, counts: Any, parquet: Path | None = None) -> None:
    with_broker = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    with_broker.get_topic_partitions(topics[0])  # connects; a reader would fetch its first 10,000 before the clock runs
    go.wait(120)
    readers = [
        (topic, with_broker.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=10_000))
        for topic in topics
    ]
    read = 0
    for topic, reader in readers:
        keep = _Keeper(parquet, topic) if parquet else None
        while reader.has_message_available():
            message = reader.read_next(30_000)
            place = message.message_id()
            row = (
                place.ledger_id(), place.entry_id(), place.batch_index(), message.partition_key(), message.publish_timestamp(),
                message.event_timestamp(), message.properties(), message.data(),
            )  # fmt: skip
            read += 1
            if keep:
                keep.add(row)
        if keep:
            keep.close()
    counts.put(read)
    with_broker.close()


class _Keeper:
    """Parquet by pyarrow, 20,000 rows at a time."""

    def __init__(self, folder: Path, topic: str) -> None:
        import pyarrow as pa

        kinds = [
            pa.int64(),
            pa.int64(),
            pa.int32(),
            pa.string(),
            pa.int64(),
            pa.int64(),
            pa.map_(pa.string(), pa.string()),
            pa.binary(),
        ]
        names = ["ledger", "entry", "batch_index", "key", "publish_ts", "event_ts", "properties", "payload"]
        self._schema = pa.schema(list(zip(names, kinds, strict=True)))
        self._path = folder / f"{topic.rpartition('/')[2]}.parquet"
        self._writer: Any = None
        self._rows: list[tuple[Any, ...]] = []

    def add(self, row: tuple[Any, ...]) -> None:
        self._rows.append(row)
        if len(self._rows) == 20_000:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        columns = [
            pa.array(list(values) if number != 6 else [list(one.items()) for one in values], field.type)
            for number, (values, field) in enumerate(zip(zip(*self._rows, strict=True), self._schema, strict=True))
        ]
        self._writer = self._writer or parquet.ParquetWriter(self._path, self._schema)
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))
        self._rows = []

    def close(self) -> None:
        if self._rows:
            self._flush()
        if self._writer:
            self._writer.close()


class Memory:
    """Peak of the resident memory of this process (not with `own` False) and everything below it, MiB, in all (`peak`) and by program (`peaks`); a look
    each 100 ms. What processes share is counted for each: `largest` is that of a single one, `most` how many there were at once.
    `spent`: seconds of the processor that they took meanwhile, by program.
    """

    def __init__(self, *, own: bool = True) -> None:
        self._without = -1 if own else os.getpid()
        self.peak = 0.0
        self.peaks: Counter[str] = Counter()
        self.largest: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.spent: dict[str, float] = {}
        self._seconds: dict[int, tuple[str, float]] = {}
        self._before: dict[int, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._before = {pid: one.seconds for pid, one in self._there().items()}
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()
        spent: Counter[str] = Counter()
        for pid, (program, seconds) in self._seconds.items():
            spent[program] += seconds - self._before.get(pid, 0.0)  # type: ignore[assignment]
        self.spent = {program: round(seconds, 2) for program, seconds in sorted(spent.items())}

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self._look()

    def _there(self) -> dict[int, _Process]:
        return {pid: one for pid, one in _tree(os.getpid()).items() if pid != self._without}

    def _look(self) -> None:
        now: Counter[str] = Counter()
        there = self._there()
        for pid, one in there.items():
            now[one.program] += one.resident  # type: ignore[assignment]
            self.largest[one.program] = max(self.largest[one.program], one.resident)  # type: ignore[assignment]
            self._seconds[pid] = (one.program, one.seconds)
        self.peak = max(self.peak, now.total())
        self.peaks |= now
        self.most |= Counter(one.program for one in there.values())


class _Process(NamedTuple):
    program: str
    seconds: float
    resident: float


def _tree(pid: int) -> dict[int, _Process]:
    """Returns a process and its descendants, by process id: program (`java` or `python`), seconds of the processor so
    far, and MiB in memory.
    """
    found: dict[int, _Process] = {}
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        with suppress(OSError, IndexError):
            head, _, rest = Path(f"/proc/{one}/stat").read_text().rpartition(") ")
            fields = rest.split()
            seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            program = "java" if head.endswith("(java") else "python"
            if program == "python" and Path(f"/proc/{one}/exe").readlink().name == "java":
                continue  # on its way to what Java starts: its memory is Java's own, looked at twice
            found[one] = _Process(program, seconds, int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20)
            for thread in Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())
    return found


def broker_seconds(where: Connection) -> float | None:
    """Seconds of the processor that the broker has used so far; None where its process is not on this machine."""
    port = urlsplit(where.broker_url).port or 6650
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for row in map(str.split, Path(table).read_text().splitlines()[1:]):
                if row[3] == _LISTENS and int(row[1].rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{row[9]}]")
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if sockets & {str(one.readlink()) for one in (process / "fd").iterdir()}:
                return _tree(int(process.name))[int(process.name)].seconds
    return None


def timed(what: Callable[[], Any]) -> tuple[float, Any]:
    """(seconds, its answer)."""
    began = time.monotonic()
    found = what()
    return time.monotonic() - began, found


def machine() -> dict[str, Any]:
    described = ["git", "-C", str(Path(kodoctl.__file__).parent), "describe", "--always", "--dirty"]
    return {
        "at": f"{datetime.now(UTC):%Y-%m-%dT%H:%MZ}",
        "commit": subprocess.run(described, capture_output=True, text=True, check=False).stdout.strip(),
        "system": platform.system(), "machine": platform.machine(), "cores": CORES, "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }  # fmt: skip


def write(name: str, about: dict[str, Any], runs: Iterable[dict[str, Any]]) -> None:
    """One line for the machine, one for each run; earlier runs of the same file stay."""
    with (HERE / name).open("a", encoding="utf-8") as file:
        for line in ({"machine": about}, *runs):
            file.write(json.dumps(line) + "\n")


def cell(values: list[float], digits: int = 0) -> str:
    """Median with the smallest and largest."""
    return f"**{statistics.median(values):,.{digits}f}** ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
