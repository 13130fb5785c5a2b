"""Comparison of today's topology file and a candidate on the same recorded arrivals: the input of the replay, and the
JSON document of its result. Pure.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from kodoctl.errors import UsageError, error
from kodoctl.topology.model.topology import KEY, GroundTopic, Subscription
from kodoctl.topology.route_conditions import condition_of, properties_of
from kodoctl.topology.slot_ranges import total_slots

if TYPE_CHECKING:
    from kodo_pipeline.simulate.outage_request import OutageRequest
    from kodo_pipeline.simulate.simulation_document import RecordedFigures, SimulatedRun, SimulationDocument

FORMAT_VERSION: Final = 1
WINDOW: Final = 10_000  # ms in which ends are counted
WAITING_STATES: Final = ("retrying", "pending", "blocking", "backup")
QUICK: Final = 0.1  # of a tenant's messages: these are taken to have waited for nobody

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trial:
    """Recorded arrivals of one subscription, for a replay: rows of kodo_pipeline.simulate.arrivals. `waiting`: messages
    that waited before the first arrival; `slots`: concurrent handlers in all workers, `workers`: number of workers,
    None: as in the file. `handler_ms`: run time of the handler by tenant and state; a missing state takes as long as
    ready. `outages`: to be simulated.
    """

    topic: str
    subscription: str
    slots: int | None
    workers: int | None
    arrivals: Sequence[Row]
    handler_ms: Mapping[str, Mapping[str, float]]
    waiting: Sequence[Row] = ()
    outages: Sequence[OutageRequest] = ()

    @property
    def span(self) -> tuple[int, int]:
        """(time of the first arrival, time of the last), ms since the epoch."""
        return self.arrivals[0]["at_ms"], self.arrivals[-1]["at_ms"]

    @property
    def struck(self) -> list[list[str]]:
        """Tenants that each outage affects, those with most messages first. Raises UsageError if the arrivals have too
        few tenants, or not those that an outage names.
        """
        counts = Counter(one["tenant"] for one in self.arrivals)
        ordered = sorted(counts, key=lambda name: (-counts[name], name))
        return [one.tenants_of(ordered, f"{self.topic} / {self.subscription}") for one in self.outages]

    def check(self) -> None:
        """Raises UsageError if the arrivals lack tenants that an outage affects, or if an outage without a length
        begins after the last arrival, where it ends.
        """
        _ = self.struck
        since, until = self.span
        for one in self.outages:
            one.check_begin(until - since, f"{self.topic} / {self.subscription}")

    def lines(self, text: str, path: str, environment: str | None) -> Iterator[str]:
        """Yields the input of kodo_consumer.simulation.simulator as JSON lines: a request, the waiting messages, the
        arrivals in order of time. `text`: text of the topology file; `path`: name of the file in errors.
        """
        since, until = self.span
        request = {
            "text": text,
            "path": path,
            "environment": environment,
            "topic": self.topic,
            "subscription": self.subscription,
            "slots": self.slots,
            "workers": self.workers,
            "seconds": {tenant: _seconds(times) for tenant, times in self.handler_ms.items()},
            "outages": [
                one.asked(tenants, (until - since) / 1000)
                for one, tenants in zip(self.outages, self.struck, strict=True)
            ],
        }
        yield json.dumps(request)
        for one in self.waiting:
            due = None if one["due_ms"] is None else (one["due_ms"] - since) / 1000
            attempts = [one["hop"], *(one["attempts"].get(state, 0) for state in WAITING_STATES)]
            yield json.dumps([*_row(one, since), one["state"], due, attempts])
        for one in self.arrivals:
            yield json.dumps(_row(one, since))


def _row(one: Row, since: int) -> list[Any]:
    at = (one["at_ms"] - since) / 1000
    return [at, one["level"], one["key"] or "", one["properties"], one["size"], one["tenant"], one["outcomes"]]


def _seconds(times: Mapping[str, float]) -> dict[str, float]:
    return {state: times.get(state, times["ready"]) / 1000 for state in ("ready", *WAITING_STATES)}


def asked_properties(grounds: Sequence[GroundTopic], subscription: str) -> list[str]:
    """Sorted names of the message properties that fairness, limits or routes of any of these topics read."""
    specs = [ground.subscriptions[subscription] for ground in grounds]
    names = {ground.fair_by for ground in grounds}
    names |= {limit.by for spec in specs for limit in spec.limits}
    names |= {name for spec in specs for route in spec.routes for name in properties_of(condition_of(route.when))}
    return sorted(name for name in names if name and name != KEY)


def slots_of(spec: Subscription, asked: int | None, workers: int | None, name: str) -> int:
    """Number of concurrent handlers in all workers: `asked`, else that of one worker in the file times `workers` (None:
    `expected_workers` of the file; an exclusive subscription has one worker in any case). Raises UsageError (K806) if
    neither the file nor `asked` gives a number, or if `asked` is less than one for each worker. `name`: name of the
    subscription, for errors.
    """
    number = 1 if spec.type == "exclusive" else workers or spec.expected_workers
    if asked is not None:
        if asked < number:
            detail = f"{name}: {asked} slots are less than one for each of {number} workers: say fewer with --workers"
            raise UsageError(error("K806", "the simulation cannot replay this", detail))
        return asked
    slots = total_slots(spec)
    if slots is None:
        detail = f"{name} finds its concurrency out (`adaptive`): say with --slots how many handlers run at once, in all workers"
        raise UsageError(error("K806", "the simulation cannot replay this", detail))
    return slots * number


def handler_times(arrivals: Sequence[Row], slots: int) -> dict[str, float]:
    """Estimated run time of the handler in ms, by tenant; {} if no message was done without a move.

    It is the 10th percentile of the times of messages that were done without a move, but not more than the time that
    the slots had for each message in the busiest ten seconds, because both are upper bounds; and at least 1 ms unless
    the slots had less. A tenant without such messages gets the median of the others.
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


def times_by_state(
    ready: Mapping[str, float], waiting: Iterable[Row], names: Iterable[str]
) -> dict[str, dict[str, float]]:
    """Run times in ms by tenant and state. `ready`: run time by tenant in ready lanes; `waiting`: rows of
    kodo_pipeline.simulate.arrivals.run_times; `names`: all tenants. A tenant that `ready` lacks gets the median of the
    others for ready lanes, so `ready` must have a tenant.
    """
    usual = _share(sorted(ready.values()), 0.5)
    found = {name: {"ready": ready.get(name, usual)} for name in names}
    for row in waiting:
        if row["tenant"] in found:
            found[row["tenant"]][row["state"]] = float(row["quick_ms"])
    return found


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[ceil(share * len(ordered)) - 1]


def recorded_figures(arrivals: Sequence[Row]) -> RecordedFigures:
    """Recorded figures of the same messages, to compare the replay with: number of done messages, and percentiles (ms)
    of the time until then, None if nothing was done.
    """
    took = sorted(max(one["took_ms"], 0) for one in arrivals if one["took_ms"] is not None)
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {
        "done": len(took),
        "latency_ms": {name: _share(took, share) for name, share in shares.items()} if took else None,
    }


def document(
    trials: Sequence[tuple[Trial, SimulatedRun, SimulatedRun | None]], notes: Sequence[str]
) -> SimulationDocument:
    """Makes the JSON document of a comparison. `trials`: each with the result of today's file and that of the
    candidate, None without a candidate. Times are in ms.
    """
    return {
        "format_version": FORMAT_VERSION,
        "trials": [
            {
                "topic": trial.topic,
                "subscription": trial.subscription,
                "messages": len(trial.arrivals),
                "since": trial.span[0],
                "until": trial.span[1],
                "handler_ms": _share(sorted(times["ready"] for times in trial.handler_ms.values()), 0.5),
                "waiting": len(trial.waiting),
                "outages": [one.row(len(tenants)) for one, tenants in zip(trial.outages, trial.struck, strict=True)],
                "recorded": recorded_figures(trial.arrivals),
                "today": today,
                "candidate": candidate,
            }
            for trial, today, candidate in trials
        ],
        "notes": list(notes),
    }
