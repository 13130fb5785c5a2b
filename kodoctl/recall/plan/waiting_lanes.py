"""Waiting lanes of a topology: topics of RETRYING, PENDING and BLOCKING, and ready topics of backup levels, as sources
of messages that a plan releases, moves or discards. Names that the file does not have raise UsageError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from kodoctl.errors import UsageError, error
from kodoctl.recall.plan.destinations import RecallSource, TargetPartition, facts_of, found_subscription, target_of
from kodoctl.recall.plan.recall_plan import WAITING
from kodoctl.topology import defaults
from kodoctl.topology.names import Level, State

if TYPE_CHECKING:
    from collections.abc import Collection

    from kodoctl.topology.loaded_topology import LoadedTopology


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingLane(RecallSource):
    """One lane of a subscription in which messages wait, draining or not. `source_topic` is the topic of the lane, and
    `holder` the subscription itself. `lane`: such as `L1/retrying`; `writable`: every lane of the subscription that
    accepts messages, by name; `target`: the lane to send to, None: not chosen yet.
    """

    kind = WAITING
    writable: Mapping[str, TargetPartition]
    target: TargetPartition | None = None

    @property
    def target_name(self) -> str | None:
        """Name of the other lane to which all messages are moved, such as `L2/retrying`; None: they stay in their own
        lane, or no lane was chosen yet.
        """
        return next((name for name, one in self.writable.items() if one == self.target and name != self.lane), None)

    @property
    def targets(self) -> tuple[TargetPartition, ...]:
        """Lanes to which messages may be sent: every lane of the subscription that accepts messages, its ready lanes
        too. `with_target` refuses some of them.
        """
        return tuple(self.writable.values())

    def lane_of(self, died_in: str | None, to: Level | None) -> TargetPartition | None:  # noqa: ARG002
        """Lane to which a message is sent: the one that was chosen for all of them, whatever the arguments are; None if
        no lane is chosen yet.
        """
        return self.target


def waiting_lanes(
    topology: LoadedTopology,
    topic: str | None = None,
    subscription: str | None = None,
    names: Collection[str] = (),
) -> list[WaitingLane]:
    """Lanes of the file in which messages wait: those of the waiting states, draining ones too, and the ready lanes of
    backup levels. All of them in the order of the file, for each subscription by level, the highest first; or those of
    the given ground topic (`topic`), subscription and `names`, such as `L1/retrying`. None and () restrict nothing.
    Raises UsageError for a name that the file does not have, and if no lane is left.
    """
    if topic is not None and subscription is not None:
        found_subscription(topology, topic, subscription)
    grounds = topology.spec.topics
    if topic is not None and topic not in grounds:
        raise UsageError(
            error("K022", "unknown topic", f"{topology.source.name} has {', '.join(grounds)}, not {topic!r}")
        )
    found = [
        lane
        for ground, spec in grounds.items()
        for name in spec.subscriptions
        if topic in (None, ground) and subscription in (None, name)
        for lane in _lanes(topology, ground, name)
    ]
    there = list(dict.fromkeys(lane.lane for lane in found))
    if unknown := [name for name in names if name not in there]:
        detail = f"no messages wait in {', '.join(unknown)}; lanes are {', '.join(there) or 'none'}"
        raise UsageError(error("K581", "unknown waiting lane", detail))
    if not found:
        detail = f"{topology.source.name}: no subscription {subscription or ''} has a waiting state or a backup level"
        raise UsageError(error("K581", "unknown waiting lane", detail.replace("  ", " ")))
    return [lane for lane in found if not names or lane.lane in names]


def with_target(lane: WaitingLane, to: str | None) -> WaitingLane:
    """Returns the lane with its target: the lane `to`, such as `L2/retrying` (`L2` alone: the ready topic of that
    level); None: the lane itself. Raises UsageError if messages cannot be sent there: the target accepts none, it is a
    ready topic that checks Avro schemas, or `lane` keeps the order of keys and the target is no ready topic. Also
    raises UsageError if `to` is the lane itself.
    """
    name = lane.lane if to is None else to if "/" in to else f"{to}/{State.READY}"
    target = lane.writable.get(name)
    if target is None:
        what = (
            f"{lane.lane} is on its way out and takes no messages; move them"
            if to is None
            else f"no lane {name} that takes messages"
        )
        raise UsageError(error("K555", "nowhere to send to", f"{what}: --to {', '.join(lane.writable) or 'none'}"))
    if to is not None and name == lane.lane:
        raise UsageError(
            error("K555", "nowhere to send to", f"--to {to}: they wait there; leave out --to to release them")
        )
    if lane.ordered and not target.ready:
        detail = f"{lane.lane} of {lane.ground} / {lane.subscription} keeps the order of its keys, and {name} does not: move whole keys to the ready topic of a level, such as --to {next(iter(lane.writable), Level.L1).partition('/')[0]}"
        raise UsageError(error("K555", "nowhere to send to", detail))
    if target.ready and lane.payload_type == "avro":
        detail = f"the ready topics of {lane.ground} check Avro schemas: release, or move to another waiting lane"
        raise UsageError(error("K555", "nowhere to send to", detail))
    return replace(lane, target=target)


def _lanes(topology: LoadedTopology, topic: str, subscription: str) -> Iterator[WaitingLane]:
    ground, spec = found_subscription(topology, topic, subscription)
    target = partial(target_of, topology, topic, subscription)
    takes = [state for state in defaults.read_states(spec) if state in spec.states and state not in spec.draining]
    writable = {
        f"{level}/{state}": target(level, state)
        for level in defaults.active_levels(ground)
        for state in (State.READY, *(takes if not level.is_backup else ()))
    }
    facts = facts_of(topology, topic, subscription)
    for level in defaults.read_levels(ground):
        for state in (State.READY,) if level.is_backup else defaults.read_states(spec):
            own = target(level, state)
            yield WaitingLane(
                source_topic=own.topic,
                source_partitions=own.partitions,
                holder=subscription,
                lane=f"{level}/{state}",
                ordered=state is State.READY and spec.type != "shared",
                writable=writable,
                **facts,
            )
