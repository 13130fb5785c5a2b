"""Objects and settings of a namespace that a topology file cannot declare. An import lists them and changes none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kodoctl.pulsar.admin.admin import Admin, must, partition_path, topic_path
from kodoctl.pulsar.admin.topic_stats import COMPACTION, TopicReading
from kodoctl.pulsar.inventory.policy_requests import NAMESPACE_CODECS, read_namespace_policies
from kodoctl.text.escaping import one_line
from kodoctl.topology.model.policies import Foreign
from kodoctl.topology.names import NamespaceName, TopicName, partition_numbers, whole_topic

if TYPE_CHECKING:
    from kodoctl.pulsar.admin.broker_info import Server

_DECLARABLE: Final = frozenset(codec.key for codec in NAMESPACE_CODECS)
_NO_POLICIES: Final = frozenset({
    "auth_policies", "bundles", "deleted", "migrated", "properties",
    "clusterDispatchRate",  # a copy of `topicDispatchRate`, for old versions
})  # fmt: skip
_UNSET: Final[Mapping[str, Any]] = {
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
}
"""Values of members that every namespace's dump has where nobody set them, as Pulsar 4.2.4 and 4.0.7 answer."""
_SHOWN: Final = 160  # characters of a value
_SHADOW_SOURCE: Final = "PULSAR.SHADOW_SOURCE"  # property of a shadow topic: name of the topic whose ledgers it reads


def read_undeclarable(admin: Admin, namespace: NamespaceName, dump: dict[str, Any], server: Server) -> dict[str, str]:
    """Returns the settings of a namespace that an import cannot declare, and its non-persistent topics with the grants
    on them, as printed name -> reason. `dump`: the broker's JSON of the namespace; of its rates, those of the cluster
    of `server` are taken. Sends two requests. Raises ClusterError.
    """
    found = {f"namespace.{namespace} {name}": reason for name, reason in undeclarable_settings(dump, server.cluster)}
    number = (dump.get("bundles") or {}).get("numBundles")
    if number is not None and number != server.bundles:
        found[f"namespace.{namespace} bundles"] = (
            f"{number}: brokers split them, and no apply changes the number; for a namespace that an apply is to"
            f" create, write `bundles: {number}` in `namespace_policies`"
        )
    for topic, roles in (dump.get("auth_policies", {}).get("destination_auth") or {}).items():
        if topic.startswith("non-persistent://"):
            found |= dict.fromkeys((f"grant.{topic}/{role}" for role in roles), "its topic is left out")
    doing = f"listing non-persistent topics of {namespace}"
    for path in ("non-persistent/{}", "non-persistent/{}/partitioned"):
        for name in must(admin.call("GET", path.format(namespace)), doing) or ():
            found[f"topic.{whole_topic(name)}"] = "a non-persistent topic; the format knows persistent ones"
    return found


def plain_subscriptions(admin: Admin, topic: TopicName) -> dict[str, str]:
    """Returns the subscriptions of a topic without partitions, which an import leaves out, as printed name -> reason;
    {} if there is no such topic. If the broker refuses to list them, one entry says so. Raises ClusterError if no
    broker answers.
    """
    reply = admin.call("GET", f"{topic_path(topic)}/subscriptions", patient=False)
    if reply.missing:
        return {}
    if not reply.ok:
        return {f"subscription.{topic}/…": f"the subscriptions of this topic cannot be read: {reply}"}
    names = (name for name in reply.data if name != COMPACTION)
    return {f"subscription.{topic}/{name}": "its topic is left out" for name in names}


def termination(admin: Admin, topic: TopicName, partitions: int) -> dict[str, str]:
    """Returns one entry, printed name -> reason, for a topic that was terminated, or of which some partitions were; {}
    for any other topic, and if the broker does not say it. `partitions`: number of partitions, 0: a plain topic. Sends
    one request for each partition. Raises ClusterError if no broker answers.
    """
    ended = terminated_partitions(admin, topic, partitions)
    if not ended:
        return {}
    some = "" if len(ended) == max(partitions, 1) else f" (partition {', '.join(map(str, ended))})"
    return {f"topic.{topic} terminated{some}": "it takes no more messages; the format has no such state"}


def topic_states(topic: TopicReading) -> Iterator[tuple[str, str]]:
    """Yields (printed name, reason) for the settings of a topic and its subscriptions that are no policies: properties,
    the source of a shadow topic, and replicated positions of subscriptions.
    """
    properties = dict(topic.properties)
    if source := properties.pop(_SHADOW_SOURCE, None):
        reason = f"its messages are those of {one_line(source, _SHOWN)}; the format has no such kind of topic"
        yield f"topic.{topic.name} as a shadow topic", reason
    if properties:
        yield f"topic.{topic.name} properties", beyond_format(properties)
    for subscription in topic.subscriptions:
        printed = f"subscription.{topic.name}/{subscription.name}"
        if subscription.properties:
            yield f"{printed} properties", beyond_format(dict(subscription.properties))
        if subscription.is_replicated:
            yield f"{printed} replicated", "its position is replicated to other clusters; the format has no such state"


def terminated_partitions(admin: Admin, topic: TopicName, partitions: int) -> list[int]:
    """Returns the numbers of the partitions that were terminated. `partitions`: number of partitions of the topic; 0: a
    plain topic, whose number is PLAIN (-1). A partition of which the broker does not say it is left out. Sends one
    request for each partition. Raises ClusterError if no broker answers.
    """
    numbers = partition_numbers(partitions)
    replies = [admin.call("GET", f"{partition_path(topic, n)}/internal-info", patient=False) for n in numbers]
    return [
        number
        for number, reply in zip(numbers, replies, strict=True)
        if isinstance(reply.data, dict) and "terminatedPosition" in reply.data
    ]


def undeclarable_settings(dump: Mapping[str, Any], cluster: str) -> Iterator[tuple[str, str]]:
    """Yields (name, reason) for each setting in a namespace's JSON that a topology file cannot declare: policies whose
    value the format cannot express, and settings that the format does not have. Of these settings it leaves out those
    that are null, false, 0 or empty, those with their default, and the states `deleted` and `migrated`. `cluster`: name
    of the cluster whose rates in `dump` are read.
    """
    for name, value in read_namespace_policies(dict(dump), cluster).items():
        if isinstance(value, Foreign):
            yield name, value.reason
    for name, value in dump.items():
        if name not in _DECLARABLE | _NO_POLICIES and value and value != _UNSET.get(name):
            yield name, beyond_format(value)


def beyond_format(value: object) -> str:
    """Returns the reason why an import leaves a setting out that the file format does not have, with its value in
    short. `value`: as decoded from JSON.
    """
    shown = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    return f"set to {one_line(shown, _SHOWN)}; the format has no such setting"
