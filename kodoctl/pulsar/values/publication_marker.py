# pure: every branch is tested
"""Marker of a publication: its owner, in the first line of the publication's comment in the database."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.names import NamespaceName

_BEGIN: Final = "kodoctl "
_KEYS: Final = ("topology", "namespace", "cluster", "tenant_uuid")


@dataclass(frozen=True, slots=True)
class PublicationMarker:
    """Owner of a publication: a topology in a namespace. `uuid`: UUID of the Pulsar tenant on its cluster, which no
    other cluster has; `cluster`: name of the cluster, which only texts for people use.
    """

    topology: str
    namespace: str
    cluster: str
    uuid: str

    def __str__(self) -> str:
        return f"{self.topology} in {self.namespace} on cluster {self.cluster}"


def read_marker(comment: str | None) -> PublicationMarker | None:
    """The marker in a comment; None if it has none. A marker that cannot be read becomes one with `?` in place of its
    topology and namespace, so that it names no owner that we know.
    """
    line = (comment or "").partition("\n")[0]
    if not line.startswith(_BEGIN):
        return None
    try:
        values = json.loads(line.removeprefix(_BEGIN))
        return PublicationMarker(*(str(values[key]) for key in _KEYS))
    except (ValueError, KeyError, TypeError, RecursionError):
        return PublicationMarker("?", "?", f"? ({line[:80]})", "")


def with_marker(comment: str | None, marker: PublicationMarker | None) -> str | None:
    """Returns the comment on a publication with `marker` as its first line, in place of the marker that it has;
    `marker` None only removes that one. Other lines of the comment stay. None, as `comment` and as result: the
    publication has no comment.
    """
    first, _, rest = (comment or "").partition("\n")
    kept = rest if first.startswith(_BEGIN) else comment or ""
    if marker is None:
        return kept or None
    values = dict(zip(_KEYS, (marker.topology, marker.namespace, marker.cluster, marker.uuid), strict=True))
    line = f"{_BEGIN}{json.dumps(values)}"
    return f"{line}\n{kept}" if kept else line


def owner_of(marker: PublicationMarker | None, namespace: NamespaceName, live: Live) -> tuple[str | None, bool]:
    """Returns (owner, True if the owner is of another namespace or cluster) of a publication that a topology in
    `namespace` declares. The owner is the name of a topology of this namespace, or a text for people; None: nobody.
    `live`: has the UUIDs of this cluster; if `namespace` could not be read (`Live.unseen`), a marker counts as one of
    this cluster.
    """
    if marker is None:
        return None, False
    is_here = marker.uuid == live.identity.uuids.get(namespace.tenant) or namespace in live.unseen
    is_ours = is_here and marker.namespace == str(namespace)
    return (marker.topology, False) if is_ours else (str(marker), True)
