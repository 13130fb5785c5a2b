"""Catalogue of topologies as one JSON document: the declarations of each file, with the origin of every value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kodoctl.topology import defaults
from kodoctl.topology.change_sources import change_sources
from kodoctl.topology.expansion_json import AUDIT, explain_policies, place_json, resource_document, source_json
from kodoctl.topology.load import BASE
from kodoctl.topology.model.policies import TOPIC_POLICY_NAMES
from kodoctl.topology.resource_json import resource_to_json
from kodoctl.topology.resources import FunctionResource, NamespaceResource, PlatformResource
from kodoctl.topology.route_conditions import in_words

if TYPE_CHECKING:
    from kodoctl.topology.expand import Expansion, FamilyTopic
    from kodoctl.topology.model.topology import GroundTopic, Subscription
    from kodoctl.topology.names import NamespaceName
    from kodoctl.topology.resources import TopicResource

Json = dict[str, Any]
_NOT_SETTINGS: Final = {
    "limits", "routes", "workers", "recall", "produces", "states", "draining", "dead_letter", "audit",
}  # fmt: skip
"""Keys of a subscription that are lanes, roles, limits or routes."""
_WAITS: Final = ("retrying", "pending", "blocking", "backup")


def catalogue_document(expansions: Iterable[Expansion], environment: str | None) -> Json:
    """The document of a catalogue: `environment` (`base` if None), and `topologies`, sorted by name and file.

    The origin of a value in it is a place (`file`, `line`, `column`), or `derived` with the reason, as with the flag
    `--explain` of `kodoctl expand`.
    """
    everything = sorted(expansions, key=lambda one: (one.name, one.topology.source.name))
    namespaces = dict(_namespaces(everything))
    return {
        "environment": environment or BASE,
        "topologies": [_topology(one, namespaces.get(one.namespace)) for one in everything],
    }


def _namespaces(expansions: Iterable[Expansion]) -> Iterator[tuple[NamespaceName, Json]]:
    """Yields each namespace whose policies a file declares, with these policies and their origins."""
    for expansion in expansions:
        for resource in expansion.frame:
            if isinstance(resource, NamespaceResource):
                yield resource.name, _policies(expansion, resource, None)


def _policies(expansion: Expansion, resource: TopicResource | NamespaceResource, topic: FamilyTopic | None) -> Json:
    entry = resource_to_json(resource)
    kept: Json = {name: entry[name] for name in ("policies", "partitions") if name in entry}
    return {**kept, "explain": explain_policies(expansion, resource, topic)}


def _topology(expansion: Expansion, namespace: Json | None) -> Json:
    """A topology. `namespace`: policies that a file declares for its namespace; None: no file does."""
    topology, spec = expansion.topology, expansion.topology.spec
    families = expansion.by_ground()
    return {
        "name": spec.name,
        "file": topology.source.name,
        "formerly": list(spec.formerly),
        "description": spec.description,
        "owners": list(spec.owners),
        "labels": dict(spec.labels),
        "namespace": str(expansion.namespace),
        "production": topology.production,
        "namespace_policies": namespace,
        "grants": [
            {"role": role, "actions": list(actions), "where": _where(expansion, "namespace_grants", role)}
            for role, actions in spec.namespace_grants.items()
        ],
        "sources": {source.name: source_json(expansion, source) for source in change_sources(spec)},
        "objects": list(_objects(expansion)),
        "topics": [_topic(expansion, name, families[name], namespace) for name in spec.topics],
    }


def _objects(expansion: Expansion) -> Iterator[Json]:
    """Yields the functions, the connectors and the objects of the whole cluster, as `kodoctl expand` shows them."""
    for address, resource in expansion.resources.items():
        if isinstance(resource, FunctionResource | PlatformResource):
            yield {**resource_document(resource), "where": place_json(expansion.places[address])}


def _where(expansion: Expansion, *path: str | int) -> Json:
    return place_json(expansion.topology.where_key(*path))


def _topic(expansion: Expansion, name: str, family: list[FamilyTopic], namespace: Json | None) -> Json:
    ground = expansion.topology.spec.topics[name]
    return {
        "name": name,
        "description": ground.description,
        "owners": list(defaults.owners(expansion.topology.spec, ground)),
        "labels": defaults.labels(expansion.topology.spec, ground),
        "where": _where(expansion, "topics", name),
        "levels": [level.value for level in defaults.read_levels(ground)],
        "exclusive_levels": {level.value: list(names) for level, names in ground.exclusive_levels.items()},
        "producers": list(ground.producers),
        "fair_by": ground.fair_by,
        "compression": ground.compression,
        "message_properties": dict(ground.message_properties),
        "payload": _payload(expansion, name),
        "payloads": ground.payloads.model_dump(mode="json", exclude_unset=True) if ground.payloads else None,
        "groups": [_group(expansion, topics, namespace) for topics in _alike(expansion, family)],
        "subscriptions": [_subscription(expansion, name, reader) for reader in ground.subscriptions],
    }


def _alike(expansion: Expansion, family: Iterable[FamilyTopic]) -> list[list[FamilyTopic]]:
    """Groups the topics of a family: those of a group have the same policies and number of partitions, with the same
    origins.
    """
    keys: dict[int, str] = {}  # topics that differ only in their level share one object of policies
    groups: dict[str, list[FamilyTopic]] = {}
    for topic in family:
        shared = id(topic.resource.policies)
        if shared not in keys:
            layers = [layer for layer in topic.layers if layer.values]
            path = expansion.partitions_path(topic)
            origin = path if expansion.topology.says(*path) else ()
            keys[shared] = f"{topic.resource.partitions} {origin} {topic.resource.policies} {layers}"
        groups.setdefault(keys[shared], []).append(topic)
    return list(groups.values())


def _group(expansion: Expansion, topics: list[FamilyTopic], namespace: Json | None) -> Json:
    """Topics that are alike, with their policies: `inherited` from the namespace, with their origins; `unset` are the
    names of those that the namespace object or the broker decides.
    """
    first = topics[0]
    own = _policies(expansion, first.resource, first)
    above = namespace or {"policies": {}, "explain": {}}
    inherited = {name: value for name, value in above["policies"].items() if _is_open(name, own, first)}
    return {
        **own,
        "ignore": sorted(first.ignore),
        "inherited": {
            "policies": inherited,
            "explain": {path: at for path, at in above["explain"].items() if path.partition(".")[0] in inherited},
        },
        "is_namespace_declared": namespace is not None,
        "unset": [name for name in TOPIC_POLICY_NAMES if _is_open(name, own, first) and name not in inherited],
        "lanes": [_lane(expansion, topic) for topic in topics],
    }


def _is_open(name: str, own: Json, topic: FamilyTopic) -> bool:
    """True for a topic policy that has no value of its own and is not ignored."""
    return name in TOPIC_POLICY_NAMES and name not in own["policies"] and name not in topic.ignore


def _lane(expansion: Expansion, topic: FamilyTopic) -> Json:
    return {
        "topic": topic.name.local,
        "level": topic.level.value if topic.level else "",
        "state": topic.state.value if topic.state else AUDIT,
        "subscription": topic.subscription,
        "draining": expansion.is_draining(topic),
        "partitions": topic.resource.partitions,
    }


def _subscription(expansion: Expansion, ground: str, name: str) -> Json:
    path = ("topics", ground, "subscriptions", name)
    spec = expansion.topology.spec.topics[ground]
    subscription = spec.subscriptions[name]
    return {
        "name": name,
        "where": _where(expansion, *path),
        "workers": list(subscription.workers),
        "recall": list(subscription.recall),
        "produces": list(subscription.produces),
        "settings": list(_settings(expansion, spec, subscription, path)),
        "limits": [
            {**limit.model_dump(mode="json", by_alias=True), "where": _where(expansion, *path, "limits", number)}
            for number, limit in enumerate(subscription.limits)
        ],
        "routes": [
            {
                **route.model_dump(mode="json", include={"at", "share", "to"}),
                "when": in_words(route.when),
                "where": _where(expansion, *path, "routes", number),
            }
            for number, route in enumerate(subscription.routes)
        ],
    }


def _settings(
    expansion: Expansion, ground: GroundTopic, subscription: Subscription, path: tuple[str, ...]
) -> Iterator[Json]:
    """Yields the settings of a subscription in the order of the schema, with the defaults of the schema filled in:
    `where` is None for a default. If the file does not have them, empty settings are left out, those whose default
    depends on others (`on_failure`, `level_weights`), and waits of states and levels without lanes.
    """
    values = subscription.model_dump(mode="json", by_alias=True, exclude_none=True)
    for name in type(subscription).model_fields:
        if name in _NOT_SETTINGS:
            continue
        is_declared = expansion.topology.says(*path, name)
        value = _waits_json(ground, subscription, name) if name in _WAITS else values.get(name)
        if is_declared or value not in (None, {}, [], False):
            yield {"name": name, "value": value, "where": _where(expansion, *path, name) if is_declared else None}


def _waits_json(ground: GroundTopic, subscription: Subscription, name: str) -> Json | None:
    """Delays and attempts in effect, and `total`: the longest wait in all, in ms, without the delays of `by_code`. None
    for a state or level without lanes.
    """
    state = next((one for one in defaults.read_states(subscription) if one.value == name), None)
    if state is None and (name != "backup" or not any(level.is_backup for level in defaults.read_levels(ground))):
        return None
    waits = defaults.waits(subscription, state)
    by_code = getattr(getattr(subscription, name), "by_code", {})
    return {
        "delays": [str(delay) for delay in waits.delays],
        "attempts": waits.attempts,
        "total": int(waits.total),
        "by_code": {code: [str(delay) for delay in delays] for code, delays in by_code.items()},
    }


def _payload(expansion: Expansion, ground: str) -> Json | None:
    """Payload schema of a ground topic. `problem`: why its file cannot be read, or None; `fields`: the members of its
    outermost object or record.
    """
    declared = expansion.topology.spec.topics[ground].payload
    if declared is None:
        return None
    file = expansion.topology.payloads[ground]
    return {
        "type": declared.type,
        "schema": declared.schema_file,
        "where": _where(expansion, "topics", ground, "payload"),
        "problem": file.problem,
        "definition": file.definition,
        "fields": list(_payload_fields(declared.type, file.definition)),
    }


def _payload_fields(kind: str, definition: Any) -> Iterator[Json]:
    """Yields name, type, need and description of each member; nothing for a schema of another form."""
    if not isinstance(definition, dict):
        return
    if kind == "avro":
        members = definition.get("fields")
        for member in members if isinstance(members, list) else ():
            if isinstance(member, dict):
                yield _field(str(member.get("name")), member, is_required="default" not in member)
        return
    members, required = definition.get("properties"), definition.get("required")
    for name, member in members.items() if isinstance(members, dict) else ():
        needed = isinstance(required, list) and name in required
        yield _field(name, member if isinstance(member, dict) else {}, is_required=needed)


def _field(name: str, member: Json, *, is_required: bool) -> Json:
    about = member.get("description", member.get("doc"))
    kind = member.get("type", member.get("enum", member.get("$ref")))
    return {
        "name": name,
        "type": _type_words(kind),
        "required": is_required,
        "description": about if isinstance(about, str) else "",
    }


def _type_words(kind: Any) -> str:
    """Type of a member as text: `string`, `null or long`, `array of Item`; "" if it has no simple one."""
    match kind:
        case str():
            return kind
        case list():
            return " or ".join(filter(None, map(_type_words, kind)))
        case {"type": "array" | "map" as outer, **rest}:
            inner = _type_words(rest.get("items", rest.get("values")))
            return f"{outer} of {inner}" if inner else outer
        case {"name": str(name)}:
            return name
        case {"type": inner}:
            return _type_words(inner)
        case _:
            return ""
