"""The registry of lint rules, and their input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Diagnostic, Severity, Where
from kodoctl.topology.policy_layers import value_origins
from kodoctl.topology.resources import NamespaceResource

if TYPE_CHECKING:
    from kodoctl.topology.expand import Expansion, FamilyTopic
    from kodoctl.topology.model.policies import PolicyValue
    from kodoctl.topology.model.topology import GroundTopic, Subscription
    from kodoctl.topology.names import NamespaceName, TopicName
    from kodoctl.topology.payload_schemas import PayloadFile
    from kodoctl.topology.yaml.nodes import Path


@dataclass(frozen=True)
class LintScope:
    """All expansions of one environment, with views that several rules share.

    `earlier`: (file, ground topic) -> the payload schema before the change under review, if a revision is
    given.
    """

    expansions: tuple[Expansion, ...]
    earlier: Mapping[tuple[str, str], PayloadFile] = field(default_factory=dict)

    @cached_property
    def namespaces(self) -> dict[NamespaceName, tuple[Expansion, NamespaceResource]]:
        """The namespace objects the files own, with the file that does."""
        found: dict[NamespaceName, tuple[Expansion, NamespaceResource]] = {}
        for expansion in self.expansions:
            for resource in expansion.frame:
                if isinstance(resource, NamespaceResource):
                    found.setdefault(resource.name, (expansion, resource))
        return found

    @cached_property
    def topics(self) -> dict[TopicName, FamilyTopic]:
        """Every declared topic by name."""
        return {topic.name: topic for expansion in self.expansions for topic in expansion.topics}

    def grounds(self) -> Iterator[tuple[Expansion, Path, GroundTopic]]:
        """Every ground topic with its path in the file."""
        for expansion in self.expansions:
            for name, ground in expansion.topology.spec.topics.items():
                yield expansion, ("topics", name), ground

    def subscriptions(self) -> Iterator[tuple[Expansion, Path, GroundTopic, Subscription]]:
        """Every subscription with its path in the file."""
        for expansion, path, ground in self.grounds():
            for name, subscription in ground.subscriptions.items():
                yield expansion, (*path, "subscriptions", name), ground, subscription

    def effective(self, topic: FamilyTopic, policy: str) -> PolicyValue | None:
        """The topic's own value, else the namespace's as far as the files say; None: the broker's default or unknown."""
        if policy in topic.ignore:
            return None
        if (own := topic.resource.policies.get(policy)) is not None:
            return own
        owner = self.namespaces.get(topic.name.namespace)
        return owner[1].policies.get(policy) if owner else None

    def where(self, expansion: Expansion, topic: FamilyTopic, policy: str, member: str = "") -> Where:
        """The place that gives the effective value; the family's entry when expand derived it or none is set."""
        found = value_origins(topic.layers, policy)
        if path := found.get(member):
            return expansion.topology.where(*path)
        if path := next((path for path in found.values() if path), None):
            return expansion.topology.where_key(*path[:-1])  # another member's: the policy as a whole
        owner = self.namespaces.get(topic.name.namespace)
        if owner and policy in owner[1].policies and policy not in topic.resource.policies:
            return owner[0].topology.where("namespace_policies", policy)
        return expansion.places[topic.resource.address]


@dataclass(frozen=True, slots=True)
class Rule:
    """One lint code: its summary, its severity, and the function that finds violations."""

    code: str
    severity: Severity
    summary: str
    check: Callable[[LintScope], Iterator[RuleMatch]]

    def run(self, scope: LintScope) -> Iterator[LintFinding]:
        """Every finding of this rule, each cause once: topics that share a wrong value are named together."""
        together: dict[tuple[Where, str, bool], list[str]] = {}
        for found in self.check(scope):
            together.setdefault((found.where, found.detail, found.sure), []).append(found.topic)
        for (where, detail, sure), topics in together.items():
            finding = Diagnostic(
                Severity.ERROR if sure else self.severity,
                self.code,
                self.summary,
                f"{_topic_prefix(topics)}{detail}",
                where,
            )
            yield LintFinding(finding, detail)


@dataclass(frozen=True, slots=True)
class LintFinding:
    """A finding, and its `cause` without the names of topics: in another environment it may concern others."""

    finding: Diagnostic
    cause: str


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """A place and a sentence; the rule adds the rest. `topic`: the one topic of a family that the sentence is about.
    `sure`: the case is an error, whatever the severity of the rule.
    """

    where: Where
    detail: str
    topic: str = ""
    sure: bool = False


def _topic_prefix(topics: list[str], most: int = 3) -> str:
    """`a: `, `a, b: `, or `a, b, c and 4,997 more: `; nothing where a finding is about no topic."""
    topics = [topic for topic in topics if topic]
    rest = f" and {len(topics) - most:,} more" if len(topics) > most else ""
    return f"{', '.join(topics[:most])}{rest}: " if topics else ""


RULES: Final[list[Rule]] = []


def rule(
    code: str, severity: Severity, summary: str
) -> Callable[[Callable[[LintScope], Iterator[RuleMatch]]], Callable[[LintScope], Iterator[RuleMatch]]]:
    """Registers the function below as a check of `code`, which stands in kodoctl.errors.codes with this summary."""

    def register(check: Callable[[LintScope], Iterator[RuleMatch]]) -> Callable[[LintScope], Iterator[RuleMatch]]:
        RULES.append(Rule(code, severity, summary, check))
        return check

    return register
