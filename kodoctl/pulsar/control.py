"""kodoctl's own namespace in each Pulsar tenant: UUID, index of topologies, lease topics. Made by the first apply.

Never deleted, never planned, never imported. Everything here is create-if-absent, so that two first applies agree.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from kodoctl.pulsar.admin import Admin, AdminError, LostReplyError, must, namespace_path
from kodoctl.topology.control import CONTROL_NAMESPACE, INDEX_PREFIX, UUID_PROPERTY
from kodoctl.topology.names import NamespaceName

_POLICIES: dict[str, Any] = {
    "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
    "message_ttl_in_seconds": 0,
    "inactive_topic_policies": {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 60,
        "deleteWhileInactive": False,
    },
}


def control_namespace(tenant: str) -> NamespaceName:
    """`<tenant>/kodoctl`."""
    return NamespaceName(tenant, CONTROL_NAMESPACE)


@dataclass(frozen=True, slots=True)
class Control:
    """What the control namespace of a tenant holds: the UUID, and topology name -> the namespaces where it owns something."""

    uuid: str | None = None
    index: Mapping[str, tuple[NamespaceName, ...]] = field(default_factory=dict)


def read_control(admin: Admin, tenant: str) -> Control:
    """Empty before the first apply."""
    reply = admin.call("GET", namespace_path(control_namespace(tenant)))
    if reply.missing:
        return Control()
    properties = must(reply, "reading kodoctl's control namespace").get("properties") or {}
    index = {
        key.removeprefix(INDEX_PREFIX): tuple(NamespaceName.parse(name) for name in json.loads(text))
        for key, text in properties.items()
        if key.startswith(INDEX_PREFIX)
    }
    return Control(properties.get(UUID_PROPERTY), index)


def ensure_control_namespace(admin: Admin, tenant: str) -> str:
    """Makes the namespace with a UUID unless it is there; returns the UUID that is. A namespace PUT has one winner."""
    path = namespace_path(control_namespace(tenant))
    existing = read_control(admin, tenant).uuid
    if existing is not None:
        return existing
    body = {**_POLICIES, "properties": {UUID_PROPERTY: str(uuid.uuid4())}}
    try:
        reply = admin.call("PUT", path, body)
        if not reply.ok and reply.status != 409:
            raise AdminError(reply, f"creating kodoctl's control namespace in tenant {tenant}")
    except LostReplyError:
        pass  # read again below: it happened or it did not
    existing = read_control(admin, tenant).uuid
    if existing is None:  # made by somebody else, without the UUID
        must(admin.call("PUT", f"{path}/properties", {UUID_PROPERTY: str(uuid.uuid4())}), "storing the cluster's UUID")
        existing = read_control(admin, tenant).uuid
    assert existing is not None
    return existing


def ensure_lease_topic(admin: Admin, namespace: NamespaceName) -> str:
    """The topic whose exclusive producer is the lease of a namespace; several creators are harmless."""
    local = f"journal-{namespace.namespace}"
    path = f"persistent/{control_namespace(namespace.tenant)}/{quote(local, safe='')}"
    reply = admin.call("GET", f"{path}/partitions")
    if reply.missing:
        made = admin.call("PUT", path)
        if not made.ok and made.status != 409:
            raise AdminError(made, f"creating the lease topic of {namespace}")
    return f"persistent://{control_namespace(namespace.tenant)}/{local}"


def write_index(admin: Admin, tenant: str, name: str, namespaces: Iterable[NamespaceName]) -> None:
    """Where a topology lives now; nowhere removes the entry (a null value makes a property disappear)."""
    listed = sorted(str(namespace) for namespace in namespaces)
    path = f"{namespace_path(control_namespace(tenant))}/properties"
    must(
        admin.call("PUT", path, {f"{INDEX_PREFIX}{name}": json.dumps(listed) if listed else None}), "writing the index"
    )
