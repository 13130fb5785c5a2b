"""The registry of lint rules, and their input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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

    DeclaredSubscription = tuple[Expansion, Path, GroundTopic, Subscription]
    """(expansion, path in the file, ground topic, subscription)"""


@dataclass(frozen=True)
class LintScope:
    """Input of a lint rule: all expansions of one environment, with views that several rules share.

    `earlier`: (file, ground topic) -> the payload schema before the change under review, if a revision is given.
    """

    expansions: tuple[Expansion, ...]
    earlier: Mapping[tuple[str, str], PayloadFile] = field(default_factory=dict)

    @cached_property
    def namespaces(self) -> dict[NamespaceName, tuple[Expansion, NamespaceResource]]:
        """Namespace -> (expansion of the first file that has `namespace_policies` for it, that namespace object)."""
        found: dict[NamespaceName, tuple[Expansion, NamespaceResource]] = {}
        for expansion in self.expansions:
            for resource in expansion.frame:
                if isinstance(resource, NamespaceResource):
                    found.setdefault(resource.name, (expansion, resource))
        return found

    @cached_property
    def topics(self) -> dict[TopicName, FamilyTopic]:
        """Every topic that the files stand for, by name."""
        return {topic.name: topic for expansion in self.expansions for topic in expansion.topics}

    def grounds(self) -> Iterator[tuple[Expansion, Path, GroundTopic]]:
        """Yields every ground topic, as (expansion of its file, its path in the file, the ground topic)."""
        for expansion in self.expansions:
            for name, ground in expansion.topology.spec.topics.items():
                yield expansion, ("topics", name), ground

    def subscriptions(self) -> Iterator[DeclaredSubscription]:
        """Yields every subscription, as (expansion of its file, its path in the file, its ground topic, the
        subscription).
        """
        for expansion, path, ground in self.grounds():
            for name, subscription in ground.subscriptions.items():
                yield expansion, (*path, "subscriptions", name), ground, subscription

    @cached_property
    def routed(self) -> tuple[DeclaredSubscription, ...]:
        """The subscriptions that have routes."""
        return tuple(declared for declared in self.subscriptions() if declared[-1].routes)

    def effective(self, topic: FamilyTopic, policy: str) -> PolicyValue | None:
        """Returns the value of a policy that a file declares for a topic: the topic's own value, otherwise that of its
        namespace. None: no file declares a value, or the topic ignores the policy. Defaults of the broker are not
        considered.
        """
        if policy in topic.ignore:
            return None
        if (own := topic.resource.policies.get(policy)) is not None:
            return own
        owner = self.namespaces.get(topic.name.namespace)
        return owner[1].policies.get(policy) if owner else None

    def where(self, expansion: Expansion, topic: FamilyTopic, policy: str, member: str = "") -> Where:
        """Place of the effective value of a policy or of its `member`; if no line gives that value, the nearest entry:
        the policy, or the topic's.
        """
        found = value_origins(topic.layers, policy)
        if path := found.get(member):
            return expansion.topology.where(*path)
        if path := next((path for path in found.values() if path), None):
            return expansion.topology.where_key(*path[:-1])  # another member's: the policy as a whole
        owner = self.namespaces.get(topic.name.namespace)
        if owner and policy in owner[1].policies and policy not in topic.resource.policies:
            return owner[0].topology.where("namespace_policies", policy, *filter(None, (member,)))
        return expansion.places[topic.resource.address]


@dataclass(frozen=True, slots=True)
class Rule:
    """One check of a lint code: the code, its severity and summary, and the function that yields violations."""

    code: str
    severity: Severity
    summary: str
    check: Callable[[LintScope], Iterator[RuleMatch]]

    def run(self, scope: LintScope) -> Iterator[LintFinding]:
        """Yields the findings of this rule; matches of one place and detail are one finding with all their topics."""
        return findings_of(self.check(scope), self.code, self.severity, self.summary)


def findings_of(matches: Iterable[RuleMatch], code: str, severity: Severity, summary: str) -> Iterator[LintFinding]:
    """Yields the findings of matches: those of one place and detail are one finding with all their topics. A match that
    is `sure` makes it an error, whatever `severity` is.
    """
    together: dict[tuple[Where, str, bool], list[str]] = {}
    for found in matches:
        together.setdefault((found.where, found.detail, found.sure), []).append(found.topic)
    for (where, detail, sure), topics in together.items():
        chosen = Severity.ERROR if sure else severity
        finding = Diagnostic(chosen, code, summary, f"{_topic_prefix(topics)}{detail}", where)
        yield LintFinding(finding, detail, topics=frozenset(filter(None, topics)))


@dataclass(frozen=True, slots=True)
class LintFinding:
    """A finding, and its `cause`: the detail without names of topics, which may differ in another environment.
    `is_firm`: a team rule makes it an error that no comment allows; `topics`: local names of the topics it is about.
    """

    finding: Diagnostic
    cause: str
    is_firm: bool = False
    topics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """One violation that a rule found: its place and a sentence about it. `topic`: the topic of a family that the
    sentence is about, "" if none; `sure`: it is an error, whatever the severity of the rule.
    """

    where: Where
    detail: str
    topic: str = ""
    sure: bool = False


def _topic_prefix(topics: list[str], most: int = 3) -> str:
    """`a: `, `a, b: `, or `a, b, c and 4,997 more: `; "" if no topic has a name."""
    topics = [topic for topic in topics if topic]
    rest = f" and {len(topics) - most:,} more" if len(topics) > most else ""
    return f"{', '.join(topics[:most])}{rest}: " if topics else ""


RULES: Final[list[Rule]] = []


def rule(
    code: str, severity: Severity, summary: str
) -> Callable[[Callable[[LintScope], Iterator[RuleMatch]]], Callable[[LintScope], Iterator[RuleMatch]]]:
    """Decorator: registers a function as a check of `code`. kodoctl.errors.codes has the same summary."""

    def register(check: Callable[[LintScope], Iterator[RuleMatch]]) -> Callable[[LintScope], Iterator[RuleMatch]]:
        RULES.append(Rule(code, severity, summary, check))
        return check

    return register
