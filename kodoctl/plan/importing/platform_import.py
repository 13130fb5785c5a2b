# pure: every branch is tested
"""Import of the objects of the whole cluster as a topology file without topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from kodoctl.plan.field_diff import platform_fields
from kodoctl.plan.importing.import_planner import Import, load_import
from kodoctl.plan.importing.yaml_writer import render
from kodoctl.topology.function_settings import HIDDEN, hidden_names
from kodoctl.topology.model.platform import (
    BrokerIsolation,
    FailureDomain,
    PlatformTenant,
    PulsarCluster,
    ResourceGroup,
)
from kodoctl.topology.names import NamespaceName, why_not_pulsar_name
from kodoctl.topology.resource_json import resource_to_json
from kodoctl.topology.resources import Address, ClusterResource, PlatformResource, TenantResource

if TYPE_CHECKING:
    from kodoctl.topology.model.field_types import FileModel

Json = dict[str, Any]
_ABOUT: Final = ("kind", "name", "home")
_MODELS: Final[Mapping[str, tuple[str, type[FileModel]]]] = {
    "tenant": ("tenants", PlatformTenant),
    "cluster": ("clusters", PulsarCluster),
    "resource_group": ("resource_groups", ResourceGroup),
    "failure_domain": ("failure_domains", FailureDomain),
    "isolation_policy": ("isolation_policies", BrokerIsolation),
}


def import_platform(
    found: Iterable[PlatformResource], owners: Mapping[Address, str], cluster: str, home: NamespaceName, name: str
) -> Import:
    """Returns the file, with the topology `name` in the namespace `home`, for these live objects of the whole cluster.
    Objects that a topology owns, that Pulsar or its brokers write, or that a file cannot declare, are left out with the
    reason, and so are settings that may be secrets; passwords in addresses are left out without one. `owners`: address
    -> text about the topology whose ledger lists it; `cluster`: name of the cluster that was read. Raises KodoctlError
    if the file is not valid, such as by its `name`.
    """
    left_out: dict[str, str] = {}
    platform: Json = {}
    objects = {one.address: one for one in found}
    for address, resource in sorted(objects.items()):
        key, _ = _MODELS[resource.kind]
        if reason := _why_not(resource, owners.get(address), cluster):
            left_out[address] = reason
        else:
            platform.setdefault(key, {})[resource.name] = _settings(resource)
            for hidden in hidden_names(resource.settings) if isinstance(resource, ClusterResource) else ():
                left_out[f"{address} {hidden}"] = "it may be a secret, and stays as it is"
    data: Json = {"version": 1, "name": name, "tenant": home.tenant, "namespace": home.namespace}
    ordered = {key: platform[key] for key, _ in _MODELS.values() if key in platform}
    data |= {"platform": ordered, "topics": {}} if ordered else {"topics": {}}
    expansions, findings = load_import(render(data, {}))
    adopted = sum(len(members) for members in ordered.values())
    for declared in (one for expansion in expansions for one in expansion.frame):
        assert isinstance(declared, PlatformResource)  # the file has no topic, and so no namespace
        assert not platform_fields(declared, objects[declared.address])
    return Import(render(data, left_out, findings), tuple(sorted(left_out.items())), 0, adopted, 0)


def _settings(resource: PlatformResource) -> Json:
    """The settings of an object as a file gives them, without empty ones that a file may leave out."""
    document = resource_to_json(resource)
    if isinstance(resource, ClusterResource):
        document["settings"] = {name: one for name, one in resource.settings.items() if one != HIDDEN}
    required = ("clusters", "brokers", "namespaces", "primary")
    return {key: value for key, value in document.items() if key not in _ABOUT and (value or key in required)}


def _why_not(resource: PlatformResource, owner: str | None, cluster: str) -> str:
    """Reason why a file cannot declare an object, or need not; "" if it can."""
    if owner is not None:
        return f"the topology {owner} owns it"
    if isinstance(resource, TenantResource) and resource.name == "pulsar":
        return "Pulsar's own"
    if resource.address == f"cluster.{cluster}":
        return "this cluster, whose brokers write it"
    if reason := why_not_pulsar_name(resource.name):
        return reason
    _, model = _MODELS[resource.kind]
    try:
        model.model_validate(_settings(resource))
    except ValidationError as problem:
        first = problem.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'its settings'}: {first['msg']}"
    return ""
