"""The JSON of `kodoctl pipeline report`, from which its page, pictures and lines are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from kodo_pipeline.rollup.rollup_document import TenantCounts

if TYPE_CHECKING:
    from kodo_pipeline.audit.audit_document import AuditDocument


class WaitingLane(TypedDict):
    """Messages that wait in a lane. `overdue`: how many wait for longer than any delay in the file; `oldest_ms`,
    `median_ms`: ages.
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
    """Time until messages were done in a lane: percentiles in ms. `done`: number of messages."""

    topic: str
    subscription: str | None
    level: str | None
    state: str
    done: int
    p50: float
    p95: float
    p99: float


class FailureCount(TypedDict):
    """Failed runs of a handler with one cause (`kodoctl.protocol.error_causes`), and one of their reasons.
    `rule`: the rule that decided about the message; "(others)": all other causes.
    """

    topic: str
    subscription: str
    event: str
    rule: str
    cause: str
    reason: str
    messages: int


class ReportTenant(TenantCounts):
    """Counts of a tenant. `arrivals`: messages that it sent; `share`: of the messages sent to the topic, 0 to 1."""

    share: float
    noisy: bool


class TenantGroup(TypedDict):
    """The noisy tenants of a topic together, or all others. `names`: of the noisy ones, empty for the others; `share`:
    of the messages sent, 0 to 1.
    """

    tenants: int
    arrivals: int
    latency_ms: dict[str, float] | None
    names: list[str]
    share: float


class TopicFairness(TypedDict):
    """The two groups of a topic; `noisy` is null if no tenant is noisy."""

    topic: str
    quiet: TenantGroup
    noisy: TenantGroup | None


class TrafficCounts(TypedDict):
    """Messages that arrived, and their results in the workers."""

    arrivals: int
    done: int
    failed: int
    over_limit: int


class TrafficPoint(TrafficCounts):
    """Counts of one window. `at`: its beginning, ms since the epoch."""

    at: int


class TrafficOverTime(TypedDict):
    """Windows of equal width without a gap. `past`, `future`: counts of messages with a time at which nothing
    can have been stored or done, so that no window is drawn for them.
    """

    width_ms: int
    points: list[TrafficPoint]
    past: TrafficCounts
    future: TrafficCounts


class Advice(TypedDict):
    """A step to take. `commands` can be copied as they are; empty if no command helps."""

    title: str
    why: str
    commands: list[str]


class ReportDocument(TypedDict):
    """A report as JSON. `read_at`: time of the newest reading; `since`, `until`: of the windows that are drawn; all in
    ms since the epoch. `impossible_ages`: number of done messages that no percentile includes, because by their publish
    time they are older than their topic.
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
