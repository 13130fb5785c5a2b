"""Writer of the steps of an apply: sends the requests for each kind of change and resource. Writes of which Pulsar
would lose one if they were parallel are made one at a time in a namespace.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from kodoctl.apply import deletes, functions, namespaces, packages, platform_objects, subscriptions, topics
from kodoctl.plan.changes import Adopt, Change, Create, Delete, Forget, Update
from kodoctl.plan.policy_levels import PolicyLevels, levels_of, namespace_changes
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError
from kodoctl.topology.names import NamespaceName, TopicName
from kodoctl.topology.resources import (
    FunctionResource,
    GrantResource,
    NamespaceResource,
    PackageResource,
    PlatformResource,
    PublicationResource,
    Resource,
    SchemaResource,
    SlotResource,
    SubscriptionResource,
    TenantResource,
    TopicResource,
)

if TYPE_CHECKING:
    from kodoctl.apply.ledger_writer import LedgerWriter
    from kodoctl.apply.source_writer import SourceWriter
    from kodoctl.plan.plan import Plan
    from kodoctl.plan.schedule import Step
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.values.live_objects import Live


class StepWriter:
    """Writer of single steps of a plan, which several threads may call. `ledgers`: provides the ownership ledgers with
    which a namespace is created; `databases`: writes publications and slots.
    """

    def __init__(self, admin: Admin, plan: Plan, live: Live, ledgers: LedgerWriter, databases: SourceWriter) -> None:
        self._admin, self._plan, self._live, self._ledgers = admin, plan, live, ledgers
        self._databases = databases
        self._namespace_changes = namespace_changes(plan.changes)
        self._grant_guard = namespaces.GrantGuard(admin)
        self._namespace_locks: dict[NamespaceName, threading.Lock] = {}
        self._lock = threading.Lock()
        self._topologies = frozenset(name for owner in plan.owners for name in (owner.name, *owner.replaces))
        deletes = [change for change in plan.changes if isinstance(change, Delete)]
        self._within: dict[TopicName | NamespaceName, list[Change]] = {
            change.before.name: [] for change in deletes if isinstance(change.before, TopicResource)
        }
        for change in deletes:
            match change.before:
                case SubscriptionResource(topic=place) | GrantResource(target=place) if place in self._within:
                    self._within[place].append(change)
                case _:
                    pass

    def levels(self, namespace: NamespaceName) -> PolicyLevels:
        """Policies from which topics of a namespace inherit (of the namespace and the broker), before and after this
        plan.
        """
        return levels_of(namespace, self._live, self._namespace_changes)

    def write(self, step: Step) -> None:
        """Carries out one step, and blocks meanwhile; `Verifier` confirms the result. Raises WriteFailedError or
        ClusterError if the step was not done in full, or it is not known whether it was; LockedError if the lease was
        lost, perhaps in the middle of the step.
        """
        change = step.change
        match change:
            case Create(after=after):
                self._create(after, change)
            case Update():
                self._update(change, step)
            case Delete():
                self._delete(change)
            case Adopt(before=before):
                self._mark(before, change.about.owner)
            case Forget(before=before):
                if before is not None:
                    self._mark(before, None)
            case _:
                assert_never(change)

    def deleted_with(self, change: Change) -> Sequence[Change]:
        """Returns the changes of the plan that need no request of their own, because `change` deletes their topic:
        Pulsar drops its subscriptions and grants with it, under the topic's guard. Nothing for any other change.
        """
        match change:
            case Delete(before=TopicResource(name=name)):
                return self._within[name]
            case _:
                return ()

    def _create(self, resource: Resource, change: Create) -> None:
        match resource:
            case TenantResource(home=None):
                namespaces.create_tenant(self._admin, resource)
            case NamespaceResource():
                properties = self._ledgers.initial_properties(resource.name, change)
                namespaces.create_namespace(self._admin, resource, self._plan.identity.cluster, properties)
                self._ledgers.namespace_created(resource.name, properties)
            case TopicResource():
                topics.create_topic(self._admin, resource, change.about.owner, self.levels(resource.name.namespace))
            case SubscriptionResource():
                subscriptions.create_subscription(self._admin, resource, change.about.owner)
            case GrantResource():
                self._grant(resource, frozenset())
            case SchemaResource():
                topics.upload_schema(self._admin, resource, None)
            case PublicationResource():
                self._databases.create_publication(resource, change.about.owner)
            case SlotResource():
                raise WriteFailedError("the first run of its source makes it")
            case FunctionResource():
                functions.create_function(self._admin, resource, change.about.owner)
            case PackageResource():
                packages.upload_package(self._admin, resource, change.about.owner)
            case _ if isinstance(resource, PlatformResource):
                cluster, tenants = self._plan.identity.cluster, {one.tenant for one in self._plan.namespaces}
                is_prepared = isinstance(resource, TenantResource) and resource.name in tenants
                platform_objects.create_platform_object(self._admin, cluster, resource, is_prepared=is_prepared)
            case _:
                assert_never(resource)

    def _grant(self, grant: GrantResource, before: frozenset[str]) -> None:
        with self._grant_lock(grant):
            self._grant_guard.check(grant, before, grant.actions)
            namespaces.set_grant(self._admin, grant)

    def _update(self, change: Update, step: Step) -> None:
        match change.before, change.after:
            case TopicResource() as before, TopicResource() as after:
                topics.update_topic(self._admin, before, after, change.fields, self.levels(after.name.namespace))
            case _, NamespaceResource(name=name):
                with self._namespace_lock(name):
                    namespaces.update_namespace(self._admin, name, step.policy_changes(), self._plan.identity.cluster)
            case SubscriptionResource(missing_on=lacking), SubscriptionResource() as after:  # it skips nothing there
                healed = replace(after, start="earliest")
                subscriptions.heal_subscription(self._admin, healed, change.about.owner, lacking)
            case GrantResource(actions=before), GrantResource() as after:
                self._grant(GrantResource(after.target, after.role, change.granted_actions), before)
            case SchemaResource() as before, SchemaResource() as after:
                topics.upload_schema(self._admin, after, before)
            case PublicationResource() as before, PublicationResource() as after:
                self._databases.update_publication(before, after, change.about.owner)
            case FunctionResource() as before, FunctionResource() as after:
                found = self._live.objects.get(change.address)
                planned, hidden = (found.marker, found.hidden) if found else (None, "")
                functions.update_function(self._admin, before, after, change.about.owner, planned, hidden)
            case _ if isinstance(change.after, PlatformResource) and change.after.home is not None:
                platform_objects.update_platform_object(self._admin, self._plan.identity.cluster, change)
            case _:
                raise WriteFailedError("this kind of object is never updated")

    def _delete(self, change: Delete) -> None:
        allowed = change.address in self._plan.allowances.destroy
        found = self._live.objects.get(change.address)
        marker = found.marker if found else None
        match change.before:
            case TopicResource():
                deletes.delete_topic(self._admin, change, marker=marker, allowed=allowed)
            case SubscriptionResource():
                deletes.delete_subscription(self._admin, change, marker=marker, allowed=allowed)
            case GrantResource() as grant:
                with self._grant_lock(grant):
                    namespaces.revoke_grant(self._admin, grant)
            case PublicationResource() as publication:
                self._databases.delete_publication(publication, change.about.owner)
            case SlotResource() as slot:
                self._databases.delete_slot(slot, change.about.owner, allowed=allowed)
            case FunctionResource():
                functions.delete_function(self._admin, change, marker=marker, allowed=allowed)
            case PackageResource() as package:
                unknown = self._live.unknown_functions_in(package.namespace).values()
                packages.delete_package(self._admin, change, marker=marker, allowed=allowed, unknown=unknown)
            case _ if isinstance(change.before, PlatformResource) and change.before.home is not None:
                cluster = self._plan.identity.cluster
                platform_objects.delete_platform_object(self._admin, cluster, change, allowed=allowed)
            case NamespaceResource(name=name):
                with self._namespace_lock(name):
                    topologies = self._topologies | {change.about.owner}
                    deletes.delete_namespace(self._admin, name, topologies, allowed=allowed)
            case _:
                raise WriteFailedError("this kind of object is never deleted")

    def _mark(self, resource: Resource, owner: str | None) -> None:
        """Sets (`owner`) or removes (None) the marker; nothing else of the object changes."""
        found = self._live.objects.get(resource.address)
        planned = found.marker if found else None
        match resource:
            case TopicResource(name=name):
                topics.mark_topic(self._admin, name, owner, planned)
            case SubscriptionResource():
                subscriptions.mark_subscription(self._admin, resource, owner, planned)
            case PublicationResource():
                self._databases.mark_publication(resource, owner)
            case FunctionResource() if owner is not None and planned not in (None, owner):
                functions.mark_function(self._admin, resource, owner, planned)
            case PackageResource() if owner is not None and planned != owner:
                packages.mark_package(self._admin, resource, owner, planned)
            case _:
                pass  # namespaces, grants and most adopted functions are held in the ledger alone

    def _grant_lock(self, grant: GrantResource) -> threading.Lock:
        return self._namespace_lock(grant.target if isinstance(grant.target, NamespaceName) else grant.target.namespace)

    def _namespace_lock(self, namespace: NamespaceName) -> threading.Lock:
        with self._lock:
            return self._namespace_locks.setdefault(namespace, threading.Lock())
