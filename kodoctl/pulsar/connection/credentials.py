"""Credentials and trust of a client: a token, OAuth2 client credentials, TLS files. This module reads and checks them,
and sends nothing.

They come from flags, environment and context, in this order. The first of these that has a token or OAuth2 credentials
is used for both, and the first that has a TLS file is used for all TLS files.
"""

from __future__ import annotations

import atexit
import os
import ssl
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import certifi

from kodoctl.errors import UsageError, Where, error
from kodoctl.host.host_facts import absolute_path
from kodoctl.pulsar.connection.secret import Secret, checked_secret, read_secret

TLS_KEYS: Final = ("tls_cert", "tls_key", "tls_ca")
OAUTH2_KEYS: Final = (
    "oauth2_issuer",
    "oauth2_client_id",
    "oauth2_client_secret_file",
    "oauth2_audience",
    "oauth2_scope",
)
FILE_KEYS: Final = frozenset({"token_file", "oauth2_client_secret_file", *TLS_KEYS})
SECRET_KEYS: Final = FILE_KEYS - {"tls_ca"}  # files that say who one is
"""Keys of a context that name files with a client's identity. Relative names start at the configuration's folder."""
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files. `cert` and `key`: this client's identity, both or none; `ca`: the trusted authorities, None: those of
    the system and of certifi.
    """

    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None


@dataclass(frozen=True, slots=True)
class OAuth2:
    """Client credentials (RFC 6749, 4.4). `issuer`: URL of the server whose metadata name the endpoint for tokens;
    `audience`, `scope`: None: a request for a token names none.
    """

    issuer: str
    client_id: str
    secret: Secret
    audience: str | None = None
    scope: str | None = None


def token_of(values: Mapping[str, str], *, text: str = "", source: str = "") -> Secret | None:
    """Token of one source (flags, environment or context): `text`, which is the value of the variable `source`; if it
    is empty, the content of the file `values["token_file"]`; None if neither is set. White space around a token is left
    out. Raises UsageError if the file cannot be read, or the token is not one word of printable ASCII.
    """
    if text.strip():
        return checked_secret(text.strip(), source, variable=source)
    return read_secret(Path(values["token_file"])) if values.get("token_file") else None


def oauth2_of(values: Mapping[str, str], place: str, *, secret: Secret | None = None) -> OAuth2 | None:
    """OAuth2 client credentials of one source (flags, environment or context), None if it has no part of them.
    `values`: by key of OAUTH2_KEYS; `place`: name of the source, for messages; `secret`: replaces the file of the
    secret. Raises UsageError if issuer, client id or secret is missing, the secret cannot be read, or the issuer is
    refused (`checked_issuer`).
    """
    if not secret and not any(values.get(key) for key in OAUTH2_KEYS):
        return None
    missing = [key for key in OAUTH2_KEYS[:2] if not values.get(key)]
    if not secret and not values.get("oauth2_client_secret_file"):
        missing.append("oauth2_client_secret_file")
    if missing:
        raise UsageError(error("K504", "incomplete OAuth2 credentials", f"{place}: {', '.join(missing)} missing"))
    found = secret or read_secret(Path(values["oauth2_client_secret_file"]))
    return OAuth2(
        checked_issuer(values["oauth2_issuer"], place),
        values["oauth2_client_id"],
        found,
        values.get("oauth2_audience") or None,
        values.get("oauth2_scope") or None,
    )


def checked_issuer(url: str, place: str) -> str:
    """Checks the URL of an issuer, or of its endpoint for tokens, and returns it without slashes at its end, as
    `checked_secure_url` does. `place`: the URL's source, for messages. Raises UsageError (K505).
    """
    return checked_secure_url(url, place, "an issuer", "the client's secret")


def checked_secure_url(url: str, place: str, noun: str, secret: str) -> str:
    """Checks a URL to which a secret is sent, and returns it without slashes at its end. Raises UsageError (K505)
    unless the URL begins with https://, or with http:// and names the host localhost, 127.0.0.1 or ::1, and if it
    contains a user or no host.

    Args:
        place: the URL's source, for messages.
        noun: the server with its article, such as `an issuer`, for messages.
        secret: the secret that it receives, for messages.
    """
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and not parts.username
        safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    except ValueError:
        good = safe = False
    if not good or not safe:
        shown = url.rsplit("@", 1)[-1]
        raise UsageError(
            error("K505", "not an address", f"{place}: {shown!r}: {noun} is https://HOST/PATH, for it gets {secret}")
        )
    return url.rstrip("/")


def tls_of(values: Mapping[str, str], place: str) -> Tls | None:
    """TLS files of one source (flags, environment or context) by their absolute paths, None if it names none. The files
    are loaded once to check them. Raises UsageError (K525, also for a certificate without a key and the reverse; K031
    for a relative name if the working folder was deleted).
    """
    files = [absolute_path(values[key]) if values.get(key) else None for key in TLS_KEYS]
    if not any(files):
        return None
    found = Tls(*files)
    if (found.cert is None) != (found.key is None):
        raise _unusable(f"{place}: a certificate and its key belong together: tls_cert and tls_key")
    for file in files:
        if file is not None and not file.is_file():
            raise _unusable("there is no such file", file)
    try:
        context = ssl.create_default_context(cafile=str(found.ca) if found.ca else None)
    except (OSError, ValueError):
        raise _unusable("it holds no certificates in PEM form", found.ca) from None
    if found.cert and found.key:
        try:
            context.load_cert_chain(found.cert, found.key, password=lambda: b"")
        except (OSError, ValueError) as problem:
            detail = f"certificate and key {found.key} cannot be used together: {getattr(problem, 'reason', None) or problem}"
            raise _unusable(detail, found.cert) from None
    return found


def _unusable(detail: str, file: Path | None = None) -> UsageError:
    return UsageError(error("K525", "TLS files cannot be used", detail, Where(str(file)) if file else None))


def trusted_file(tls: Tls | None) -> Path:
    """PEM file of the authorities that `trust` trusts: `tls.ca`, or a temporary file, which is there until this process
    ends. The client library reads one file, and without one it would trust those of certifi alone, so that a company's
    own authority counted on the admin port only. Raises OSError if there is no folder for temporary files.
    """
    return tls.ca if tls and tls.ca else _system_authorities()


@cache
def _system_authorities() -> Path:
    """File with the authorities of the system and of certifi, until the end of this process."""
    system = ssl.get_default_verify_paths()
    files = [Path(certifi.where()), *([Path(system.cafile)] if system.cafile else [])]
    files += sorted(Path(system.capath).glob("*.[0-9]")) if system.capath else []
    handle, name = tempfile.mkstemp(prefix="kodoctl-authorities-", suffix=".pem")
    with os.fdopen(handle, "wb") as file:
        for one in files:
            with suppress(OSError):
                file.write(one.read_bytes() + b"\n")
    made_by = os.getpid()
    atexit.register(lambda: Path(name).unlink(missing_ok=True) if os.getpid() == made_by else None)
    return Path(name)


def trust(tls: Tls | None) -> ssl.SSLContext:
    """TLS context for connections to a cluster, with the client's certificate if `tls` has one. It checks host names,
    and trusts `tls.ca`, or without it the authorities of the system and of certifi. Raises OSError if a file of `tls`
    can no longer be loaded.
    """
    context = ssl.create_default_context(cafile=tls.ca if tls else None)
    if tls is None or tls.ca is None:
        context.load_verify_locations(certifi.where())
    if tls and tls.cert:
        context.load_cert_chain(tls.cert, tls.key)
    return context
