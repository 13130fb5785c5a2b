"""Permission probe of a role in a namespace, with reads alone: Pulsar has no call that reports permissions.

The right that each read needs was measured on 4.2.4 and 4.0.7: the namespaces of a Pulsar tenant are for its admins,
topic lists for every role that may consume or produce in the namespace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kodoctl.pulsar.admin.admin import Admin, Reply
    from kodoctl.topology.names import NamespaceName

_DENIED: Final = (401, 403)


@dataclass(frozen=True, slots=True)
class Permission:
    """Answer to the question whether a role may do one kind of work. `missing`: the right that the role lacks, "" if it
    is not known to lack one; `unknown`: the reason why that cannot be determined, "" if it can.
    """

    work: str
    missing: str = ""
    unknown: str = ""


def probe_permissions(admin: Admin, namespace: NamespaceName, *, superuser: bool) -> Iterator[Permission]:
    """Yields Permissions for planning, applying, creating a Pulsar tenant and status in a namespace, by two reads.
    `superuser`: True if the role is a super-user. Raises ClusterError, during the iteration, if no broker answers.
    """
    tenant = admin.call("GET", f"namespaces/{namespace.tenant}")
    lacks = f"the admin role of the Pulsar tenant {namespace.tenant}"
    yield _permission("plan, drift, import", lacks, tenant, superuser=superuser)
    yield _permission("apply, destroy, forget, undo", lacks, tenant, superuser=superuser)
    yield Permission("apply that creates a Pulsar tenant", "" if superuser else "a super-user")
    listed = admin.call("GET", f"persistent/{namespace}/partitioned")
    yield _permission("status", f"consume or produce on {namespace}", listed, superuser=superuser)


def _permission(work: str, right: str, reply: Reply, *, superuser: bool) -> Permission:
    if reply.ok or (superuser and reply.status == 404):  # what is not there yet is no lack of rights
        return Permission(work)
    if reply.status in _DENIED:
        return Permission(work, missing=right)
    return Permission(work, unknown=f"{reply.method} {reply.path} answered {reply.status} {reply.reason}".strip())
