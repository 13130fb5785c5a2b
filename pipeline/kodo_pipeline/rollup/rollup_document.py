"""The counts that `kodoctl pipeline rollup` draws as tables and writes as lines of JSON."""

from __future__ import annotations

from typing import TypedDict


class RollupCounts(TypedDict):
    """Events in all windows together. `latency_ms`: percentiles (p50, p95, p99) until done; null: nothing was done."""

    topic: str
    arrivals: int
    done: int
    failed: int
    rerouted: int
    over_limit: int
    retries: int
    dead: int
    discarded: int
    repeated: int
    latency_ms: dict[str, float] | None


class LaneCounts(RollupCounts):
    """Counts of a lane. `subscription`: null for arrivals on a ready topic, which all subscriptions read; `level`: null
    for dead letters.
    """

    subscription: str | None
    level: str | None
    state: str | None


class TenantCounts(RollupCounts):
    """Counts of one of the tenants with most messages on a topic. `tenant`: null for messages without one."""

    tenant: str | None


class RollupDocument(TypedDict):
    """A rollup as JSON. `since`, `until`: beginning of the first window and end of the last one, ms since the epoch;
    `windows`: number of windows between them with rows. `impossible_windows`: number of further ones, of times at which
    nothing can have been stored or done; every count includes them.
    """

    format_version: int
    window_ms: int
    since: int
    until: int
    windows: int
    impossible_windows: int
    lanes: list[LaneCounts]
    tenants: list[TenantCounts]
