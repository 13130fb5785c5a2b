"""The JSON of `kodoctl pipeline lab`, as schemas/simulation.v1.json has it. Durations are ms, times are ms
since the epoch.
"""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from kodoctl.topology.json_forms import DescribedBy


class PercentileRow(TypedDict):
    """Percentiles in ms."""

    p50: float
    p95: float
    p99: float


Count = Annotated[int, Field(ge=0)]
State = Annotated[str, DescribedBy(Literal["ready", "retrying", "pending", "blocking", "backup"])]
Percentiles = Annotated[dict[str, float], DescribedBy(PercentileRow)]


class SimulatedFigures(TypedDict):
    """Figures of one group of messages. Percentiles (p50, p95, p99) in ms, until a handler starts and until done; null: none."""

    messages: Count
    done: Count
    dead: Count
    wait_ms: Percentiles | None
    latency_ms: Percentiles | None


class SimulatedTenant(SimulatedFigures):
    """Figures of a tenant. A null `tenant` stands for all tenants without a row of their own; `tenants` is
    their number.
    """

    tenant: str | None
    tenants: NotRequired[Count]


SimulatedRunRow = TypedDict(
    "SimulatedRunRow",
    {"state": State, "class": Literal["quick", "slow"], "runs": Count, "wait_ms": Percentiles | None, "slot_ms": float},
)
"""Handler runs in lanes of one `state` (ready, retrying, pending, blocking, backup), of tenants that the worker took for
slow or quick (`class`) when they began. `wait_ms`: percentiles of how long messages waited for a slot once they were
due; `slot_ms`: how long the runs had slots.
"""


class WaitingFigures(TypedDict):
    """Messages that waited in a state already when the replay began."""

    messages: Count
    done: Count
    dead: Count


class SimulatedRun(TypedDict):
    """One file's replay. `all`, `tenants`: of messages that arrived; `states`: runs of all messages. `moved`:
    messages by the rule that moved them; `slots`: handlers at once, in all `workers`; `breaker_opened`: number
    of times.
    """

    all: SimulatedFigures
    tenants: list[SimulatedTenant]
    states: list[SimulatedRunRow]
    waiting: WaitingFigures
    moved: dict[str, Count]
    breaker_opened: Count
    slots: Count
    workers: Count


class SimulatedOutageRow(TypedDict):
    """An outage that was put in: of so many `tenants`, whose handlers took `duration_ms` in `state` and ended as `outcome`
    (failed, done), from `begin_ms` after the first arrival on for `length_ms`; null: until the last arrival.
    """

    tenants: Count
    state: State
    duration_ms: Count
    begin_ms: Count
    length_ms: int | None
    outcome: Literal["failed", "done"]


class RecordedFigures(TypedDict):
    """Recorded figures of the same messages."""

    done: Count
    latency_ms: Percentiles | None


class SimulationTrial(TypedDict):
    """One subscription under both files; `candidate` is null where there is none. `handler_ms`: the median of all tenants on
    ready lanes. `waiting`: messages that waited in a state when the first one arrived.
    """

    topic: str
    subscription: str
    messages: Count
    since: int
    until: int
    handler_ms: float
    waiting: Count
    outages: list[SimulatedOutageRow]
    recorded: RecordedFigures
    today: SimulatedRun
    candidate: SimulatedRun | None


class SimulationDocument(TypedDict):
    """All trials, and notes about messages that were not replayed."""

    format_version: Literal[1]
    trials: list[SimulationTrial]
    notes: list[str]
    run: NotRequired[str]
