"""Objects of the whole cluster in the topology file: Pulsar tenants, clusters, resource groups, failure domains and
isolation policies.
"""

import re
import warnings
from collections.abc import Callable
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field, StrictInt, WithJsonSchema, model_validator

from kodoctl.topology.model.field_types import (
    FileModel,
    NotEmpty,
    PositiveInt,
    Text,
    Words,
    optional_like,
    pattern_words,
    wrong_value,
)
from kodoctl.topology.model.policies import ClusterList, PublishRate

_HTTP: Final = r"^https?://[^@/\s]+$"
_PULSAR: Final = r"^pulsar(\+ssl)?://[^@/\s]+$"


def _pattern(text: str) -> str:
    """The text, if it is a regular expression."""
    try:
        with warnings.catch_warnings(action="ignore"):  # Java's sets in sets are no news to a user
            re.compile(text)
    except (re.error, OverflowError, RecursionError) as problem:
        raise wrong_value(f"{text!r} is no regular expression: {problem}") from None
    return text


def _matches(pattern: str, words: str) -> Callable[[str], str]:
    """A check of the address of a cluster. Its error does not repeat the value, which may contain a password."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise wrong_value(words[0].lower() + words[1:])
        return text

    return check


_HTTP_WORDS: Final = "Should be http://HOST:PORT or https://HOST:PORT, several brokers with commas"
_PULSAR_WORDS: Final = "Should be pulsar://HOST:PORT or pulsar+ssl://HOST:PORT, several brokers with commas"
Pattern = Annotated[Text, AfterValidator(_pattern)]
HttpAddress = Annotated[
    Text,
    AfterValidator(_matches(_HTTP, _HTTP_WORDS)),
    WithJsonSchema({"type": "string", **pattern_words(_HTTP, f"{_HTTP_WORDS}.")}),
]
PulsarAddress = Annotated[
    Text,
    AfterValidator(_matches(_PULSAR, _PULSAR_WORDS)),
    WithJsonSchema({"type": "string", **pattern_words(_PULSAR, f"{_PULSAR_WORDS}.")}),
]
Percentage = Annotated[StrictInt, Field(ge=0, le=100)]


CLUSTER_SETTINGS: Final = frozenset({
    "peerClusterNames", "proxyServiceUrl", "proxyProtocol", "listenerName", "authenticationPlugin",
    "authenticationParameters", "brokerClientTlsEnabled", "tlsAllowInsecureConnection",
    "brokerClientTrustCertsFilePath", "brokerClientCertificateFilePath", "brokerClientKeyFilePath",
    "brokerClientTlsEnabledWithKeyStore", "brokerClientTlsKeyStore", "brokerClientTlsKeyStoreType",
    "brokerClientTlsTrustStore", "brokerClientTlsTrustStoreType", "brokerClientSslFactoryPlugin",
})  # fmt: skip
"""Further settings of a cluster by Pulsar's names. Passwords of key stores, and parameters that may have some, are none."""
NAMES_FILES: Final = re.compile(r"file:///\S+|tlsCertFile:[^,]+,tlsKeyFile:[^,]+")
"""Parameters of an authentication that name files on the brokers, and contain no secret."""


def _cluster_settings(values: dict[str, Any]) -> dict[str, Any]:
    """The settings, if Pulsar has them and none is a secret. The error does not repeat a value."""
    for name, value in values.items():
        if name not in CLUSTER_SETTINGS:
            raise wrong_value(f"{name!r} is not one of {', '.join(sorted(CLUSTER_SETTINGS))}")
        if name == "peerClusterNames":
            if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                raise wrong_value(f"{name} should be a list of clusters")
        elif not isinstance(value, str | bool):
            raise wrong_value(f"{name} should be a text, true or false")
    if not NAMES_FILES.fullmatch(str(values.get("authenticationParameters", "file:///x"))):
        raise wrong_value(
            "authenticationParameters should name files on the brokers, as file:///PATH of a token, or"
            " tlsCertFile:PATH,tlsKeyFile:PATH: a secret does not belong into the file"
        )
    return values


class PlatformTenant(FileModel):
    """A Pulsar tenant, with all of its clusters and admin roles."""

    clusters: ClusterList = Field(examples=[["standalone"]])
    """Clusters that its namespaces may use. A cluster that a namespace uses cannot be taken out."""
    admin_roles: tuple[Words, ...] = Field(default=(), examples=[["shop-admins"]])
    """Roles that administer the tenant; [] for none but the super-users."""


class PulsarCluster(FileModel):
    """A cluster that this one knows by name, to replicate to it. What is left out stays as it is."""

    service_url: HttpAddress | None = optional_like("http://east.example.org:8080")
    """Address of its admin API."""
    service_url_tls: HttpAddress | None = optional_like("https://east.example.org:8443")
    """Address of its admin API with TLS."""
    broker_service_url: PulsarAddress | None = optional_like("pulsar://east.example.org:6650")
    """Address for clients and replicators."""
    broker_service_url_tls: PulsarAddress | None = optional_like("pulsar+ssl://east.example.org:6651")
    """Address for clients and replicators with TLS."""

    settings: Annotated[dict[Text, Any], AfterValidator(_cluster_settings)] = Field(
        default_factory=dict, examples=[{"peerClusterNames": ["west"], "brokerClientTlsEnabled": True}]
    )
    """Peer clusters, proxy, authentication and TLS of the brokers as clients there, by Pulsar's names; left out: as they are."""

    @model_validator(mode="after")
    def _has_addresses(self) -> Self:
        admin, broker = self.service_url or self.service_url_tls, self.broker_service_url or self.broker_service_url_tls
        if not admin or not broker:
            raise wrong_value("needs a `service_url` and a `broker_service_url`, or those with TLS")
        return self


class ResourceGroup(FileModel):
    """Limits that the namespaces with this `resource_group` share. What is left out is unlimited."""

    publish_rate: PublishRate | None = optional_like({"messages": "10000/s", "size": "100MiB/s"})
    """Rate at which all producers together publish."""
    dispatch_rate: PublishRate | None = optional_like({"messages": "20000/s", "size": "200MiB/s"})
    """Rate at which the brokers send messages to all consumers together."""


class FailureDomain(FileModel):
    """Brokers that fail together, such as those of a rack. Namespaces of one anti-affinity group go to different ones."""

    brokers: tuple[Words, ...] = Field(examples=[["broker-1.example.org:8080"]])
    """Its brokers, as HOST:PORT of their admin API; a broker is in one failure domain at most."""


class BrokerIsolation(FileModel):
    """Brokers that are kept for some namespaces. A broker unloads the namespaces whose policy changes: clients reconnect."""

    namespaces: NotEmpty[Pattern] = Field(examples=[["shop/.*"]])
    """Regular expressions for TENANT/NAMESPACE."""
    primary: NotEmpty[Pattern] = Field(examples=[["broker-[12]\\.example\\.org"]])
    """Regular expressions for the host names of the brokers that serve these namespaces, and no others."""
    secondary: tuple[Pattern, ...] = Field(default=(), examples=[["broker-3\\.example\\.org"]])
    """Regular expressions for the host names of the brokers that help out."""
    min_available: PositiveInt = Field(default=1, examples=[1])
    """The secondary brokers help out when fewer primary ones are available."""
    usage_threshold: Percentage = Field(default=100, examples=[80])
    """Load of a broker, in percent, above which it does not count as available."""


class Platform(FileModel):
    """Objects of the whole cluster. Only super-users may read and change them."""

    tenants: dict[Text, PlatformTenant] = Field(
        default_factory=dict, examples=[{"shop": {"clusters": ["standalone"], "admin_roles": ["shop-admins"]}}]
    )
    """Pulsar tenants by name."""
    clusters: dict[Text, PulsarCluster] = Field(
        default_factory=dict,
        examples=[{"east": {"service_url": "http://east:8080", "broker_service_url": "pulsar://east:6650"}}],
    )
    """Pulsar clusters by name."""
    resource_groups: dict[Text, ResourceGroup] = Field(
        default_factory=dict, examples=[{"batch": {"publish_rate": {"messages": "10000/s"}}}]
    )
    """Resource groups by name; `namespace_policies: {resource_group: NAME}` puts a namespace into one."""
    failure_domains: dict[Text, FailureDomain] = Field(
        default_factory=dict, examples=[{"rack-a": {"brokers": ["broker-1:8080"]}}]
    )
    """Failure domains of this cluster, by name."""
    isolation_policies: dict[Text, BrokerIsolation] = Field(
        default_factory=dict, examples=[{"gold": {"namespaces": ["shop/.*"], "primary": ["broker-[12]"]}}]
    )
    """Isolation policies of this cluster, by name."""
