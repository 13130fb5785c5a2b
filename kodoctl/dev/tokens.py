"""Tokens of an instance with authentication: JWT signed by the instance's own key (HS256), with the role in `sub` and
without an expiry.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import jwt

from kodoctl.dev.dev_errors import failure
from kodoctl.dev.instance import Auth, Folder, Instance
from kodoctl.dev.typed_command import dev_command
from kodoctl.errors import UsageError, error
from kodoctl.host.private_files import make_private, put_in_place, write_private
from kodoctl.pulsar.connection.secret import Secret

ADMIN: Final = "admin"
"""The broker's own role; kodoctl polls with it whether the broker is ready."""
SUPERUSERS: Final = ("applier",)
"""Further roles that may do everything: an apply may create tenants, and only a super-user can."""

_KEY_BYTES: Final = 32
_ROLE_LENGTH: Final = 200


@dataclass(frozen=True, slots=True)
class TokenRole:
    """A role for which `dev up` makes a token. `may`: text about its permissions."""

    name: str
    may: str


ROLES: Final = (
    TokenRole("applier", "super-user: may do everything, tenants included"),
    TokenRole("planner", "nothing by itself; to plan, name it in a tenant's adminRoles"),
    TokenRole("consumer", "nothing by itself; what a topology grants it"),
    TokenRole("producer", "nothing by itself; what a topology grants it"),
)


def ensure_key(folder: Folder) -> bytes:
    """Reads the instance's signing key. If there is none yet, creates it in a file that only the owner may read. Raises
    KodoctlError (K621) if the file is damaged.
    """
    make_private(folder.path)
    if not folder.key.exists():  # another process may make one at the same time: the first one counts
        fresh = folder.key.with_name(f".{folder.key.name}.{os.getpid()}")
        write_private(fresh, secrets.token_bytes(_KEY_BYTES))
        with suppress(FileExistsError):
            put_in_place(fresh, folder.key)
        fresh.unlink(missing_ok=True)
    key = folder.key.read_bytes()
    if len(key) != _KEY_BYTES:
        raise failure(
            "K621", "cannot read instance", "its signing key is damaged; remove it, tokens change", folder.key
        )
    return key


def mint(key: bytes, role: str) -> Secret:
    """Makes a token for any role, without an expiry. Raises UsageError (K622) for a role that is empty, unprintable, or
    longer than 200 characters.
    """
    if not role.strip() or not role.isprintable() or len(role) > _ROLE_LENGTH:
        raise UsageError(
            error("K622", "not a role", f"{role!r}: one line of up to {_ROLE_LENGTH} printable characters")
        )
    return Secret(jwt.encode({"sub": role}, key, algorithm="HS256"))


def token(folder: Folder, instance: Instance, role: str) -> Secret:
    """Makes a token for a role of an instance, and the signing key if that is missing; the token is not stored. Raises
    KodoctlError: K616 if the instance has no authentication, K621 if its key is damaged, K622 for an invalid role.
    """
    if instance.auth is not Auth.TOKEN:
        start = dev_command("up --auth token", instance.name)
        detail = f"anybody may connect to `{instance.name}`; to change that: {dev_command('down', instance.name)}, then {start}"
        raise failure("K616", "no token authentication", detail)
    return mint(ensure_key(folder), role)


def token_file(folder: Folder, role: str) -> Path:
    """Path of the file with the token of a role, which `dev up` writes for `ROLES` and ADMIN."""
    return folder.tokens / role


def write_tokens(folder: Folder) -> None:
    """Writes a private file with a token for each of `ROLES` and for ADMIN; creates the signing key if it is missing."""
    key = ensure_key(folder)
    make_private(folder.tokens)
    for name in (ADMIN, *(role.name for role in ROLES)):
        write_private(token_file(folder, name), mint(key, name).reveal())
