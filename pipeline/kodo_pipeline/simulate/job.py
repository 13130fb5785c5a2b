# adapter: runs Spark
"""Simulation job: replays arrivals from the landing by the consumer's engine under another topology file, to show what
would have happened to the same traffic.

The engine runs in separate processes, one for each file and subscription, those of the two files at the same time,
because a replay is bound by the CPU, and because this package may not import the worker that runs the engine.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from kodo_pipeline.audit.deduplicate import without_duplicates
from kodo_pipeline.landing.tables import CURSORS, EVENTS, TRANSITIONS
from kodo_pipeline.recommend.yaml_patch import CannotPatchError, apply_diff
from kodo_pipeline.rollup.job import time_bounds
from kodo_pipeline.simulate.arrivals import arrivals, run_times, waiting_messages
from kodo_pipeline.simulate.comparison import Trial, asked_properties, handler_times, slots_of, times_by_state
from kodoctl.errors import InvalidFileError, KodoctlError, Severity, UsageError, Where, error
from kodoctl.host.programs import python_command
from kodoctl.topology.lint.linter import check_set
from kodoctl.topology.load import source_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kodo_pipeline.landing.landing_store import Landing
    from kodo_pipeline.simulate.outage_request import OutageRequest
    from kodo_pipeline.simulate.simulation_document import SimulatedRun
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.model.topology import GroundTopic

_COMMAND: Final = tuple(python_command("kodo_consumer.simulation.simulator"))


@dataclass(frozen=True, slots=True)
class Side:
    """One side of the comparison: a topology file with its text, its name in messages, and its expansion."""

    text: str
    path: str
    expansion: Expansion

    @classmethod
    def of(cls, expansion: Expansion) -> Side:
        """Reads today's topology file of an expansion."""
        path = expansion.topology.source.path
        return cls(path.read_bytes().decode("utf-8"), str(path), expansion)


@dataclass(frozen=True, slots=True)
class SimulationRequest:
    """Request of a simulation. `newest`: number of arrivals to replay for each subscription; `handler_ms`, `slots`,
    `workers`: used instead of values of records and file, None: not given; `outages`: to be simulated.
    """

    newest: int
    handler_ms: float | None = None
    slots: int | None = None
    workers: int | None = None
    outages: tuple[OutageRequest, ...] = ()


def candidate(today: Side, data: bytes, name: str) -> Side:
    """Makes the candidate from `data`: a whole topology file, or a patch of today's. `name`: its name in errors. Raises
    InvalidFileError with every error of the file, UsageError for a patch that does not fit.
    """
    text, path = data.decode("utf-8", errors="replace"), name
    if any(line.startswith("@@ -") for line in text.splitlines()):
        path = today.path
        try:
            text = apply_diff(today.text, text)
        except CannotPatchError as problem:
            raise UsageError(error("K805", "the candidate does not fit", str(problem), Where(name))) from None
    environment = today.expansion.topology.environment
    file = source_of(text.encode(), path)
    expansions, findings = check_set([file], environment)
    wrong = [one for one in findings if one.severity is Severity.ERROR and one.allowed_because is None]
    if wrong or len(expansions) != 1:
        raise InvalidFileError(*wrong)
    return Side(text, path, expansions[0])


def changed_subscriptions(today: Side, then: Side) -> tuple[list[tuple[str, str]], list[str]]:
    """Finds subscriptions that are in both files, and whose ground topic differs in any way: ((topic, subscription) of
    each, notes on the other topics and subscriptions of today's file). Raises UsageError if there is none.
    """
    before, after = (side.expansion.topology.spec.topics for side in (today, then))
    pairs, notes = [], []
    for topic, ground in before.items():
        if topic not in after:
            notes.append(f"{topic} is not in the candidate")
        elif ground == after[topic]:
            notes.append(f"{topic}: the candidate changes nothing")
        else:
            there = after[topic].subscriptions
            pairs += [(topic, name) for name in ground.subscriptions if name in there]
            notes += [f"{topic} / {name} is not in the candidate" for name in ground.subscriptions if name not in there]
    if not pairs:
        raise UsageError(error("K805", "the candidate does not fit", "; ".join(notes) or "it shares no subscription"))
    return pairs, notes


def every_subscription(today: Side) -> list[tuple[str, str]]:
    """(topic, subscription) of all subscriptions of the file."""
    topics = today.expansion.topology.spec.topics
    return [(topic, name) for topic, ground in topics.items() for name in ground.subscriptions]


def build_simulations(
    spark: SparkSession, landing: Landing, today: Side, then: Side | None, asked: SimulationRequest
) -> tuple[list[Trial], list[str]]:
    """Reads the arrivals of each subscription that the candidate changes; without a candidate (`then` None), of all.
    Messages with an impossible publish time are left out. Returns (trials, reasons for subscriptions that are left
    out). Raises UsageError if none can be replayed, or if a subscription has no number of slots, or lacks tenants or
    time for an outage.
    """
    pairs, notes = changed_subscriptions(today, then) if then is not None else (every_subscription(today), [])
    found: list[Trial] = []
    snapshot = landing.snapshot(EVENTS, TRANSITIONS, CURSORS)
    bounds = time_bounds(landing, snapshot)  # beyond them no message was sent: a sender may write any time
    every = landing.read(spark, EVENTS, snapshot=snapshot)
    first, last = (datetime.fromtimestamp(at / 1000, UTC) for at in (bounds.since, bounds.until))
    events = every.where(every["publish_ts"].between(first, last))
    with without_duplicates(landing.read(spark, TRANSITIONS, snapshot=snapshot)) as transitions:
        for topic, name in pairs:
            grounds = [side.expansion.topology.spec.topics[topic] for side in (today, then) if side is not None]
            trial = _trial(events, transitions, (topic, name), grounds, asked)
            if isinstance(trial, Trial):
                trial.check()
                found.append(trial)
            else:
                notes.append(f"{topic} / {name}: {trial}")
    if not found:
        raise UsageError(error("K806", "the simulation cannot replay this", "\n".join(notes)))
    return found, notes


def _trial(
    events: DataFrame,
    transitions: DataFrame,
    lane: tuple[str, str],
    grounds: Sequence[GroundTopic],
    asked: SimulationRequest,
) -> Trial | str:
    """The trial of a (topic, subscription), or the reason why there is none. `grounds`: the topic in each file."""
    topic, name = lane
    specs = [ground.subscriptions[name] for ground in grounds]
    slots, *_ = [slots_of(spec, asked.slots, asked.workers, f"{topic} / {name}") for spec in specs]  # today's
    properties = asked_properties(grounds, name)
    rows = arrivals(
        events, transitions, topic=topic, subscription=name, properties=properties, newest=asked.newest
    ).collect()
    made = [row.asDict() for row in rows]
    if not made:
        return "nothing arrived"
    times = handler_times(made, slots)
    if not times and asked.handler_ms is None:
        return "no record says how long a handler takes: give --handler-time"
    rows = waiting_messages(
        events,
        transitions,
        topic=topic,
        subscription=name,
        properties=properties,
        newest=asked.newest,
        since=made[0]["at_ms"],
    ).collect()
    waiting = [row.asDict() for row in rows]
    names = sorted({one["tenant"] for one in (*made, *waiting)})
    if asked.handler_ms is not None:
        by_state = times_by_state(dict.fromkeys(names, asked.handler_ms), (), names)
    else:
        runs = run_times(events, transitions, topic=topic, subscription=name).collect()
        by_state = times_by_state(times, [row.asDict() for row in runs], names)
    return Trial(topic, name, asked.slots, asked.workers, made, by_state, waiting, asked.outages)


def run_simulations(
    found: Sequence[Trial], today: Side, then: Side | None
) -> Iterator[tuple[Trial, SimulatedRun, SimulatedRun | None]]:
    """Replays one trial after the other, today's file and the candidate's in two processes at the same time, and yields
    (trial, result of today's file, result of the candidate or None). Raises KodoctlError if a replay fails, after the
    other replay of the trial has ended.
    """
    with ThreadPoolExecutor(2) as pool:
        for trial in found:
            first = pool.submit(_replay, trial, today)
            second = None if then is None else pool.submit(_replay, trial, then)
            yield trial, first.result(), None if second is None else second.result()


def _replay(trial: Trial, side: Side) -> SimulatedRun:
    asked = "\n".join(trial.lines(side.text, side.path, side.expansion.topology.environment))
    done = subprocess.run(_COMMAND, input=asked, capture_output=True, text=True, encoding="utf-8", check=False)  # noqa: S603
    name = f"{trial.topic} / {trial.subscription}, {Path(side.path).name}"
    if done.returncode:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "it said nothing")
        raise KodoctlError(error("K807", "the replay failed", f"{name}: exit {done.returncode}: {last[:300]}"))
    answer = json.loads(done.stdout)
    if findings := answer.get("findings"):
        raise KodoctlError(*(error(code, summary, detail, Where(side.path)) for code, summary, detail in findings))
    return cast("SimulatedRun", answer)
