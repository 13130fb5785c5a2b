"""Reader of packages: whether the cluster has those that functions and connectors name, and those of a namespace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kodoctl.pulsar.admin.admin import Admin, packages_path
from kodoctl.text.escaping import one_line
from kodoctl.topology.resources import BUILTIN, Address, FunctionKind, FunctionResource

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
    lacks the right for example. Sends one request for each package of the cluster, and one for the builtin packages of
    each kind.
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


def read_packages(admin: Admin, namespace: NamespaceName) -> dict[str, str]:
    """Returns the packages of a namespace, each as printed name -> reason why a topology file cannot declare it.
    Packages that cannot be read have one entry, `namespace.TENANT/NAMESPACE packages`; a cluster without the packages
    service has none. Sends one request for each type.
    """
    found = {}
    for kind in PACKAGE_TYPES:
        reply = admin.call("GET", packages_path(kind, str(namespace)), patient=False)
        if reply.ok and isinstance(reply.data, list):
            for name in reply.data:
                found[f"package.{kind}://{namespace}/{name}"] = "kodoctl uploads no packages: functions name them"
        elif not reply.missing and _NOT_ENABLED not in reply.reason:
            found[f"namespace.{namespace} packages"] = f"they cannot be read: {one_line(str(reply))}"
    return found


def _builtins(admin: Admin, kind: FunctionKind) -> frozenset[str] | None:
    """Names of the builtin packages of a kind; None if they are not known."""
    reply = admin.call("GET", _BUILTINS[kind], patient=False)
    if not reply.ok or not isinstance(reply.data, list):
        return None
    return frozenset(str(one.get("name")) for one in reply.data if isinstance(one, dict))
