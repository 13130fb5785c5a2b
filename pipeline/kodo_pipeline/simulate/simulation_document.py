"""The JSON of `kodoctl pipeline lab`, as schemas/simulation.v1.json has it. Durations are ms, times are ms
since the epoch.
"""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from kodoctl.topology.json_forms import DescribedBy


class PercentileRow(TypedDict):
    """Percentiles of a duration, in ms."""

    p50: float
    p95: float
    p99: float


Count = Annotated[int, Field(ge=0)]
State = Annotated[str, DescribedBy(Literal["ready", "retrying", "pending", "blocking", "backup"])]
Percentiles = Annotated[dict[str, float], DescribedBy(PercentileRow)]


class SimulatedFigures(TypedDict):
    """Figures of a group of messages. `wait_ms`: percentiles (p50, p95, p99) of the time until a handler starts,
    `latency_ms`: of the time until done; in ms, null: no messages.
    """

    messages: Count
    done: Count
    dead: Count
    wait_ms: Percentiles | None
    latency_ms: Percentiles | None


class SimulatedTenant(SimulatedFigures):
    """Figures of a tenant. A null `tenant` stands for all tenants without a row of their own together; only that row has
    `tenants`, their number.
    """

    tenant: str | None
    tenants: NotRequired[Count]


SimulatedRunRow = TypedDict(
    "SimulatedRunRow",
    {"state": State, "class": Literal["quick", "slow"], "runs": Count, "wait_ms": Percentiles | None, "slot_ms": float},
)
"""Handler runs in lanes of one `state` (ready, retrying, pending, blocking, backup), of tenants that the worker took for
slow or quick (`class`) when they began. `wait_ms`: percentiles of the time from when messages were due to the start
of their handler; `slot_ms`: how long the runs had slots.
"""


class WaitingFigures(TypedDict):
    """Counts of messages that already waited in a state when the replay began."""

    messages: Count
    done: Count
    dead: Count


class SimulatedRun(TypedDict):
    """Result of the replay under one file. `all`, `tenants`: figures of messages that arrived; `states`: handler runs
    of all messages; `waiting`: messages that waited before; `moved`: number of messages by the rule that moved them;
    `slots`: concurrent handlers in all `workers`; `breaker_opened`: number of times.
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
    """An outage that was simulated, from `begin_ms` after the first arrival on, for `length_ms` (null: until the last
    arrival), of `tenants` tenants. Their messages that arrive meanwhile go to the lane of `state` at once. Handlers
    that begin in `state` meanwhile take `duration_ms` and end as `outcome`, unless they time out before. If `outcome`
    is `failed`, handlers that begin in other states fail, too, after their usual time.
    """

    tenants: Count
    state: State
    duration_ms: Count
    begin_ms: Count
    length_ms: int | None
    outcome: Literal["failed", "done"]


class RecordedFigures(TypedDict):
    """Figures of the same messages, as workers recorded them. `latency_ms`: time until done."""

    done: Count
    latency_ms: Percentiles | None


class SimulationTrial(TypedDict):
    """Replay of one subscription under both files. `candidate`: null without one; `handler_ms`: median over all tenants
    on ready lanes; `waiting`: number of messages that waited in a state when the first one arrived.
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
    """A simulation as JSON: all trials, and notes about topics and subscriptions that were not replayed."""

    format_version: Literal[1]
    trials: list[SimulationTrial]
    notes: list[str]
    run: NotRequired[str]
