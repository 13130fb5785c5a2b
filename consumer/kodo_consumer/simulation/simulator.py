"""Simulator: recorded traffic through the workers of a topology file, in virtual time, to see the effect of a file
before it is applied.

The engine is the product's, with its scheduler, limits, routes, isolation and waiting states; only the broker is in
memory, and handlers take the recorded time. Each worker has its own engine; the workers share the lanes, and limits by
leases.

`python -m kodo_consumer.simulation.simulator` reads a request, then one arrival a line, and writes one document: for
programs that cannot import this package.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.policy_builder import policy_of
from kodo_consumer.simulation.simulated_worker import worker_policies
from kodo_consumer.simulation.simulation import (
    WAITING_STATES,
    RunGroup,
    SimulatedArrival,
    SimulatedOutage,
    SimulatedResult,
    Simulation,
)
from kodoctl.errors import InvalidFileError, KodoctlError, error
from kodoctl.topology.load import load_set, source_of

if TYPE_CHECKING:
    from kodo_consumer.core.values.policy import Policy
    from kodoctl.topology.loaded_topology import LoadedTopology

TENANT_ROWS: Final = 10  # tenants told one by one
STATES: Final = ("ready", *WAITING_STATES)
_OUTAGE: Final = ("seconds", "since", "until", "done")
_SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def _group_figures(fates: Sequence[SimulatedResult]) -> dict[str, Any]:
    """Counts of these results, and percentiles (p50, p95, p99) of waits and latencies in ms; None if there are no
    values.
    """
    waits = sorted(fate.wait for fate in fates if fate.wait is not None)
    times = sorted(fate.done for fate in fates if fate.done is not None)
    return {
        "messages": len(fates),
        "done": len(times),
        "dead": sum(fate.dead for fate in fates),
        "wait_ms": _percentiles(waits),
        "latency_ms": _percentiles(times),
    }


def figures(fates: Sequence[SimulatedResult], tenants: int = TENANT_ROWS) -> dict[str, Any]:
    """Figures of all messages (`all`), and a row for each tenant (`tenants`), with its name (`tenant`), at most for so
    many as the parameter `tenants` says, those with most messages first. Figures are counts (`messages`, `done`,
    `dead`), and percentiles in ms (`p50`, `p95`, `p99`) of waits (`wait_ms`) and latencies (`latency_ms`), None if no
    message has a value. If there are more tenants, a last row has the figures of all others together, with `tenant`
    None and the number of these others as `tenants`.
    """
    by_tenant: dict[str, list[SimulatedResult]] = {}
    for fate in fates:
        by_tenant.setdefault(fate.tenant, []).append(fate)
    ordered = sorted(by_tenant, key=lambda name: (-len(by_tenant[name]), name))
    rows = [{"tenant": name, **_group_figures(by_tenant[name])} for name in ordered[:tenants]]
    if rest := [fate for name in ordered[tenants:] for fate in by_tenant[name]]:
        rows.append({"tenant": None, "tenants": len(ordered) - tenants, **_group_figures(rest)})
    return {"all": _group_figures(fates), "tenants": rows}


def _percentiles(ordered: Sequence[float]) -> dict[str, float] | None:
    if not ordered:
        return None
    return {name: round(1000 * ordered[ceil(share * len(ordered)) - 1], 3) for name, share in _SHARES.items()}


def run_rows(groups: Mapping[tuple[str, bool], RunGroup]) -> list[dict[str, Any]]:
    """Returns a row of handler runs for each (state, True for slow tenants) in `groups`, in the order of STATES:
    `state`, `class` (`slow` or `quick`), `runs`, `wait_ms` and `slot_ms`. `wait_ms`: percentiles of the waits (see
    RunGroup); None if the group has none. `slot_ms`: total time in slots. Both are in ms.
    """
    return [
        {
            "state": state,
            "class": "slow" if slow else "quick",
            "runs": group.runs,
            "wait_ms": _percentiles(sorted(group.waits)),
            "slot_ms": round(1000 * group.slot_time, 3),
        }
        for (state, slow), group in sorted(groups.items(), key=lambda item: (STATES.index(item[0][0]), item[0][1]))
    ]


def answer(lines: Iterator[str]) -> dict[str, Any]:
    """Simulates the traffic of `lines`, each a JSON text: first a request {text, path, environment, topic,
    subscription, workers, slots, seconds, outages}, then SimulatedArrivals as lists, sorted by `at`. `workers` and
    `slots` are as for `worker_policies`, null: those of the file; an exclusive subscription has one worker in any case.

    Returns a document for JSON with `all` and `tenants` (see `figures`; without messages that waited before), `states`
    (see `run_rows`), `waiting` (counts of the messages that waited before), `moved` (how often messages left a lane
    otherwise than as done, by rule), `breaker_opened`, `slots` and `workers`; or only `findings`, lists of (code,
    summary, detail), if the file is not valid, or lacks the topic, the subscription or the lane of an outage. Other
    faults of the lines, and errors that break a worker, raise exceptions.
    """
    request = json.loads(next(lines))
    try:
        topology = _topology(request["text"], request["path"], request["environment"])
        policy = policy_of(topology, request["topic"], request["subscription"])
        outages = [_outage(policy, one) for one in request["outages"]]
    except KodoctlError as problem:
        return {"findings": [[one.code, one.summary, one.detail] for one in problem.diagnostics]}
    policies = worker_policies(policy, _workers(policy, request["workers"]), request["slots"])
    replay = Simulation(policies, _arrivals(lines), request["seconds"], outages)
    results = list(zip(replay.run(), replay.arrivals, strict=True))
    waited = [result for result, arrival in results if arrival.attempts]
    return {
        **figures([result for result, arrival in results if not arrival.attempts]),
        "states": run_rows(replay.groups),
        "waiting": {name: value for name, value in _group_figures(waited).items() if isinstance(value, int)},
        "moved": dict(sorted(replay.counts.items())),
        "breaker_opened": replay.breaker_opened,
        "slots": sum(one.concurrency for one in policies),
        "workers": len(policies),
    }


def _workers(policy: Policy, asked: int | None) -> int:
    """Number of workers: `asked`, or the number that the file expects if `asked` is None. An exclusive subscription has
    one.
    """
    return 1 if policy.subscription_type == "exclusive" else asked or policy.expected_workers


def _arrivals(lines: Iterable[str]) -> list[SimulatedArrival]:
    """Arrivals of the lines. Equal properties, keys and names are stored once."""
    known: dict[Any, Any] = {}
    arrivals = []
    for line in lines:
        found = SimulatedArrival(*json.loads(line))
        properties = known.setdefault(tuple(sorted(found.properties.items())), found.properties)
        tenant, key, outcomes = (known.setdefault(one, one) for one in (found.tenant, found.key, found.outcomes))
        arrivals.append(found._replace(properties=properties, tenant=tenant, key=key, outcomes=outcomes))
    return arrivals


def _outage(policy: Policy, given: Mapping[str, Any]) -> SimulatedOutage:
    """Outage of the request. Raises KodoctlError if the file has no lane of its state."""
    state = given["state"]
    level_and_state = {"backup": (Level.B1, State.READY)}.get(state) or (Level.L1, State(state))
    if level_and_state not in policy.targets:
        detail = f"{policy.ground.rpartition('/')[2]} / {policy.subscription} has no {state} lane: name another state"
        raise KodoctlError(error("K806", "the simulation cannot replay this", f"--outage: {detail}"))
    return SimulatedOutage(frozenset(given["tenants"]), state, *(given[name] for name in _OUTAGE))


def _topology(text: str, path: str, environment: str | None) -> LoadedTopology:
    loaded = load_set([source_of(text.encode(), path)], environment)
    if loaded.findings or not loaded.topologies:
        raise InvalidFileError(*loaded.findings)
    return loaded.topologies[0]


def main(source: Iterable[str], target: Any) -> None:
    """Simulates recorded traffic and writes the result to `target` (a text stream) as a JSON document. `source`: lines
    of JSON, first a request object, then the arrivals. Lines, result and exceptions are as for `answer`.
    """
    json.dump(answer(iter(source)), target)


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)
