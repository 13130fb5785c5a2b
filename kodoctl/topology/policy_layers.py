"""Policies from several places of a file, merged in a fixed order; each value keeps the place that it came from.

Order: ready = derived < defaults < topic; state = defaults < topic < derived < defaults.state_policies <
topic.state_policies; dead letters and audit = defaults < topic < derived < their own map.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kodoctl.topology.model.field_types import INHERIT
from kodoctl.topology.model.policies import (
    NAMESPACE_POLICY_NAMES,
    ONLY_WHERE_NAMED,
    READY_ONLY,
    TOPIC_POLICY_NAMES,
    BacklogQuota,
    InactiveTopic,
    Policies,
    PolicyMap,
    PolicyValue,
    Retention,
    TopicPolicies,
    is_set,
    members_of,
    merge,
)
from kodoctl.topology.units import UNLIMITED, Duration

Origin = tuple[str, ...]
DERIVED: Origin = ()  # no place in the file: expand set it


@dataclass(frozen=True, slots=True)
class Layer:
    """Policies of one place. `origin`: path of its map in the file, () for policies that `expand` derives, for which
    `why` has the reasons by name.
    """

    origin: Origin
    values: dict[str, PolicyValue]
    why: Mapping[str, str] = field(default_factory=dict, compare=False)


def policy_layer(policies: TopicPolicies, *origin: str) -> Layer:
    """Layer of the topic policies that are set in a map of the file, whose path is `origin`."""
    return Layer(origin, {name: getattr(policies, name) for name in policies.model_fields_set if name in _NAMES})


def of_every_topic(layer: Layer) -> Layer:
    """The layer without policies that only ready topics get (`READY_ONLY`)."""
    if READY_ONLY.isdisjoint(layer.values):
        return layer
    kept = {name: value for name, value in layer.values.items() if name not in READY_ONLY}
    return Layer(layer.origin, kept, layer.why)


_NAMES: Final = frozenset(TOPIC_POLICY_NAMES)


def inherited_from(path: Sequence[str]) -> tuple[str, ...]:
    """Returns texts about the places of the file, or of the cluster, whose value applies if the key of a path is left
    out, nearest first; () for a key without inheritance. `path`: keys from the root of the file; the texts have the
    names of topics that `path` has.
    """
    match list(path):
        case ["topics", _, "partitions"]:
            return ("defaults.partitions",)
        case ["topics", _, "payloads", *_]:
            return ("payloads",)
        case ["topics", _, "owners" | "labels" as key, *label]:
            return (".".join((key, *label)),)
        case ["topics", name, "replication"]:
            return _base(name, "replication")[1:]
        case ["topics", name, "policies", policy, *member]:
            return _base(name, policy, *member)[1:]
        case ["topics", name, "state_policies", policy, *member]:
            return (".".join(("defaults.state_policies", policy, *member)), *_below_states(name, policy, *member))
        case ["topics", name, "subscriptions", _, "dead_letter" | "audit", policy, *member] if policy in _NAMES:
            return _below_states(name, policy, *member)
        case ["defaults", "policies", policy, *member]:
            return _base("NAME", policy, *member)[2:]
        case ["defaults", "state_policies", policy, *member]:
            return _below_states("NAME", policy, *member)
        case ["namespace_policies", *_]:
            return (_BROKER,)
    return ()


_DERIVED: Final = "what kodoctl derives for such a topic"


_BROKER: Final = "the broker's setting"
_DERIVED_FOR_READY: Final = ("deduplication", "max_unacked_per_consumer", "max_unacked_per_subscription")


def _base(topic: str, *policy: str) -> tuple[str, ...]:
    """Places of a policy, or of a member of it, of a ready topic, nearest first."""
    maps = (f"topics.{topic}.policies", "defaults.policies", "namespace_policies")
    topics, defaults, namespace = (".".join((one, *policy)) for one in maps)
    derived = (_DERIVED,) if policy[0] in _DERIVED_FOR_READY else ()
    above = (namespace,) if policy[0] in NAMESPACE_POLICY_NAMES else ()
    return (topics, defaults, *derived, *above, _BROKER)


def _below_states(topic: str, *policy: str) -> tuple[str, ...]:
    """Places below those that only waiting topics, dead letters or audit have: derived values are over the topic's."""
    return (_DERIVED, *(place for place in _base(topic, *policy) if place != _DERIVED))


def merge_layers(layers: Iterable[Layer]) -> Policies:
    """Merges layers, later ones over earlier ones, and returns the values by policy name, sorted. `inherit` removes the
    value of earlier layers.
    """
    values: dict[str, Any] = {}
    for one in layers:
        for name, value in one.values.items():
            values[name] = merge(values.get(name), value)
    return {name: values[name] for name in sorted(values) if is_set(values[name])}


def unset_by_name(layers: Iterable[Layer]) -> frozenset[str]:
    """Policies that are managed only where named (`ONLY_WHERE_NAMED`) and that are `inherit` in the last layer with a
    value: they are unset on Pulsar, and not left as they are.
    """
    last = {name: value for one in layers for name, value in one.values.items() if value is not None}
    return frozenset(name for name in ONLY_WHERE_NAMED & last.keys() if last[name] == INHERIT)


def value_origins(layers: Iterable[Layer], name: str) -> dict[str, Origin]:
    """Returns the origin of each member of the merged policy `name`: the path in the file that gave its value, () if it
    is derived. A policy without members, or with `inherit`, has the single key ""; {} if no layer has the policy. A
    member that `merge` drops (`after` under `delete: never`) keeps its origin.
    """
    found: dict[str, Origin] = {}
    for one in layers:
        value = one.values.get(name)
        if value is None:
            continue
        if isinstance(value, PolicyMap | dict):
            found.pop("", None)
            members = sorted(members_of(value))
            found.update({member: one.origin and (*one.origin, name, member) for member in members})
        else:
            found = {"": one.origin and (*one.origin, name)}
    return found


def why_derived(layers: Iterable[Layer], name: str) -> str:
    """Reason why `expand` derived a policy; one of the layers must have derived it."""
    return next(one.why[name] for one in layers if one.origin == DERIVED and name in one.why)


_WEEK: Final = Duration(7 * 86_400_000)
# Dead letters are kept: a namespace TTL would delete them, a namespace quota would stop all rerouting.
DERIVED_DEAD_LETTER: Final = Layer(
    DERIVED,
    {
        "ttl": UNLIMITED,
        "backlog_quota": BacklogQuota.model_construct(size=UNLIMITED, time=UNLIMITED),
        "subscription_expiry": UNLIMITED,
        "inactive_topic": InactiveTopic.model_construct(delete="never"),
        "schema_validation": False,
    },
    {
        "ttl": "dead letters wait for people",
        "backlog_quota": "nobody acknowledges dead letters, and a quota would stop all rerouting",
        "subscription_expiry": "the holder has no consumer, and keeps the letters",
        "inactive_topic": "letters stay, however long nobody comes",
        "schema_validation": "letters come in any schema version",
    },
)
# A source sends what has no receipt again, with the same sequence number.
DERIVED_SOURCED: Final = Layer(
    DERIVED,
    {"deduplication": True},
    {"deduplication": "a source of change data sends here, and what it sends twice is dropped"},
)
# Audit topics have no holder: retention keeps them, and nothing may delete them as inactive.
DERIVED_AUDIT: Final = Layer(
    DERIVED,
    {
        "ttl": UNLIMITED,
        "retention": Retention.model_construct(time=_WEEK, size=UNLIMITED),
        "backlog_quota": BacklogQuota.model_construct(size=UNLIMITED, time=UNLIMITED),
        "inactive_topic": InactiveTopic.model_construct(delete="never"),
    },
    {
        "ttl": "records go by retention alone",
        "retention": "no subscription keeps records, retention does",
        "backlog_quota": "an auditor who falls behind must not stop workers",
        "inactive_topic": "records stay, however long nobody reads them",
    },
)
