"""kodoctl's own namespace in each Pulsar tenant: it contains a UUID, the index of topologies, and the lease topics.

The first apply creates it. kodoctl never deletes, plans or imports it. Everything is created only if absent, so that
two first applies agree.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from kodoctl.errors import ClusterError, KodoctlError, error
from kodoctl.protocol.properties import CONTROL_NAMESPACE, INDEX_PREFIX, PLACE_PREFIX, UUID_PROPERTY
from kodoctl.pulsar.admin.admin import NOT_SENT, Admin, Reply, must, namespace_path
from kodoctl.pulsar.admin.confirmed_write import CONFLICT, WriteFailedError, poll_until, write_confirmed
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
Place = tuple[str, NamespaceName]  # a topology by name, and a namespace in which it owns objects
_EXISTS: Final = frozenset({CONFLICT})  # of a create: another client was first, which is fine


def control_namespace(tenant: str) -> NamespaceName:
    """Name of kodoctl's own namespace in a Pulsar tenant, `<tenant>/kodoctl`."""
    return NamespaceName(tenant, CONTROL_NAMESPACE)


@dataclass(frozen=True, slots=True)
class ControlNamespace:
    """Content of the control namespace of a Pulsar tenant.

    Args:
        uuid: id of the tenant on this cluster; None if no command of kodoctl has stored one yet.
        index: by topology name, the namespaces in which the topology owns objects, or owned some before.
        listed: the part of `index` that is stored in the older form, one list for each name.
        producers: roles with `produce` on the namespace or on a topic in it, which may write journals.
    """

    uuid: str | None = None
    index: Mapping[str, tuple[NamespaceName, ...]] = field(default_factory=dict)
    listed: Mapping[str, frozenset[NamespaceName]] = field(default_factory=dict)  # the part of it in one list a name
    producers: frozenset[str] = frozenset()


def cluster_identity(admin: Admin, tenant: str) -> str | None:
    """Reads the UUID that kodoctl stored in a Pulsar tenant (`ensure_control_namespace`); None: there is none, or it
    cannot be read.
    """
    try:
        return read_control_namespace(admin, tenant).uuid
    except KodoctlError:
        return None


def read_control_namespace(admin: Admin, tenant: str) -> ControlNamespace:
    """Reads the content of a tenant's control namespace; it is empty if the namespace or the tenant does not exist, as
    before the first apply. Raises ClusterError, also (K522) for an index with an invalid entry.
    """
    reply = admin.call("GET", namespace_path(control_namespace(tenant)))
    if reply.missing:
        return ControlNamespace()
    dump = must(reply, "reading kodoctl's control namespace")
    properties = dump.get("properties") or {}
    listed: dict[str, set[NamespaceName]] = {}
    places: dict[str, set[NamespaceName]] = {}
    try:
        for key, text in properties.items():
            if key.startswith(INDEX_PREFIX):
                listed[key.removeprefix(INDEX_PREFIX)] = {_own(name, tenant) for name in json.loads(text)}
            elif key.startswith(PLACE_PREFIX):
                name, _, local = key.removeprefix(PLACE_PREFIX).rpartition("/")
                places.setdefault(name, set()).add(NamespaceName.parse(f"{tenant}/{local}"))
    except (ValueError, TypeError, AttributeError, RecursionError) as problem:
        detail = (
            f"{control_namespace(tenant)}: a property {INDEX_PREFIX}… is damaged ({problem}): remove it and apply again"
        )
        raise ClusterError(error("K522", "index of topologies cannot be read", detail)) from None
    index = {name: tuple(sorted(listed.get(name, set()) | places.get(name, set()))) for name in {**listed, **places}}
    return ControlNamespace(
        properties.get(UUID_PROPERTY),
        index,
        {name: frozenset(spaces) for name, spaces in listed.items()},
        frozenset(_producers(dump.get("auth_policies") or {})),
    )


def _producers(grants: Mapping[str, Any]) -> Iterator[str]:
    """Yields the roles with `produce` among the grants of a namespace and of its topics."""
    for roles in (grants.get("namespace_auth") or {}, *(grants.get("destination_auth") or {}).values()):
        yield from (role for role, actions in roles.items() if "produce" in actions)


def _own(name: str, tenant: str) -> NamespaceName:
    """A namespace of this tenant. Raises ValueError for a namespace of another tenant. The check matters
    because the tenant's administrators can write any name here, and a topology's undeclared objects in its
    namespaces are deleted.
    """
    found = NamespaceName.parse(name)
    if found.tenant != tenant:
        raise ValueError(f"{found} is not of tenant {tenant}")
    return found


def ensure_control_namespace(admin: Admin, tenant: str) -> str:
    """Creates the control namespace of a Pulsar tenant, which must exist, unless there is one, and gives it a new UUID
    unless it has one. Returns the UUID that the namespace then has. If several clients create it at the same time, one
    of them succeeds, and the others get that client's UUID. Only if they find a namespace without a UUID, clients may
    get different ones, of which the last one stays. Raises ClusterError.
    """

    def read_uuid() -> str | None:
        return read_control_namespace(admin, tenant).uuid

    if (existing := read_uuid()) is not None:
        return existing
    path, fresh = namespace_path(control_namespace(tenant)), str(uuid.uuid4())
    named, doing = {UUID_PROPERTY: fresh}, f"preparing {control_namespace(tenant)}"
    body = {**_POLICIES, "properties": named}
    made = _write(admin, path, body, done=lambda: read_uuid() is not None, doing=doing, final=_EXISTS)
    if made is not None and made.ok:
        return fresh  # whoever else asks was later
    poll_until(lambda: admin.call("GET", path).ok)  # another client was first: a broker may show it late
    if read_uuid() is None:  # made without the UUID
        _write(admin, f"{path}/properties", named, done=lambda: read_uuid() is not None, doing=doing)
        poll_until(lambda: read_uuid() is not None)
    if (existing := read_uuid()) is None:
        detail = f"{doing}: the broker does not show the property {UUID_PROPERTY}: apply again"
        raise ClusterError(error("K519", "kodoctl's own records could not be written", detail))
    return existing


def lease_topic(namespace: NamespaceName) -> str:
    """The topic of a namespace's lease and journal, full name."""
    return f"persistent://{control_namespace(namespace.tenant)}/journal-{namespace.namespace}"


def ensure_lease_topic(admin: Admin, namespace: NamespaceName) -> str:
    """Creates the lease topic of a namespace unless it exists, and returns its full name. The control namespace must
    exist. Several creators are harmless. Raises ClusterError.
    """
    topic = lease_topic(namespace)
    local = topic.rpartition("/")[2]
    path = f"persistent/{control_namespace(namespace.tenant)}/{quote(local, safe='')}"

    def there() -> bool:
        return not admin.call("GET", f"{path}/partitions").missing

    if not there():
        _write(admin, path, NOT_SENT, done=there, doing=f"creating the lease topic of {namespace}", final=_EXISTS)
    return topic


def write_index(admin: Admin, tenant: str, *, more: Collection[Place], less: Collection[Place]) -> None:
    """Changes the index of a Pulsar tenant: adds the places `more` and removes `less`, by one write, which is repeated
    if a broker fails; without one if nothing changes. All places are of this tenant, none is in both. The control
    namespace must exist.

    Each (topology, namespace) is a property of its own. Two applies of one topology in two namespaces hold different
    leases, and would overwrite each other's changes in a common list. Raises ClusterError.
    """
    before = read_control_namespace(admin, tenant)
    body: dict[str, str | None] = {_key(one): "1" for one in sorted(more) if not _is_in(before, one)}
    body |= {_key(one): None for one in sorted(less) if _is_in(before, one)}  # a null value makes a property disappear
    for name, listed in before.listed.items():  # written by a kodoctl that had lists; nobody adds to one any more
        if any((name, one) in less for one in listed):
            left = sorted(str(one) for one in listed if (name, one) not in less)
            body[f"{INDEX_PREFIX}{name}"] = json.dumps(left) if left else None
    if not body:
        return

    def there() -> bool:
        now = read_control_namespace(admin, tenant)
        return all(_is_in(now, one) for one in more) and not any(_is_in(now, one) for one in less)

    path = f"{namespace_path(control_namespace(tenant))}/properties"
    _write(admin, path, body, done=there, doing="writing down where topologies live")


def _is_in(found: ControlNamespace, place: Place) -> bool:
    name, namespace = place
    return namespace in found.index.get(name, ())


def _key(place: Place) -> str:
    name, namespace = place
    return f"{PLACE_PREFIX}{name}/{namespace.namespace}"


def _write(
    admin: Admin, path: str, body: Any, *, done: Callable[[], bool], doing: str, final: frozenset[int] = frozenset()
) -> Reply | None:
    """Sends a confirmed PUT. `final`, and the result: as of `write_confirmed`. Raises ClusterError."""
    try:
        return write_confirmed(admin, "PUT", path, body, done=done, final=final)
    except WriteFailedError as problem:
        raise ClusterError(error("K519", "kodoctl's own records could not be written", f"{doing}: {problem}")) from None
