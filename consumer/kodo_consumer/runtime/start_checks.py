"""Start checks: whether the topics and subscriptions of a worker exist in the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Diagnostic, error

if TYPE_CHECKING:
    from kodo_consumer.core.values.broker import Cluster
    from kodo_consumer.core.values.policy import Policy

_CREATES_IT: Final = ": `kodoctl apply FILE` creates it"


def missing_resources(policy: Policy, cluster: Cluster) -> list[Diagnostic]:
    """Findings about topics and subscriptions that do not exist in the cluster, at most one for each topic: topics of
    all lanes of the subscription, also those that other workers read, and the subscription on each; and topics that the
    worker writes to, of which only the existence is checked. Raises ClusterError if the cluster cannot be read.

    A missing subscription would otherwise show as a time-out of half a minute, or be created at the wrong place.
    """
    found: list[Diagnostic] = []
    read = {lane.topic for lane in policy.every_lane}  # also of other workers: a move there would keep no message
    for topic in dict.fromkeys([*(lane.topic for lane in policy.every_lane), *policy.written_topics]):
        if cluster.partitions(topic) is None:
            found.append(error("K710", "topic not found", f"{topic}{_CREATES_IT}"))
            continue
        if topic in read and policy.subscription not in cluster.subscriptions(topic):
            detail = f"{policy.subscription} on {topic}{_CREATES_IT}"
            found.append(error("K711", "subscription not found", detail))
    return found


def fold_findings(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The findings, each once. Those of all calls of `missing_resources` become one finding for all missing topics and
    one for all missing subscriptions, ahead of the others, because one missing `kodoctl apply` causes all of them.
    """
    names: dict[tuple[str, str], list[str]] = {}
    others: list[Diagnostic] = []
    for one in dict.fromkeys(findings):
        if one.detail.endswith(_CREATES_IT):
            names.setdefault((one.code, one.summary), []).append(one.detail.removesuffix(_CREATES_IT))
        else:
            others.append(one)
    return [*(error(*kind, _missing(missing)) for kind, missing in names.items()), *others]


def _missing(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{names[0]}{_CREATES_IT}"
    return "\n".join([*names, f"{len(names)} are missing: `kodoctl apply FILE` creates them"])
