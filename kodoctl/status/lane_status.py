# pure: every branch is tested
"""Lane status of a topology, as values: kodoctl.status.status_reader reads them, kodoctl.status.status_text renders
them. Their fields are those of the JSON of `kodoctl status`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """One (level, state) of one subscription. `there`: topic and subscription exist. `entries` counts batches,
    `messages` (None without --exact) the messages in them; `delayed` and `unacknowledged` count messages; `oldest` is
    the publish time of the oldest unacknowledged message, in ms since the epoch; rates are messages per second.
    `blocked`: number of consumers to which the broker sends nothing because too much is unacknowledged. `steered`: the
    live orders to its workers, as the subscription's property has them.
    """

    ground: str
    subscription: str
    level: str
    state: str
    topic: str
    there: bool
    entries: int = 0
    messages: int | None = None
    delayed: int = 0
    unacknowledged: int = 0
    rate_in: float = 0.0
    rate_out: float = 0.0
    oldest: int | None = None
    consumers: int = 0
    blocked: int = 0
    steered: str | None = None

    @property
    def reader(self) -> tuple[str, str]:
        """Ground topic and subscription."""
        return self.ground, self.subscription

    @property
    def is_read(self) -> bool:
        """True if workers read such a lane; only people and recalls read dead letters."""
        return self.state != "dead"


@dataclass(frozen=True, slots=True)
class OtherReaders:
    """Subscriptions on a family's topics that no file declares, with the sum of their backlogs in entries."""

    ground: str
    names: tuple[str, ...]
    entries: int


@dataclass(frozen=True, slots=True)
class Replication:
    """Replication lag of another cluster in the topics of a family: entries that it does not have yet. `connected`:
    replication of every partition runs.
    """

    ground: str
    cluster: str
    entries: int
    connected: bool


@dataclass(frozen=True, slots=True)
class TopologyStatus:
    """All lanes of one topology, other subscriptions on its topics, and their replication."""

    name: str
    namespace: str
    lanes: tuple[LaneStatus, ...]
    others: tuple[OtherReaders, ...]
    replications: tuple[Replication, ...] = ()

    @property
    def missing(self) -> int:
        """Number of lanes without their topic or subscription."""
        return sum(not lane.there for lane in self.lanes)

    def is_unread(self, lane: LaneStatus) -> bool:
        """True for a lane without consumers, while other lanes of the same subscription have some."""
        alive = any(other.consumers for other in self.lanes if other.is_read and other.reader == lane.reader)
        return lane.is_read and lane.there and not lane.consumers and alive


@dataclass(frozen=True, slots=True)
class UnreadTopic:
    """A topic whose lanes could not be read, and the reason."""

    namespace: str
    ground: str
    topic: str
    reason: str


@dataclass(frozen=True, slots=True)
class StatusReading:
    """Lanes of topologies at the time `at` (ms since the epoch), and the topics that could not be read."""

    at: int
    topologies: tuple[TopologyStatus, ...]
    unread: tuple[UnreadTopic, ...] = ()
