"""Addresses of a cluster: one, or several of its brokers separated by commas, such as `http://a:8080,b:8080` or
`http://a:8080,http://b:8080`.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from kodoctl.errors import Diagnostic, UsageError, error

ADMIN: Final = ("http", "https")
BROKER: Final = ("pulsar", "pulsar+ssl")
NO_WORKERS: Final = "none"  # in place of the address of a function worker: the cluster has none
_FLAGS: Final = {ADMIN: "--admin-url", BROKER: "--broker-url"}


def split(text: str) -> tuple[str, ...]:
    """Splits a list of addresses, without duplicates, spaces and final slashes; an address without a scheme gets that
    of the first one. Checks nothing.
    """
    parts = [part.strip() for part in text.split(",")]
    scheme, found, _ = parts[0].partition("://")
    whole = [part if "://" in part or not found else f"{scheme}://{part}" for part in parts]
    return tuple(dict.fromkeys(part.rstrip("/") for part in whole))


def join(addresses: tuple[str, ...]) -> str:
    """Joins addresses with commas, as the client library accepts them: only the first keeps its scheme. There must be
    at least one address, and all must have the same scheme.
    """
    first, *others = addresses
    return ",".join((first, *(other.partition("://")[2] for other in others)))


def normalize_addresses(
    admin: str | None, broker: str | None, places: tuple[str, str] = (_FLAGS[ADMIN], _FLAGS[BROKER])
) -> tuple[str, str | None]:
    """Checks the addresses of the admin API and of the binary port, and returns both as `join` writes them ("" for
    `admin` None, None for `broker` None). `places`: flag, variable or file of each, for messages. Raises UsageError
    (K505) with all errors of both; an empty text is one.
    """
    found = []
    faults: list[Diagnostic] = []
    for text, schemes, place in ((admin, ADMIN, places[0]), (broker, BROKER, places[1])):
        faults += (
            error("K505", "not an address", f"{place}: {fault}")
            for fault in (_faults(text, schemes) if text is not None else ())
        )
        found.append(None if text is None else join(split(text)))
    if faults:
        raise UsageError(*faults)
    return found[0] or "", found[1]


def normalize_worker(text: str | None) -> str | None:
    """Checks the addresses of function workers that run apart from the brokers, and returns them as `join` writes them;
    NO_WORKERS and None as they are. Raises UsageError (K505).
    """
    if text is None or text == NO_WORKERS:
        return text
    if faults := [*_faults(text, ADMIN)]:
        say = f"; or {NO_WORKERS!r}, if the cluster has no function workers"
        raise UsageError(*(error("K505", "not an address", f"function_worker: {fault}{say}") for fault in faults))
    return join(split(text))


def _faults(text: str, schemes: tuple[str, ...]) -> Iterator[str]:
    if "," in text and not all(part.strip() for part in text.split(",")):
        yield f"{_without_user(text)!r}: between two commas, or beside one, there is none"
        return
    addresses = split(text)
    several = f", one of {len(addresses)} addresses" if len(addresses) > 1 else ""
    for address in addresses:
        parts = _parts(address)
        if parts is None or not _good(parts, schemes):
            yield f"{_without_user(address)!r}{several}: write {schemes[0]}://HOST:PORT{_hint(parts, schemes)}"
    used = {address.partition("://")[0] for address in addresses}
    if len(used) > 1 and used <= {*schemes}:
        yield f"{_without_user(text)!r}: the addresses of one cluster begin with the same of {' and '.join(sorted(used))}"


def _parts(address: str) -> SplitResult | None:
    """Parses an address; None: its port is no number below 65536, or its brackets enclose no IPv6 address."""
    try:
        parts = urlsplit(address)
        parts.port  # noqa: B018  # asking for it is what finds a wrong one
    except ValueError:
        return None
    return parts


def _good(parts: SplitResult, schemes: tuple[str, ...]) -> bool:
    return parts.scheme in schemes and _is_host(parts.hostname) and not parts.username and parts.port != 0


def _is_host(name: str | None) -> bool:
    """False for a name that no lookup takes: without characters, or with a label that is empty or too long."""
    try:
        return bool((name or "").encode("idna"))
    except UnicodeError:
        return False


def _hint(parts: SplitResult | None, schemes: tuple[str, ...]) -> str:
    """Suggestion for a wrong address."""
    if parts is None:
        return "; a port is a number below 65536"
    if parts.username:
        return "; a user does not belong into it: tokens are given with --token-file"
    if parts.scheme in {*ADMIN, *BROKER} - {*schemes}:
        other = _FLAGS[BROKER if schemes == ADMIN else ADMIN]
        return f"; an address with {parts.scheme}:// belongs to {other}"
    return ""


def readable_by_all(text: str) -> bool:
    """True if one of the addresses is without TLS and not on this machine, so that others on the network can read
    requests and messages.
    """
    found = [urlsplit(address) for address in split(text)]
    return any(parts.scheme in (ADMIN[0], BROKER[0]) and not _here(parts.hostname) for parts in found)


def _here(host: str | None) -> bool:
    """True if a host is this machine."""
    try:
        return host == "localhost" or ip_address(host or "").is_loopback
    except ValueError:
        return False


def _without_user(url: str) -> str:
    return url.rsplit("@", 1)[-1]
