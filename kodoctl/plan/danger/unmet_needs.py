"""Unmet needs of a plan, for which its apply would fail half way although the file is valid: clusters that the instance
does not have (K432), and more topics than a namespace may have (K220).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Diagnostic, error
from kodoctl.plan.changes import Change, Create, Delete, Update
from kodoctl.plan.policy_levels import levels_of, namespace_changes
from kodoctl.topology.resources import ClusterResource, NamespaceResource, Resource, TenantResource, TopicResource

if TYPE_CHECKING:
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.names import NamespaceName

K220: Final = "more topics than the namespace may have"


def unmet_needs(live: Live, changes: Iterable[Change]) -> Iterator[Diagnostic]:
    """Yields an error for each object to be created or updated that names a Pulsar cluster which neither the instance
    nor the plan has, or which its Pulsar tenant is not allowed after the plan (K432), and for each namespace in which
    the plan creates or updates topics, and which then has more than its `max_topics` (K220): each partition counts,
    topics that other topologies own do not. Unknown facts cause no error.
    """
    made = tuple(changes)
    yield from _unknown_clusters(live, made)
    yield from _too_many_topics(live, made)


def _unknown_clusters(live: Live, changes: tuple[Change, ...]) -> Iterator[Diagnostic]:
    tenants = {
        one.resource.name: one.resource for one in live.objects.values() if isinstance(one.resource, TenantResource)
    }
    tenants |= {after.name: after for after in _written_resources(changes) if isinstance(after, TenantResource)}
    known = live.clusters | {one.name for one in _written_resources(changes) if isinstance(one, ClusterResource)}
    for change in changes:
        after = change.after if isinstance(change, Create | Update) else None
        names = _clusters(after)
        if not names or not live.clusters:
            continue
        where, address = change.about.where, change.address
        if unknown := sorted(names - known):
            detail = f"{address}: {', '.join(unknown)}; the cluster knows {', '.join(sorted(live.clusters))}"
            yield error("K432", "cluster not found", detail, where)
        elif isinstance(after, NamespaceResource | TopicResource):
            namespace = after.name if isinstance(after, NamespaceResource) else after.name.namespace
            tenant = tenants.get(namespace.tenant)
            if tenant is not None and (barred := sorted(names - tenant.clusters)):
                detail = (
                    f"{address}: {', '.join(barred)}; the Pulsar tenant {tenant.name} is allowed"
                    f" {', '.join(sorted(tenant.clusters)) or 'none'}"
                )
                yield error("K432", "cluster not found", detail, where)


def _written_resources(changes: Iterable[Change]) -> Iterator[Resource]:
    return (change.after for change in changes if isinstance(change, Create | Update))


def _clusters(resource: Resource | None) -> frozenset[str]:
    match resource:
        case TenantResource(clusters=names):
            return names
        case NamespaceResource(policies=policies) | TopicResource(policies=policies):
            values = (policies.get("replication"), policies.get("allowed_clusters"))
            return frozenset(name for value in values if isinstance(value, tuple) for name in value)
        case _:
            return frozenset()


def _too_many_topics(live: Live, changes: tuple[Change, ...]) -> Iterator[Diagnostic]:
    set_by_plan = namespace_changes(changes)
    counts = _counts_after(live, changes)
    for namespace in sorted(
        {one.name.namespace for one in _written_resources(changes) if isinstance(one, TopicResource)}
    ):
        limit, need = levels_of(namespace, live, set_by_plan).namespace_after.get("max_topics"), counts[namespace]
        if isinstance(limit, int) and 0 < limit < need:
            detail = f"{namespace}: max_topics {limit}, and with this plan it has {need}, each partition counted"
            yield error("K220", K220, detail)


def _counts_after(live: Live, changes: Iterable[Change]) -> Counter[NamespaceName]:
    """Number of topics of each namespace after the plan, partitions counted; a lower bound, because topics of other
    topologies are not read.
    """
    topics = {
        address: found.resource for address, found in live.objects.items() if isinstance(found.resource, TopicResource)
    }
    for change in changes:
        if isinstance(change, Delete):
            topics.pop(change.address, None)
        elif isinstance(change, Create | Update) and isinstance(after := change.after, TopicResource):
            topics[change.address] = after
    counts: Counter[NamespaceName] = Counter()
    for topic in topics.values():
        counts[topic.name.namespace] += topic.partitions or 1
    return counts
