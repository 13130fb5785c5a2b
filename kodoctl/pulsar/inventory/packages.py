"""Reader of packages: whether the cluster has those that functions and connectors name, those that files declare or
ledgers list, and all of a namespace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kodoctl.errors import ClusterError, error
from kodoctl.protocol.properties import DIGEST_PROPERTY, OWNER_PROPERTY
from kodoctl.pulsar.admin.admin import Admin, must, packages_path
from kodoctl.pulsar.values.live_objects import LiveObject
from kodoctl.text.escaping import one_line
from kodoctl.topology.resources import BUILTIN, Address, FunctionKind, FunctionResource, PackageResource

if TYPE_CHECKING:
    from kodoctl.topology.names import NamespaceName

PACKAGE_TYPES: Final = ("function", "sink", "source")  # of the cluster; each begins the address of a package
_NOT_ENABLED: Final = "Package Management Service is not enabled"
_BUILTINS: Final[dict[FunctionKind, str]] = {
    "function": "v3/functions/builtins",
    "sink": "v3/sinks/builtinsinks",
    "io_source": "v3/sources/builtinsources",
}


def missing_packages(admin: Admin, functions: Iterable[FunctionResource]) -> dict[Address, str]:
    """Returns the functions and connectors whose package the cluster certainly lacks: address -> text about the
    package. Left out are packages that are a URL, and packages that the cluster may or may not have, because the role
    lacks the right for example. Sends one request for each package in the cluster's own storage that they name, and one
    for the builtin packages of each kind. Raises ClusterError if no broker answers.
    """
    found: dict[Address, str] = {}
    builtins: dict[FunctionKind, frozenset[str] | None] = {}
    missing: dict[str, bool] = {}
    for one in functions:
        kind, _, name = one.package.partition("://")
        if one.package.startswith(BUILTIN):
            if one.kind not in builtins:
                builtins[one.kind] = _builtins(admin, one.kind)
            there = builtins[one.kind]
            if there is not None and name not in there:
                found[one.address] = f"the worker has no {one.package}; it has {', '.join(sorted(there)) or 'none'}"
        elif kind in PACKAGE_TYPES:
            if one.package not in missing:
                full, _, version = name.partition("@")
                path = packages_path(kind, f"{full}/{version or 'latest'}/metadata")
                missing[one.package] = admin.call("GET", path, patient=False).missing
            if missing[one.package]:
                found[one.address] = f"the cluster has no {one.package}"
    return found


def package_path(package: PackageResource) -> str:
    """Path below `/admin/` of a package."""
    return packages_path(package.type, f"{package.namespace}/{package.name}/{package.version}")


def read_package(admin: Admin, package: PackageResource) -> LiveObject | None:
    """Reads a package; None if it does not exist. Its digest is the one that an apply wrote after its upload; "" if
    none did, because Pulsar computes no digest. Raises ClusterError.
    """
    reply = admin.call("GET", f"{package_path(package)}/metadata", patient=False)
    if reply.missing:
        return None
    found = must(reply, f"reading {package.address}")
    if not isinstance(found, dict):
        raise ClusterError(error("K510", "the broker refused a request", f"{reply} without the package"))
    properties = found.get("properties") or {}
    marker, digest = properties.get(OWNER_PROPERTY), str(properties.get(DIGEST_PROPERTY) or "")
    live = replace(package, digest=digest, file="", description="")
    return LiveObject(live, marker if isinstance(marker, str) else None)


def read_named_packages(
    admin: Admin, packages: Iterable[PackageResource]
) -> tuple[list[LiveObject], dict[Address, str]]:
    """Reads these packages. Returns (those that exist, address -> reason for each that cannot be read). Never raises
    ClusterError.
    """
    objects, unread = [], {}
    for package in packages:
        try:
            found = read_package(admin, package)
        except ClusterError as problem:
            unread[package.address] = problem.diagnostics[0].detail.replace("\n", "; ")
        else:
            objects += [found] if found is not None else []
    return objects, unread


def read_packages(admin: Admin, namespace: NamespaceName) -> dict[str, str]:
    """Returns the packages of a namespace, each as printed name -> reason why a topology file cannot declare it.
    Packages that cannot be read have one entry, `namespace.TENANT/NAMESPACE packages`; a cluster without the packages
    service has none. Sends one request for each type. Raises ClusterError if no broker answers.
    """
    found = {}
    for kind in PACKAGE_TYPES:
        reply = admin.call("GET", packages_path(kind, str(namespace)), patient=False)
        if reply.ok and isinstance(reply.data, list):
            for name in reply.data:
                found[f"package.{kind}://{namespace}/{name}"] = (
                    "its content is no file here: functions name it; `packages` takes new versions"
                )
        elif not reply.missing and _NOT_ENABLED not in reply.reason:
            found[f"namespace.{namespace} packages"] = f"they cannot be read: {one_line(str(reply))}"
    return found


def _builtins(admin: Admin, kind: FunctionKind) -> frozenset[str] | None:
    """Names of the builtin packages of a kind; None if they are not known."""
    reply = admin.call("GET", _BUILTINS[kind], patient=False)
    if not reply.ok or not isinstance(reply.data, list):
        return None
    return frozenset(str(one.get("name")) for one in reply.data if isinstance(one, dict))
