"""Simulation job: arrivals from the landing, replayed by the engine of the consumer under another topology file, to
show what the same traffic would have met there.

The engine runs in processes of its own, one for each file and subscription, two at a time: a replay is bound by the
CPU, and the worker that it drives is above the core, which is all that this package may import of the consumer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from kodoctl.errors import InvalidFileError, KodoctlError, Severity, UsageError, Where, error
from kodoctl.pipeline.audit.deduplicate import without_duplicates
from kodoctl.pipeline.ingest.tables import EVENTS, TRANSITIONS
from kodoctl.pipeline.recommend.yaml_patch import CannotPatchError, applied
from kodoctl.pipeline.simulate.arrivals import arrivals
from kodoctl.pipeline.simulate.comparison import Trial, asked_properties, handler_times, slots_of
from kodoctl.topology.lint.linter import check_set
from kodoctl.topology.load import source_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kodoctl.documents.simulation_document import SimulatedRun
    from kodoctl.pipeline.ingest.landing_store import Landing
    from kodoctl.topology.expand import Expansion

_COMMAND: Final = (
    sys.executable,
    "-P",
    "-m",
    "kodo_consumer.simulator",
)  # -P: no folder of the user's stands in for ours


@dataclass(frozen=True, slots=True)
class Side:
    """A topology file: its text, its name in messages, and its expansion."""

    text: str
    path: str
    expansion: Expansion

    @classmethod
    def of(cls, expansion: Expansion) -> Side:
        """The file as it is."""
        path = expansion.topology.source.path
        return cls(path.read_bytes().decode("utf-8"), str(path), expansion)


@dataclass(frozen=True, slots=True)
class SimulationRequest:
    """`newest`: arrivals of each subscription; `handler_ms`, `slots`: instead of what records and the file say."""

    newest: int
    handler_ms: float | None = None
    slots: int | None = None


def candidate(today: Side, data: bytes, name: str) -> Side:
    """`data`: a whole topology file, or a patch of today's; `name`: what it is called. Raises InvalidFileError with
    every error of the file, UsageError for a patch that does not fit.
    """
    text, path = data.decode("utf-8", errors="replace"), name
    if any(line.startswith("@@ -") for line in text.splitlines()):
        path = today.path
        try:
            text = applied(today.text, text)
        except CannotPatchError as problem:
            raise UsageError(error("K805", "the candidate does not fit", str(problem), Where(name))) from None
    environment = today.expansion.topology.environment
    file = source_of(text.encode(), path)
    expansions, findings = check_set([file], environment)
    wrong = [one for one in findings if one.severity is Severity.ERROR and one.allowed_because is None]
    if wrong or len(expansions) != 1:
        raise InvalidFileError(*wrong)
    return Side(text, path, expansions[0])


def changed(today: Side, then: Side) -> tuple[list[tuple[str, str]], list[str]]:
    """((topic, subscription) that are in both files and differ, notes on the others). Raises UsageError if there is no
    such subscription.
    """
    before, after = (side.expansion.topology.spec.topics for side in (today, then))
    pairs, notes = [], []
    for topic, ground in before.items():
        if topic not in after:
            notes.append(f"{topic} is not in the candidate")
        elif ground == after[topic]:
            notes.append(f"{topic}: the candidate changes nothing")
        else:
            pairs += [(topic, name) for name in ground.subscriptions if name in after[topic].subscriptions]
    if not pairs:
        raise UsageError(error("K805", "the candidate does not fit", "; ".join(notes) or "it shares no subscription"))
    return pairs, notes


def build_simulations(
    spark: SparkSession, landing: Landing, today: Side, then: Side, asked: SimulationRequest
) -> tuple[list[Trial], list[str]]:
    """Subscriptions to replay, and the reasons for those that are left out. Raises UsageError if none can be
    replayed.
    """
    pairs, notes = changed(today, then)
    found: list[Trial] = []
    events = landing.read(spark, EVENTS)
    with without_duplicates(landing.read(spark, TRANSITIONS)) as transitions:
        for topic, name in pairs:
            grounds = [side.expansion.topology.spec.topics[topic] for side in (today, then)]
            slots, _ = (slots_of(one.subscriptions[name], asked.slots, f"{topic} / {name}") for one in grounds)
            names = asked_properties(grounds, name)
            rows = arrivals(events, transitions, topic=topic, subscription=name, properties=names, newest=asked.newest)
            made = [row.asDict() for row in rows.collect()]
            times = handler_times(made, slots)
            if asked.handler_ms is not None:
                times = dict.fromkeys((one["tenant"] for one in made), asked.handler_ms)
            if made and times:
                found.append(Trial(topic, name, asked.slots, made, times))
            else:
                why = "no record says how long a handler takes: give --handler-time" if made else "nothing arrived"
                notes.append(f"{topic} / {name}: {why}")
    if not found:
        raise UsageError(error("K806", "the simulation cannot replay this", "\n".join(notes)))
    return found, notes


def run_simulations(
    found: Sequence[Trial], today: Side, then: Side
) -> Iterator[tuple[Trial, SimulatedRun, SimulatedRun]]:
    """Each under both files, two at a time. Raises KodoctlError."""
    with ThreadPoolExecutor(2) as pool:
        for trial in found:
            ends = [pool.submit(_replay, trial, side) for side in (today, then)]
            yield trial, ends[0].result(), ends[1].result()


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
