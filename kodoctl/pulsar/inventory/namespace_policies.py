"""Reader of the policies of one namespace: those in the JSON of the namespace, and those that have a request of their
own because Pulsar stores them elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kodoctl.pulsar.admin.admin import Admin, must, namespace_path
from kodoctl.pulsar.inventory.policy_json import is_set
from kodoctl.pulsar.inventory.policy_requests import NAMESPACE_CODECS, read_namespace_policies

if TYPE_CHECKING:
    from kodoctl.topology.model.policies import Policies
    from kodoctl.topology.names import NamespaceName


def read_policies(admin: Admin, namespace: NamespaceName, cluster: str, names: Collection[str]) -> Policies:
    """Reads the policies that are explicitly set on the namespace, with rates for `cluster`. Of the policies with a
    request of their own it reads those in `names`. Raises ClusterError.
    """
    dump = must(admin.call("GET", namespace_path(namespace)), f"reading namespace {namespace}")
    return {**read_namespace_policies(dump, cluster), **read_apart(admin, namespace, names)}


def read_apart(admin: Admin, namespace: NamespaceName, names: Collection[str]) -> Policies:
    """Reads the policies in `names` that have a request of their own and are set, with one request each. A namespace
    where none was ever set may answer 404, which means unset. Raises ClusterError.
    """
    found = {}
    for codec in NAMESPACE_CODECS:
        if codec.is_apart and codec.name in names:
            reply = admin.call("GET", f"{namespace_path(namespace)}/{codec.namespace}")
            raw = None if reply.missing else must(reply, f"reading {codec.name} of {namespace}")
            if is_set(raw) and (value := codec.shape.decode(raw)) is not None:
                found[codec.name] = value
    return found
