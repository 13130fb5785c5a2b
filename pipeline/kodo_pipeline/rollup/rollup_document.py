"""The JSON of `kodoctl pipeline rollup`, from which its tables are drawn."""

from __future__ import annotations

from typing import TypedDict


class RollupCounts(TypedDict):
    """Counts over all windows. `latency_ms`: percentiles (p50, p95, p99) of the time until done, null: nothing was
    done.
    """

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
    for dead letters; `level` and `state`: both null for records about a topic that nobody declares.
    """

    subscription: str | None
    level: str | None
    state: str | None


class TenantCounts(RollupCounts):
    """Counts of a tenant, one of those with most messages on a topic. `arrivals`: on ready topics only; all other
    counts include every lane. `tenant`: `(none)` for messages without one, `(unknown)` if it cannot be read; null only
    in forged records.
    """

    tenant: str | None


class RollupDocument(TypedDict):
    """A rollup as JSON. `since`, `until`: start of the first window and end of the last one, ms since the epoch, both 0
    if `windows` is 0; `windows`: number of windows between them that have rows. `impossible_windows`: number of other
    windows, at times at which nothing can have been stored or done; every count includes them.
    """

    format_version: int
    window_ms: int
    since: int
    until: int
    windows: int
    impossible_windows: int
    lanes: list[LaneCounts]
    tenants: list[TenantCounts]
