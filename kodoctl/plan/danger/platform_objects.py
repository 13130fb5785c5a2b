# pure: every branch is tested
"""Findings about objects of the whole cluster: those that something uses (K454), those of doubtful ownership (K455),
those that could not be read (K456), and isolation policies without a broker (K457).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Diagnostic, Remedy, error, error_with_remedy, warning
from kodoctl.plan.changes import Change, Create, Delete, Update
from kodoctl.text.formatting import many
from kodoctl.topology.names import RESERVED_NAMESPACE
from kodoctl.topology.resources import (
    Address,
    ClusterResource,
    FailureDomainResource,
    IsolationPolicyResource,
    NamespaceResource,
    PlatformResource,
    ResourceGroupResource,
    TenantResource,
)
from kodoctl.topology.safe_patterns import may_match

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.values.evidence import Evidence, PlatformUser
    from kodoctl.pulsar.values.live_objects import Live

K456: Final = "objects of the cluster could not be read"
K454: Final = "an object of the cluster in use"
K455: Final = "an object of the cluster by a record that a tenant may write"
K457: Final = "an isolation policy without a broker"
_SHOWN: Final = 3
_WHO: Final = frozenset({"namespaces", "primary", "secondary"})  # who is served by whom


def platform_dangers(
    change: Delete | Update, evidence: Evidence, changes: Mapping[Address, Change], allowed: frozenset[Address]
) -> Iterator[Diagnostic]:
    """Yields a refusal (K454) for the deletion of an object that something uses, and for a tenant that loses a cluster
    which its namespaces use. `evidence`: has the users of the object, as they were read; `changes`: all changes of the
    plan by address. A use that one of these ends does not count against a deletion, but does against the loss of a
    cluster. Only the deletion of a failure domain or an isolation policy can be allowed (`allowed`, then a warning):
    users of other objects do not work without them.
    """
    resource = change.before
    assert isinstance(resource, PlatformResource)
    address = change.address
    users = evidence.users
    if isinstance(change, Update):
        if not isinstance(resource, TenantResource) or not isinstance(change.after, TenantResource):
            return
        lost = resource.clusters - change.after.clusters
        users = tuple(user for user in users if user.clusters & lost)  # a deletion in the same plan comes later
        if users:
            detail = f"{address}: {lost_clusters_text(lost, users)}"
            advice = "take it out of their `replication` and `allowed_clusters` first, then plan again"
            yield error("K454", K454, f"{detail}\n{advice}", change.about.where)
        return
    users = tuple(user for user in users if _goes_on(resource, changes.get(user.address)))
    if not users:
        return
    if not isinstance(resource, FailureDomainResource | IsolationPolicyResource):
        yield error("K454", K454, f"{address}: {users_text(resource, users)}", change.about.where)
    elif address in allowed:
        yield warning("K454", K454, f"{address}: {users_text(resource, users)}; allowed by name")
    else:
        flags = f"--allow-destroy {address}, or the same address in the file's `allow_destroy`"
        detail = f"{address}: {users_text(resource, users)}"
        yield error_with_remedy("K454", K454, detail, Remedy("--allow-destroy", address), flags)


def untrusted_record(
    change: Change, resource: PlatformResource, live: Live, allowed: frozenset[Address]
) -> Iterator[Diagnostic]:
    """Yields a refusal (K455) for the deletion of an object of the whole cluster, and for its creation or update by a
    journal instead of a file, if any role can write the journal, or the ledger of its home (the namespace whose ledger
    says that it is ours). Such roles are the administrators of the Pulsar tenant of its home, and roles with `produce`
    on kodoctl's own namespace in it, or on a topic there; for an object without a home, those of every Pulsar tenant
    that was read. If they could not be read, it yields the refusal as well; a Pulsar tenant that does not exist has
    none. A warning instead if the object's address is in `allowed`.
    """
    by_journal = isinstance(change, Create | Update) and change.about.where is None
    if not (by_journal or isinstance(change, Delete)):
        return
    roles = _writers(resource, live)
    if roles is not None and not roles:
        return
    address, home = resource.address, resource.home
    history = f"the history of {home}" if home else "a history"
    says = f"{history} says so" if by_journal else f"the record in {home} says that it is ours"
    writers = f"{', '.join(sorted(roles))} may write that record" if roles else "who may write that record is not known"
    detail = f"{address}: {says}, and {writers}"
    if address in allowed:
        yield warning("K455", K455, f"{detail}; allowed by name")
    else:
        flags = f"--allow-destroy {address}, or the same address in the file's `allow_destroy`"
        yield error_with_remedy("K455", K455, detail, Remedy("--allow-destroy", address), flags)


def _writers(resource: PlatformResource, live: Live) -> frozenset[str] | None:
    """Roles that may write the ledger and the journal of the home of an object; for a tenant without a home those of
    all Pulsar tenants that were read, because any of their journals may name it. None: they are not known.
    """
    tenants = {resource.home.tenant} - live.absent_tenants if resource.home else live.record_writers.keys()
    found: set[str] = set()
    for tenant in tenants:
        roles = live.record_writers.get(tenant)
        if roles is None:
            return None
        found |= roles
    return frozenset(found)


def unserved(change: Change, live: Live, allowed: frozenset[Address]) -> Iterator[Diagnostic]:
    """Yields a refusal (K457) for an isolation policy that is created, or whose `namespaces`, `primary` or `secondary`
    change, if neither `primary` nor `secondary` matches the host of a running broker: no broker would serve its
    namespaces, among which may be those of the lease and the journal. A pattern that only Java can read counts as a
    match. A warning instead if its address is in `allowed`; nothing if the running brokers are not known.
    """
    after = change.after if isinstance(change, Create | Update) else None
    if not isinstance(after, IsolationPolicyResource) or live.brokers is None:
        return
    if isinstance(change, Update) and not _WHO & {one.name for one in change.fields}:
        return
    hosts = [broker.rpartition(":")[0] or broker for broker in sorted(live.brokers)]
    if any(may_match(pattern, host) for pattern in after.primary | after.secondary for host in hosts):
        return
    running = f"{', '.join(hosts[:_SHOWN])}{f' and {len(hosts) - _SHOWN} more' if len(hosts) > _SHOWN else ''}"
    detail = f"{after.address}: its patterns match no running broker ({running}): its namespaces would have none"
    if after.address in allowed:
        yield warning("K457", K457, f"{detail}; allowed by name", change.about.where)
    else:
        flags = f"--allow-destroy {after.address}, or the same address in the file's `allow_destroy`"
        yield error_with_remedy("K457", K457, detail, Remedy("--allow-destroy", after.address), flags)


def _goes_on(resource: PlatformResource, change: Change | None) -> bool:
    """False if a change of the same plan ends the use of an object."""
    match change:
        case Delete():
            return False
        case Update(after=NamespaceResource() as after) if isinstance(resource, ResourceGroupResource):
            return after.policies.get("resource_group") == resource.name
        case Update(after=TenantResource() as after) if isinstance(resource, ClusterResource):
            return resource.name in after.clusters
        case _:
            return True


def users_text(resource: PlatformResource, users: Iterable[PlatformUser]) -> str:
    """Text that names up to three users of an object and counts the others, with the way to end their use, or the
    consequence for them. `users`: at least one.
    """
    found = tuple(users)
    match resource:
        case TenantResource(name=name):
            own = f"namespace.{name}/{RESERVED_NAMESPACE}"
            ways = "delete them first"
            if any(user.address == own for user in found):
                ways = (
                    f"delete them first; {name}/{RESERVED_NAMESPACE} has the history of kodoctl's applies, and"
                    f" `pulsar-admin namespaces delete {name}/{RESERVED_NAMESPACE} --force` deletes it"
                )
            return f"it has {_named(found)}: {ways}"
        case ClusterResource():
            return f"it is used by {_named(found)}, and Pulsar would delete it all the same: take it out there first"
        case ResourceGroupResource():
            return f"it is used by {_named(found)}: take it out of their `resource_group` first"
        case FailureDomainResource():
            return f"it has {_named(found)}, which would be in none"
        case _:
            return f"{_named(found)} may then go to any broker, and their clients reconnect"


def lost_clusters_text(lost: frozenset[str], users: Iterable[PlatformUser]) -> str:
    """Text about the use of the clusters that a Pulsar tenant would lose (`lost`). `users`: its namespaces that use one
    of them, of which up to three are named and the others counted.
    """
    return f"cluster {', '.join(sorted(lost))} is used by {_named(users)}"


def _named(users: Iterable[PlatformUser]) -> str:
    names = [
        user.address.replace(".", " ", 1) if user.address.startswith("namespace.") else user.address for user in users
    ]
    more = f" and {many(len(names) - _SHOWN, 'more', 'more')}" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def unread_platform(desired: Desired, live: Live) -> Iterator[Diagnostic]:
    """Yields one warning (K456) about all objects of the whole cluster that this role may not read, with the first
    one's reason; nothing if there is none.
    """
    if not live.unread_platform:
        return
    addresses = sorted(live.unread_platform)
    wanted = desired.objects.get(addresses[0])
    names = (
        f"{', '.join(addresses[:_SHOWN])}{f' and {len(addresses) - _SHOWN} more' if len(addresses) > _SHOWN else ''}"
    )
    detail = f"{names}: {live.unread_platform[addresses[0]]}\nthey are left alone, and an apply by this role is refused"
    yield warning("K456", K456, detail, wanted.where if wanted else None)
