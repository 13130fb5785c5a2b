"""Cost of the engine alone, per message, compiled and interpreted, in turns. No broker and no threads.

    python benchmarks/consumer/engine.py [--repeats 5] [--messages 50000] [--out FILE] [ARM ...]

| arm | a message |
|---|---|
| `no-op` | is delivered, taken and finished |
| `fair` | the same with 100 tenants and turns between them |
| `audit` | as no-op, with a record that is published, and acknowledged behind its receipt |
| `move` | its handler asks for RETRYING: delivered, taken, finished, published, receipt |
| `hook` | as no-op, and a hook around `acknowledged` is called once its acknowledgement is confirmed |
| `transfer` | its handler asks for a new message on another topic |

Each run is a process of its own and a line of engine.jsonl: microseconds of CPU a message, and of `finish` and `receipt` alone. Ratios are to no-op on the same core.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kodo_consumer.core.engine.engine import Engine
    from kodo_consumer.runtime.middleware import Hooks

ARMS = ("no-op", "fair", "hook", "audit", "move", "transfer")
BATCH, BUNDLE = 100, 1_000  # messages of a broker entry; messages delivered at once
CORES = ("compiled", "interpreted")


def _engine(*, by_tenant: bool, audited: bool, confirms: bool) -> Engine:
    """An engine of one ready lane and its retrying lane."""
    from kodo_consumer.core.engine.engine import Engine
    from kodo_consumer.core.values.clock import SystemClock
    from kodo_consumer.core.values.delay_schedule import DelaySchedule
    from kodo_consumer.core.values.envelope import Level, State
    from kodo_consumer.core.values.policy import AuditTo, Lane, Policy, Target

    states = (State.READY, State.RETRYING)
    lanes = tuple(Lane(index, Level.L1, state, f"t-{state}", 1, 0.5) for index, state in enumerate(states))
    targets = {(lane.level, lane.state): Target(lane.level, lane.state, lane.topic) for lane in lanes}
    return Engine(
        Policy(
            ground="t",
            subscription="s",
            lanes=lanes,
            targets=targets,
            dead_letter=Target(Level.L1, State.DEAD, "t-dead"),
            waits={State.RETRYING: DelaySchedule((3_600_000,), 3)},
            fair_by="uid" if by_tenant else None,
            concurrency=16,
            audit=AuditTo("t-audit", wait=True) if audited else None,
            produces={"other": "persistent://p/n/other"},
        ),
        SystemClock(),
        random.Random(1),
        confirms=confirms,
    )


def _call_hooks(engine: Engine, hooks: Hooks) -> None:
    """Confirms all acknowledgements, and calls the hooks, as a worker does."""
    from kodo_consumer.message import Message

    confirmations = engine.context.confirmations
    assert confirmations is not None
    for tickets in confirmations.take_tickets().values():
        ended = confirmations.take_results(tickets, [])
        hooks.on_acknowledged(
            [(Message[Any](one.delivery, one.lane.lane, one.headers, one.tenant, None), one.why) for one in ended]
        )
        confirmations.end(ended)


def measure(arm: str, messages: int) -> dict[str, Any]:
    """Microseconds a message, in this process."""
    from kodo_consumer.core import COMPILED
    from kodo_consumer.core.values.broker import Confirmed
    from kodo_consumer.core.values.envelope import Delivery
    from kodo_consumer.core.values.outcomes import DONE, Outcome, RetryAsked, TransferAsked
    from kodo_consumer.runtime.middleware import Hooks

    engine = _engine(by_tenant=arm == "fair", audited=arm == "audit", confirms=arm == "hook")
    hooks, rules = Hooks(), list[str]()
    hooks.add("acknowledged", lambda _, rule: rules.append(rule))
    others: dict[str, Outcome] = {"move": RetryAsked(None, "busy"), "transfer": TransferAsked("other")}
    asked = others.get(arm, DONE)
    payload, spent, ended = b"x" * 1024, 0.0, {"finish": 0.0, "receipt": 0.0}
    clock, acknowledged = time.thread_time, 0
    for first in range(0, messages, BUNDLE):
        bundle = [
            Delivery(
                (1, number // BATCH, 0), number, payload, {"uid": f"u{number % 100}", "number": str(number)}, "", "", 0,
                1_700_000_000_000, number % BATCH,
            )
            for number in range(first, first + BUNDLE)
        ]  # fmt: skip
        began = clock()
        engine.deliver(0, bundle)
        done = 0
        while done < len(bundle):
            taken = []
            while len(taken) < 16 and (message := engine.take()) is not None:
                taken.append(message)
            at = clock()
            for message in taken:
                engine.finish(message, asked)
            ended["finish"] += clock() - at
            sent = engine.context.take_effects().publish
            at = clock()
            for ticket, _ in sent:
                engine.receipt(ticket, Confirmed(ticket))
            ended["receipt"] += clock() - at
            done += len(taken)
        acknowledged += sum(len(tokens) for _, tokens in engine.acknowledgements())
        if arm == "hook":
            _call_hooks(engine, hooks)
        spent += clock() - began
    recorder = engine.flow.recorder
    assert acknowledged + (recorder.waiting if recorder is not None else 0) == messages
    assert len(rules) == (messages if arm == "hook" else 0)
    return {"core": str(COMPILED), "us": spent / messages * 1e6} | {
        name: took / messages * 1e6 for name, took in ended.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arms", nargs="*", default=ARMS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "engine.jsonl")
    parser.add_argument("--one", action="store_true", help="one run in this process, as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.arms[0], options.messages)))
        return
    results: dict[tuple[str, str], list[dict[str, float]]] = {}
    runs = [(arm, core) for arm in options.arms for core in CORES] * options.repeats
    with options.out.open("a", encoding="utf-8") as out:
        for arm, core in runs:
            command = [sys.executable, __file__, "--one", "--messages", str(options.messages), arm]
            surroundings = os.environ | {"KODO_FAST_CORE": str(core == "compiled").lower()}
            found = json.loads(subprocess.run(command, env=surroundings, capture_output=True, check=True).stdout)
            if found.pop("core").startswith("compiled core: on") != (core == "compiled"):
                sys.exit("the compiled core does not fit the sources: make native")
            results.setdefault((arm, core), []).append(found)
            about = {"load": os.getloadavg()[0], "python": platform.python_version(), "cores": os.cpu_count()}
            out.write(json.dumps({"arm": arm, "core": core} | found | about) + "\n")
    for (arm, core), found in results.items():
        medians = {name: statistics.median(one[name] for one in found) for name in found[0]}
        spread = f"({min(one['us'] for one in found):.2f}–{max(one['us'] for one in found):.2f})"
        parts = f"finish {medians['finish']:.2f}, receipt {medians['receipt']:.2f}"
        plain = results.get(("no-op", core))
        ratio = f", {medians['us'] / statistics.median(one['us'] for one in plain):.2f} of no-op" if plain else ""
        print(f"{arm:>9} {core:<11} {medians['us']:6.2f} µs {spread}, of it {parts}{ratio}")


if __name__ == "__main__":
    main()
