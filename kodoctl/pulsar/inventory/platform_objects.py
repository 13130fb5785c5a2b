"""Reader of the objects of the whole cluster (Pulsar tenants, clusters, resource groups, failure domains, isolation
policies), their form in requests, and their users.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, assert_never

from kodoctl.pulsar.admin.admin import Admin, must, namespace_path, path_part
from kodoctl.pulsar.values.evidence import PlatformUser
from kodoctl.pulsar.values.ledger import read_ledgers
from kodoctl.pulsar.values.live_objects import PlatformFacts
from kodoctl.text.formatting import without_password
from kodoctl.topology.function_settings import HIDDEN
from kodoctl.topology.model.platform import CLUSTER_SETTINGS, NAMES_FILES
from kodoctl.topology.resources import (
    Address,
    ClusterResource,
    FailureDomainResource,
    IsolationPolicyResource,
    PlatformResource,
    ResourceGroupResource,
    TenantResource,
    is_of_platform,
)
from kodoctl.topology.safe_patterns import may_match
from kodoctl.topology.units import Size

if TYPE_CHECKING:
    from kodoctl.topology.names import NamespaceName

Json = dict[str, Any]
_UNLIMITED: Final = -1
_GLOBAL: Final = "global"  # among the names of clusters, and none
_URLS: Final = {
    "service_url": "serviceUrl",
    "service_url_tls": "serviceUrlTls",
    "broker_service_url": "brokerServiceUrl",
    "broker_service_url_tls": "brokerServiceUrlTls",
}


def platform_path(address: Address, cluster: str) -> str:
    """Path of an object of the whole cluster below `/admin/v2/`. `cluster`: name of the local cluster."""
    kind, _, name = address.partition(".")
    return f"{_folders(cluster)[kind]}/{path_part(name)}"


def _folders(cluster: str) -> dict[str, str]:
    """Kind of object -> path of the list of all of them."""
    return {
        "tenant": "tenants",
        "cluster": "clusters",
        "resource_group": "resourcegroups",
        "failure_domain": f"clusters/{path_part(cluster)}/failureDomains",
        "isolation_policy": f"clusters/{path_part(cluster)}/namespaceIsolationPolicies",
    }


def read_platform_object(admin: Admin, cluster: str, address: Address, home: NamespaceName) -> PlatformResource | None:
    """Reads an object of the whole cluster; None if it does not exist. `home`: the namespace that becomes its home.
    Raises AdminError, also if this role may not read it.
    """
    document = read_document(admin, cluster, address)
    return None if document is None else parse(address, home, document)


def list_platform_objects(admin: Admin, cluster: str, home: NamespaceName) -> Iterator[PlatformResource]:
    """Yields all objects of the whole cluster, by kind and name. `home`: the namespace that becomes their home. Raises
    AdminError, also if this role may not read them.
    """
    for kind, folder in _folders(cluster).items():
        reply = admin.call("GET", folder)
        names = () if reply.missing else must(reply, f"listing {folder}")  # 404 if there never was a policy
        for name in sorted(set(names) - ({_GLOBAL} if kind == "cluster" else set())):
            found = read_platform_object(admin, cluster, f"{kind}.{name}", home)
            if found is not None:
                yield found


def read_owners(admin: Admin, namespaces: Iterable[NamespaceName]) -> dict[Address, PlatformFacts]:
    """Address -> owner, for each object of the whole cluster that a ledger in these namespaces lists. A namespace that
    this role may not read is left out. Raises ClusterError.
    """
    found: dict[Address, PlatformFacts] = {}
    for namespace in sorted(namespaces):
        reply = admin.call("GET", namespace_path(namespace))
        dump = {} if reply.missing or reply.forbidden else must(reply, f"reading namespace {namespace}")
        for name, entry in read_ledgers(namespace, dump).items():
            found |= {one: PlatformFacts(name, namespace) for one in entry.owned if is_of_platform(one)}
    return found


def read_document(admin: Admin, cluster: str, address: Address) -> Json | None:
    """The JSON of an object of the whole cluster as Pulsar stores it; None if it does not exist. Raises AdminError."""
    reply = admin.call("GET", platform_path(address, cluster))
    found: Json | None = None if reply.missing else must(reply, f"reading {address}")
    return found


def parse(address: Address, home: NamespaceName | None, document: Json) -> PlatformResource:
    """Converts the JSON of an object of the whole cluster to a resource. Passwords in addresses are left out, and
    authentication parameters of a cluster that may be a secret are HIDDEN. A number that cannot be read becomes -1,
    which no file can declare.
    """
    kind, _, name = address.partition(".")

    def texts(key: str) -> frozenset[str]:
        return frozenset(document.get(key) or ())

    match kind:
        case "tenant":
            return TenantResource(name, texts("allowedClusters"), texts("adminRoles"), home)
        case "cluster":
            urls = {key: without_password(document.get(sent) or "") for key, sent in _URLS.items()}
            return ClusterResource(
                name,
                urls["service_url"],
                urls["service_url_tls"],
                urls["broker_service_url"],
                urls["broker_service_url_tls"],
                home,
                _cluster_settings(document),
            )
        case "resource_group":
            publish, dispatch = (_limits(document, side) for side in ("publish", "dispatch"))
            return ResourceGroupResource(name, publish, dispatch, home)
        case "failure_domain":
            return FailureDomainResource(name, texts("brokers"), home)
        case _:
            rest = (document.get("auto_failover_policy") or {}).get("parameters") or {}
            return IsolationPolicyResource(
                name,
                texts("namespaces"),
                texts("primary"),
                texts("secondary"),
                _number(rest.get("min_limit", 1)),
                _number(rest.get("usage_threshold", 100)),
                home,
            )


def _cluster_settings(document: Json) -> Json:
    """The further settings of a cluster that are set. Parameters of an authentication that may be secret are HIDDEN."""
    found = {
        name: document[name] for name in sorted(CLUSTER_SETTINGS) if document.get(name) not in (None, False, [], "")
    }
    parameters = found.get("authenticationParameters")
    if parameters is not None and not NAMES_FILES.fullmatch(str(parameters)):
        found["authenticationParameters"] = HIDDEN
    if "peerClusterNames" in found:
        found["peerClusterNames"] = sorted(found["peerClusterNames"])
    return found


def _number(stored: object) -> int:
    """A number that Pulsar stores as a text, which it takes unread; -1, which no file can declare, if it is none."""
    try:
        return int(str(stored))
    except ValueError:
        return -1


def _limits(document: Json, side: str) -> dict[str, str]:
    """The limits of a rate that are set; Pulsar stores none as -1, or leaves it out."""
    messages, size = document.get(f"{side}RateInMsgs"), document.get(f"{side}RateInBytes")
    found = {"messages": messages, "size": None if size is None else Size(size)}
    return {name: f"{value}/s" for name, value in found.items() if value is not None and value >= 0}


def request_document(resource: PlatformResource, before: Json) -> Json:
    """The JSON that gives an object the declared settings. `before`: its present JSON, {} for a new object. Members of
    `before` that no file can declare stay. In a cluster, so do addresses and settings that are not declared, and an
    address with a password, if the file declares the same address without it.
    """
    match resource:
        case TenantResource():
            ours: Json = {
                "allowedClusters": sorted(resource.clusters),
                "adminRoles": sorted(resource.admin_roles),
            }
        case ClusterResource():
            values = {sent: getattr(resource, key) for key, sent in _URLS.items()}
            shown = _cluster_settings(before)
            ours = {
                sent: value
                for sent, value in values.items()
                if value and value != without_password(before.get(sent) or "")
            }
            ours |= {name: value for name, value in resource.settings.items() if value != shown.get(name)}
        case ResourceGroupResource():
            ours = {**_rates("publish", resource.publish_rate), **_rates("dispatch", resource.dispatch_rate)}
        case FailureDomainResource():
            ours = {"brokers": sorted(resource.brokers)}
        case IsolationPolicyResource():
            numbers = {
                "min_limit": str(resource.min_available),
                "usage_threshold": str(resource.usage_threshold),
            }
            ours = {
                "namespaces": sorted(resource.namespaces),
                "primary": sorted(resource.primary),
                "secondary": sorted(resource.secondary),
                "auto_failover_policy": {"policy_type": "min_available", "parameters": numbers},
            }
        case _:
            assert_never(resource)
    return {**before, **ours}


def without_addresses(document: Json, names: Iterable[str]) -> Json:
    """The JSON of a cluster without some of its addresses. `names`: those addresses by their keys in a file, such as
    `service_url`.
    """
    gone = {_URLS[name] for name in names}
    return {key: value for key, value in document.items() if key not in gone}


def _rates(side: str, limits: Mapping[str, str]) -> Json:
    messages, size = limits.get("messages"), limits.get("size")
    return {
        f"{side}RateInMsgs": _UNLIMITED if messages is None else int(messages.removesuffix("/s")),
        f"{side}RateInBytes": _UNLIMITED if size is None else int(Size.parse(size.removesuffix("/s"))),
    }


def platform_users(admin: Admin, cluster: str, resource: PlatformResource) -> tuple[PlatformUser, ...]:
    """Reads the users of an object of the whole cluster, sorted: the namespaces of a tenant, of a resource group or of
    an isolation policy; the tenants of a cluster, and the brokers of this one; the running brokers of a failure domain.
    Reads all namespaces of the cluster for a resource group, and lists them for an isolation policy. Raises
    ClusterError.
    """
    return tuple(sorted(_users(admin, cluster, resource), key=lambda user: user.address))


def _users(admin: Admin, cluster: str, resource: PlatformResource) -> Iterator[PlatformUser]:
    match resource:
        case TenantResource(name=name):
            for namespace in _namespaces(admin, name):
                yield PlatformUser(f"namespace.{namespace}", _clusters(_dump(admin, namespace)))
        case ClusterResource(name=name):
            if name == cluster:
                yield PlatformUser("the brokers of this cluster")
            for tenant in _tenants(admin):
                document = read_document(admin, cluster, f"tenant.{tenant}") or {}
                if name in (document.get("allowedClusters") or ()):
                    yield PlatformUser(f"tenant.{tenant}")
        case ResourceGroupResource(name=name):
            for namespace in _all_namespaces(admin):
                if _dump(admin, namespace).get("resource_group_name") == name:
                    yield PlatformUser(f"namespace.{namespace}")
        case FailureDomainResource(brokers=brokers):
            running = must(admin.call("GET", f"brokers/{path_part(cluster)}"), "reading the running brokers")
            yield from (PlatformUser(f"broker {broker}") for broker in brokers & set(running))
        case IsolationPolicyResource(namespaces=patterns):
            for namespace in _all_namespaces(admin):
                if any(may_match(pattern, namespace) for pattern in patterns):
                    yield PlatformUser(f"namespace.{namespace}")
        case _:
            assert_never(resource)


def read_brokers(admin: Admin, cluster: str) -> frozenset[str] | None:
    """The running brokers, as HOST:PORT; None if this role may not list them. Raises AdminError."""
    reply = admin.call("GET", f"brokers/{path_part(cluster)}")
    return None if reply.forbidden else frozenset(must(reply, "reading the running brokers"))


def _tenants(admin: Admin) -> list[str]:
    names: list[str] = must(admin.call("GET", "tenants"), "listing the Pulsar tenants")
    return names


def _namespaces(admin: Admin, tenant: str) -> list[str]:
    reply = admin.call("GET", f"namespaces/{path_part(tenant)}")
    names: list[str] = [] if reply.missing else must(reply, f"listing the namespaces of the Pulsar tenant {tenant}")
    return names


def _all_namespaces(admin: Admin) -> Iterator[str]:
    for tenant in _tenants(admin):
        yield from _namespaces(admin, tenant)


def _dump(admin: Admin, namespace: str) -> Json:
    reply = admin.call("GET", f"namespaces/{namespace}")
    found: Json = {} if reply.missing else must(reply, f"reading namespace {namespace}")
    return found


def _clusters(dump: Json) -> frozenset[str]:
    return frozenset((*(dump.get("replication_clusters") or ()), *(dump.get("allowed_clusters") or ())))
