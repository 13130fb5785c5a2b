"""Configuration of a broker: the part all have in common from the package, and what is particular to an instance."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final

from kodoctl.dev.ports import HOST, Ports
from kodoctl.dev.tokens import ADMIN, SUPERUSERS

MARK: Final = "narExtractionDirectory"
_PROVIDER: Final = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
_LOOPBACK: Final = "lo0" if sys.platform == "darwin" else "lo"
_PLUGIN: Final = "org.apache.pulsar.client.impl.auth.AuthenticationToken"


@dataclass(frozen=True, slots=True)
class TokenPlaces:
    """Where the broker finds the key that signs tokens (a path) and its own token (a `file:` URL).

    Never the secrets themselves: the broker's log repeats its configuration, word for word.
    """

    key: str
    own_token: str


def packaged(name: str) -> str:
    """Text of a file that comes with this package."""
    return (resources.files("kodoctl.dev") / "files" / name).read_text(encoding="utf-8")


def render(ports: Ports, mark: str, *, bind: str = HOST, tokens: TokenPlaces | None = None) -> str:
    """`standalone.conf`. `bind` is the address listened on; clients are always told 127.0.0.1.

    The storage has no authentication: it listens where the broker does, for else it would listen on every interface.
    In a container (another `bind`) that is the container's own.

    `mark` goes where archives would be unpacked, and tells this broker from any other that might answer on its port.
    """
    settings = {**_common(), **_addresses(ports, bind), MARK: mark, **(_authentication(tokens) if tokens else {})}
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _common() -> dict[str, str]:
    """One entry for each key: a key said twice would become a list."""
    lines = [line.strip() for line in packaged("standalone.conf").splitlines()]
    pairs = [line.split("=", 1) for line in lines if line and not line.startswith("#")]
    return {key: value for key, value in pairs}  # noqa: C416 - dict() of lists is not typed


def _addresses(ports: Ports, bind: str) -> Mapping[str, str]:
    return {
        "advertisedAddress": HOST,
        "bindAddress": bind,
        "webServicePort": str(ports.admin),
        "brokerServicePort": str(ports.broker),
        **({"listeningInterface": _LOOPBACK} if bind == HOST else {}),
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
