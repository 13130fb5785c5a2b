"""A reduced plan: a plan by a role that may not read all, from markers and topic policies only.

A role with `consume` on a namespace can read topics, partitions, properties, subscriptions, use and topic policies; not
the namespace's own policies, grants and properties, which contain the ledgers (docs/explanation/pulsar.md#rights). The
plan shows changes of topics and subscriptions, and cannot be applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Diagnostic, RefusedError, Where, error, warning
from kodoctl.plan.ownership import namespace_of
from kodoctl.pulsar.values.ledger import Ledger, OwnershipKind
from kodoctl.pulsar.values.live_objects import Live, LiveObject
from kodoctl.topology.resources import Address, GrantResource, NamespaceResource, PlatformResource, TenantResource

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired, DesiredObject
    from kodoctl.plan.plan import Plan
    from kodoctl.topology.names import NamespaceName

K429: Final = "not all could be seen"


def drop_unseen(desired: Desired, live: Live) -> tuple[Desired, Live]:
    """Returns (declared side, live side) for a reduced plan. In the namespaces `live.unseen`, the declared side lacks
    what could not be read: grants, policies of the namespaces, Pulsar tenants of theirs that a file only creates, and
    objects of the whole cluster whose home is one of them. On the live side these namespaces exist, without policies,
    and their ledger entries are made from the markers of live objects, as if an apply had created each object with a
    marker.
    """
    bare = {namespace: NamespaceResource(namespace, {}, managed=None) for namespace in live.unseen}
    objects = {
        address: replace(wanted, resource=bare[wanted.resource.name])
        if isinstance(wanted.resource, NamespaceResource) and wanted.resource.name in bare
        else wanted
        for address, wanted in desired.objects.items()
        if not _is_hidden(wanted, live.unseen)
    }
    found = {resource.address: LiveObject(resource) for resource in bare.values()}
    entries = {namespace: _by_markers(namespace, live, desired.environment) for namespace in live.unseen}
    return (
        replace(desired, objects=objects),
        replace(live, objects={**live.objects, **found}, ledgers={**live.ledgers, **entries}),
    )


def _is_hidden(wanted: DesiredObject, unseen: frozenset[NamespaceName]) -> bool:
    match wanted.resource:
        case TenantResource(name=tenant, home=None):
            return tenant in {namespace.tenant for namespace in unseen}
        case resource if isinstance(resource, GrantResource | PlatformResource):
            return namespace_of(resource) in unseen
        case _:
            return False


def _by_markers(namespace: NamespaceName, live: Live, environment: str | None) -> dict[str, Ledger]:
    owned: dict[str, dict[Address, OwnershipKind]] = {}
    for address, found in live.objects.items():
        if found.marker is not None and namespace_of(found.resource) == namespace:
            owned.setdefault(found.marker, {})[address] = OwnershipKind.CREATED
    return {
        name: Ledger(name, namespace, environment=environment, owned=addresses) for name, addresses in owned.items()
    }


def unseen_finding(unseen: Iterable[NamespaceName]) -> Iterator[Diagnostic]:
    """Yields one warning (K429) on the limits of a reduced plan; nothing if `unseen` is empty."""
    if names := ", ".join(map(str, sorted(unseen))):
        detail = (
            f"this role may not read the policies, grants and ownership ledgers of {names}: nothing is said of them, and dangers"
            " that depend on them are not judged. What is no longer declared shows as a delete, also where it was adopted and"
            " would stay. This plan cannot be applied; a whole one needs the admin role of the Pulsar tenant"
        )
        yield warning("K429", K429, detail)


def refuse_reduced(plan: Plan, file: str | None = None) -> None:
    """Raises RefusedError (K430) for a reduced plan, which has `unseen` namespaces; does nothing for any other. `file`:
    its plan file, for the error.
    """
    if plan.unseen:
        names = ", ".join(map(str, plan.unseen))
        detail = f"it was made by a role that may not see all of {names}: plan again with one that may"
        raise RefusedError(error("K430", "a reduced plan cannot be applied", detail, Where(file) if file else None))
