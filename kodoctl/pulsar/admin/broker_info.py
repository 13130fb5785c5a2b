"""Broker information: cluster name, version, defaults, unsupported features."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.admin.admin import Admin, Reply, must
from kodoctl.topology.model.policies import (
    BacklogQuota,
    DelayedDelivery,
    InactiveTopic,
    Persistence,
    Policies,
    Retention,
)
from kodoctl.topology.units import UNLIMITED, Duration, Size


@dataclass(frozen=True, slots=True)
class Server:
    """Facts about a broker and its cluster.

    Args:
        cluster: name of the local cluster.
        version: such as (4, 2, 4); () if unknown.
        defaults: policies of the broker's configuration; empty if the role may not read it (only super-users may).
        unsupported: names of policies that the version lacks; empty if it is unknown.
        delays: delayed delivery by the broker's configuration; None if the role may not read it.
        clusters: names of all clusters that the broker knows.
        failover_delay: ms from the choice of a new active consumer to its first message; None if the role may not
            read the configuration.
        bundles: number of bundles of a namespace that is created without one; None if the role may not read it.
    """

    cluster: str
    version: tuple[int, ...]
    defaults: Policies
    unsupported: frozenset[str] = frozenset()
    delays: DelayedDelivery | None = None
    clusters: frozenset[str] = frozenset()
    failover_delay: int | None = None
    bundles: int | None = None


def read_server(admin: Admin) -> Server:
    """Reads facts about the broker and its cluster by three requests. A role that may not read the configuration or the
    version gets no error: those facts are empty or None, as they are if a proxy does not pass the request on (404).
    Raises ClusterError, also (K517) if the role cannot learn which of several clusters is the local one.
    """
    clusters = must(admin.call("GET", "clusters"), "reading the cluster's name")
    if not isinstance(clusters, list) or not clusters:
        raise ClusterError(
            error("K523", "this is not Pulsar's admin API", "it answers, but does not know its clusters")
        )
    runtime = admin.call("GET", "brokers/configuration/runtime")
    answer = _content_if_allowed(runtime, "reading the broker's configuration")
    configuration = answer if isinstance(answer, dict) else {}
    version = read_version(admin)
    return Server(
        _local_cluster(clusters, configuration),
        version,
        _defaults(configuration),
        _unsupported_policies(version),
        _delays(configuration) if configuration else None,
        frozenset(map(str, clusters)),
        int(configuration.get("activeConsumerFailoverDelayTimeMillis", 1_000)) if configuration else None,
        int(configuration.get("defaultNumberOfNamespaceBundles", 4)) if configuration else None,
    )


def read_bookies(admin: Admin) -> int | None:
    """Number of bookies that the cluster knows, also those that do not run now; None if the role is no super-user and
    may not read it, the path does not exist, or the answer has another form. Raises ClusterError.
    """
    answer = _content_if_allowed(admin.call("GET", "bookies/all"), "counting bookies")
    found = answer.get("bookies") if isinstance(answer, dict) else None
    return len(found) if isinstance(found, list) else None


def _content_if_allowed(reply: Reply, doing: str) -> Any:
    """Returns the data of a reply; None for a refusal (401, 403, 404), because brokers answer some roles only and a
    proxy may not pass the request on. Raises AdminError if the broker is busy or has ended: the data are then unknown,
    not empty.
    """
    return None if reply.forbidden or reply.status == 404 else must(reply, doing)


def read_version(admin: Admin) -> tuple[int, ...]:
    """Reads the broker's version: (4, 2, 4) for `4.2.4`, (4, 2, 0) for `4.2`; text after the numbers is ignored. () if
    this role may not know it, the path does not exist, or it has another form. Raises ClusterError.
    """
    answer = _content_if_allowed(admin.call("GET", "brokers/version"), "reading the broker's version")
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", str(answer or ""))
    return tuple(int(part) for part in match.groups(default="0")) if match else ()


def _local_cluster(clusters: list[str], configuration: dict[str, Any]) -> str:
    named = configuration.get("clusterName")
    if named:
        return str(named)
    local = [cluster for cluster in clusters if cluster != "global"]
    if len(local) == 1:
        return local[0]
    detail = (
        f"this broker knows {', '.join(local)} and only a super-user may ask which one it is: plan with such a role"
    )
    raise ClusterError(error("K517", "cannot tell the local cluster", detail))


def _unsupported_policies(version: tuple[int, ...]) -> frozenset[str]:
    """Names of policies that this version lacks; none if the version is unknown. 4.0.7 answers 404 for a topic's
    subscription expiration, 4.2.4 accepts it (docs/explanation/pulsar.md#versions).
    """
    return frozenset({"subscription_expiry"}) if version and version < (4, 2) else frozenset()


def _delays(configuration: dict[str, Any]) -> DelayedDelivery:
    on = str(configuration.get("delayedDeliveryEnabled", "true")).lower() == "true"
    return DelayedDelivery(on, int(configuration.get("delayedDeliveryMaxDelayInMillis") or 0))


def _defaults(configuration: dict[str, Any]) -> Policies:
    """Policies of topics for which neither topic nor namespace sets any; empty if the configuration is unknown."""
    if not configuration:
        return {}

    def number(key: str, fallback: int) -> int:
        return int(float(configuration.get(key, fallback)))

    minutes, size = number("defaultRetentionTimeInMinutes", 0), number("defaultRetentionSizeInMB", 0)
    ttl, expiry = number("ttlDurationDefaultInSeconds", 0), number("subscriptionExpirationTimeMinutes", 0)
    quota = number("backlogQuotaDefaultLimitBytes", -1)
    deletes = str(configuration.get("brokerDeleteInactiveTopicsEnabled", "true")).lower() == "true"
    mode = str(configuration.get("brokerDeleteInactiveTopicsMode", ""))
    idle = number("brokerDeleteInactiveTopicsFrequencySeconds", 60)
    return {
        "retention": Retention(
            time=UNLIMITED if minutes < 0 else Duration(minutes * 60_000),
            size=UNLIMITED if size < 0 else Size(size << 20),
        ),
        "ttl": Duration(ttl * 1000) if ttl > 0 else UNLIMITED,
        "subscription_expiry": Duration(expiry * 60_000) if expiry > 0 else UNLIMITED,
        "backlog_quota": BacklogQuota(size=Size(quota) if quota > 0 else UNLIMITED, time=UNLIMITED),
        "inactive_topic": InactiveTopic(
            delete="caught_up" if "caught_up" in mode else "no_subscriptions", after=Duration(idle * 1000)
        )
        if deletes
        else InactiveTopic(delete="never"),
        "persistence": Persistence(
            ensemble=number("managedLedgerDefaultEnsembleSize", 2),
            write_quorum=number("managedLedgerDefaultWriteQuorum", 2),
            ack_quorum=number("managedLedgerDefaultAckQuorum", 2),
        ),
        "auto_topic_creation": str(configuration.get("allowAutoTopicCreation", "true")).lower() == "true",
        "schema_validation": str(configuration.get("isSchemaValidationEnforced", "false")).lower() == "true",
    }
