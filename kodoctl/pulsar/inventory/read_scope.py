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
    """The objects that a command reads.

    Args:
        namespaces: are read with their topics.
        names: our topologies. The objects that their ledgers list are also read, in other namespaces as well.
        declared, schemas: topics and schemas of the files.
        tenants: Pulsar tenants, besides those of `namespaces`.
        platform: objects of the whole cluster, each with its home (the namespace whose ledger lists it).
        grants_only: namespaces of others in which the files grant rights: only grants are read there.
        everything: also reads objects of other topologies, and notes settings that no file can declare (for an import).
        only: reads just these topics; None: all.
        known: topics that are not read, because the caller has just read them.
        functions: functions and connectors that are declared or changed; all of their kinds in their namespaces are
            read.
        neighbours: also reads the functions of others, in namespaces that `names` created.
        packages: also reads which packages of `functions` are missing.
        uploads: packages that are declared or changed.
        bookies: also reads the number of bookies.
        named: names of the namespace policies in the files, some of which have a request of their own.
        reduced: a role that may see only topics is no error (`Live.unseen`).
        selection: flags that choose a part of the objects; topics that they leave out may be unreadable
            (`Live.unread`).
        lenient: any topic may be unreadable (`Live.unread`), one of ours only if waiting does not mend it.
    """

    namespaces: tuple[NamespaceName, ...]
    names: frozenset[str] = frozenset()
    declared: frozenset[TopicName] = frozenset()
    schemas: frozenset[SchemaResource] = frozenset()
    tenants: frozenset[str] = frozenset()
    platform: Mapping[Address, NamespaceName] = field(default_factory=dict)
    grants_only: tuple[NamespaceName, ...] = ()
    everything: bool = False
    only: frozenset[TopicName] | None = None
    known: frozenset[TopicName] = frozenset()
    functions: frozenset[FunctionResource] = frozenset()
    neighbours: bool = False
    packages: bool = False
    uploads: frozenset[PackageResource] = frozenset()
    bookies: bool = False
    named: frozenset[str] = frozenset()
    reduced: bool = False
    selection: TargetFlags = WHOLE
    lenient: bool = False
