"""Writes to packages: upload one, mark one with its owner, delete one."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kodoctl.apply.deletes import refuse_stranger
from kodoctl.errors import ClusterError
from kodoctl.protocol.properties import DIGEST_PROPERTY, OWNER_PROPERTY
from kodoctl.pulsar.admin.admin import Admin, must
from kodoctl.pulsar.admin.admin_http import multipart
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError, delete, is_done, poll_until, read_modify_write
from kodoctl.pulsar.inventory.functions import read_functions
from kodoctl.pulsar.inventory.packages import package_path, read_package
from kodoctl.pulsar.values.live_objects import NO_WORKER, NO_WORKER_HERE
from kodoctl.topology.resources import FUNCTION_KINDS, FunctionResource, PackageResource

if TYPE_CHECKING:
    from kodoctl.plan.changes import Delete


def upload_package(admin: Admin, package: PackageResource, owner: str) -> None:
    """Uploads the file of a package once, with the marker `owner`, and then writes its digest, which marks the content
    as complete. If only a part was stored, the part stays, and without a digest no apply takes it for the content.

    Raises WriteFailedError if the file cannot be read or is not the planned one, if somebody made this version since
    the plan, or if the digest is not written; ClusterError if the broker refuses the upload, cannot read the package,
    or does not answer.
    """
    content = _content(package)
    if read_package(admin, package) is not None:
        raise WriteFailedError("somebody made this version since the plan: plan again")
    properties = {OWNER_PROPERTY: owner}
    document = {"description": package.description, "contact": owner, "properties": properties}
    body, kind = multipart({"metadata": json.dumps(document), "file": content})
    # sent once: a broker that got a part of it refuses the version, and only whoever deletes that can send it again
    reply = admin.call("POST", package_path(package), body, content_type=kind)
    must(reply, f"uploading {package.file}")
    _write_properties(admin, package, {**properties, DIGEST_PROPERTY: package.digest})


def mark_package(admin: Admin, package: PackageResource, owner: str, planned: str | None) -> None:
    """Sets the marker of a package to `owner`. `planned`: its marker when the plan was checked, None: it had none.
    Raises WriteFailedError if the package is gone or its marker is neither `planned` nor `owner` now, or if the broker
    refuses the write or does not show it; ClusterError if it cannot be read.
    """

    def check() -> None:
        found = read_package(admin, package)
        if found is None or found.marker not in (planned, owner):
            raise WriteFailedError("it is gone, or somebody made it anew, since the plan: plan again")

    _write_properties(admin, package, {OWNER_PROPERTY: owner}, check)


def delete_package(
    admin: Admin, change: Delete, *, marker: str | None, allowed: bool, unknown: Collection[str] = ()
) -> None:
    """Deletes a package, and waits until it is gone; one that no longer exists is no error. Raises WriteFailedError if
    the package has another marker or other content than planned, if the deletion was not allowed, if a function or
    connector of its namespace names it or cannot be read, or if it is not deleted; ClusterError if it cannot be read,
    or if no broker answers. A function that shows no package is no obstacle.

    Args:
        marker: its marker when the plan was checked; None: it had none.
        allowed: a user allowed the deletion; without it, no package is deleted.
        unknown: reasons why the plan did not know all functions of the namespace. If NO_WORKER_HERE is one of them, a
            broker without a function worker is no obstacle.
    """
    package = change.before
    assert isinstance(package, PackageResource)

    def look() -> Mapping[str, str] | None:
        now = read_package(admin, package)
        if now is None:
            return None
        refuse_stranger(now.marker, marker)
        if now.resource != package:
            raise WriteFailedError("it has other content since the plan: plan again")
        if not allowed:
            raise WriteFailedError("functions may use it, and nobody allowed the deletion: plan again")
        _refuse_use(admin, package, unknown)
        return {}

    delete(admin, package_path(package), look, final=frozenset({404}))
    if not poll_until(lambda: is_done(lambda: read_package(admin, package) is None)):
        raise WriteFailedError("the broker did not delete it")


def _content(package: PackageResource) -> bytes:
    """The content of the file. Raises WriteFailedError if it is not the one that the plan read."""
    from hashlib import sha256

    try:
        content = Path(package.file).read_bytes()
    except OSError as problem:
        raise WriteFailedError(f"{package.file}: {problem.strerror or 'it cannot be read'}") from None
    if sha256(content).hexdigest() != package.digest:
        raise WriteFailedError(f"{package.file} is not the file that was planned: plan again")
    return content


def _write_properties(
    admin: Admin, package: PackageResource, own: Mapping[str, str], check: Callable[[], None] = lambda: None
) -> None:
    """Writes these properties of a package beside its others. `check` is called before each try."""
    path = f"{package_path(package)}/metadata"

    def look() -> Mapping[str, Any] | None:
        check()
        document = must(admin.call("GET", path), f"reading {package.address}")
        present = _properties(document)
        return None if present.items() >= own.items() else {**document, "properties": {**present, **own}}

    read_modify_write(admin, path, look)
    try:
        if not poll_until(lambda: look() is None):
            raise WriteFailedError("written, and the broker does not show it: plan again")
    except ClusterError as problem:
        raise WriteFailedError(f"whether it took effect is not known: {problem.diagnostics[0].detail}") from None


def _properties(document: Mapping[str, object]) -> dict[str, str]:
    found = document.get("properties")
    return found if isinstance(found, dict) else {}


def _refuse_use(admin: Admin, package: PackageResource, unknown: Collection[str]) -> None:
    """Raises WriteFailedError if a function or connector of the namespace uses the package, or one cannot be read. That
    the broker has no function worker is no obstacle if the plan found the same (`unknown`): the deletion was allowed
    with it.
    """
    passed = {NO_WORKER, *{NO_WORKER_HERE}.intersection(unknown)}
    for kind in FUNCTION_KINDS:
        found, unread = read_functions(admin, kind, package.namespace)
        if why := next((why for why in unread.values() if why not in passed), None):
            raise WriteFailedError(f"whether {kind}s use it is not known: {why}")
        resources = [one.resource for one in found if isinstance(one.resource, FunctionResource)]
        if used := [one.address for one in resources if package.is_used_by(one)]:
            raise WriteFailedError(f"{', '.join(used)} would not start any more: delete or update them first")
