"""The JSON of `kodoctl pipeline report`, from which its page, pictures and lines are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from kodo_pipeline.rollup.rollup_document import TenantCounts

if TYPE_CHECKING:
    from kodo_pipeline.audit.audit_document import AuditDocument


class WaitingLane(TypedDict):
    """Waiting messages, or dead letters, of a lane. `overdue`: number that has waited longer than any delay in the
    file; `oldest_ms`, `median_ms`: age of the oldest message, and median of the ages.
    """

    topic: str
    subscription: str
    level: str | None
    state: str
    messages: int
    overdue: int
    oldest_ms: int
    median_ms: int


class LaneLatency(TypedDict):
    """Time from first storing until done, of messages that were done in a lane: percentiles in ms. `done`: number of
    messages.
    """

    topic: str
    subscription: str | None
    level: str | None
    state: str
    done: int
    p50: float
    p95: float
    p99: float


class FailureCount(TypedDict):
    """Failed handler runs with the same cause (`kodoctl.protocol.error_causes`). `reason`: one of their reasons;
    `rule`: the rule that decided about the message, "(others)" in the last row, which stands for all other causes;
    `messages`: number of runs.
    """

    topic: str
    subscription: str
    event: str
    rule: str
    cause: str
    reason: str
    messages: int


class ReportTenant(TenantCounts):
    """Counts of a tenant. `arrivals`: messages that it sent; `share`: its share of the messages sent to the topic, 0 to
    1.
    """

    share: float
    noisy: bool


class TenantGroup(TypedDict):
    """Sums over all noisy tenants of a topic, or over all others. `names`: the noisy tenants, [] for the others;
    `tenants`: number of tenants; `arrivals`: messages that they sent; `latency_ms`: percentiles (p50, p95, p99) of the
    time until done, null: nothing was done; `share`: share of the messages sent, 0 to 1.
    """

    tenants: int
    arrivals: int
    latency_ms: dict[str, float] | None
    names: list[str]
    share: float


class TopicFairness(TypedDict):
    """Comparison of the noisy and the quiet tenants of a topic. `noisy`: null if no tenant is noisy."""

    topic: str
    quiet: TenantGroup
    noisy: TenantGroup | None


class TrafficCounts(TypedDict):
    """Numbers of messages that arrived, and of their results in the workers."""

    arrivals: int
    done: int
    failed: int
    over_limit: int


class TrafficPoint(TrafficCounts):
    """Counts of one window. `at`: start of the window, ms since the epoch."""

    at: int


class TrafficOverTime(TypedDict):
    """Counts in windows of equal width without a gap. `past`, `future`: counts of messages whose time is earlier, or
    later, than anything can have been stored or done; no window is drawn for them.
    """

    width_ms: int
    points: list[TrafficPoint]
    past: TrafficCounts
    future: TrafficCounts


class Advice(TypedDict):
    """A recommended step. `commands`: to copy as they are, [] if no command helps."""

    title: str
    why: str
    commands: list[str]


class ReportDocument(TypedDict):
    """A report as JSON. `read_at`: time at which the last completed ingest read the cursors; `since`, `until`: bounds
    of the counted windows; all in ms since the epoch. `read_at` and `since` are 0 if there is none. `impossible_ages`:
    number of done messages with an age (by publish time, which the sender chooses) that is longer than the time in
    which messages can have been stored, so that no percentile includes them.
    """

    format_version: int
    run: str
    made_at: int
    read_at: int
    topology: str
    environment: str | None
    since: int
    until: int
    audit: AuditDocument
    waiting: list[WaitingLane]
    latency: list[LaneLatency]
    impossible_ages: int
    failures: list[FailureCount]
    tenants: list[ReportTenant]
    fairness: list[TopicFairness]
    over_time: TrafficOverTime
    advice: list[Advice]
