"""Today's file and a candidate on the same recorded arrivals: what is asked of the replay, and one document.
Pure.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from kodoctl.errors import UsageError, error
from kodoctl.topology.model.topology import KEY, GroundTopic, Subscription
from kodoctl.topology.route_conditions import condition_of, properties_of
from kodoctl.topology.slot_ranges import total_slots

if TYPE_CHECKING:
    from kodoctl.documents.simulation_document import RecordedFigures, SimulatedRun, SimulationDocument

FORMAT_VERSION: Final = 1
WINDOW: Final = 10_000  # ms in which ends are counted
QUICK: Final = 0.1  # of a tenant's messages: these are taken to have waited for nobody

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trial:
    """One subscription's recorded arrivals: rows of kodoctl.pipeline.simulate.arrivals. `slots`: handlers at once in
    all workers, where the files are not to say that; `span`: ms of the first arrival and of the last.
    """

    topic: str
    subscription: str
    slots: int | None
    arrivals: Sequence[Row]
    handler_ms: Mapping[str, float]

    @property
    def span(self) -> tuple[int, int]:
        """Ms since the epoch of the first arrival and of the last."""
        return self.arrivals[0]["at_ms"], self.arrivals[-1]["at_ms"]

    def lines(self, text: str, path: str, environment: str | None) -> Iterator[str]:
        """Input of kodo_consumer.simulator: a request, then one arrival a line."""
        names = {"topic": self.topic, "subscription": self.subscription, "slots": self.slots}
        yield json.dumps({"text": text, "path": path, "environment": environment, **names})
        since = self.span[0]
        for one in self.arrivals:
            seconds = self.handler_ms[one["tenant"]] / 1000
            row = [
                (one["at_ms"] - since) / 1000,
                one["level"],
                one["key"] or "",
                one["properties"],
                one["size"],
                seconds,
            ]
            yield json.dumps([*row, one["fails"]])


def asked_properties(grounds: Sequence[GroundTopic], subscription: str) -> list[str]:
    """Message properties that fairness, limits or routes of any of these go by."""
    specs = [ground.subscriptions[subscription] for ground in grounds]
    names = {ground.fair_by for ground in grounds}
    names |= {limit.by for spec in specs for limit in spec.limits}
    names |= {name for spec in specs for route in spec.routes for name in properties_of(condition_of(route.when))}
    return sorted(name for name in names if name and name != KEY)


def slots_of(spec: Subscription, asked: int | None, name: str) -> int:
    """Handlers at once, of all workers. Raises UsageError where only the workers know."""
    if asked is not None:
        return asked
    slots = total_slots(spec)
    if slots is None:
        detail = f"{name} finds its concurrency out (`adaptive`): say with --slots how many handlers run at once, in all workers"
        raise UsageError(error("K806", "the simulation cannot replay this", detail))
    return slots * spec.expected_workers


def handler_times(arrivals: Sequence[Row], slots: int) -> dict[str, float]:
    """Run time of the handler in ms, by tenant: the 10th percentile of the messages that were done without a move,
    limited by the time that the slots had for each message of the busiest ten seconds. Both are upper bounds. Empty if
    no record has the event done.
    """
    direct: dict[str, list[int]] = {}
    ends: Counter[int] = Counter()
    for one in arrivals:
        if one["took_ms"] is not None and not one["moves"]:
            direct.setdefault(one["tenant"], []).append(max(one["took_ms"], 0))
            ends[(one["at_ms"] + one["took_ms"]) // WINDOW] += 1
    if not direct:
        return {}
    most = slots * WINDOW / max(ends.values())
    quick = {name: _share(sorted(times), QUICK) for name, times in direct.items()}
    usual = _share(sorted(quick.values()), 0.5)
    tenants = dict.fromkeys(one["tenant"] for one in arrivals)
    return {name: round(min(max(quick.get(name, usual), 1.0), most), 3) for name in tenants}


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[ceil(share * len(ordered)) - 1]


def recorded(arrivals: Sequence[Row]) -> RecordedFigures:
    """Recorded results of the same messages: the number of those done, and percentiles of ms until then."""
    took = sorted(max(one["took_ms"], 0) for one in arrivals if one["took_ms"] is not None)
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {
        "done": len(took),
        "latency_ms": {name: _share(took, share) for name, share in shares.items()} if took else None,
    }


def document(trials: Sequence[tuple[Trial, SimulatedRun, SimulatedRun]], notes: Sequence[str]) -> SimulationDocument:
    """For machines. `trials`: with what the replay of today's file, and of the candidate, gave. Times are ms."""
    return {
        "format_version": FORMAT_VERSION,
        "trials": [
            {
                "topic": trial.topic,
                "subscription": trial.subscription,
                "messages": len(trial.arrivals),
                "since": trial.span[0],
                "until": trial.span[1],
                "handler_ms": _share(sorted(trial.handler_ms.values()), 0.5),
                "recorded": recorded(trial.arrivals),
                "today": today,
                "candidate": candidate,
            }
            for trial, today, candidate in trials
        ],
        "notes": list(notes),
    }
