"""Broker window: the part of the look-ahead budget that the limits on unacknowledged messages leave.

Beyond these limits the broker sends nothing, and messages, which are served fairly only within the look-ahead, are
served in the order of their arrival. No I/O but the requests to the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.upkeep.broker_limits import readable, summarize_topics
from kodo_consumer.core.values.broker import MOST_CONSUMERS, Cluster, LaneRequest, UnackedLimits
from kodo_consumer.core.values.envelope import State
from kodoctl.errors import Diagnostic, warning

if TYPE_CHECKING:
    from kodo_consumer.core.values.policy import Lane, Policy

UNLIMITED: Final = 1 << 31  # of a consumer, where the broker has no limit


def lane_request(policy: Policy, lane: Lane, consumer_name: str, limit: int) -> LaneRequest:
    """Request to read a lane. `limit`: unacknowledged messages that the broker allows one of its consumers; 0: unknown."""
    return LaneRequest(
        topic=lane.topic,
        subscription=policy.subscription,
        type=policy.subscription_type if lane.state is State.READY else "shared",
        consumer_name=consumer_name,
        queue=policy.queue,
        batch=policy.batch,
        batch_bytes=policy.batch_bytes,
        schemas=lane.level.value if policy.payload_type == "avro" else "",
        max_unacked=policy.lane_most,
        limit=limit,
        shares=lane.is_waiting,
        records=policy.audit is not None and policy.audit.wait,
    )


def unacked_limits(policy: Policy, cluster: Cluster) -> dict[int, UnackedLimits]:
    """Requests the limits on unacknowledged messages, by lane index, as `readable` does. Lanes that one reader gets in
    order are missing, because the broker sets no limit there. Raises ClusterError.
    """
    shared = policy.subscription_type in ("shared", "key_shared")
    lanes = {lane.topic: lane.index for lane in policy.lanes if shared or lane.state is not State.READY}
    return {lanes[topic]: limits for topic, limits in readable(lanes, cluster.unacked_limits)}


def lookahead_findings(policy: Policy, limits: Mapping[int, UnackedLimits]) -> list[Diagnostic]:
    """Warnings about a look-ahead that the limits (by lane index) forbid, one for all lanes with the same problem."""
    return summarize_topics(
        (warning("K719", "look-ahead beyond the broker's limits", problem), policy.lanes[index].topic)
        for index, limit in limits.items()
        for problem in _problems(policy, policy.lanes[index], limit)
    )


def _problems(policy: Policy, lane: Lane, limits: UnackedLimits) -> Iterator[str]:
    wanted = policy.lookahead_messages
    consumers = 1 if lane.state is State.READY and policy.subscription_type == "key_shared" else MOST_CONSUMERS
    if limits.consumer and limits.consumer * consumers < policy.lane_most:
        most = f"{limits.consumer} unacknowledged messages" + (
            f" by each of {consumers} consumers" if consumers > 1 else ""
        )
        yield (
            f"the broker sends a worker no more than {most}, the look-ahead is {wanted}:"
            f" write `policies: {{max_unacked_per_consumer: {max(wanted, 50_000)}}}`, or a smaller `lookahead`"
        )
    # Once beyond it the broker sends nothing until half is acknowledged.
    together = 2 * wanted * policy.expected_workers
    if limits.subscription and limits.subscription <= policy.lane_most * policy.expected_workers:
        workers = f"{policy.expected_workers} worker{'s' if policy.expected_workers > 1 else ''} together"
        yield (
            f"the broker sends {workers} no more than {limits.subscription} unacknowledged messages, the look-ahead is {wanted}"
            f" each: write `policies: {{max_unacked_per_subscription: {max(together, 200_000)}}}`, or a smaller `lookahead`"
        )
