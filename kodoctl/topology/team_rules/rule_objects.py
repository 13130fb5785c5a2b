"""Objects that team rules judge: topologies, ground topics, subscriptions and topics on Pulsar. Each has values, and
each value has a place in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kodoctl.topology import defaults
from kodoctl.topology.change_sources import change_sources
from kodoctl.topology.expansion_json import AUDIT
from kodoctl.topology.lint.rules.flow import flows_of
from kodoctl.topology.model.policies import is_set
from kodoctl.topology.names import State, TopicName

if TYPE_CHECKING:
    from kodoctl.errors import Where
    from kodoctl.topology.expand import Expansion, FamilyTopic
    from kodoctl.topology.lint.registry import LintScope
    from kodoctl.topology.model.topology import GroundTopic, Subscription
    from kodoctl.topology.yaml.nodes import Path


@dataclass(frozen=True, slots=True)
class RuleObject:
    """An object that rules judge. `name`: TOPOLOGY, TOPOLOGY/TOPIC or TOPOLOGY/TOPIC/SUBSCRIPTION, by which exemptions
    name it; `path`: its entry in the file; `model`: its values by the keys of the file, None: it has none; `facts`:
    name of a field -> its value, in place of that in `model`; `parts`: name of a field that may be `true` or left out
    -> the settings that this means, for paths below it; `topic`: the topic whose policies in effect are the object's,
    None: the object has no policies.
    """

    name: str
    expansion: Expansion
    path: Path
    facts: Mapping[str, Any]
    model: Any = None
    topic: FamilyTopic | None = None
    parts: Mapping[str, Any] = field(default_factory=dict)

    def value(self, scope: LintScope, path: str) -> Any:
        """Value in effect of the field at a path; None if there is none, or an empty one."""
        first, *rest = self._in_full(path)
        if first == "policies" and self.topic is not None and rest:
            return _inside(scope.effective(self.topic, rest[0]), rest[1:])
        if rest and first in self.parts:
            return _inside(self.parts[first], rest)
        value = self.facts[first] if first in self.facts else _member(self.model, first)
        return _inside(value, rest)

    def _in_full(self, path: str) -> list[str]:
        """Names on a path; `replication` of a topic is short for the policy."""
        full = f"policies.{path}" if path == "replication" and self.topic is not None else path
        return full.split(".")

    def where(self, scope: LintScope, path: str) -> Where:
        """Place of the value of a field, also where it is inherited; of a field without value, the object's key."""
        topology, words = self.expansion.topology, self._in_full(path)
        if words[0] == "policies" and self.topic is not None and len(words) > 1:
            return scope.where(self.expansion, self.topic, words[1], words[2] if len(words) > 2 else "")
        inherited = {
            "owners": ("owners",), "labels": tuple(words), "partitions": ("defaults", "partitions"),
        }.get(words[0])  # fmt: skip
        places: list[Path] = [(*self.path, *words)]
        if words[0] == "partitions" and self.facts.get("state") == State.DEAD:
            places = [(*self.path, "dead_letter", *words)]
        elif inherited is not None:
            places += [(*self.path[:2], *words), inherited]
        for place in places:
            if topology.says(*place):
                return topology.where(*place)
        if topology.says(*self.path, words[0]):  # the nearest key above the value
            return topology.where_key(*self.path, *words)
        return topology.where_key(*self.path) if self.path else topology.where("name")


def _member(model: Any, name: str) -> Any:
    """A member of a model, by its name in the file; None if the value is no model, or has no such member."""
    fields = getattr(type(model), "model_fields", {})
    attribute = next((key for key, info in fields.items() if (info.alias or key) == name), None)
    return getattr(model, attribute) if attribute else None


def _inside(value: Any, path: list[str]) -> Any:
    for index, word in enumerate(path):
        if isinstance(value, Mapping):  # a name of the user may have dots
            value = value.get(".".join(path[index:]))
            break
        value = _member(value, word)
    return value if is_set(value) and value not in ("", (), {}) else None


class ObjectTable:
    """All objects of a kind in one environment, by their numbers in the order of the files. Objects with the same
    values are judged once: many rules ask for few fields, which have few values.
    """

    def __init__(self, scope: LintScope, kind: str) -> None:
        self.objects = tuple(_objects_of(scope, kind))
        self._scope = scope
        self._groups: dict[tuple[str, ...], list[tuple[tuple[Any, ...], frozenset[int]]]] = {}

    @cached_property
    def by_file(self) -> Mapping[str, frozenset[int]]:
        """Numbers of the objects of each topology file, by the file's name in findings."""
        found: dict[str, list[int]] = {}
        for number, one in enumerate(self.objects):
            found.setdefault(one.expansion.topology.source.name, []).append(number)
        return {name: frozenset(numbers) for name, numbers in found.items()}

    def groups(self, paths: tuple[str, ...]) -> list[tuple[tuple[Any, ...], frozenset[int]]]:
        """Returns (values at these paths, numbers of the objects that have them), each combination once."""
        if paths not in self._groups:
            found: dict[str, tuple[tuple[Any, ...], list[int]]] = {}
            for number, one in enumerate(self.objects):
                values = tuple(one.value(self._scope, path) for path in paths)
                found.setdefault(repr(values), (values, []))[1].append(number)
            self._groups[paths] = [(values, frozenset(numbers)) for values, numbers in found.values()]
        return self._groups[paths]


def _objects_of(scope: LintScope, kind: str) -> Iterator[RuleObject]:
    """Yields the objects of a kind, in the order of the files."""
    match kind:
        case "topologies":
            for expansion in scope.expansions:
                yield RuleObject(expansion.name, expansion, (), {}, expansion.topology.spec)
        case "topics":
            yield from _topics(scope)
        case "subscriptions":
            for expansion, path, ground, subscription in scope.subscriptions():
                topic, name = str(path[1]), str(path[-1])
                facts = {"name": name, "topic": topic, **_shared_facts(expansion, ground)}
                facts |= _waits(ground, subscription)
                parts = {
                    "dead_letter": defaults.dead_letter(subscription),
                    "audit": defaults.audit(subscription),
                    "error_text": defaults.error_text(subscription),
                    **({"concurrency": {"total": slots}} if isinstance(slots := subscription.concurrency, int) else {}),
                }
                full = f"{expansion.name}/{topic}/{name}"
                yield RuleObject(full, expansion, path, facts, subscription, parts=parts)
        case _:
            for expansion in scope.expansions:
                for one in expansion.topics:
                    yield _pulsar_topic(expansion, one)


def _shared_facts(expansion: Expansion, ground: GroundTopic) -> dict[str, Any]:
    """Facts of a ground topic that its subscriptions and its topics on Pulsar share."""
    spec = expansion.topology.spec
    partitions = defaults.partitions(spec, ground) or None
    return {"owners": defaults.owners(spec, ground), "labels": defaults.labels(spec, ground), "partitions": partitions}


def _topics(scope: LintScope) -> Iterator[RuleObject]:
    senders = _senders(scope)
    for expansion, path, ground in scope.grounds():
        name = str(path[1])
        ready = (one for one in expansion.topics if one.ground == name and one.state is State.READY)
        facts = {
            "name": name,
            "levels": defaults.named_levels(ground.levels),
            "fed_by": tuple(senders.get(TopicName(expansion.namespace, name), ())),
            **_shared_facts(expansion, ground),
        }
        first = min(ready, key=lambda one: one.name.local != name, default=None)
        yield RuleObject(f"{expansion.name}/{name}", expansion, path, facts, ground, first)


def _senders(scope: LintScope) -> dict[TopicName, list[str]]:
    """Senders by ground topic: the roles of its producers together, each source, each subscription."""
    found: dict[TopicName, list[str]] = {}
    for expansion, path, ground in scope.grounds():
        if ground.producers:
            name = TopicName(expansion.namespace, str(path[1]))
            found.setdefault(name, []).append(f"producers {', '.join(ground.producers)}")
    for expansion in scope.expansions:
        for source in change_sources(expansion.topology.spec):
            for ground_name in source.targets(expansion.topology.spec):
                name = TopicName(expansion.namespace, ground_name)
                found.setdefault(name, []).append(f"source {source.name}")
    for flow in flows_of(scope):
        found.setdefault(flow.target, []).append(f"subscription {flow.source.local}/{flow.subscription}")
    return found


def _waits(ground: GroundTopic, subscription: Subscription) -> dict[str, Any]:
    """Waits in effect of the states and backup levels that a subscription has; None for the others."""
    waits: dict[str, Any] = dict.fromkeys(("retrying", "pending", "blocking", "backup"))
    for state in defaults.waiting_states(ground, subscription):
        name = state.value if state else "backup"
        resolved = defaults.waits(subscription, state)
        declared = getattr(subscription, name)
        waits[name] = declared.model_copy(update={"delays": resolved.delays, "attempts": resolved.attempts})
    return waits


def _pulsar_topic(expansion: Expansion, topic: FamilyTopic) -> RuleObject:
    ground = expansion.topology.spec.topics[topic.ground]
    facts = {
        "name": topic.name.local,
        "topic": topic.ground,
        "subscription": topic.subscription,
        "level": topic.level.value if topic.level else None,
        "state": topic.state.value if topic.state else AUDIT,
        **_shared_facts(expansion, ground),
        "partitions": topic.resource.partitions or None,
    }
    return RuleObject(f"{expansion.name}/{topic.name.local}", expansion, topic.path, facts, None, topic)
