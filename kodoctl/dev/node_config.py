"""Configuration files of a broker, a bookie and ZooKeeper: packaged templates, and the values of one instance or node."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final

from kodoctl.dev.ports import HOST, ClusterPorts, Ports
from kodoctl.dev.tokens import ADMIN, SUPERUSERS

MARK: Final = "narExtractionDirectory"
_PROVIDER: Final = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
_LOOPBACK: Final = "lo0" if sys.platform == "darwin" else "lo"
_PLUGIN: Final = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
_COPIES: Final = 3
_CONFIRMED: Final = 2


@dataclass(frozen=True, slots=True)
class TokenPlaces:
    """Locations of the key that signs tokens (a path or a `file:` URL) and of the broker's own token (a `file:` URL).
    The secrets themselves are not in the configuration, because the broker logs its configuration.
    """

    key: str
    own_token: str


def packaged_text(name: str) -> str:
    """Text of a file that is part of this package."""
    return (resources.files("kodoctl.dev") / "files" / name).read_text(encoding="utf-8")


def render(ports: Ports, mark: str, *, bind: str = HOST, tokens: TokenPlaces | None = None) -> str:
    """Text of `standalone.conf`. `mark`: path of the folder for unpacked archives, by which this broker is recognised
    on its port; `bind`: address on which the broker listens (clients always use 127.0.0.1); `tokens`: None without
    authentication.

    The storage has no authentication, and listens on the broker's address; its default is every interface. In a
    container (another `bind`) this is the container's own address.
    """
    return _text(
        _packaged_settings("broker.conf", "bookie.conf", "standalone.conf"),
        _listener(ports.admin, ports.broker, bind),
        {"listeningInterface": _LOOPBACK} if bind == HOST else {},
        {MARK: mark},
        _authentication(tokens) if tokens else {},
    )


def broker(cluster: str, ports: ClusterPorts, number: int, mark: str, tokens: TokenPlaces | None = None) -> str:
    """Text of the configuration of one broker of a cluster. `number`: from 1; `mark`, `tokens`: as in `render`. Each
    message has three copies, of which two must confirm, or as many as there are bookies.
    """
    bookies = len(ports.bookies)
    admin, binary = ports.brokers[number - 1]
    return _text(
        _packaged_settings("broker.conf", "cluster-broker.conf"),
        {
            "clusterName": cluster,
            "metadataStoreUrl": metadata_url(ports),
            "configurationMetadataStoreUrl": metadata_url(ports),
            "managedLedgerDefaultEnsembleSize": str(min(_COPIES, bookies)),
            "managedLedgerDefaultWriteQuorum": str(min(_COPIES, bookies)),
            "managedLedgerDefaultAckQuorum": str(min(_CONFIRMED, bookies)),
        },
        _listener(admin, binary, HOST),
        {MARK: mark},
        _authentication(tokens) if tokens else {},
    )


def bookie(ports: ClusterPorts, number: int) -> str:
    """Text of the configuration of one bookie of a cluster. `number`: from 1. Its identity is its port. Folders are
    relative to the folder in which the node runs.
    """
    return _text(
        _packaged_settings("bookie.conf", "cluster-bookie.conf"),
        {
            "bookiePort": str(ports.bookies[number - 1]),
            "advertisedAddress": HOST,
            "listeningInterface": _LOOPBACK,
            "journalDirectories": "data/journal",
            "ledgerDirectories": "data/ledgers",
            "indexDirectories": "data/ledgers",
            "metadataServiceUri": f"metadata-store:{metadata_url(ports)}",  # without /ledgers: Pulsar's driver adds it
        },
    )


def zookeeper(ports: ClusterPorts) -> str:
    """Text of zookeeper.conf: the packaged file with the data folder and the port of this cluster."""
    return _text(
        _packaged_settings("zookeeper.conf"),
        {"dataDir": "data", "clientPort": str(ports.zookeeper), "clientPortAddress": HOST},
    )


def metadata_url(ports: ClusterPorts) -> str:
    """URL of the cluster's metadata store (ZooKeeper)."""
    return f"zk:{HOST}:{ports.zookeeper}"


def _text(*settings: Mapping[str, str]) -> str:
    """Text with one line for each key, the last value of each: two lines of a key would become a list."""
    merged = {key: value for part in settings for key, value in part.items()}
    return "".join(f"{key}={value}\n" for key, value in merged.items())


def _packaged_settings(*names: str) -> dict[str, str]:
    lines = [line.strip() for name in names for line in packaged_text(name).splitlines()]
    pairs = [line.split("=", 1) for line in lines if line and not line.startswith("#")]
    return {key: value for key, value in pairs}  # noqa: C416 - dict() of lists is not typed


def _listener(admin: int, broker: int, bind: str) -> Mapping[str, str]:
    return {
        "advertisedAddress": HOST,
        "bindAddress": bind,
        "webServicePort": str(admin),
        "brokerServicePort": str(broker),
    }


def _authentication(tokens: TokenPlaces) -> Mapping[str, str]:
    return {
        "authenticationEnabled": "true",
        "authenticationProviders": _PROVIDER,
        "tokenSecretKey": tokens.key,
        "authorizationEnabled": "true",
        "superUserRoles": ",".join((ADMIN, *SUPERUSERS)),
        "brokerClientAuthenticationPlugin": _PLUGIN,
        "brokerClientAuthenticationParameters": tokens.own_token,
    }
