"""The JSON of `kodoctl status`: levels and states of topologies and their waiting messages. Fields as in
`kodoctl.status.lane_status`.
"""

from __future__ import annotations

from typing import TypedDict


class LaneRow(TypedDict):
    """A level and state of a subscription. `level`: empty for dead letters; `messages`: null unless they were counted;
    `unread`: no live worker reads it, and those that live read other lanes.
    """

    ground: str
    subscription: str
    level: str
    state: str
    topic: str
    there: bool
    entries: int
    messages: int | None
    delayed: int
    unacknowledged: int
    rate_in: float
    rate_out: float
    oldest: int | None
    consumers: int
    blocked: int
    steered: str | None
    unread: bool


class OtherReadersRow(TypedDict):
    """Subscriptions that no file declares."""

    ground: str
    names: list[str]
    entries: int


class ReplicationRow(TypedDict):
    """Replication lag of another cluster, in entries."""

    ground: str
    cluster: str
    entries: int
    connected: bool


class TopologyRow(TypedDict):
    """A topology. `missing`: how many lanes lack their topic or subscription."""

    name: str
    namespace: str
    lanes: list[LaneRow]
    others: list[OtherReadersRow]
    replications: list[ReplicationRow]
    missing: int


class StatusDocument(TypedDict):
    """Status of topologies at `now`."""

    format_version: int
    now: int
    topologies: list[TopologyRow]
