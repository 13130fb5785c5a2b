"""What a node, the storage or the network of a cluster can do to its clients. Each fault ends with every node running."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from contextlib import suppress

from kodoctl.dev.cluster_nodes import NodeKind
from tests.chaos.campaign import ClusterCampaign, Fault
from tests.chaos.cluster import NAMESPACE
from tests.faults import trouble

Trouble = tuple[str, Fault, int]
"""Name, fault, and how often it breaks connections at most."""
_AWAY = 2  # a partition goes to another broker, and may go back
_ROLLING = 6  # a partition changes its broker twice for each broker at most


def nodes(rng: random.Random, *, long: bool) -> Iterator[Trouble]:
    """One of each kind; `long`: also those that last minutes."""
    for seconds in (0.0, 35.0):
        yield (
            f"kill -9 of a broker, started again after {seconds:.0f} s",
            _killed(rng, NodeKind.BROKER, seconds),
            _AWAY,
        )
    for seconds in (5.0, 40.0, *((90.0,) if long else ())):
        yield f"a broker paused for {seconds:.0f} s", _paused(rng, NodeKind.BROKER, seconds, 1), _AWAY
    yield "a broker stopped in order, and started", _stopped(rng), _AWAY
    yield "rolling restart of all brokers", _rolling, _ROLLING
    yield "kill -9 of a bookie, started again", _killed(rng, NodeKind.BOOKIE, 5.0), _AWAY
    yield "a bookie paused for 20 s", _paused(rng, NodeKind.BOOKIE, 20.0, 1), _AWAY
    yield "two bookies paused for 10 s: no write quorum", _paused(rng, NodeKind.BOOKIE, 10.0, 2), _AWAY
    if long:
        yield "two bookies paused for 2 minutes: no write quorum", _paused(rng, NodeKind.BOOKIE, 120.0, 2), _AWAY
        yield "a bookie dead for 10 minutes: no new ledger", _killed(rng, NodeKind.BOOKIE, 600.0), _AWAY
    yield "ZooKeeper paused for 8 s", _paused(rng, NodeKind.ZOOKEEPER, 8.0, 1), _AWAY
    yield "18 unloads in 20 s", _unloads(rng, 18, 20.0), 18
    yield "4 splits in 10 s", _splits(rng, 4, 10.0), 4


def workers() -> Iterator[Trouble]:
    """Deaths, orderly ends and a third worker that joins."""
    yield "kill -9 of a consumer, at any moment", ClusterCampaign.kill, 1
    yield "SIGTERM of a consumer", ClusterCampaign.drain, 0
    yield "a third consumer joins for 10 s", lambda campaign: campaign.join(10.0), 0


def wires(seconds: float) -> Iterator[Trouble]:
    """Every way in which the network before all brokers can be bad."""
    for name, fault, _ in trouble.wires(seconds):
        yield f"network: {name}", fault, _AWAY


def disk(seconds: float) -> Iterator[Trouble]:
    """No byte is free where one bookie stores."""

    def fault(campaign: ClusterCampaign) -> None:
        ballast = campaign.cluster.fill_disk()
        time.sleep(seconds)
        ballast.unlink()

    yield f"the disk of a bookie is full for {seconds:.0f} s", fault, _AWAY


def _killed(rng: random.Random, kind: NodeKind, seconds: float) -> Fault:
    def fault(campaign: ClusterCampaign) -> None:
        campaign.cluster.kill(rng.choice(campaign.cluster.names(kind)))
        time.sleep(seconds)

    return fault


def _paused(rng: random.Random, kind: NodeKind, seconds: float, count: int) -> Fault:
    def fault(campaign: ClusterCampaign) -> None:
        chosen = rng.sample(campaign.cluster.names(kind), count)
        for name in chosen:
            campaign.cluster.pause(name)
        time.sleep(seconds)
        for name in chosen:
            campaign.cluster.resume(name)

    return fault


def _stopped(rng: random.Random) -> Fault:
    def fault(campaign: ClusterCampaign) -> None:
        campaign.cluster.stop(rng.choice(campaign.cluster.names(NodeKind.BROKER)))

    return fault


def _rolling(campaign: ClusterCampaign) -> None:
    for name in campaign.cluster.names(NodeKind.BROKER):
        campaign.cluster.stop(name)
        campaign.cluster.heal()


def _unloads(rng: random.Random, count: int, seconds: float) -> Fault:
    def fault(campaign: ClusterCampaign) -> None:
        for _ in range(count):
            if bundles := _bundles(campaign):
                with suppress(AssertionError):
                    campaign.cluster.broker.admin("PUT", f"namespaces/{NAMESPACE}/{rng.choice(bundles)}/unload")
            time.sleep(seconds / count)

    return fault


def _splits(rng: random.Random, count: int, seconds: float) -> Fault:
    def fault(campaign: ClusterCampaign) -> None:
        for _ in range(count):
            bundles = _bundles(campaign)
            if 0 < len(bundles) < 64:
                with suppress(AssertionError):
                    campaign.cluster.broker.admin(
                        "PUT", f"namespaces/{NAMESPACE}/{rng.choice(bundles)}/split", unload="true"
                    )
            time.sleep(seconds / count)

    return fault


def _bundles(campaign: ClusterCampaign) -> list[str]:
    answer = campaign.cluster.broker.admin("GET", f"namespaces/{NAMESPACE}/bundles")
    if not answer.ok:
        return []
    edges = answer.json()["boundaries"]
    return [f"{low}_{high}" for low, high in itertools.pairwise(edges)]
