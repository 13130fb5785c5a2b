"""Limits of the broker that bound the settings of the file: the longest delay of a message, and the largest message.

The broker disconnects a client that exceeds a limit, and the client tries again, for ever. So a worker reads the limits
in force before it sends. No I/O but the requests to the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

from kodo_consumer.core.values.delay_schedule import JITTER, MAX_MEMORY_WAIT
from kodo_consumer.core.values.envelope import State
from kodoctl.errors import Diagnostic, warning
from kodoctl.topology.units import Duration

if TYPE_CHECKING:
    from kodo_consumer.core.values.broker import Cluster
    from kodo_consumer.core.values.policy import Policy
    from kodoctl.topology.model.policies import DelayedDelivery

T = TypeVar("T")
_REFUSED: Final = 2  # topics without an answer after which no more are asked about


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """Limits of the broker. `delays`: delayed delivery by topic where messages wait; `largest`: bytes of a message, by
    topic with a limit of its own. Other topics are missing, and topics whose limits were not read, see
    `readable`.
    """

    delays: Mapping[str, DelayedDelivery] = field(default_factory=dict)
    largest: Mapping[str, int] = field(default_factory=dict)  # bytes; only of topics with a limit of their own


def read_broker_limits(policy: Policy, cluster: Cluster) -> BrokerLimits:
    """Requests the limits in force for the topics that a worker writes to: of message size for all of them, of delays
    only where messages wait, as `readable` does. Raises ClusterError when no broker answers.
    """
    delays = dict(readable(_waiting(policy), cluster.delays))
    largest = {topic: size for topic, size in readable(policy.written_topics, cluster.largest) if size}
    return BrokerLimits(delays, largest)


def readable(topics: Iterable[str], read: Callable[[str], T | None]) -> Iterator[tuple[str, T]]:
    """Yields (topic, limit) of the topics whose limit `read` returns, up to the second one for which it returns None:
    because this role may not read it, there is no such topic, or its broker fails. A failing broker hides so the limits
    of its own topics only, and a role without the right sends two requests and not one for each topic.
    """
    refused = 0
    for topic in topics:
        if (found := read(topic)) is not None:
            yield topic, found
            continue
        refused += 1
        if refused == _REFUSED:
            return


def clamp_policy(policy: Policy, allowed: BrokerLimits) -> Policy:
    """Policy whose `horizon`, to which longer waits are cut, and whose message sizes do not exceed the limits in
    `allowed`.
    """
    horizon = min([policy.horizon, *(_horizon(one.longest) for one in allowed.delays.values() if one.longest)])
    return replace(policy, horizon=horizon, largest={**policy.largest, **_smaller(policy, allowed)})


def limit_findings(policy: Policy, allowed: BrokerLimits) -> list[Diagnostic]:
    """Warnings about declared settings that the broker does not allow, and about its limits of message size that the
    file does not have, one for all topics with the same problem.
    """
    found = [(finding, topic) for topic, delays in allowed.delays.items() for finding in _delays(policy, delays)]
    for topic, size in _smaller(policy, allowed).items():
        detail = (
            f"messages of more than {size} bytes are not sent there as they are: they go compressed, and one that is still"
            " larger then dies as too big. The file does not have the limit: write `max_message_size`, or remove it from"
            " the topic"
        )
        found.append((warning("K728", "message size limit that is not the file's", detail), topic))
    return summarize_topics(found)


def summarize_topics(findings: Iterable[tuple[Diagnostic, str]]) -> list[Diagnostic]:
    """Merges equal findings about several topics into one, whose detail names the first and how many more there are."""
    topics: dict[Diagnostic, list[str]] = {}
    for finding, topic in findings:
        topics.setdefault(finding, []).append(topic)
    return [
        replace(finding, detail=f"{first}{f' and {len(more)} more' if more else ''}: {finding.detail}")
        for finding, (first, *more) in topics.items()
    ]


def _waiting(policy: Policy) -> list[str]:
    """Topics whose messages the broker is to keep until they are due."""
    backups = max(policy.waits[None].delays) > MAX_MEMORY_WAIT
    return [
        target.topic
        for target in policy.targets.values()
        if target.state is not State.READY or (target.level.is_backup and backups)
    ]


def _horizon(longest: int) -> int:
    """The longest wait (ms) whose jitter is allowed too; short waits have none."""
    return max(longest - JITTER, min(longest, MAX_MEMORY_WAIT))


def _delays(policy: Policy, delays: DelayedDelivery) -> Iterator[Diagnostic]:
    if not delays.on:
        detail = (
            "what waits there is delivered at once, and holds up its lane until it is due: turn `delayedDelivery` on"
        )
        yield warning("K727", "delayed delivery is off", detail)
    elif delays.longest and _horizon(delays.longest) < policy.horizon:
        detail = (
            f"the broker keeps messages {Duration(delays.longest)} at most, the file's waits need"
            f" {Duration(policy.horizon + JITTER)}: longer ones are cut to {Duration(_horizon(delays.longest))};"
            " raise `maxDeliveryDelayInMillis`, or shorten the waits"
        )
        yield warning("K726", "waits beyond the broker's maximum", detail)


def _smaller(policy: Policy, allowed: BrokerLimits) -> dict[str, int]:
    """Limits on the size of messages that the file does not declare, or not as small."""
    return {topic: size for topic, size in allowed.largest.items() if size < policy.largest.get(topic, size + 1)}
