"""Pulsar policies as the file writes them: one frozen type for desired and live values.

A policy that is None is not mentioned; `inherit` drops what a default set, so that it is unset on Pulsar. Units and
shapes are Pulsar's (docs/reference/topology.md#topicpolicies); how they travel is
kodoctl.pulsar.inventory.policy_requests' matter.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictInt, StrictStr, TypeAdapter

from kodoctl.text.escaping import one_line
from kodoctl.topology.model.field_types import (
    INHERIT,
    BoundedSeconds,
    Bytes,
    Count,
    DataRate,
    DurationField,
    FileModel,
    MessageBytes,
    MessageRate,
    Milliseconds,
    Minutes,
    NotEmpty,
    OffloadDelay,
    OffloadSeconds,
    OffloadSize,
    OrInherit,
    PositiveInt,
    PositiveNumber,
    QuotaBytes,
    RetentionMinutes,
    RetentionSize,
    Seconds,
    Text,
    optional_like,
    pattern_words,
    wrong_value,
)
from kodoctl.topology.units import UNLIMITED, Duration, Size, Unlimited

OFFLOAD_MEMBERS: Final = {
    "driver": "managedLedgerOffloadDriver",
    "bucket": "managedLedgerOffloadBucket",
    "region": "managedLedgerOffloadRegion",
    "endpoint": "managedLedgerOffloadServiceEndpoint",
    "after_size": "managedLedgerOffloadThresholdInBytes",
    "after": "managedLedgerOffloadThresholdInSeconds",
    "delete_after": "managedLedgerOffloadDeletionLagInMillis",
    "read_first": "managedLedgerOffloadedReadPriority",
}
"""Member of `offload` -> its name in Pulsar."""
OFFLOAD_DEFAULTS: Final[dict[str, Any]] = {
    "offloadersDirectory": "./offloaders",
    "managedLedgerOffloadMaxThreads": 2,
    "managedLedgerOffloadReadThreads": 2,
    "managedLedgerOffloadPrefetchRounds": 1,
    "managedLedgerExtraConfigurations": {},
    "s3ManagedLedgerOffloadMaxBlockSizeInBytes": 64 << 20,
    "s3ManagedLedgerOffloadReadBufferSizeInBytes": 1 << 20,
    "s3ManagedLedgerOffloadRoleSessionName": "pulsar-s3-offload",
    "gcsManagedLedgerOffloadMaxBlockSizeInBytes": 128 << 20,
    "gcsManagedLedgerOffloadReadBufferSizeInBytes": 1 << 20,
}
"""Members that Pulsar adds to each offload policy, whoever set it, under its own names."""
OFFLOAD_SECRETS: Final = frozenset({"s3ManagedLedgerOffloadCredentialId", "s3ManagedLedgerOffloadCredentialSecret"})
OFFLOAD_SETTINGS: Final = (
    *(name for name in OFFLOAD_DEFAULTS if name != "managedLedgerExtraConfigurations"),
    "managedLedgerOffloadMaxBlockSizeInBytes", "managedLedgerOffloadReadBufferSizeInBytes", "s3ManagedLedgerOffloadRegion",
    "s3ManagedLedgerOffloadBucket", "s3ManagedLedgerOffloadServiceEndpoint", "s3ManagedLedgerOffloadRole",
    "gcsManagedLedgerOffloadRegion", "gcsManagedLedgerOffloadBucket", "gcsManagedLedgerOffloadServiceAccountKeyFile",
    "fileSystemProfilePath", "fileSystemURI",
)  # fmt: skip
"""Names of Pulsar 4.2 below `settings`. Pulsar passes over a name that it does not know, without a word."""


def _offload_setting(name: str) -> str:
    own = next((member for member, pulsars in OFFLOAD_MEMBERS.items() if pulsars == name), None)
    if own is not None:
        raise wrong_value(f"write it as `{own}` of `offload`")
    if name in OFFLOAD_SECRETS:
        raise wrong_value("credentials belong to the configuration of the brokers, not in a file")
    if name not in OFFLOAD_SETTINGS:
        known = {one.lower(): one for one in OFFLOAD_SETTINGS}
        near = get_close_matches(name.lower(), known, 1)
        advice = f"did you mean {known[near[0]]}?" if near else f"it knows {', '.join(sorted(OFFLOAD_SETTINGS))}"
        raise wrong_value(f"Pulsar has no such setting, and would pass over it: {advice}")
    return name


def _property_name(name: str) -> str:
    if name.startswith("kodoctl"):
        raise wrong_value("names that begin with kodoctl are those of kodoctl itself")
    return name


_FULL_NAME: Final = "write the topic's full name, persistent://TENANT/NAMESPACE/TOPIC"


def _full_topic(name: str) -> str:
    if not re.fullmatch(_FULL_TOPIC, name):
        raise wrong_value(_FULL_NAME)
    return name


def _filter_name(name: str) -> str:
    if not re.fullmatch(_FILTER_NAME, name):
        raise wrong_value(_ONE_FILTER)
    return name


_FILTER_NAME: Final = r"^[^,\s]+$"
_ONE_FILTER: Final = (
    "write one name in each line of the list: Pulsar keeps the names as one text, with commas between them"
)
FilterName = Annotated[
    Text, AfterValidator(_filter_name), Field(json_schema_extra={**pattern_words(_FILTER_NAME, _ONE_FILTER)})
]
OffloadSetting = Annotated[Text, AfterValidator(_offload_setting)]
PropertyName = Annotated[Text, AfterValidator(_property_name)]
_FULL_TOPIC: Final = r"^persistent://[^/]+/[^/]+/.+$"
FullTopic = Annotated[
    StrictStr, AfterValidator(_full_topic), Field(json_schema_extra={**pattern_words(_FULL_TOPIC, _FULL_NAME)})
]


class PolicyMap(FileModel):
    """A policy with several members. A member left out has its default, mostly None; merging counts only members that
    are set.
    """


class Retention(PolicyMap):
    """Time and size of acknowledged data that is kept. `0s` with `0B` keeps nothing."""

    time: RetentionMinutes | None = None
    """Whole minutes, or unlimited."""
    size: RetentionSize | None = None
    """Whole MiB, or unlimited."""


class BacklogQuota(PolicyMap):
    """Limit of unacknowledged data, and the action beyond it."""

    size: QuotaBytes | None = None
    """Bytes waiting; left out: not set, inherited."""
    time: Seconds | None = None
    """Age of the oldest waiting message; left out: not set, inherited."""
    when_full: Literal["hold_producers", "fail_producers", "evict"] = "hold_producers"
    """hold_producers: sends wait; fail_producers: sends fail; evict: the oldest messages are dropped (lost)."""
    when_old: Literal["hold_producers", "fail_producers", "evict"] | None = None
    """The action beyond `time`; left out: that of `when_full`."""

    @property
    def evicts(self) -> tuple[Size | Unlimited, Duration | Unlimited]:
        """(size, age) beyond which unacknowledged messages are dropped; unlimited if nothing is dropped beyond it."""
        size = self.size if self.when_full == "evict" else None
        age = self.time if (self.when_old or self.when_full) == "evict" else None
        return size or UNLIMITED, age or UNLIMITED


class DispatchRate(PolicyMap):
    """Limit of the rate at which the broker sends messages to consumers."""

    messages: Count = "unlimited"
    """Messages per period."""
    size: Bytes = "unlimited"
    """Bytes per period."""
    period: BoundedSeconds = Field(default=Duration(1000), examples=["1s"])
    """The period the two amounts count in."""
    relative: StrictBool = Field(default=False, examples=[True])
    """Whether the amounts come on top of the rate at which producers publish."""


class PublishRate(PolicyMap):
    """Limit of the rate at which all producers together publish to the topic."""

    messages: MessageRate = "unlimited"
    """Messages per second."""
    size: DataRate = "unlimited"
    """Data per second."""


class SubscribeRate(PolicyMap):
    """Limit of the rate at which one consumer subscribes."""

    subscribes: Count = "unlimited"
    """Subscribe requests per period."""
    period: BoundedSeconds = Field(default=Duration(1000), examples=["30s"])
    """The period the amount counts in."""


class Persistence(PolicyMap):
    """Copies of each entry, and the bookies that store them."""

    ensemble: PositiveInt | None = optional_like(3)
    """Bookies a ledger is spread over."""
    write_quorum: PositiveInt | None = optional_like(3)
    """Copies of each entry."""
    ack_quorum: PositiveInt | None = optional_like(2)
    """Copies confirmed before a send is."""
    mark_delete_rate: PositiveNumber = Field(default=0.0, examples=[1.0])
    """Writes of a cursor's position per second; 0 = the broker's default."""


class InactiveTopic(PolicyMap):
    """Condition under which the broker deletes a topic that nobody uses."""

    delete: Literal["never", "no_subscriptions", "caught_up"] | None = None
    """never, once it has no subscription, or once all subscriptions caught up."""
    after: BoundedSeconds | None = optional_like("1h")
    """How long it must have been inactive (needed unless `never`)."""


class AutoTopicCreation(PolicyMap):
    """Topic that the broker creates if a client names one that does not exist. Writing it allows the creation, as
    `true` does, which creates topics without partitions.
    """

    type: Literal["partitioned", "non-partitioned"] = "partitioned"
    """Kind of topic."""
    partitions: PositiveInt | None = optional_like(4)
    """Number of partitions, for partitioned ones."""


class DelayedDeliveryPolicy(PolicyMap):
    """Whether the broker keeps delayed messages until they are due."""

    enabled: StrictBool = Field(default=True, examples=[True])
    """false: delayed messages are delivered at once."""
    max_delay: Milliseconds = UNLIMITED
    """The longest delay that a producer may ask for."""
    tick: DurationField = Field(default=Duration(1000), examples=["1s"])
    """The precision with which the broker looks for messages that are due."""


class BookieAffinity(PolicyMap):
    """Groups of bookies that store new ledgers. Only a super-user may read and write it."""

    primary: Text | None = optional_like("ssd")
    """Groups that are used first, separated by commas."""
    secondary: Text | None = optional_like("hdd")
    """Groups that are used if the first do not suffice, separated by commas."""


class Offload(PolicyMap):
    """Storage to which the broker moves closed ledgers, and when. Its driver must be installed there, or no topic that
    has the policy is loaded.
    """

    driver: Text | None = optional_like("aws-s3")
    """Name of the driver."""
    bucket: Text | None = optional_like("cold")
    """Bucket of the storage; `filesystem` has none."""
    region: Text | None = optional_like("eu-central-1")
    """Region of the bucket."""
    endpoint: Text | None = optional_like("https://s3.example.org")
    """Address of the storage."""
    after_size: OffloadSize | None = optional_like("10GiB")
    """Data of a topic beyond this size is moved; unlimited: never because of its size."""
    after: OffloadSeconds | None = optional_like("7d")
    """Data is moved once it is so old; unlimited: never because of its age."""
    delete_after: OffloadDelay | None = optional_like("4h")
    """Time after which moved data is deleted from the bookies; unlimited: never."""
    read_first: Literal["bookkeeper", "tiered_storage"] | None = None
    """Copy that is read while both exist."""
    settings: dict[OffloadSetting, Text | StrictInt] | None = optional_like({"fileSystemURI": "hdfs://nodes:9000"})
    """Further settings by Pulsar's names, those of 4.2, without credentials, which belong to the brokers."""


SubscriptionType = Literal["exclusive", "failover", "key_shared", "shared"]
SchemaCompatibility = Literal[
    "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL",
    "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE",
]  # fmt: skip
ClusterList = NotEmpty[Text]


def _not_inherited(value: Any) -> Any:
    if value == INHERIT:
        raise wrong_value(
            "Pulsar cannot unset it: name the clusters, or remove the line, which leaves them as they are"
        )
    return value


NamedClusters = Annotated[ClusterList, BeforeValidator(_not_inherited)]
"""Clusters of a namespace, which always has some."""


class SharedPolicies(FileModel):
    """Policies that exist for a namespace and for a topic."""

    retention: OrInherit[Retention] | None = optional_like({"time": "7d", "size": "20GiB"})
    """How long and how much acknowledged data is kept."""
    backlog_quota: OrInherit[BacklogQuota] | None = optional_like({"size": "5GiB", "when_full": "hold_producers"})
    """How much may wait unacknowledged, and what happens beyond. Must stay below retention."""
    ttl: OrInherit[Seconds] | None = optional_like("unlimited", "14d")
    """Unacknowledged messages older than this are dropped."""
    subscription_expiry: OrInherit[Minutes] | None = optional_like("unlimited")
    """Subscriptions without a consumer for this long are deleted."""
    persistence: OrInherit[Persistence] | None = optional_like({"ensemble": 3, "write_quorum": 3, "ack_quorum": 2})
    """How many bookies keep each entry."""
    deduplication: OrInherit[StrictBool] | None = optional_like(True)
    """Whether the broker drops what a producer sends twice."""
    deduplication_snapshot: OrInherit[Seconds] | None = optional_like("2m")
    """Time between two snapshots of the deduplication state."""
    inactive_topic: OrInherit[InactiveTopic] | None = optional_like({"delete": "never"})
    """When the broker deletes an unused topic."""
    auto_subscription_creation: OrInherit[StrictBool] | None = optional_like(False)
    """Whether a consumer may create its subscription."""
    publish_rate: OrInherit[PublishRate] | None = optional_like({"messages": "1000/s", "size": "10MiB/s"})
    """How fast producers may publish."""
    dispatch_rate: OrInherit[DispatchRate] | None = optional_like({"messages": 1000, "period": "1s"})
    """How fast a topic hands out messages."""
    subscription_dispatch_rate: OrInherit[DispatchRate] | None = optional_like({"messages": 500, "period": "1s"})
    """How fast a subscription is handed messages."""
    subscribe_rate: OrInherit[SubscribeRate] | None = optional_like({"subscribes": 10, "period": "30s"})
    """How often one consumer may subscribe."""
    max_producers: OrInherit[Count] | None = optional_like(100)
    """Producers a topic."""
    max_consumers: OrInherit[Count] | None = optional_like(100)
    """Consumers a topic."""
    max_consumers_per_subscription: OrInherit[Count] | None = optional_like(50)
    """Consumers a subscription."""
    max_subscriptions: OrInherit[Count] | None = optional_like(20)
    """Subscriptions a topic."""
    max_unacked_per_consumer: OrInherit[Count] | None = optional_like(50000)
    """Messages a consumer may hold unacknowledged; beyond, it is handed no more."""
    max_unacked_per_subscription: OrInherit[Count] | None = optional_like(200000)
    """Messages all consumers of a subscription may hold unacknowledged."""
    compaction_threshold: OrInherit[Bytes] | None = optional_like("100MiB")
    """Backlog size that starts compaction; unlimited = never by itself."""
    schema_compatibility: OrInherit[SchemaCompatibility] | None = optional_like("FULL")
    """Which changes of a payload schema the broker accepts."""
    schema_validation: OrInherit[StrictBool] | None = optional_like(False)
    """Whether producers without a schema are refused on a topic that has one."""
    replication: OrInherit[ClusterList] | None = optional_like(["east", "west"])
    """Clusters the messages are replicated to; managed only where named."""
    offload: OrInherit[Offload] | None = optional_like({"driver": "aws-s3", "bucket": "cold", "after_size": "10GiB"})
    """Storage to which the broker moves old data, and when."""
    replicator_dispatch_rate: OrInherit[DispatchRate] | None = optional_like({"messages": 1000, "period": "1s"})
    """How fast messages are sent to each other cluster."""
    subscription_types: OrInherit[NotEmpty[SubscriptionType]] | None = optional_like(["failover", "exclusive"])
    """Types with which clients may subscribe. Of a topic: of its ready topics, because state topics are read as shared."""
    entry_filters: OrInherit[NotEmpty[FilterName]] | None = optional_like(["orders-filter"])
    """Filters of the broker that decide which messages consumers are handed. Each must be installed there."""
    pause_on_ack_state_loss: OrInherit[Literal[True]] | None = optional_like(True)
    """Whether delivery pauses while a subscription has more acknowledged ranges than the broker can store."""


class TopicPolicies(SharedPolicies):
    """Policies of a topic. For an owned topic, one that is not set here (nor inherited by merging) is unset on Pulsar,
    unless it is managed only where named.
    """

    max_message_size: OrInherit[MessageBytes] | None = optional_like("1MiB")
    """Largest message accepted; the broker's own limit is the ceiling."""
    subscription_rates: OrInherit[dict[Text, DispatchRate]] | None = optional_like({"billing": {"messages": 100}})
    """How fast single subscriptions are handed messages, by name; before `subscription_dispatch_rate`."""
    shadow_topics: OrInherit[NotEmpty[FullTopic]] | None = optional_like(["persistent://acme/copies/orders"])
    """Topics that show the messages of the ready topics without storing them again; each exists already."""


class NamespacePolicies(SharedPolicies):
    """Policies of the namespace object. Only the keys named here are managed; one that an earlier apply set and the
    file names no longer is unset, except `replication`, `allowed_clusters` and `bundles`, which Pulsar cannot unset.
    """

    replication: NamedClusters | None = optional_like(["east", "west"])
    """Clusters the messages are replicated to; managed only where named. Pulsar cannot unset them."""
    auto_topic_creation: OrInherit[StrictBool | AutoTopicCreation] | None = optional_like(False)
    """Whether a client may create topics by naming them."""
    max_topics: OrInherit[Count] | None = optional_like(1000)
    """Topics in the namespace (partitions count)."""
    encryption_required: OrInherit[StrictBool] | None = optional_like(False)
    """Whether producers must encrypt."""
    allow_auto_update_schema: OrInherit[StrictBool] | None = optional_like(False)
    """Whether producers may upload new schema versions."""
    delayed_delivery: OrInherit[DelayedDeliveryPolicy] | None = optional_like({"max_delay": "30d"})
    """Whether the broker keeps delayed messages, and how long. There is no such policy of a topic."""
    allowed_clusters: NamedClusters | None = optional_like(["east", "west"])
    """Clusters that topics may be replicated to; managed only where named. It contains those of `replication`."""
    subscription_auth: OrInherit[Literal["none", "prefix"]] | None = optional_like("prefix")
    """prefix: a role may use only subscriptions whose name begins with that of the role."""
    resource_group: OrInherit[Text] | None = optional_like("batch")
    """Group of namespaces with common rates. It must exist."""
    anti_affinity_group: OrInherit[Text] | None = optional_like("payments")
    """Namespaces of one group are placed on different brokers."""
    bookie_affinity: OrInherit[BookieAffinity] | None = optional_like({"primary": "ssd"})
    """Groups of bookies that store new ledgers."""
    metric_properties: OrInherit[NotEmpty[Text]] | None = optional_like(["team"])
    """Topic properties that the broker's metrics have as labels. Pulsar 4.2 and newer."""
    subscription_roles: OrInherit[dict[Text, NotEmpty[Text]]] | None = optional_like({"billing": ["billing-worker"]})
    """Roles that may use a subscription, by its name; any role with `consume` may use one that is not here."""
    properties: OrInherit[dict[PropertyName, StrictStr]] | None = optional_like({"team": "payments"})
    """Properties of the namespace, all but those of kodoctl."""
    bundles: PositiveInt | None = optional_like(16)
    """Bundles that the namespace is created with. Brokers split bundles later, and plans ignore that."""


@dataclass(frozen=True, slots=True)
class DelayedDelivery:
    """The delayed delivery that applies somewhere, by the broker's configuration or by a policy of a namespace or a
    topic. `on`: the broker keeps messages until they are due; `longest`: maximum delay in ms, 0: none. The broker
    closes the connection of a client that asks for a longer one, again and again (docs/explanation/pulsar.md#delays).
    """

    on: bool = True
    longest: int = 0


@dataclass(frozen=True, slots=True)
class Foreign:
    """A live value that a file cannot express; `json`: Pulsar's JSON text. It is never equal to a declared value."""

    json: str

    def __str__(self) -> str:
        return self.json

    @property
    def reason(self) -> str:
        """Why the file format cannot express the value, as text for people."""
        return f"the format cannot express its value {one_line(self.json, 160)}"


PolicyValue = Any  # one of the field types above, or Foreign; never None and never `inherit`
Policies = Mapping[str, PolicyValue]

TOPIC_POLICY_NAMES: Final = tuple(TopicPolicies.model_fields)
NAMESPACE_POLICY_NAMES: Final = tuple(NamespacePolicies.model_fields)
ONLY_WHERE_NAMED: Final = frozenset({"allowed_clusters", "replication"})  # left alone unless declared
AT_CREATION: Final = frozenset({"bundles"})  # cannot be changed later
READY_ONLY: Final = frozenset({"shadow_topics", "subscription_types"})  # of ready topics alone


def is_set(value: object) -> bool:
    """True if a merged value is one to write to Pulsar: neither None (left out) nor `inherit`."""
    return value is not None and value != "inherit"


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    field = (NamespacePolicies if name in NamespacePolicies.model_fields else TopicPolicies).model_fields[name]
    adapter: TypeAdapter[Any] = TypeAdapter(field.annotation)  # type: ignore[arg-type]  # never None: every field is annotated
    return adapter


def to_json(value: PolicyValue) -> Any:
    """A policy value as the file would have it, in plain JSON values; members that are None are left out. A `Foreign`
    value, which no file has, becomes {"foreign": TEXT}.
    """
    if isinstance(value, FileModel):
        return {key: to_json(member) for key, member in value if member is not None}
    if isinstance(value, dict):
        return {key: to_json(member) for key, member in sorted(value.items())}
    if isinstance(value, tuple):
        return [to_json(member) for member in value]
    if isinstance(value, Foreign):
        return {"foreign": value.json}
    return value if type(value) in (bool, int, float, str) else str(value)


def from_json(name: str, value: Any) -> PolicyValue:
    """The inverse of to_json for the policy `name`. Raises pydantic.ValidationError for an invalid value, and KeyError
    for a name that is no policy.
    """
    text = value["foreign"] if isinstance(value, dict) and set(value) == {"foreign"} else None
    # `foreign` may also be the name of a subscription, or of a property of the namespace
    if isinstance(text, str) and (name != "properties" or text.startswith("{")):
        return Foreign(text)
    return _adapter(name).validate_python(value)


def what_is_missing(value: PolicyValue) -> str | None:
    """Returns a short reason why Pulsar cannot keep a merged policy; None if this function finds none. Reasons: a
    member is missing, a member means nothing without or beside another one, only one member of a retention is 0, or the
    rate of a subscription is unlimited. It does not compare the numbers of `persistence`; another lint rule does.
    """
    match value:
        case Retention(time=time, size=size) if time is None or size is None:
            return (
                f"{'time' if time is None else 'size'} is missing: Pulsar keeps both together (`unlimited` is a value)"
            )
        case Retention(time=time, size=size) if (time == 0) != (size == 0):
            return "time and size must both be 0 (keep nothing) or neither: Pulsar refuses one of them alone"
        case BacklogQuota(size=size, time=None, when_old=str()) if size is not None:
            return "`when_old` means nothing without time: remove it"
        case BacklogQuota(size=None, time=None):
            return "size or time is missing"
        case BookieAffinity(primary=None):
            return "primary is missing"
        case Offload(driver=None):
            return "driver is missing"
        case Persistence():
            lacking = [name for name in ("ensemble", "write_quorum", "ack_quorum") if getattr(value, name) is None]
            return f"{', '.join(lacking)} missing" if lacking else None
        case InactiveTopic(delete=None):
            return "delete is missing: never, no_subscriptions or caught_up"
        case InactiveTopic(delete=mode, after=None) if mode != "never":
            return "after is missing: how long the topic must have been inactive"
        case InactiveTopic(delete="never", after=after) if after is not None:
            return "after means nothing with `delete: never`: remove it"
        case dict():
            rates = ((name, rate) for name, rate in value.items() if isinstance(rate, DispatchRate))
            free = next((name for name, rate in rates if rate.messages == rate.size == UNLIMITED), None)
            return free and f"{free}: Pulsar keeps no unlimited rate of one subscription: set messages or size"
        case _:
            return None


def members_of(value: PolicyValue) -> dict[str, Any]:
    """Members of a policy by name: those that are set in a `PolicyMap`, and the entries of a map with names of the
    user's; {} for any other value.
    """
    if isinstance(value, PolicyMap):
        return {name: getattr(value, name) for name in value.model_fields_set}
    return value if isinstance(value, dict) else {}


def merge(below: PolicyValue | None, above: PolicyValue | None) -> PolicyValue | None:
    """`above` over `below`; `below` if `above` is None. Maps merge by the members that are set in them (`members_of`),
    at every depth; any other value of `above` replaces. `delete: never` of an inactive topic drops an `after` from
    below.
    """
    if above is None:
        return below
    if type(above) is not type(below) or not isinstance(above, PolicyMap | dict):
        return above
    members = dict(members_of(below))
    for name, value in members_of(above).items():
        members[name] = merge(members.get(name), value)
    if isinstance(above, dict):
        return members
    if isinstance(above, InactiveTopic) and above.delete == "never" and "after" not in above.model_fields_set:
        members.pop("after", None)  # a time from below means nothing any more, and could not be removed otherwise
    return type(above).model_construct(_fields_set=set(members), **members)
