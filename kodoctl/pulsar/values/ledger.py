"""Ownership ledger of a topology: the objects that it owns in a namespace, stored as one property of the namespace.

The text is compressed, because all ledgers of a namespace together must stay below 500 kB (ZooKeeper stores about 1 MB
per node). Ownership is stored only in these ledgers and in the markers on objects; there is no state file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

from kodoctl.documents.json_form import DigestOrNone
from kodoctl.errors import ClusterError, error
from kodoctl.protocol.properties import LEDGER_PREFIX
from kodoctl.pulsar.values.packed_text import pack, unpack
from kodoctl.topology.json_forms import Listed, NamespaceText, TextSet, TextSets
from kodoctl.topology.names import why_not_pulsar_name
from kodoctl.topology.resources import Address, is_of_platform, namespace_of_address

if TYPE_CHECKING:
    from kodoctl.topology.names import NamespaceName

FORMAT_VERSION: Final = 1
MAX_BYTES: Final = 500_000


class OwnershipKind(StrEnum):
    """Way in which an object came to be owned. INTENT is recorded before the object is created: if such an object
    exists on the cluster, the topology owns it only if it has the topology's marker.
    """

    INTENT = "intent"
    CREATED = "created"
    ADOPTED = "adopted"


@dataclass(frozen=True, slots=True)
class Source:
    """Location of a topology's file. `origin`: host/owner/name of its git remote `origin`, None: there is none; `path`:
    the file, relative to the root of its git checkout, None: no git, or no checkout.
    """

    origin: str | None = None
    path: str | None = None


@dataclass(frozen=True)
class Ledger:
    """Ownership ledger of the topology `name` in `namespace`.

    Args:
        source: location of the topology's file.
        environment: environment of the last apply; None: the file without an environment.
        digest: hash of the topology at the last complete apply; "" if a part of another version was applied since.
        owned: kind of ownership by address.
        namespace_keys: names of the namespace's policies that the topology manages.
        grants: granted actions by address.
        consumers: settings that only consumers read, by `TOPIC/SUBSCRIPTION`, as the last complete apply had them.
        databases: variable of the URL -> identity of the database at the last apply (`DatabaseFacts.identity`).
    """

    name: str
    namespace: NamespaceText
    source: Annotated[Source, Listed] = field(default_factory=Source)
    environment: str | None = None
    digest: DigestOrNone = ""
    owned: Annotated[Mapping[Address, OwnershipKind], Field(exclude=True)] = field(default_factory=dict, repr=False)
    namespace_keys: TextSet = frozenset()
    grants: TextSets = field(default_factory=dict, repr=False)
    consumers: Mapping[str, Any] = field(default_factory=dict, repr=False)  # consumer-only settings as last applied
    databases: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def addresses(self) -> frozenset[Address]:
        """Addresses of all objects that the topology owns or is about to create, and of its grants."""
        return frozenset(self.owned) | self.grants.keys()

    def with_holdings(self, changes: Mapping[Address, OwnershipKind | None]) -> Ledger:
        """Returns a copy in which each address in `changes` has the given kind of ownership, or is removed (None)."""
        owned = {**self.owned, **changes}
        return replace(self, owned={address: how for address, how in owned.items() if how is not None})


def too_large(namespace: NamespaceName) -> str:
    """Error text for a namespace whose ledgers would exceed the size limit."""
    return f"{namespace}: the ownership ledgers would exceed 500 kB: split the topologies over namespaces"


def encode(ledger: Ledger) -> str:
    """Encodes a ledger as the text of its namespace property: the version, a colon, and the JSON compressed as text.
    Equal ledgers give equal texts, so that a comparison of texts shows whether a write is needed.
    """
    prefix = f"persistent://{ledger.namespace}/"
    document = {
        "v": FORMAT_VERSION,
        "source": [ledger.source.origin, ledger.source.path],
        "env": ledger.environment,
        "digest": ledger.digest,
        "owned": {
            how.value: sorted(_short(a, prefix) for a, h in ledger.owned.items() if h is how) for how in OwnershipKind
        },
        "keys": sorted(ledger.namespace_keys),
        "grants": {_short(a, prefix): sorted(actions) for a, actions in sorted(ledger.grants.items())},
        "consumers": ledger.consumers,
        **({"databases": ledger.databases} if ledger.databases else {}),
    }
    packed = pack(json.dumps(document, sort_keys=True, separators=(",", ":")).encode(), 9)
    return f"{FORMAT_VERSION}:{packed}"


def read_ledgers(namespace: NamespaceName, dump: dict[str, Any]) -> dict[str, Ledger]:
    """Decodes the ownership ledgers in the JSON of a namespace (`dump`), by name of the topology; {} if there is none.
    Raises ClusterError if one is damaged, or has the format of another version of kodoctl.
    """
    return {
        key.removeprefix(LEDGER_PREFIX): decode(key.removeprefix(LEDGER_PREFIX), namespace, text)
        for key, text in (dump.get("properties") or {}).items()
        if key.startswith(LEDGER_PREFIX)
    }


def decode(name: str, namespace: NamespaceName, text: str) -> Ledger:
    """Decodes the property of the topology `name`. Raises ClusterError if this kodoctl cannot read it: a guess about
    owners could delete objects.
    """
    version, _, packed = text.partition(":")
    if version != str(FORMAT_VERSION):
        detail = (
            f"{namespace}: the entry of {name!r} has format {version[:20]!r}; a newer kodoctl wrote it: use that one"
        )
        raise ClusterError(error("K520", "ownership ledger of another format", detail))
    prefix = f"persistent://{namespace}/"
    try:
        document = json.loads(unpack(packed))
        found = Ledger(
            name,
            namespace,
            Source(*document["source"]),
            document["env"],
            document["digest"],
            {_long(a, prefix): OwnershipKind(how) for how, addresses in document["owned"].items() for a in addresses},
            frozenset(document["keys"]),
            {_long(a, prefix): frozenset(actions) for a, actions in document["grants"].items()},
            document["consumers"],
            document.get("databases", {}),
        )
        _check(found)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        detail = f"{namespace}: the entry of {name!r} is damaged ({problem}): restore the namespace property, or remove it and adopt again"
        raise ClusterError(error("K521", "ownership ledger cannot be read", detail)) from None
    return found


def _check(found: Ledger) -> None:
    """Raises ValueError for an entry with invalid addresses, or with those of another namespace, apart from grants and
    objects of the whole cluster.
    """
    for address in found.owned:
        if is_of_platform(address):
            if reason := why_not_pulsar_name(address.partition(".")[2]):
                raise ValueError(f"{address}: {reason}")
        elif namespace_of_address(address) != found.namespace:
            raise ValueError(f"{address} is not in {found.namespace}")
    for address in found.grants:
        if not address.startswith("grant."):
            raise ValueError(f"{address} is no grant")
        namespace_of_address(address)
    texts = [found.digest, found.environment or "", *found.namespace_keys, *found.consumers, *found.databases.values()]
    texts += [
        part for parts in (found.source.origin, found.source.path, *found.grants.values()) for part in parts or ()
    ]
    if not all(isinstance(text, str) for text in texts) or not all(
        isinstance(one, dict) for one in found.consumers.values()
    ):
        raise ValueError("what should be text is none")


def _short(address: Address, prefix: str) -> str:
    kind, dot, name = address.partition(".")
    return f"~{kind}{dot}{name.removeprefix(prefix)}" if name.startswith(prefix) else address


def _long(short: str, prefix: str) -> Address:
    kind, dot, name = short.removeprefix("~").partition(".")
    return f"{kind}{dot}{prefix}{name}" if short.startswith("~") else short
