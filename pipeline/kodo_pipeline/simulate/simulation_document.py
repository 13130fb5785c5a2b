"""The JSON of `kodoctl pipeline simulate`."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class SimulatedFigures(TypedDict):
    """Figures of one group of messages. Percentiles (p50, p95, p99) in ms, until a handler starts and until done; null: none."""

    messages: int
    done: int
    dead: int
    wait_ms: dict[str, float] | None
    latency_ms: dict[str, float] | None


class SimulatedTenant(SimulatedFigures):
    """Figures of a tenant. A null `tenant` stands for all tenants without a row of their own; `tenants` is
    their number.
    """

    tenant: str | None
    tenants: NotRequired[int]


SimulatedRunRow = TypedDict(
    "SimulatedRunRow",
    {"state": str, "class": str, "runs": int, "wait_ms": dict[str, float] | None, "slot_ms": float},
)
"""Handler runs in lanes of one `state` (ready, retrying, pending, blocking, backup), of tenants that the worker took for
slow or quick (`class`) when they began. `wait_ms`: percentiles of how long messages waited for a slot once they were
due; `slot_ms`: how long the runs had slots.
"""


class WaitingFigures(TypedDict):
    """Messages that waited in a state already when the replay began."""

    messages: int
    done: int
    dead: int


class SimulatedRun(TypedDict):
    """One file's replay. `all`, `tenants`: of messages that arrived; `states`: runs of all messages. `moved`:
    messages by the rule that moved them; `slots`: handlers at once, in all `workers`; `breaker_opened`: number
    of times.
    """

    all: SimulatedFigures
    tenants: list[SimulatedTenant]
    states: list[SimulatedRunRow]
    waiting: WaitingFigures
    moved: dict[str, int]
    breaker_opened: int
    slots: int
    workers: int


class SimulatedOutageRow(TypedDict):
    """An outage that was put in: of so many `tenants`, whose handlers took `duration_ms` in `state` and ended as `outcome`
    (failed, done), from `begin_ms` after the first arrival on for `length_ms`; null: until the last arrival.
    """

    tenants: int
    state: str
    duration_ms: int
    begin_ms: int
    length_ms: int | None
    outcome: str


class RecordedFigures(TypedDict):
    """Recorded figures of the same messages."""

    done: int
    latency_ms: dict[str, float] | None


class SimulationTrial(TypedDict):
    """One subscription under both files; `candidate` is null where there is none. `handler_ms`: the median of all tenants on
    ready lanes. `waiting`: messages that waited in a state when the first one arrived.
    """

    topic: str
    subscription: str
    messages: int
    since: int
    until: int
    handler_ms: float
    waiting: int
    outages: list[SimulatedOutageRow]
    recorded: RecordedFigures
    today: SimulatedRun
    candidate: SimulatedRun | None


class SimulationDocument(TypedDict):
    """All trials, and notes about messages that were not replayed."""

    format_version: int
    trials: list[SimulationTrial]
    notes: list[str]
    run: NotRequired[str]
