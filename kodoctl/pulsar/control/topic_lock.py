"""Lease of a namespace without the broker's binary port: a lock topic, which only one process can create, with the
holder in its properties.

It has two disadvantages against an exclusive producer (kodoctl.pulsar.control.lease): if the holder dies, somebody has
to break the lease by hand; and there is no journal, because its entries are messages.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kodoctl.errors import ClusterError, LockedError, error
from kodoctl.pulsar.admin.admin import PARTITIONED, Admin, must
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError, delete, write_confirmed
from kodoctl.pulsar.control.control_namespace import control_namespace

if TYPE_CHECKING:
    from kodoctl.topology.names import NamespaceName


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Holder of a lease, for people. `since`: text with the time by the holder's clock and zone, "" if unknown."""

    who: str
    since: str

    def __str__(self) -> str:
        return f"{self.who}{f', since {self.since}' if self.since else ''}"


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock topic that this process created (implements Hold). `token`: distinguishes this lock topic from a later
    one, created after somebody broke this lock.
    """

    admin: Admin
    namespace: NamespaceName
    token: str

    def beat(self) -> None:
        """Reads whether this process still holds the lock. Raises LockedError (it does not), ClusterError."""
        if not self.ours():
            detail = f"{self.namespace}: somebody unlocked it; what was done so far is reported"
            raise LockedError(error("K541", "the lease was lost", detail))

    def write(self, entry: Mapping[str, Any]) -> None:
        """Ignores the entry: there is no journal without the binary port."""

    def note(self, entry: Mapping[str, Any]) -> None:
        """Ignores the entry, like `write`."""

    def settle(self) -> None:
        """Does nothing: no entry waits for a receipt."""

    def close(self) -> None:
        """Deletes the lock topic, unless it is a later one of another process. Never raises ClusterError: if that
        fails, the lock topic remains, and blocks the next apply.
        """
        with contextlib.suppress(ClusterError):  # else it stays, and the next apply reports whose it was
            break_lock(self.admin, self.namespace, self.token)

    def ours(self) -> bool:
        """True if the present lock topic is the one that this process created. Raises ClusterError."""
        return lock_token(self.admin, self.namespace) == self.token


def take_lock(admin: Admin, namespace: NamespaceName, who: str) -> Lock | None:
    """Creates the lock topic of a namespace, and returns the lock; None if there is a lock topic already, whose holder
    may have died. The control namespace must exist. Raises ClusterError.
    """
    lock = Lock(admin, namespace, secrets.token_hex(8))
    properties = {"holder": who, "since": time.strftime("%Y-%m-%d %H:%M:%S %z"), "token": lock.token}
    body = {"partitions": 1, "properties": properties}
    path = f"{_path(namespace)}/partitions"
    try:
        reply = write_confirmed(
            admin, "PUT", path, body, done=lock.ours, content_type=PARTITIONED, final=frozenset({409})
        )
    except WriteFailedError as problem:
        raise ClusterError(error("K542", "the lease could not be taken", f"{namespace}: {problem}")) from None
    return lock if reply is None or reply.ok or lock.ours() else None


def lock_holder(admin: Admin, namespace: NamespaceName) -> LockHolder | None:
    """Holder that the lock topic names; None if there is no lock topic. Raises ClusterError if the cluster gives no
    clear answer.
    """
    found = _properties(admin, namespace)
    return None if found is None else LockHolder(found.get("holder", "an unknown client"), found.get("since", ""))


def lock_token(admin: Admin, namespace: NamespaceName) -> str | None:
    """Token of the lock topic, to pass to `break_lock` ("" for one without a token); None if there is no lock topic.
    Raises ClusterError.
    """
    found = _properties(admin, namespace)
    return None if found is None else found.get("token", "")


def break_lock(admin: Admin, namespace: NamespaceName, token: str) -> None:
    """Deletes the lock topic if it has this token, which is read just before each try, so that a lock created meanwhile
    is not deleted. Does nothing if it has another token or is gone. Raises ClusterError.
    """

    def look() -> dict[str, str] | None:
        return {} if lock_token(admin, namespace) == token else None

    try:
        delete(admin, f"{_path(namespace)}/partitions", look, final=frozenset({404}))
    except WriteFailedError as problem:
        raise ClusterError(error("K542", "the lease could not be taken", f"{namespace}: {problem}")) from None


def _path(namespace: NamespaceName) -> str:
    local = quote(f"lock-{namespace.namespace}", safe="")
    return f"persistent/{control_namespace(namespace.tenant)}/{local}"


def _properties(admin: Admin, namespace: NamespaceName) -> dict[str, str] | None:
    """Properties of the lock topic; None only if the broker says that there is no such topic."""
    reply = admin.call("GET", f"{_path(namespace)}/properties")
    if reply.missing:
        return None
    return must(reply, f"asking who holds the lock of {namespace}") or {}
