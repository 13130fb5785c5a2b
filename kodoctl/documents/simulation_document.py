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
    """`tenant` is null for all tenants that have no row of their own; `tenants` tells then how many they are."""

    tenant: str | None
    tenants: NotRequired[int]


class SimulatedRun(TypedDict):
    """One file's replay. `moved`: messages by the rule that moved them; `slots`: handlers at once."""

    all: SimulatedFigures
    tenants: list[SimulatedTenant]
    moved: dict[str, int]
    slots: int


class RecordedFigures(TypedDict):
    """Recorded figures of the same messages."""

    done: int
    latency_ms: dict[str, float] | None


class SimulationTrial(TypedDict):
    """One subscription under both files. `handler_ms`: the median of all tenants."""

    topic: str
    subscription: str
    messages: int
    since: int
    until: int
    handler_ms: float
    recorded: RecordedFigures
    today: SimulatedRun
    candidate: SimulatedRun


class SimulationDocument(TypedDict):
    """All trials, and notes about what was not replayed."""

    format_version: int
    trials: list[SimulationTrial]
    notes: list[str]
    run: NotRequired[str]
