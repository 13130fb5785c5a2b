"""The application that is killed: a handler with an effect, and places at which its process dies when it is told to.

Runs in processes of their own (tests.faults.nursery). What it writes is read by tests.faults.ledger.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from kodo_consumer import Dead, Message
from kodo_consumer.adapters.pulsar import lane_reader, partition_producers
from kodo_consumer.adapters.stores.sql_store import SqlStore
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.dedup import create_tables
from kodo_consumer.message import parts_of
from kodo_consumer.runtime.worker import Worker
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

_step = os.environ.get("KILL_AT", "")
_after = int(os.environ.get("KILL_AFTER", "5"))
_failing = int(os.environ.get("VICTIM_FAILING", "10"))
_calls = count(1)
_home = Path(os.environ["VICTIM_HOME"])
_runs = os.open(_home / "runs", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
_engine = create_engine(os.environ["KODO_CONSUMER_STORE"])
create_tables(_engine)


def _die_at(step: str, calls: int | None = None) -> None:
    if _step == step and next(_calls) >= (calls or _after):
        os.kill(os.getpid(), signal.SIGKILL)


def _around(owner: Any, name: str, step: str, *, before: bool = False, calls: int | None = None) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    def patched(*given: Any) -> Any:
        if before:
            _die_at(step, calls)
        answer = original(*given)
        if not before and (step != "marked" or given[1].done):
            _die_at(step, calls)
        return answer

    setattr(owner, name, patched)


_around(partition_producers.Producers, "send", "published")
_around(Worker, "receipts", "stored", before=True)
_around(SqlStore, "exchange", "marked")
_around(lane_reader.PulsarLaneReader, "acknowledge", "acknowledged")
_around(Worker, "drain", "draining", calls=1)
_around(Worker, "close", "drained", before=True, calls=1)


def _jumping_clock() -> None:
    """The wall clock jumps by what the file says (ms), while the process runs."""
    ahead = 0
    right = SystemClock.wall

    def watch() -> None:
        nonlocal ahead
        while True:
            ahead = int((_home / "clock").read_text() or 0)
            time.sleep(0.2)

    SystemClock.wall = lambda self: right(self) + ahead  # type: ignore[method-assign]
    threading.Thread(target=watch, daemon=True).start()


_jumping_clock()


def handle(message: Message) -> None:
    """One order in ten (or as VICTIM_FAILING says) fails at first, one in a hundred is dead until it is recalled, few take
    too long at first. Each run is a line: number, monotonic clock in ms, topic and partition, process.
    """
    number = message.json()["n"]
    delivery, _, headers = parts_of(message)
    partition = delivery.entry[2] if isinstance(delivery.entry, tuple) else -1
    place = f"{message.topic.rpartition('/')[2]}-partition-{partition}"
    os.write(_runs, f"{number} {time.monotonic_ns() // 1_000_000} {place} {os.getpid()}\n".encode())
    _die_at("handler")
    if number % _failing == 0 and message.attempt == 1:
        raise ValueError
    if number % 100 == 55 and headers.recall is None:
        raise Dead("of no use")
    if number % 1000 == 7 and message.attempt == 1:
        time.sleep(6)
    with Session(_engine) as session, session.begin():
        session.execute(text("INSERT INTO effects VALUES (:number, :body)"), {"number": number, "body": message.text()})
        message.once(session)
        _die_at("effect")
    _die_at("committed")
