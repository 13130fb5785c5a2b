"""Writes to tenants, namespaces and grants. Callers write one at a time in a namespace: Pulsar loses parallel writes of
policies silently (186 of 200 rounds, docs/explanation/pulsar.md).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kodoctl.apply.policy_writer import write_policy
from kodoctl.plan.field_diff import normalize
from kodoctl.plan.policy_write_order import PolicyWrite, write_order
from kodoctl.pulsar.admin.admin import Admin, must, namespace_path, path_part, topic_path
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError, delete, poll_until, write_confirmed
from kodoctl.pulsar.inventory.live_inventory import grants_of
from kodoctl.pulsar.inventory.namespace_policies import read_policies
from kodoctl.pulsar.inventory.policy_requests import BY_NAME, namespace_writes, new_namespace
from kodoctl.topology.model.policies import AT_CREATION
from kodoctl.topology.names import NamespaceName, TopicName

if TYPE_CHECKING:
    from kodoctl.plan.changes import PolicyChange
    from kodoctl.topology.model.policies import Policies, PolicyValue
    from kodoctl.topology.resources import Address, GrantResource, NamespaceResource, TenantResource

_FRESH_S: Final = 1.0


def create_tenant(admin: Admin, tenant: TenantResource) -> None:
    """Creates a Pulsar tenant. One that exists already stays as it is: that is no error if no topology is to own the
    tenant (`tenant.home` is None), else WriteFailedError is raised, because somebody else created it. Raises
    WriteFailedError, too, if the broker refuses the request; ClusterError if no broker answers.
    """
    body = {"allowedClusters": sorted(tenant.clusters), "adminRoles": sorted(tenant.admin_roles)}
    path = f"tenants/{tenant.name}"
    reply = write_confirmed(admin, "PUT", path, body, done=lambda: admin.call("GET", path).ok, final=frozenset({409}))
    if tenant.home is not None and reply is not None and reply.status == 409:
        raise WriteFailedError("somebody created it since the plan: plan again")


def create_namespace(admin: Admin, namespace: NamespaceResource, cluster: str, properties: Mapping[str, str]) -> None:
    """Creates a namespace in one PUT that contains its policies and `properties` (the ledgers), so that it never exists
    without them. Only policies that Pulsar stores elsewhere, or checks only in a request of their own, follow after it.
    Pulsar does not validate the PUT, so the policies are read back. Raises WriteFailedError if somebody else created
    the namespace, if the broker refuses it, or if the broker refuses a later policy or shows other values (then the
    namespace exists); ClusterError if no broker answers, or the policies cannot be read (then the namespace may exist).
    `cluster`: name of the cluster.
    """
    body: dict[str, Any] = new_namespace(namespace.policies, cluster)
    body["properties"] = {**body.get("properties", {}), **properties}
    path = namespace_path(namespace.name)

    def ours() -> bool:
        """True if the one that is there came with our ledger: one of another client may have come first."""
        seen = admin.call("GET", path)
        return seen.ok and properties.items() <= (seen.data.get("properties") or {}).items()

    reply = write_confirmed(admin, "PUT", path, body, done=ours, final=frozenset({409}))
    if reply is not None and reply.status == 409:
        raise WriteFailedError("somebody created it since the plan: plan again")

    for name in namespace.policies:
        if BY_NAME[name].follows_creation:
            _write(admin, namespace.name, PolicyWrite(name, None, namespace.policies[name]), cluster)

    def wrong_policies() -> list[str]:
        return _different(read_policies(admin, namespace.name, cluster, namespace.policies), namespace.policies)

    if not poll_until(lambda: admin.call("GET", path).ok and not wrong_policies()):
        wrong = wrong_policies()
        raise WriteFailedError(f"created, but the broker shows other values for {', '.join(wrong)}: apply again")


def _different(found: Policies, wanted: Policies) -> list[str]:
    shown = {name: value for name, value in wanted.items() if name not in AT_CREATION}
    return [name for name, value in shown.items() if normalize(found.get(name)) != normalize(value)]


def update_namespace(admin: Admin, name: NamespaceName, changes: tuple[PolicyChange, ...], cluster: str) -> None:
    """Writes policies one after the other, in the order of `write_order`, and reads each back, because Pulsar answers
    204 even to many wrong bodies. Raises WriteFailedError if, at first, a policy does not have its value before the
    change (then nothing is written), or later if the broker refuses a policy or does not show its new value;
    ClusterError if the policies cannot be read. After a later error, the policies before that one in the order are
    written, and perhaps that one as well. `cluster`: name of the cluster.
    """
    changed = {change.policy: (change.before, change.after) for change in changes}
    now = read_policies(admin, name, cluster, changed)
    moved = [policy for policy, (old, _) in changed.items() if normalize(now.get(policy)) != normalize(old)]
    if moved:
        raise WriteFailedError(f"{', '.join(moved)} changed since the plan: plan again")
    for step in write_order(changed, {}, by_time=False):
        _write(admin, name, step, cluster)


def _write(admin: Admin, name: NamespaceName, step: PolicyWrite, cluster: str) -> None:
    """Writes one policy and reads it back. Raises WriteFailedError."""

    def now() -> PolicyValue | None:
        return read_policies(admin, name, cluster, (step.name,)).get(step.name)

    requests = namespace_writes(step.name, step.after, step.before)
    write_policy(admin, namespace_path(name), step, requests, now)
    if not poll_until(lambda: normalize(now()) == normalize(step.after)):
        raise WriteFailedError(f"{step.name}: written {step.after}, the broker shows {now()}")


class GrantGuard:
    """Guard that checks, before a grant is changed, that nobody else changed it since the plan. The grants of a
    namespace are read at most once a second; the caller makes one call at a time for a namespace.
    """

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._read: dict[NamespaceName, tuple[float, Mapping[Address, frozenset[str]]]] = {}

    def check(self, grant: GrantResource, planned: frozenset[str], wanted: frozenset[str]) -> None:
        """Raises WriteFailedError unless the actions of the grant's role, read at most 1 s ago, are those that the plan
        saw (`planned`) or those to be set (`wanted`); ClusterError if they cannot be read.
        """
        namespace = grant.target.namespace if isinstance(grant.target, TopicName) else grant.target
        at, shown = self._read.get(namespace, (float("-inf"), {}))
        if time.monotonic() - at > _FRESH_S:
            shown = read_grants(self._admin, namespace)
            self._read[namespace] = time.monotonic(), shown
        now = shown.get(grant.address, frozenset())
        if now not in (planned, wanted):
            difference = f"planned from {actions_text(planned)}, now {actions_text(now)}"
            raise WriteFailedError(f"what {grant.role} may do changed since the plan: {difference}; plan again")


def read_grants(admin: Admin, namespace: NamespaceName) -> dict[Address, frozenset[str]]:
    """Reads address -> actions of every grant of a namespace and its persistent topics; {} if the namespace does not
    exist. Raises ClusterError.
    """
    reply = admin.call("GET", namespace_path(namespace))
    if reply.missing:
        return {}
    dump = must(reply, f"reading grants of {namespace}")
    return {grant.address: grant.actions for grant in grants_of(namespace, dump)}


def actions_text(actions: frozenset[str]) -> str:
    """Text of a role's actions for messages, such as `consume, produce`; `nothing` for no actions."""
    return ", ".join(sorted(actions)) or "nothing"


def set_grant(admin: Admin, grant: GrantResource) -> None:
    """Gives a role exactly the actions of `grant` in one request; earlier actions need no revoke. Raises
    WriteFailedError if the broker refuses it; ClusterError if no broker answers.
    """
    path = f"{_target(grant)}/permissions/{path_part(grant.role)}"
    write_confirmed(admin, "POST", path, sorted(grant.actions), done=lambda: read_grant(admin, grant) == grant.actions)


def revoke_grant(admin: Admin, grant: GrantResource) -> None:
    """Takes all actions away from a role. A role without actions is no error, nor is an answer 404 or 412 of Pulsar, so
    that the caller has to read the result. Raises WriteFailedError if the role has other actions than the plan saw
    (`grant.actions`), or if the broker refuses; ClusterError if they cannot be read, or if no broker answers.
    """

    def look() -> Mapping[str, str] | None:
        now = read_grant(admin, grant)
        if now and now != grant.actions:
            difference = f"planned from {actions_text(grant.actions)}, now {actions_text(now)}"
            raise WriteFailedError(f"what {grant.role} may do changed since the plan: {difference}; plan again")
        return {} if now else None

    path = f"{_target(grant)}/permissions/{path_part(grant.role)}"
    delete(admin, path, look, final=frozenset({404, 412}))


def _target(grant: GrantResource) -> str:
    return topic_path(grant.target) if isinstance(grant.target, TopicName) else namespace_path(grant.target)


def read_grant(admin: Admin, grant: GrantResource) -> frozenset[str]:
    """Reads the actions that a role was granted on exactly this namespace or topic; an empty set if none. The namespace
    is read in any case, because the request for a topic's grants would include those of its namespace. Raises
    ClusterError.
    """
    namespace = grant.target.namespace if isinstance(grant.target, TopicName) else grant.target
    return read_grants(admin, namespace).get(grant.address, frozenset())
