"""Cost of the scheduler per message, and its memory, with many tenants. No broker: queue, take, free, in one thread.

    python benchmarks/consumer/scheduler.py [--repeats 5] [--out FILE] [TENANTS ...]

For each number of tenants: messages are enqueued over all of them in turn, every one is taken (lane weights, turns, slots kept
back) and freed; then the memory that stays once all are idle. Every repeat is a line of scheduler.jsonl.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import random
import statistics
import time
import tracemalloc
from pathlib import Path
from typing import Any

from kodo_consumer.core.scheduling.concurrency_control import ConcurrencyControl
from kodo_consumer.core.scheduling.scheduler import Scheduler
from kodo_consumer.core.scheduling.slot_reservation import SlotReservation
from kodo_consumer.core.scheduling.turn_queues import TurnQueues
from kodo_consumer.core.state.engine_context import EngineContext
from kodo_consumer.core.state.in_flight import BatchEntry, InFlight, LaneState
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.envelope import Delivery, Level, State
from kodo_consumer.core.values.policy import Lane, Policy, Target

MESSAGES = 200_000
HELD = 50_000  # the look-ahead


def scheduler() -> tuple[Scheduler, list[LaneState]]:
    states = (State.READY, State.RETRYING, State.PENDING, State.BLOCKING)
    weights = dict(zip(states, (50, 30, 15, 5), strict=True))
    lanes = tuple(
        Lane(index, level, state, f"{level}-{state}", weights[state], 0.1)
        for index, (level, state) in enumerate(
            (level, state) for level in (Level.S1, Level.L2, Level.L1) for state in states
        )
    )
    targets = {(lane.level, lane.state): Target(lane.level, lane.state, lane.topic) for lane in lanes}
    policy = Policy(
        ground="t",
        subscription="s",
        lanes=lanes,
        targets=targets,
        dead_letter=None,
        waits={},
        fair_by="u",
        concurrency=16,
    )
    lane_states = [LaneState(lane) for lane in lanes]
    queues = TurnQueues(policy, lane_states)
    slots = SlotReservation(policy.concurrency, queues)
    throttle = ConcurrencyControl(EngineContext(policy), slots, lambda _at, _who: 0)
    return Scheduler(policy, queues, SystemClock(), lambda _at, _who: 0, slots, throttle), lane_states


def measure(tenants: int) -> dict[str, Any]:
    """Microseconds a message, and bytes kept afterwards."""
    found, lanes = scheduler()
    names = [f"tenant-{number}" for number in range(tenants)]
    random.Random(1).shuffle(names)
    delivery = Delivery(0, "(0,0,0,0)", b"", {}, "", "", 0, 0)
    taken, spent, began = 0, 0.0, time.perf_counter()
    while taken < MESSAGES:
        batch = [
            InFlight(lanes[number % len(lanes)], delivery, BatchEntry(number), names[(taken + number) % tenants])
            for number in range(HELD)
        ]
        gc.collect()
        used = time.process_time()
        for message in batch:
            found.queues.enqueue(message)
        for _ in batch:
            started = found.take(began)
            assert started is not None
            found.on_end(started, began)
        spent += time.process_time() - used
        taken += HELD
    return {"tenants": tenants, "us": spent / taken * 1e6}


def memory(tenants: int) -> int:
    """Bytes the scheduler keeps after that many tenants had one message each."""
    found, lanes = scheduler()
    delivery = Delivery(0, "(0,0,0,0)", b"", {}, "", "", 0, 0)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(tenants):
        found.queues.enqueue(InFlight(lanes[0], delivery, BatchEntry(0), f"tenant-{number}"))
        started = found.take(0.0)
        assert started is not None
        found.on_end(started, 0.0)
    del started
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tenants", nargs="*", type=int, default=[1, 100, 10_000, 100_000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "scheduler.jsonl")
    options = parser.parse_args()
    results: dict[int, list[float]] = {}
    with options.out.open("a", encoding="utf-8") as out:
        for _ in range(options.repeats):
            for tenants in options.tenants:
                found = measure(tenants)
                results.setdefault(tenants, []).append(found["us"])
                about = {"load": os.getloadavg()[0], "python": platform.python_version(), "cores": os.cpu_count()}
                out.write(json.dumps(found | {"kept_bytes": memory(tenants)} | about) + "\n")
    for tenants, values in results.items():
        print(f"{tenants:>7} tenants: {statistics.median(values):5.2f} µs ({min(values):.2f}–{max(values):.2f})")


if __name__ == "__main__":
    main()
