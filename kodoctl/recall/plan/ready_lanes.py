# pure: every branch is tested
"""Ready lanes of a subscription as sources of a replay: its topics of the levels, and the lanes in which its messages
may be as well. Names that the file does not have raise UsageError.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kodoctl.errors import UsageError
from kodoctl.recall.plan.destinations import facts_of, family_of, found_subscription, target_of
from kodoctl.recall.plan.waiting_lanes import waiting_lanes
from kodoctl.topology import defaults
from kodoctl.topology.names import NamespaceName, State

if TYPE_CHECKING:
    from kodoctl.recall.plan.destinations import RecallSource
    from kodoctl.topology.loaded_topology import LoadedTopology


@dataclass(frozen=True, slots=True)
class ReadyLane:
    """A ready topic that the subscription reads. `lane`: such as `L1/ready`; `topic`: full name; `partitions`: number
    of its partitions in the file, 0 for a plain topic.
    """

    lane: str
    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """Facts about a subscription whose messages are replayed. `lanes`: its ready lanes, highest level first, also
    draining ones, but none of backup levels; `elsewhere`: its waiting lanes, which include the ready lanes of backup
    levels, and its dead letters, if it has any; `ordered`: its type is not `shared`, so it keeps an order.
    """

    name: str
    namespace: NamespaceName
    ground: str
    subscription: str
    fair_by: str | None
    ordered: bool
    lanes: tuple[ReadyLane, ...]
    elsewhere: tuple[RecallSource, ...]

    @property
    def named_in_full(self) -> str:
        """Name of the subscription in the workers' store, such as `kodo/trade/orders:billing`."""
        return f"{self.namespace}/{self.ground}:{self.subscription}"


def replay_source(topology: LoadedTopology, topic: str, subscription: str) -> ReplaySource:
    """Facts about a subscription, from the topology file. Raises UsageError for names that the file does not have."""
    ground, spec = found_subscription(topology, topic, subscription)
    facts = facts_of(topology, topic, subscription)
    levels = [level for level in defaults.read_levels(ground) if not level.is_backup]
    targets = [target_of(topology, topic, subscription, level, State.READY) for level in levels]
    return ReplaySource(
        name=facts["name"],
        namespace=NamespaceName(topology.spec.tenant, topology.spec.namespace),
        ground=topic,
        subscription=subscription,
        fair_by=facts["fair_by"],
        ordered=spec.type != "shared",
        lanes=tuple(ReadyLane(f"{one.level}/{State.READY}", one.topic, one.partitions) for one in targets),
        elsewhere=tuple(_elsewhere(topology, topic, subscription)),
    )


def _elsewhere(topology: LoadedTopology, topic: str, subscription: str) -> Iterator[RecallSource]:
    with suppress(UsageError):  # it has none
        yield from waiting_lanes(topology, topic, subscription)
    with suppress(UsageError):
        yield family_of(topology, topic, subscription)
