"""Levels at which a topic's policy may be set: its own, its namespace's, the broker's; before and after a plan. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kodoctl.plan.changes import Change, Create, Effective, PolicyChange, Update
from kodoctl.topology.names import NamespaceName
from kodoctl.topology.resources import NamespaceResource

if TYPE_CHECKING:
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.model.policies import Policies, PolicyValue

NamespaceChanges = Mapping[NamespaceName, tuple[PolicyChange, ...]]


@dataclass(frozen=True, slots=True)
class PolicyLevels:
    """Policies that count for topics without a value of their own: of the namespace before and after the plan, of the broker."""

    namespace_before: Policies
    namespace_after: Policies
    broker: Policies

    def effective(self, policy: str, own: PolicyValue | None, *, after: bool) -> Effective:
        """The value that counts, with its level."""
        if own is not None:
            return Effective(own, "topic")
        namespace = (self.namespace_after if after else self.namespace_before).get(policy)
        if namespace is not None:
            return Effective(namespace, "namespace")
        return Effective(self.broker[policy], "broker") if policy in self.broker else Effective(None, "broker default")


def namespace_changes(changes: Iterable[Change]) -> NamespaceChanges:
    """The policies that a plan sets on namespaces, by namespace."""
    return {
        change.after.name: change.policy_changes
        for change in changes
        if isinstance(change, Create | Update) and isinstance(change.after, NamespaceResource)
    }


def levels_of(namespace: NamespaceName, live: Live, changes: NamespaceChanges) -> PolicyLevels:
    """The levels under the topics of a namespace, before and after these changes."""
    before = live.namespace_policies.get(namespace, {})
    return PolicyLevels(before, with_changes(before, changes.get(namespace, ())), live.broker_defaults)


def with_changes(policies: Policies, changes: Iterable[PolicyChange]) -> Policies:
    """Policies once these changes are written."""
    changed = {change.policy: change.after for change in changes}
    return {name: value for name, value in {**policies, **changed}.items() if value is not None}
