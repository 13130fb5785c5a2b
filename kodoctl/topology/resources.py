"""Pulsar objects that kodoctl manages, as frozen values: one type for declared and for live objects.

Addresses have the form `kind.name`; they are public (files, plans and `allow_destroy` name objects by them).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from pydantic import StrictBool, StrictInt

from kodoctl.topology.json_forms import NamespaceText, Numbers, PolicyForms, TargetText, TextSet, TopicText
from kodoctl.topology.names import InvalidNameError, NamespaceName, TopicName
from kodoctl.topology.safe_patterns import may_match

Address = str
BUILTIN: Final = "builtin://"  # begins the address of a package that the function worker has
FunctionKind = Literal["function", "sink", "io_source"]
PackageType = Literal["function", "sink", "source"]
_DOMAIN: Final = "persistent://"
_PACKAGE: Final = re.compile("(function|sink|source)://([^/@]+)/([^/@]+)/([^/@]+)@([^/@]+)")
FUNCTION_KINDS: Final[
    Mapping[FunctionKind, str]
] = {  # -> key of the file. Connectors are functions to the worker, with code of Pulsar beside theirs.
    "function": "functions",
    "sink": "sinks",
    "io_source": "io_sources",
}


@dataclass(frozen=True)
class TenantResource:
    """A Pulsar tenant. `home`, as for all objects of the whole cluster: the namespace of the topology that declares the
    object under `platform`. None: a file only creates the tenant if it is absent (`create_tenant`), and nobody owns it.
    Objects that differ in `home` alone are equal.
    """

    kind: Literal["tenant"] = field(default="tenant", kw_only=True, compare=False, repr=False)
    name: str
    clusters: TextSet
    admin_roles: TextSet
    home: NamespaceText | None = field(default=None, compare=False)

    @property
    def address(self) -> Address:
        """Printed name of the resource, `tenant.NAME`."""
        return f"tenant.{self.name}"


@dataclass(frozen=True)
class ClusterResource:
    """A Pulsar cluster that the brokers know by name. A URL that a file leaves out is "", and stays as it is on
    Pulsar. `settings`: further settings by Pulsar's names; those that a file leaves out stay as they are. `home`: as
    for `TenantResource`.
    """

    kind: Literal["cluster"] = field(default="cluster", kw_only=True, compare=False, repr=False)
    name: str
    service_url: str = ""
    service_url_tls: str = ""
    broker_service_url: str = ""
    broker_service_url_tls: str = ""
    home: NamespaceText | None = field(default=None, compare=False)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> Address:
        """Printed name of the resource, `cluster.NAME`."""
        return f"cluster.{self.name}"


@dataclass(frozen=True)
class ResourceGroupResource:
    """Limits that namespaces share. Each rate maps `messages` and `size`, as far as they are limited, to texts."""

    kind: Literal["resource_group"] = field(default="resource_group", kw_only=True, compare=False, repr=False)
    name: str
    publish_rate: Mapping[str, str]
    dispatch_rate: Mapping[str, str]
    home: NamespaceText | None = field(default=None, compare=False)

    @property
    def address(self) -> Address:
        """Printed name of the resource, `resource_group.NAME`."""
        return f"resource_group.{self.name}"


@dataclass(frozen=True)
class FailureDomainResource:
    """Brokers that fail together, as HOST:PORT."""

    kind: Literal["failure_domain"] = field(default="failure_domain", kw_only=True, compare=False, repr=False)
    name: str
    brokers: TextSet
    home: NamespaceText | None = field(default=None, compare=False)

    @property
    def address(self) -> Address:
        """Printed name of the resource, `failure_domain.NAME`."""
        return f"failure_domain.{self.name}"


@dataclass(frozen=True)
class IsolationPolicyResource:
    """Brokers that are kept for some namespaces. `namespaces`, `primary`, `secondary`: regular expressions for
    namespaces and for host names of brokers; `min_available`: secondary brokers help out when fewer primary ones are
    available; `usage_threshold`: percent of load above which a broker does not count as available.
    """

    kind: Literal["isolation_policy"] = field(default="isolation_policy", kw_only=True, compare=False, repr=False)
    name: str
    namespaces: TextSet
    primary: TextSet
    secondary: TextSet
    min_available: StrictInt
    usage_threshold: StrictInt
    home: NamespaceText | None = field(default=None, compare=False)

    @property
    def address(self) -> Address:
        """Printed name of the resource, `isolation_policy.NAME`."""
        return f"isolation_policy.{self.name}"


@dataclass(frozen=True)
class NamespaceResource:
    """A namespace. `managed`: policies that a file names, set or (`inherit`) unset; None: no file owns the namespace
    object, and the topics only need it.
    """

    kind: Literal["namespace"] = field(default="namespace", kw_only=True, compare=False, repr=False)
    name: NamespaceText
    policies: PolicyForms
    managed: TextSet | None = frozenset()

    @property
    def address(self) -> Address:
        """Printed name of the resource, `namespace.TENANT/NAMESPACE`."""
        return f"namespace.{self.name}"


@dataclass(frozen=True)
class TopicResource:
    """A topic and its policies. `partitions`: 0 for a plain topic; `missing`: only of live topics, numbers of
    partitions that its metadata counts and that do not exist.
    """

    kind: Literal["topic"] = field(default="topic", kw_only=True, compare=False, repr=False)
    name: TopicText
    partitions: StrictInt
    policies: PolicyForms
    missing: Numbers = ()

    @property
    def address(self) -> Address:
        """Printed name of the resource, `topic.persistent://TENANT/NAMESPACE/TOPIC`."""
        return topic_address(self.name)


@dataclass(frozen=True)
class SubscriptionResource:
    """A durable subscription on every partition of a topic. `missing_on`, only of live ones: numbers of the existing
    partitions without it. `start` does not count in comparisons: Pulsar does not show it.
    """

    kind: Literal["subscription"] = field(default="subscription", kw_only=True, compare=False, repr=False)
    topic: TopicText
    name: str
    start: Literal["earliest", "latest"] = field(default="earliest", compare=False)
    missing_on: Numbers = ()

    @property
    def address(self) -> Address:
        """Printed name of the resource, `subscription.persistent://TENANT/NAMESPACE/TOPIC/SUBSCRIPTION`."""
        return subscription_address(self.topic, self.name)


@dataclass(frozen=True)
class GrantResource:
    """Actions that a role is allowed at least, on a topic or on a whole namespace."""

    kind: Literal["grant"] = field(default="grant", kw_only=True, compare=False, repr=False)
    target: TargetText
    role: str
    actions: TextSet

    @property
    def address(self) -> Address:
        """Printed name of the resource, `grant.TARGET/ROLE`."""
        return f"grant.{self.target}/{self.role}"


@dataclass(frozen=True)
class SchemaResource:
    """The Avro payload schema of a ready topic, uploaded to Pulsar; `definition` is canonical JSON text."""

    kind: Literal["schema"] = field(default="schema", kw_only=True, compare=False, repr=False)
    topic: TopicText
    type: Literal["AVRO"]
    definition: str

    @property
    def address(self) -> Address:
        """Printed name of the resource, `schema.persistent://TENANT/NAMESPACE/TOPIC`."""
        return f"schema.{self.topic}"


@dataclass(frozen=True)
class PublicationResource:
    """The publication of a source of change data, in the database whose URL is in the variable `database`. `tables`:
    as SCHEMA.TABLE; `via_root`: rows of partitions are published as rows of the partitioned table.
    """

    kind: Literal["publication"] = field(default="publication", kw_only=True, compare=False, repr=False)
    namespace: NamespaceText
    database: str
    name: str
    tables: TextSet
    operations: TextSet
    via_root: StrictBool = True

    @property
    def address(self) -> Address:
        """Printed name of the resource, `publication.TENANT/NAMESPACE/VARIABLE/NAME`."""
        return f"publication.{self.namespace}/{self.database}/{self.name}"


@dataclass(frozen=True)
class SlotResource:
    """The replication slot of a source of change data. The first run of the source creates it, because the snapshot of
    the rows that are there belongs to its creation; an apply only drops it.
    """

    kind: Literal["slot"] = field(default="slot", kw_only=True, compare=False, repr=False)
    namespace: NamespaceText
    database: str
    name: str

    @property
    def address(self) -> Address:
        """Printed name of the resource, `slot.TENANT/NAMESPACE/VARIABLE/NAME`."""
        return f"slot.{self.namespace}/{self.database}/{self.name}"


@dataclass(frozen=True)
class FunctionResource:
    """A Pulsar Function, or a connector of Pulsar IO: a sink reads topics and has no output, an IO source writes to
    one, and has neither inputs nor a subscription. Texts are "" where there is none: `package` of a live function that
    kodoctl did not write, as Pulsar does not show it; `class_name` and `output` of a declared one that leaves them to
    the package, or has none.

    `inputs`: full names of topics, and the pattern of topics, which `pattern` has as well; `config`, `secrets` (names
    -> references) and `settings` (Pulsar's names; of a live one those that a file or the last apply has):
    canonical JSON texts. None leaves these as they are: `secrets`, `cpu` (cores), `memory` and `disk` (bytes), and of a
    sink `retries`, `dead_letter_topic` and `redelivery_delay` (ms).
    """

    kind: FunctionKind = field(default="function", kw_only=True, repr=False)
    namespace: NamespaceText
    name: str
    package: str
    runtime: str
    inputs: TextSet
    subscription: str
    class_name: str = ""
    output: str = ""
    start: Literal["earliest", "latest"] = field(default="earliest", compare=False)
    parallelism: StrictInt = 1
    guarantees: str = "at_least_once"
    config: str = "{}"
    cpu: float | None = None
    memory: StrictInt | None = None
    disk: StrictInt | None = None
    secrets: str | None = None
    retries: StrictInt | None = None
    dead_letter_topic: str | None = None
    redelivery_delay: StrictInt | None = None
    pattern: str = ""
    settings: str = "{}"

    @property
    def address(self) -> Address:
        """Printed name of the resource, `KIND.TENANT/NAMESPACE/NAME`."""
        return f"{self.kind}.{self.namespace}/{self.name}"

    @property
    def topics(self) -> Iterator[TopicName]:
        """Yields the topics that the function names, to read and to write them, with the dead letter topic of a sink,
        sorted by name. Topics that only its pattern matches are left out, and so is a text that has not the form of a
        topic's name.
        """
        return _parsed({*self.inputs - {self.pattern}, self.output, self.dead_letter_topic or ""})

    @property
    def input_topics(self) -> Iterator[TopicName]:
        """Yields the topics that the function names to read them, sorted by name; see `topics`."""
        return _parsed(self.inputs - {self.pattern})

    def may_match(self, topic: TopicName) -> bool:
        """True if the pattern matches the topic, or if only Java can read the pattern; False without a pattern."""
        pattern = self.pattern.removeprefix(_DOMAIN)
        return bool(pattern) and may_match(pattern, topic.full.removeprefix(_DOMAIN))

    def topics_among(self, known: Iterable[TopicName]) -> list[TopicName]:
        """Returns the topics that the function names, and those of `known` that its pattern may match, sorted."""
        return sorted({*self.topics, *(filter(self.may_match, known) if self.pattern else ())})

    def may_read_by(self, subscription: SubscriptionResource) -> bool:
        """True if the function reads by the subscription, whose topic it names or its pattern may match."""
        topic = subscription.topic
        return self.subscription == subscription.name and (topic in self.input_topics or self.may_match(topic))

    @property
    def subscriptions(self) -> Iterator[Address]:
        """Yields the addresses of its subscription on each input, and one with its pattern in place of the topic. The
        subscriptions come and go with the function.
        """
        return (f"subscription.{topic}/{self.subscription}" for topic in self.inputs)


@dataclass(frozen=True)
class PackageResource:
    """One version of a package of the cluster, with code of functions or connectors. Its content never changes.

    `digest`: SHA-256 of the content, "" for a live one that no apply uploaded whole; `file`: path of the content, only
    of a declared one; `description`: of a declared one, written at the upload.
    """

    kind: Literal["package"] = field(default="package", kw_only=True, compare=False, repr=False)
    type: PackageType
    namespace: NamespaceText
    name: str
    version: str
    digest: str = ""
    file: str = field(default="", compare=False)
    description: str = field(default="", compare=False)

    @property
    def url(self) -> str:
        """Name by which functions and connectors take it, `TYPE://TENANT/NAMESPACE/NAME@VERSION`."""
        return f"{self.type}://{self.namespace}/{self.name}@{self.version}"

    def is_used_by(self, function: FunctionResource) -> bool:
        """True if a function or connector names this version, or the package without a version; False if the package
        of the function is not known ("").
        """
        return function.package in (self.url, self.url.rpartition("@")[0])

    @property
    def address(self) -> Address:
        """Printed name of the resource, `package.TYPE://TENANT/NAMESPACE/NAME@VERSION`."""
        return f"package.{self.url}"


DatabaseResource = PublicationResource | SlotResource
PlatformResource = (
    TenantResource | ClusterResource | ResourceGroupResource | FailureDomainResource | IsolationPolicyResource
)
Resource = (
    TenantResource
    | ClusterResource
    | ResourceGroupResource
    | FailureDomainResource
    | IsolationPolicyResource
    | NamespaceResource
    | TopicResource
    | SubscriptionResource
    | GrantResource
    | SchemaResource
    | PublicationResource
    | SlotResource
    | FunctionResource
    | PackageResource
)


def _parsed(names: Iterable[str]) -> Iterator[TopicName]:
    for name in sorted(names):
        with suppress(InvalidNameError):
            yield TopicName.parse(name)


def database_of(address: Address) -> tuple[str, str] | None:
    """(variable with the database's URL, name) of the address of a publication or a slot; None for any other address."""
    kind, _, name = address.partition(".")
    parts = name.split("/")
    return (parts[2], parts[3]) if kind in ("publication", "slot") and len(parts) == 4 else None


def kind_label(kind: str) -> str:
    """The kind of a resource in messages: `io_source` as `IO source`, `failure_domain` as `failure domain`."""
    return "IO source" if kind == "io_source" else kind.replace("_", " ")


def is_function(address: Address) -> bool:
    """True for the address of a function, a sink or an IO source."""
    return address.partition(".")[0] in FUNCTION_KINDS


def is_package(address: Address) -> bool:
    """True for the address of a package."""
    return address.startswith("package.")


def parse_package(url: str) -> PackageResource | None:
    """The package that `TYPE://TENANT/NAMESPACE/NAME@VERSION` names; None for any other text."""
    found = _PACKAGE.fullmatch(url)
    if found is None:
        return None
    kind, tenant, namespace, name, version = found.groups()
    with suppress(InvalidNameError):
        return PackageResource(cast("PackageType", kind), NamespaceName.parse(f"{tenant}/{namespace}"), name, version)
    return None


def variables_of(addresses: Iterable[Address]) -> set[str]:
    """Variables with the URLs of the databases that the publications and slots among these addresses are in."""
    return {place[0] for address in addresses if (place := database_of(address)) is not None}


def slot_of(publication: Address) -> Address:
    """Address of the slot that goes with a publication; "" for the address of any other object."""
    name = publication.removeprefix("publication.")
    return f"slot.{name}" if name != publication else ""


def is_of_platform(address: Address) -> bool:
    """True for the address of an object of the whole cluster, such as a Pulsar tenant, which is in no namespace."""
    return address.partition(".")[0] in ("tenant", "cluster", "resource_group", "failure_domain", "isolation_policy")


def namespace_of_address(address: Address) -> NamespaceName:
    """The namespace that an address names or lies in. Raises InvalidNameError if it has none, such as a tenant's."""
    kind, _, name = address.partition(".")
    if kind == "package":
        if (package := parse_package(name)) is None:
            raise InvalidNameError(f"{address[:200]!r} is no address of a package")
        return package.namespace
    if kind not in ("topic", "subscription", "schema", "grant", "namespace", "publication", "slot", *FUNCTION_KINDS):
        raise InvalidNameError(f"{address[:200]!r} is no address in a namespace")
    parts = name.removeprefix(_DOMAIN).split("/")
    least = 2 if kind == "namespace" else 3
    if len(parts) < least:
        raise InvalidNameError(f"{address[:200]!r} is no address of a {kind}")
    return NamespaceName.parse("/".join(parts[:2]))


def without_gaps(resource: Resource) -> Resource:
    """Returns a live topic or subscription as it is once its missing partitions exist, or have the subscription; other
    resources unchanged.
    """
    match resource:
        case TopicResource():
            return replace(resource, missing=())
        case SubscriptionResource():
            return replace(resource, missing_on=())
        case _:
            return resource


def topic_of_address(address: Address) -> str:
    """Full name of the topic in an address: that of a topic itself, or of its subscription, schema or grant. The result
    for any other address, such as that of a grant on a namespace, names no topic, even if it looks like a short name.
    """
    return "/".join(address.partition(".")[2].split("/")[:5])


def topic_address(name: TopicName) -> Address:
    """The address of a topic."""
    return f"topic.{name.full}"


def subscription_address(topic: TopicName, name: str) -> Address:
    """The address of a subscription."""
    return f"subscription.{topic.full}/{name}"
