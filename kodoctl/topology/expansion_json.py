"""Expansion of files as one JSON document, with all resources by address. The views of `kodoctl expand` are made of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from kodoctl.topology.change_sources import change_sources
from kodoctl.topology.load import BASE
from kodoctl.topology.model.policies import PolicyMap, PolicyValue, to_json
from kodoctl.topology.policy_layers import value_origins, why_derived
from kodoctl.topology.resource_json import resource_to_json
from kodoctl.topology.resources import (
    FunctionResource,
    GrantResource,
    NamespaceResource,
    SchemaResource,
    TopicResource,
)

if TYPE_CHECKING:
    from kodoctl.errors import Where
    from kodoctl.topology.change_sources import ChangeSource
    from kodoctl.topology.expand import Expansion, FamilyTopic
    from kodoctl.topology.resources import Resource

FORMAT_VERSION: Final = 1
AUDIT: Final = "audit"  # stands where a topic's state would
_OF_PLANS: Final = ("managed", "missing", "missing_on", "home")  # fields of resources that a file does not give
Json = dict[str, Any]


def expansion_document(expansions: Iterable[Expansion], environment: str | None, *, explain: bool = False) -> Json:
    """The JSON of `kodoctl expand`: `format_version`, `environment` (`base` if None), `topologies` (a list),
    `resources` (by address). A grant or a Pulsar tenant that several files declare is there once, with `topology` and
    `where` of the first of them; the grant has the actions of all. `explain`: every resource with policies also gets
    the origin of each value, a place or the reason why the value is derived.
    """
    topologies: list[Json] = []
    resources: dict[str, Json] = {}
    for expansion in expansions:
        topologies.append(_topology(expansion))
        topics = {topic.resource.address: topic for topic in expansion.topics}
        for address, resource in expansion.resources.items():
            entry = {
                **resource_document(resource),
                "topology": expansion.name,
                "where": place_json(expansion.places[address]),
            }
            if (topic := topics.get(address)) is not None:
                entry |= _role(expansion, topic)
            if explain and isinstance(resource, TopicResource | NamespaceResource):
                entry["explain"] = explain_policies(expansion, resource, topic)
            shown = resources.setdefault(address, entry)
            if isinstance(resource, GrantResource):
                shown["actions"] = sorted({*shown["actions"], *entry["actions"]})
    return {
        "format_version": FORMAT_VERSION,
        "environment": environment or BASE,
        "topologies": topologies,
        "resources": resources,
    }


def _topology(expansion: Expansion) -> Json:
    spec = expansion.topology.spec
    return {
        "name": spec.name,
        "file": expansion.topology.source.name,
        "description": spec.description,
        "owners": list(spec.owners),
        "labels": dict(spec.labels),
        "namespace": str(expansion.namespace),
        "production": expansion.topology.production,
        "topics": {name: ground.description for name, ground in spec.topics.items()},
        "sources": {source.name: source_json(expansion, source) for source in change_sources(spec)},
    }


def source_json(expansion: Expansion, source: ChangeSource) -> Json:
    """A source of change data: its database objects, its tables and its place."""
    return {
        "description": source.spec.description,
        "database": source.spec.database,
        "slot": source.slot,
        "publication": source.publication,
        "publishes": list(source.operations),
        "snapshot": source.spec.snapshot,
        "tables": {table.name: table.spec.model_dump(mode="json", exclude_unset=True) for table in source.tables},
        "where": place_json(expansion.topology.where_key("sources", source.name)),
    }


def resource_document(resource: Resource) -> Json:
    """A resource as `kodoctl expand` shows it: structured values instead of JSON texts, without the members of plans."""
    document = {name: value for name, value in resource_to_json(resource).items() if name not in _OF_PLANS}
    match resource:
        case TopicResource(name=name):
            parts = {"kind": "topic", "name": name.full, "namespace": str(name.namespace), "topic": name.local}
            return {**parts, **document}
        case SchemaResource(definition=definition):
            return {**document, "definition": json.loads(definition)}
        case FunctionResource(config=config, secrets=secrets, settings=settings):
            return {
                **document,
                "config": json.loads(config),
                "settings": json.loads(settings),
                "secrets": None if secrets is None else json.loads(secrets),
            }
        case _:
            return document


def _role(expansion: Expansion, topic: FamilyTopic) -> Json:
    """Keys of a topic's JSON that describe its place in the family."""
    return {
        "ground": topic.ground,
        "level": topic.level.value if topic.level else None,
        "state": topic.state.value if topic.state else AUDIT,
        "subscription": topic.subscription,
        "draining": expansion.is_draining(topic),
        "ignore": sorted(topic.ignore),
    }


def explain_policies(
    expansion: Expansion, resource: TopicResource | NamespaceResource, topic: FamilyTopic | None
) -> dict[str, Json]:
    """Origins of values: `partitions`, `policy` or `policy.member` -> {file, line, column}, or {derived: reason}.
    `topic`: the topic that `resource` is, None: `resource` is a namespace, which has no partitions.
    """
    found: dict[str, Json] = {}
    if topic is not None:
        found["partitions"] = _origin_json(expansion, expansion.partitions_path(topic), "the default")
    for name in sorted(resource.policies):
        for member in _members(resource.policies[name]):
            shown = f"{name}.{member}" if member else name
            if topic is None:
                path = ("namespace_policies", name, *filter(None, [member]))
                found[shown] = _origin_json(expansion, path, f"the default within {name}")
            else:
                found[shown] = _origin(expansion, topic, name, member)
    return found


def _members(value: PolicyValue) -> list[str]:
    """Names of the members that a policy with members has a value for; [""] for a policy that is one value."""
    return list(to_json(value)) if isinstance(value, PolicyMap | dict) else [""]


def _origin(expansion: Expansion, topic: FamilyTopic, name: str, member: str) -> Json:
    found = value_origins(topic.layers, name)
    path = found.get(member)
    if path is None:
        return {"derived": f"the default within {name}"}
    if not path:
        return {"derived": why_derived(topic.layers, name)}
    return place_json(expansion.topology.where(*path))


def _origin_json(expansion: Expansion, path: tuple[str, ...], default: str) -> Json:
    topology = expansion.topology
    return place_json(topology.where(*path)) if topology.says(*path) else {"derived": default}


def place_json(where: Where) -> Json:
    """JSON of a place in a file: `file`, `line` and `column`, from 1."""
    return {"file": where.file, "line": where.line, "column": where.column}
