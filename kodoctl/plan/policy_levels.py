"""Levels that may set a topic's policy: the topic, its namespace, the broker; before and after a plan. Pure."""

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
    """Policies that apply to topics without a value of their own: those of the namespace before and after the plan, and
    the broker's.
    """

    namespace_before: Policies
    namespace_after: Policies
    broker: Policies

    def effective(self, policy: str, own: PolicyValue | None, *, after: bool) -> Effective:
        """The value of a policy for a topic whose own value is `own` (None: unset), with its level. `after`: after the
        plan, else before it.
        """
        if own is not None:
            return Effective(own, "topic")
        namespace = (self.namespace_after if after else self.namespace_before).get(policy)
        if namespace is not None:
            return Effective(namespace, "namespace")
        return Effective(self.broker[policy], "broker") if policy in self.broker else Effective(None, "broker default")


def namespace_changes(changes: Iterable[Change]) -> NamespaceChanges:
    """Returns the policy changes of each namespace that the changes create or update, by namespace: () for one that is
    created without policies. They include policies that become unset (`after` None).
    """
    return {
        change.after.name: change.policy_changes
        for change in changes
        if isinstance(change, Create | Update) and isinstance(change.after, NamespaceResource)
    }


def levels_of(namespace: NamespaceName, live: Live, changes: NamespaceChanges) -> PolicyLevels:
    """Returns the policies of the levels above the topics of a namespace (namespace and broker), before and after the
    changes, which are by namespace. A namespace that was not read counts as one without policies.
    """
    before = live.namespace_policies.get(namespace, {})
    return PolicyLevels(before, with_changes(before, changes.get(namespace, ())), live.broker_defaults)


def with_changes(policies: Policies, changes: Iterable[PolicyChange]) -> Policies:
    """Returns the policies as they are after these changes are written. A policy that becomes unset is missing."""
    changed = {change.policy: change.after for change in changes}
    return {name: value for name, value in {**policies, **changed}.items() if value is not None}
