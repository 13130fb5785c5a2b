"""Scope of a read: the objects that a command needs to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kodoctl.topology.target_flags import WHOLE, TargetFlags

if TYPE_CHECKING:
    from kodoctl.topology.names import NamespaceName, TopicName
    from kodoctl.topology.resources import Address, FunctionResource, PackageResource, SchemaResource


@dataclass(frozen=True, slots=True)
class ReadScope:
    """The objects to read: `namespaces` with their topics, and the Pulsar tenants `tenants`.

    `names`: topologies whose objects are also read in other namespaces; `declared`: topics of the files; `schemas`:
    declared schemas; `everything`: read also topics that other topologies own (for import); `only`: read just these
    topics, whose state an apply needs before it begins, None: all.
    """

    namespaces: tuple[NamespaceName, ...]
    names: frozenset[str] = frozenset()
    declared: frozenset[TopicName] = frozenset()
    schemas: frozenset[SchemaResource] = frozenset()
    tenants: frozenset[str] = frozenset()
    platform: Mapping[Address, NamespaceName] = field(
        default_factory=dict
    )  # objects of the whole cluster -> their home
    grants_only: tuple[NamespaceName, ...] = ()  # namespaces of others that ours are granted on
    everything: bool = False
    only: frozenset[TopicName] | None = None
    functions: frozenset[FunctionResource] = frozenset()  # declared, or changed: all of their kinds are read there
    neighbours: bool = False  # functions of others matter, in namespaces that `names` created
    packages: bool = False  # whether the cluster has the packages of these functions matters
    uploads: frozenset[PackageResource] = frozenset()  # declared, or changed
    bookies: bool = False  # whether their number matters
    named: frozenset[str] = frozenset()  # namespace policies of the files: some have a request of their own
    reduced: bool = False  # go on where this role may see topics alone: `Live.unseen`
    selection: TargetFlags = WHOLE  # a topic that it leaves out may be unreadable: `Live.unread`
    lenient: bool = False  # every topic may be one that its broker cannot load
