"""Writes to objects of the whole cluster: create, update and delete one. Each function reads the object first, and
again until the object shows the effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from kodoctl.plan.danger.platform_objects import lost_clusters_text, users_text
from kodoctl.plan.field_diff import platform_fields, platform_value
from kodoctl.pulsar.admin.confirmed_write import CONFLICT, WriteFailedError, delete, poll_until, write_confirmed
from kodoctl.pulsar.inventory.platform_objects import (
    parse,
    platform_path,
    platform_users,
    read_document,
    request_document,
    without_addresses,
)
from kodoctl.text.formatting import value_text
from kodoctl.topology.resources import (
    ClusterResource,
    FailureDomainResource,
    IsolationPolicyResource,
    PlatformResource,
    ResourceGroupResource,
    TenantResource,
)

if TYPE_CHECKING:
    from kodoctl.plan.changes import Delete, FieldChange, Update
    from kodoctl.pulsar.admin.admin import Admin

_ANSWERED = frozenset({404, 412, 500})  # statuses of a DELETE that another try would not change: 500 if a group is gone
_CREATED_SINCE = "somebody created it since the plan: plan again"


def create_platform_object(admin: Admin, cluster: str, resource: PlatformResource, *, is_prepared: bool) -> None:
    """Creates an object of the whole cluster. `is_prepared`: this apply created the object already, before it took the
    lease, so that an equal object is its own. Raises WriteFailedError if somebody else created it since the plan
    (without `is_prepared`, even an equal one), or if the broker refuses it or does not show it as written; ClusterError
    if it cannot be read, or if no broker answers. `cluster`: name of the cluster.
    """
    document = read_document(admin, cluster, resource.address)
    if document is None:
        _write(admin, cluster, resource, request_document(resource, {}), is_new=True)
    elif not is_prepared or platform_fields(resource, parse(resource.address, resource.home, document)):
        raise WriteFailedError(_CREATED_SINCE)


def update_platform_object(admin: Admin, cluster: str, change: Update) -> None:
    """Updates the changed fields of an object of the whole cluster; its other settings stay as they are now. Raises
    WriteFailedError if the object is gone, if a changed field has neither the value that the plan saw nor the new one,
    if a tenant would lose a cluster that its namespaces use, or if the broker refuses the new values or does not show
    them (then they may be written, of a failure domain also in part); ClusterError if something cannot be read.
    `cluster`: name of the cluster.
    """
    planned = change.after
    assert isinstance(planned, PlatformResource)
    fields = cast("tuple[FieldChange, ...]", change.fields)
    document = read_document(admin, cluster, planned.address)
    if document is None:
        raise WriteFailedError("it is gone since the plan: plan again")
    now = parse(planned.address, planned.home, document)
    if moved := [one.name for one in fields if platform_value(now, one.name, one.after) not in (one.before, one.after)]:
        raise WriteFailedError(f"{', '.join(moved)} changed since the plan: plan again")
    values: dict[str, Any] = {one.name: one.after for one in fields}
    after = replace(now, **values)
    if isinstance(after, FailureDomainResource) and isinstance(now, FailureDomainResource):
        left = replace(after, brokers=now.brokers & after.brokers)
        if left.brokers not in (now.brokers, after.brokers):  # another domain can have them only once this one has not
            _write(admin, cluster, left, request_document(left, document), is_new=False)
    if isinstance(after, TenantResource) and isinstance(now, TenantResource):
        lost = now.clusters - after.clusters
        users = [user for user in platform_users(admin, cluster, now) if user.clusters & lost] if lost else []
        if users:
            raise WriteFailedError(f"{lost_clusters_text(lost, users)}: plan again")
    kept = without_addresses(document, [one.name for one in fields if one.after == ""])
    _write(admin, cluster, after, request_document(after, kept), is_new=False)


def _write(admin: Admin, cluster: str, resource: PlatformResource, body: Mapping[str, Any], *, is_new: bool) -> None:
    def shown() -> str:
        """Text of the fields that the broker does not show as written; "" for none."""
        document = read_document(admin, cluster, resource.address)
        if document is None:
            return "it does not exist"
        wrong = platform_fields(resource, parse(resource.address, resource.home, document))
        return ", ".join(f"{one.name} {_text(one.before)}" for one in wrong)

    creates = is_new and isinstance(resource, TenantResource | ClusterResource)
    method: Final = "PUT" if creates or isinstance(resource, ResourceGroupResource) else "POST"
    path = platform_path(resource.address, cluster)
    final = frozenset({CONFLICT}) if creates else frozenset[int]()  # of others, Pulsar replaces what is there
    reply = write_confirmed(admin, method, path, body, done=lambda: not shown(), final=final)
    if reply is not None and reply.status == CONFLICT:
        raise WriteFailedError(_CREATED_SINCE)
    if not poll_until(lambda: not shown()):
        raise WriteFailedError(f"written, and the broker shows: {shown()}")


def _text(value: object) -> str:
    return value_text(sorted(value) if isinstance(value, frozenset) else value)


def delete_platform_object(admin: Admin, cluster: str, change: Delete, *, allowed: bool) -> None:
    """Deletes an object of the whole cluster; one that no longer exists is no error. `allowed`: a user allowed that
    brokers or namespaces lose their isolation, so that a failure domain or an isolation policy is deleted even if it is
    used. Raises WriteFailedError if the object changed since the plan, if it is used and may not be, or if it is not
    deleted; ClusterError if it or its users cannot be read, or if no broker answers. `cluster`: name of the cluster.
    """
    resource = change.before
    assert isinstance(resource, PlatformResource)

    def look() -> Mapping[str, str] | None:
        document = read_document(admin, cluster, resource.address)
        if document is None:
            return None
        if parse(resource.address, resource.home, document) != resource:
            raise WriteFailedError("somebody changed it since the plan: plan again")
        may_be_used = allowed and isinstance(resource, FailureDomainResource | IsolationPolicyResource)
        if not may_be_used and (users := platform_users(admin, cluster, resource)):
            raise WriteFailedError(f"{users_text(resource, users)}: plan again")
        return {}

    path = platform_path(resource.address, cluster)
    reply = delete(admin, path, look, final=_ANSWERED)
    if not poll_until(lambda: read_document(admin, cluster, resource.address) is None):
        answer = f"; it said: {reply.reason}" if reply is not None and reply.reason else ""
        raise WriteFailedError(f"the broker did not delete it{answer}")
