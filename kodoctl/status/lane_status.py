# pure: every branch is tested
"""Lane status of a topology, as values: kodoctl.status.status_reader reads them, kodoctl.status.status_text renders
them. Their fields are those of the JSON of `kodoctl status`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class LaneAverages:
    """Average rates of a lane in messages per second: the sum over partitions of the average of each since its oldest
    present consumer connected. `since`: the latest of these times, in ms since the epoch; `rate_in`: into the topic, an
    upper bound; `rate_acked`: acknowledged by the present consumers, a lower bound. None: unknown.
    """

    since: int
    rate_in: float | None
    rate_acked: float | None


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """Figures of one lane: one level and state of one subscription, summed over partitions.

    `ground`: local name of the ground topic; `level`: such as `L1`, "" for dead letters; `state`: `ready`, `retrying`,
    `pending`, `blocking` or `dead`; `topic`: local name; `there`: topic and subscription exist. `entries`: number of
    stored entries (batches) of the backlog, without those in which only marks of producers were found; `messages`:
    number of messages in them, None if they were not counted (only --exact counts them);
    `messages_at_least`: there may be more of them, because the broker stopped counting early; `messages_about`: an
    estimate of them by the average batch that the present consumers got, None if a partition with a backlog has no
    consumer that got one. `delayed`: number of messages that are not due yet; `unacknowledged`: number of messages that
    consumers have, below 0 if the broker miscounts, None where it does not count them. `oldest`: publish time of the
    oldest unacknowledged message in ms since the epoch, None if there is none or it is unknown.

    `rate_in`, `rate_out`, `rate_acked`: messages per second of the last minute, into the topic, to this subscription,
    and acknowledged by it, None where the broker does not count that; `steady`: False if a consumer has not been
    connected for all of that minute, so that the rates lack some of it; `before`: averages to compare with, None if a
    partition has no consumer or the broker does not return them. `delivered`: number of messages that the subscription
    got since the broker loaded the topic, None if it is unknown. `consumers`: the largest number on one partition;
    `blocked`: the largest number on one partition to which the broker sends nothing more, because they have too many
    unacknowledged messages. `partitions`: number of partitions that have the subscription, 1 for a plain topic. `idle`:
    number of consumers beyond that, if the broker gives each partition to one consumer (`one_each`), else 0. `alone`:
    one consumer reads all partitions, and others are refused. `slots`: number of handlers at once in one worker, None
    if that is adaptive. `steered`: property of the subscription with the live orders to its workers, None if there are
    no live orders.
    """

    ground: str
    subscription: str
    level: str
    state: str
    topic: str
    there: bool
    entries: int = 0
    messages: int | None = None
    messages_at_least: bool = False
    messages_about: int | None = None
    delayed: int = 0
    unacknowledged: int | None = 0
    rate_in: float = 0.0
    rate_out: float = 0.0
    rate_acked: float | None = 0.0
    steady: bool = True
    before: LaneAverages | None = None
    oldest: int | None = None
    delivered: int | None = None
    consumers: int = 0
    blocked: int = 0
    idle: int = 0
    partitions: int = 0
    one_each: bool = False
    alone: bool = False
    slots: int | None = None
    steered: str | None = None

    @property
    def reader(self) -> tuple[str, str]:
        """(ground topic, subscription), by which lanes are grouped."""
        return self.ground, self.subscription

    @property
    def is_read(self) -> bool:
        """True if workers read this lane; False for dead letters, which only people and recalls read."""
        return self.state != "dead"

    @property
    def is_backup(self) -> bool:
        """True for a lane of a backup level, whose topic holds messages of all subscriptions."""
        return self.level.startswith("B")

    @property
    def has_causes(self) -> bool:
        """True for a lane whose messages carry a reason why they are there: dead letters, lanes in which messages wait,
        and backup levels. False for the ready lanes of other levels.
        """
        return self.state != "ready" or self.is_backup

    @property
    def rate_handled(self) -> float:
        """Messages per second that workers handle: the rate of acknowledgements, or that of deliveries if the broker
        does not count acknowledgements.
        """
        return self.rate_out if self.rate_acked is None else self.rate_acked

    @property
    def waiting(self) -> int:
        """Number of messages of the backlog: the exact one if messages were counted, else the estimate, else the number
        of entries.
        """
        known = self.messages if self.messages is not None else self.messages_about
        return self.entries if known is None else known

    @property
    def due(self) -> int:
        """Number of messages of the backlog that workers could take now: `waiting` without the delayed ones; 0 if there
        are at least as many delayed messages as entries, because a delayed message is an entry of its own.
        """
        return max(0, self.waiting - self.delayed) if self.entries > self.delayed else 0


@dataclass(frozen=True, slots=True)
class OtherReaders:
    """Durable subscriptions on a topic family that no file declares, other than those of declared functions. `names`:
    sorted, each once; `entries`: sum of their backlogs in entries.
    """

    ground: str
    names: tuple[str, ...]
    entries: int


@dataclass(frozen=True, slots=True)
class Replication:
    """Replication of a topic family to another cluster. `entries`: number of entries that the cluster does not have
    yet; `connected`: replication runs for every partition.
    """

    ground: str
    cluster: str
    entries: int
    connected: bool


@dataclass(frozen=True)
class TopologyStatus:
    """Status of one topology: its lanes, undeclared subscriptions on its topics, and their replication."""

    name: str
    namespace: str
    lanes: tuple[LaneStatus, ...]
    others: tuple[OtherReaders, ...]
    replications: tuple[Replication, ...] = ()

    @property
    def missing(self) -> int:
        """Number of lanes whose topic or subscription does not exist."""
        return sum(not lane.there for lane in self.lanes)

    @cached_property
    def by_reader(self) -> dict[tuple[str, str], list[LaneStatus]]:
        """Lanes of each subscription, by (ground topic, subscription), in the order of `lanes`."""
        groups: dict[tuple[str, str], list[LaneStatus]] = {}
        for lane in self.lanes:
            groups.setdefault(lane.reader, []).append(lane)
        return groups

    def is_unread(self, lane: LaneStatus) -> bool:
        """True for a lane without consumers, while another lane of the same subscription, one that workers read, has
        some. False for dead letters, and for a lane that does not exist.
        """
        return lane.is_read and lane.there and not lane.consumers and lane.reader in self._alive

    @cached_property
    def _alive(self) -> frozenset[tuple[str, str]]:
        """Subscriptions with a consumer on a lane that workers read."""
        return frozenset(lane.reader for lane in self.lanes if lane.is_read and lane.consumers)


@dataclass(frozen=True, slots=True)
class UnreadTopic:
    """A topic whose lanes could not be read, and the reason. `ground`, `topic`: local names."""

    namespace: str
    ground: str
    topic: str
    reason: str


@dataclass(frozen=True, slots=True)
class StatusReading:
    """Status of one or more topologies. `at`: time when the reading ended, ms since the epoch; `unread`: topics that
    could not be read.
    """

    at: int
    topologies: tuple[TopologyStatus, ...]
    unread: tuple[UnreadTopic, ...] = ()
